#pragma once
// What travels on the connections of the control plane after authentication, and the shape of the tree.

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "communicator/bootstrap/wire.hpp"
#include "communicator/control.hpp"

namespace tamaki::bootstrap {

/// Payloads in words; integers as in Writer.
enum class FrameType : std::uint32_t {
  enter = 1,    // rank -> rendezvous   rank i32, ranks i32, timeout_ms i32, left_ms i32, holder u8, AddressSet
  welcome,      // rendezvous -> rank   rank of the process that holds the rendezvous i32 (-1: not known yet)
  parent,       // rendezvous -> rank   AddressSet of the parent: all ranks have entered
  joined,       // rank -> rendezvous   this rank's start is complete
  failure,      // any                  see encode_failure
  hello,        // tree, both ways      rank i32, ranks i32, host u64, address_space u64, pid i32, AddressSet
  gather,       // tree, upward         exchange u64, rank u32, the rank's bytes
  result,       // tree, downward       exchange u64, all ranks' bytes
  ready,        // tree, downward       Kin list: everybody is connected
  goodbye,      // tree                 this rank leaves in order; not a failure
  farewell,     // tree                 answer to a goodbye by a rank that stays: it has taken note and needs no more
  departed,     // tree                 (communicator u64, rank i32), any number: who has left what, see Departures
};

/// Fan-out of the tree. Rank r's parent is (r - 1) / kFanOut.
inline constexpr int kFanOut = 8;
constexpr int parent_of(int rank) { return (rank - 1) / kFanOut; }

/// Where another rank listens: those one may attach to when the parent goes, in order.
struct Kin {
  int rank = -1;
  AddressSet addresses;
};

struct Announcement {
  std::uint64_t id = 0;            // each is passed on once
  std::uint64_t communicator = 0;  // 0: the whole job
  Failure failure;
};

inline std::vector<std::byte> encode_failure(const Announcement& a) {
  Writer writer;
  writer.put(a.id).put(a.communicator).put(static_cast<std::int32_t>(a.failure.code));
  writer.put(static_cast<std::int32_t>(a.failure.rank)).put_text(a.failure.message);
  return {writer.bytes().begin(), writer.bytes().end()};
}
inline bool decode_failure(std::span<const std::byte> payload, Announcement* a) {
  Reader reader(payload);
  a->id = reader.get<std::uint64_t>();
  a->communicator = reader.get<std::uint64_t>();
  a->failure.code = static_cast<Code>(reader.get<std::int32_t>());
  a->failure.rank = reader.get<std::int32_t>();
  a->failure.message = reader.get_text();
  return reader.ok();
}

/// "30 s", "1.5 s", "200 ms".
inline std::string duration_text(std::int64_t ms) {
  if (ms < 1000) return std::to_string(ms) + " ms";
  std::string text = std::to_string(ms / 1000);
  if (ms % 1000 >= 100) text += "." + std::to_string(ms % 1000 / 100);
  return text + " s";
}

/// Part of a deadline that whoever knows the cause keeps back, so that its words arrive before the others give up.
constexpr std::int64_t margin_ms(std::int64_t timeout_ms) { return timeout_ms / 10 < 500 ? timeout_ms / 10 : 500; }

/// "rank 3", "ranks 3, 4 and 7", "ranks 1, 2, 3, 4 and 96 others".
inline std::string ranks_text(const std::vector<int>& ranks) {
  if (ranks.size() == 1) return "rank " + std::to_string(ranks[0]);
  constexpr std::size_t kShown = 8;
  const std::size_t shown = ranks.size() <= kShown ? ranks.size() - 1 : kShown;
  std::string text = "ranks ";
  for (std::size_t i = 0; i < shown; ++i) text += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
  return text + " and " + (ranks.size() <= kShown ? std::to_string(ranks.back())
                                                  : std::to_string(ranks.size() - shown) + " others");
}

/// Listeners on the chosen interfaces, on ports that the system chooses, at most AddressSet::kMost.
Result<std::vector<Listener>> open_listeners();
AddressSet addresses_of(const std::vector<Listener>& listeners);

}  // namespace tamaki::bootstrap
