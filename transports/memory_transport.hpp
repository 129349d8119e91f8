#pragma once
// What transports over common memory share: the receiver makes the ring of each (source, channel) in memory of its own
// and publishes where it is in its directory; the sender picks it up there. No message is needed to open a link, and
// the data path has no code of the transport's: the executor works on the rings.

#include <atomic>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "transports/transport.hpp"

namespace tamaki {

/// Channels a pair of ranks may use; the numbers of lanes stay below.
inline constexpr int kChannels = 128;

/// An entry of a directory: 0 none yet; else place of the ring (a multiple of 64) plus the flags below, of the receiver.
inline constexpr std::uint64_t kReceiverCanGet = 1;  // the receiver reads the sender's private memory
inline constexpr std::uint64_t kPresent = 2;
using DirectoryEntry = std::atomic<std::uint64_t>;

class MemoryTransport : public Transport {
 public:
  Result<Link*> connect(int peer, int channel) override;
  Status progress() override;

 protected:
  /// One rank of the common memory, as this process sees it. Index = position among those ranks.
  struct Member {
    DirectoryEntry* directory = nullptr;  // of that rank: [source member][channel]
    Bell* bell = nullptr;
  };
  explicit MemoryTransport(const TransportContext& context) : context_(context) {}

  /// `bytes` of zeroed memory that all members reach; the result is its place, a multiple of 64, not 0.
  virtual Result<std::uint64_t> make_ring(std::size_t bytes) = 0;
  virtual std::byte* ring_at(std::uint64_t place) = 0;
  /// Sets the facts of a new link (bell_shared, common_memory, maps_regions, can_get, can_put).
  virtual void describe(Link& link) = 0;

  int member_of(int rank) const { return rank >= 0 && rank < static_cast<int>(member_of_rank_.size()) ? member_of_rank_[rank] : -1; }

  TransportContext context_;
  std::vector<int> member_of_rank_;  // -1: not a member
  std::vector<Member> members_;
  int own_member_ = -1;

 private:
  void try_open(Link& link);
  std::map<std::pair<int, int>, std::unique_ptr<Link>> links_;
  std::vector<Link*> waiting_;
};

}  // namespace tamaki
