// Ranks that are threads of one process: rings on the heap, pointers valid on both sides. The textbook transport.

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <new>

#include "transports/memory_transport.hpp"

namespace tamaki {
namespace {

/// What the threads of one communicator share. Made by the member with the lowest rank, freed by the last to leave.
struct Hub {
  explicit Hub(int members) : users(members), bells(static_cast<std::size_t>(members)),
                              directory(static_cast<std::size_t>(members) * members * kChannels) {}
  std::atomic<int> users;
  std::vector<Bell> bells;
  std::vector<DirectoryEntry> directory;
};

class InprocTransport final : public MemoryTransport {
 public:
  explicit InprocTransport(const TransportContext& context) : MemoryTransport(context) {}

  ~InprocTransport() override {
    if (hub_ == nullptr) return;
    // Rings are freed by the last user, because peers may still be reading from them.
    if (hub_->users.fetch_sub(1, std::memory_order_acq_rel) > 1) return;
    for (DirectoryEntry& entry : hub_->directory)
      if (const std::uint64_t place = entry.load(std::memory_order_relaxed) & ~std::uint64_t{63}; place != 0)
        std::free(reinterpret_cast<void*>(place));
    delete hub_;
  }

  std::string_view name() const override { return "inproc"; }

  Status setup(const Exchange& exchange) override {
    const auto& ranks = context_.ranks;
    member_of_rank_.assign(ranks.size(), -1);
    int members = 0, leader = -1;
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      if (ranks[r].address_space != ranks[context_.rank].address_space) continue;
      if (leader < 0) leader = static_cast<int>(r);
      member_of_rank_[r] = members++;
    }
    own_member_ = member_of_rank_[context_.rank];
    Hub* hub = leader == context_.rank && members > 1 ? new Hub(members) : nullptr;
    std::vector<Hub*> hubs(ranks.size());
    Status status = exchange(std::as_bytes(std::span(&hub, 1)), std::as_writable_bytes(std::span(hubs)));
    if (!status) {
      delete hub;
      return status;
    }
    if (members < 2) return {};
    hub_ = hubs[leader];
    members_.resize(members);
    for (int m = 0; m < members; ++m)
      members_[m] = {&hub_->directory[static_cast<std::size_t>(m) * members * kChannels], &hub_->bells[m]};
    return {};
  }

  bool reaches(int peer, std::string* why) const override {
    if (hub_ != nullptr && member_of(peer) >= 0) return true;
    if (why != nullptr) *why = "in another process";
    return false;
  }

  Bell* own_bell() override { return hub_ == nullptr ? nullptr : &hub_->bells[own_member_]; }

  std::byte* map(Link&, const MemoryName& name, std::size_t) override { return reinterpret_cast<std::byte*>(name.address); }

 private:
  Result<std::uint64_t> make_ring(std::size_t bytes) override {
    void* ring = std::aligned_alloc(kLine, (bytes + kLine - 1) / kLine * kLine);
    if (ring == nullptr)
      return fail(Code::out_of_memory, "a ring of " + std::to_string(bytes) + " bytes", Scope::communicator);
    std::memset(ring, 0, bytes);
    return reinterpret_cast<std::uint64_t>(ring);
  }
  std::byte* ring_at(std::uint64_t place) override { return reinterpret_cast<std::byte*>(place); }
  void describe(Link& link) override { link.common_memory = true; }

  Hub* hub_ = nullptr;
};

}  // namespace

Result<std::unique_ptr<Transport>> open_inproc(const TransportContext& context) {
  return std::make_unique<InprocTransport>(context);
}

}  // namespace tamaki
