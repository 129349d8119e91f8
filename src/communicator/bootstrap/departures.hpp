#pragma once
// Who has left what: the part of a node's knowledge that answers Control::presence(). Every rank's end
// travels through the tree once; a node keeps what it has heard, to answer its own ranks and to tell those
// that attach to it later.

#include <cstdint>
#include <deque>
#include <set>
#include <span>
#include <tuple>
#include <vector>

#include "communicator/bootstrap/wire.hpp"

namespace tamaki::bootstrap {

struct Departure {
  std::uint64_t communicator = 0;  // 0: the whole job
  int rank = -1;                   // of the job
  bool operator<(const Departure& other) const {
    return std::tie(communicator, rank) < std::tie(other.communicator, other.rank);
  }
};

/// A set. Those of the job all stay (at most one a rank); of single communicators the newest kMost, some 1
/// MiB: programs may make and destroy communicators for ever. A wait for a rank whose departure was
/// forgotten ends at its deadline.
class Departures {
 public:
  static constexpr std::size_t kMost = 1 << 14;

  /// False: known already.
  bool add(const Departure& departure) {
    if (!set_.insert(departure).second) return false;
    if (departure.communicator == 0) return true;
    order_.push_back(departure);
    if (order_.size() > kMost) {
      set_.erase(order_.front());
      order_.pop_front();
    }
    return true;
  }
  bool contains(const Departure& departure) const { return set_.contains(departure); }
  std::vector<Departure> all() const { return {set_.begin(), set_.end()}; }

 private:
  std::set<Departure> set_;
  std::deque<Departure> order_;  // of single communicators, oldest first
};

inline std::vector<std::byte> encode_departures(std::span<const Departure> departures) {
  Writer writer;
  for (const Departure& d : departures) writer.put(d.communicator).put(std::int32_t{d.rank});
  return {writer.bytes().begin(), writer.bytes().end()};
}
inline std::vector<Departure> decode_departures(std::span<const std::byte> payload) {
  std::vector<Departure> departures;
  for (Reader reader(payload); !reader.rest().empty();) {
    Departure d;
    d.communicator = reader.get<std::uint64_t>();
    d.rank = reader.get<std::int32_t>();
    if (!reader.ok()) break;
    departures.push_back(d);
  }
  return departures;
}

}  // namespace tamaki::bootstrap
