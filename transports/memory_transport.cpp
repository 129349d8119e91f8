#include "transports/memory_transport.hpp"

#include <string>

namespace tamaki {

Result<Link*> MemoryTransport::connect(int peer, int channel) {
  if (const auto found = links_.find({peer, channel}); found != links_.end()) return found->second.get();
  if (channel < 0 || channel >= kChannels)
    return fail(Code::invalid_usage, "channel " + std::to_string(channel) + " is not in 0.." + std::to_string(kChannels - 1),
                Scope::communicator);
  const int member = member_of(peer);
  if (member < 0 || member == own_member_)
    return fail(Code::internal, "rank " + std::to_string(peer) + " is not reached by " + std::string(name()), Scope::communicator);
  auto link = std::make_unique<Link>();
  link->peer = peer;
  link->channel = channel;
  link->slot_bytes = context_.slot_bytes;
  link->transport = this;
  link->bell = members_[member].bell;
  describe(*link);
  const Result<std::uint64_t> place = make_ring(ring_bytes(context_.slot_bytes, context_.depth));
  if (!place) return tl::unexpected<Error>(place.error());
  link->in = RingEnd(ring_at(*place), context_.slot_bytes, context_.depth, true);
  const std::uint64_t flags = kPresent | (link->can_get ? kReceiverCanGet : 0);
  members_[own_member_].directory[member * kChannels + channel].store(*place | flags, std::memory_order_release);
  link->ring();
  try_open(*link);
  if (!link->open) waiting_.push_back(link.get());
  return (links_[{peer, channel}] = std::move(link)).get();
}

void MemoryTransport::try_open(Link& link) {
  // Pairs with the store in connect() of the peer: the ring is zeroed before its place is published.
  const std::uint64_t entry =
      members_[member_of(link.peer)].directory[own_member_ * kChannels + link.channel].load(std::memory_order_acquire);
  if (entry == 0) return;
  link.out = RingEnd(ring_at(entry & ~std::uint64_t{63}), context_.slot_bytes, context_.depth, true);
  link.peer_can_get = (entry & kReceiverCanGet) != 0;
  link.open = true;
}

Status MemoryTransport::progress() {
  for (std::size_t i = 0; i < waiting_.size();) {
    try_open(*waiting_[i]);
    if (waiting_[i]->open) {
      waiting_[i] = waiting_.back();
      waiting_.pop_back();
    } else {
      ++i;
    }
  }
  return {};
}

}  // namespace tamaki
