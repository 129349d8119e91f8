// Ranks of one host in different processes: rings in one shared segment, single copies between private memory where
// the system allows them, mappings of each other's tmkMemAlloc regions.

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>

#include "base/log.hpp"
#include "base/options.hpp"
#include "base/shared_region.hpp"
#include "transports/memory_transport.hpp"
#include "transports/shm/segment.hpp"
#include "transports/shm/single_copy.hpp"

namespace tamaki {
namespace {

constexpr std::size_t kPage = 4096;
/// Address space of a member's rings (memfd); memory is reserved ring by ring.
constexpr std::size_t kArenaBytes = std::size_t{1} << 30;

std::size_t round_up(std::size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

/// What each rank says of itself before links are made.
struct Introduction {
  std::int32_t pid = 0;
  CopyProbe probe;
};

class ShmTransport final : public MemoryTransport {
 public:
  ShmTransport(const TransportContext& context, const Options& options)
      : MemoryTransport(context), single_copy_(options.single_copy == "auto"), backing_choice_(options.shm_backing) {}

  ~ShmTransport() override {
    for (auto& [key, mapping] : mappings_) unmap_foreign_region(mapping.base, mapping.bytes);
  }

  std::string_view name() const override { return "shm"; }
  Status setup(const Exchange& exchange) override;
  bool reaches(int peer, std::string* why) const override;
  Bell* own_bell() override { return ready_ ? members_[own_member_].bell : nullptr; }

  std::byte* map(Link& link, const MemoryName& name, std::size_t bytes) override;
  Status get(Link& link, std::byte* local, std::uint64_t address, std::size_t bytes) override {
    return copy_from(introductions_[member_of(link.peer)].pid, local, address, bytes);
  }
  Status put(Link& link, const std::byte* local, std::uint64_t address, std::size_t bytes) override {
    return copy_to(introductions_[member_of(link.peer)].pid, local, address, bytes);
  }
  std::vector<std::pair<std::string, std::string>> facts() const override;

 private:
  struct Mapping {
    std::byte* base = nullptr;
    std::size_t bytes = 0;
    std::uint64_t last_use = 0;
  };

  Result<std::uint64_t> make_ring(std::size_t bytes) override;
  std::byte* ring_at(std::uint64_t place) override { return segment_.base() + place; }
  void describe(Link& link) override;

  std::size_t control_bytes() const {
    const std::size_t members = members_.size();
    return kPage + round_up(members * (sizeof(Bell) + members * kChannels * sizeof(DirectoryEntry)));
  }
  void lay_out();
  /// One attempt with one kind of file. Two exchanges. False: not all members have mapped it.
  Result<bool> attempt(Backing backing, const Exchange& exchange);

  Segment segment_;
  bool ready_ = false;
  std::size_t arena_bytes_ = 0;
  std::size_t arena_used_ = 0;
  bool single_copy_;
  std::string backing_choice_;
  std::string trouble_;              // why this host does without shm
  mutable std::string copy_trouble_;  // why single copies are off
  int leader_ = -1;                  // rank
  std::vector<int> ranks_;           // of the members
  std::vector<Introduction> introductions_;
  std::map<std::pair<int, std::uint32_t>, Mapping> mappings_;  // (peer, region)
  std::uint64_t uses_ = 0;
};

void ShmTransport::lay_out() {
  std::byte* at = segment_.base() + kPage;
  const std::size_t members = members_.size();
  for (std::size_t m = 0; m < members; ++m) members_[m].bell = reinterpret_cast<Bell*>(at) + m;
  at += members * sizeof(Bell);
  for (std::size_t m = 0; m < members; ++m)
    members_[m].directory = reinterpret_cast<DirectoryEntry*>(at) + m * members * kChannels;
}

Result<bool> ShmTransport::attempt(Backing backing, const Exchange& exchange) {
  const auto& ranks = context_.ranks;
  const std::size_t members = members_.size();
  const std::size_t ring = round_up(ring_bytes(context_.slot_bytes, context_.depth));
  // /dev/shm is reserved at once. For every pair: the two channels of direct algorithms, messages, set-up of children,
  // comparison of arguments, and one to spare.
  constexpr std::size_t kRingsPerPair = 6;
  if (backing != Backing::none) arena_bytes_ = backing == Backing::memfd ? kArenaBytes : kRingsPerPair * (members - 1) * ring;
  const bool try_it = members > 1 && backing != Backing::none;
  SegmentName name;
  std::string trouble;
  if (try_it && leader_ == context_.rank) {
    const std::size_t total = control_bytes() + members * arena_bytes_;
    Result<Segment> made = Segment::create(backing, total, backing == Backing::memfd ? control_bytes() : total);
    if (made) {
      segment_ = std::move(*made);
      name = segment_.name();
    } else {
      trouble = made.error().message;
    }
  }
  std::vector<SegmentName> names(ranks.size());
  if (Status s = exchange(std::as_bytes(std::span(&name, 1)), std::as_writable_bytes(std::span(names))); !s)
    return pass(std::move(s));
  bool mapped = false;
  if (try_it && names[leader_].backing != Backing::none) {
    if (leader_ != context_.rank) {
      Result<Segment> opened = Segment::open(names[leader_]);
      if (opened) segment_ = std::move(*opened);
      else trouble = opened.error().message;
    }
    mapped = segment_.base() != nullptr;
  } else if (try_it && trouble.empty()) {
    trouble = "the leader, rank " + std::to_string(leader_) + ", could not make it";
  }
  std::vector<std::uint8_t> all_mapped(ranks.size());
  const std::uint8_t mine = mapped ? 1 : 0;
  if (Status s = exchange(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all_mapped))); !s)
    return pass(std::move(s));
  if (!try_it) return false;
  segment_.unlink();
  bool all = true;
  for (int rank : ranks_)
    if (all_mapped[rank] == 0) {
      all = false;
      if (trouble.empty()) trouble = "rank " + std::to_string(rank) + " could not map it";
    }
  if (!all) {
    segment_ = Segment();
    if (!trouble.empty()) trouble_ = trouble;
  }
  return all;
}

Status ShmTransport::setup(const Exchange& exchange) {
  const auto& ranks = context_.ranks;
  member_of_rank_.assign(ranks.size(), -1);
  for (std::size_t r = 0; r < ranks.size(); ++r)
    if (ranks[r].host == ranks[context_.rank].host) {
      member_of_rank_[r] = static_cast<int>(ranks_.size());
      ranks_.push_back(static_cast<int>(r));
    }
  members_.resize(ranks_.size());
  leader_ = ranks_[0];
  own_member_ = member_of_rank_[context_.rank];

  const Introduction mine{context_.ranks[context_.rank].pid, own_copy_probe()};
  std::vector<Introduction> all(ranks.size());
  if (Status s = exchange(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all))); !s) return s;
  for (int rank : ranks_) introductions_.push_back(all[rank]);

  for (const Backing backing : {Backing::memfd, Backing::devshm}) {
    const bool wanted = backing_choice_ == "auto" || (backing_choice_ == "memfd") == (backing == Backing::memfd);
    Result<bool> done = attempt(ready_ || !wanted ? Backing::none : backing, exchange);
    if (!done) return pass(std::move(done));
    if (!*done) continue;
    ready_ = true;
    arena_bytes_ = (segment_.name().bytes - control_bytes()) / members_.size();
    lay_out();
  }
  if (!ready_ && members_.size() > 1 && leader_ == context_.rank)
    log(Level::warn, "ranks of this host talk over another transport, because shared memory failed: " + trouble_);
  return {};
}

bool ShmTransport::reaches(int peer, std::string* why) const {
  if (ready_ && member_of(peer) >= 0) return true;
  if (why != nullptr) *why = member_of(peer) < 0 ? "on another host" : trouble_;
  return false;
}

Result<std::uint64_t> ShmTransport::make_ring(std::size_t bytes) {
  const std::size_t size = round_up(bytes);
  if (arena_used_ + size > arena_bytes_)
    return fail(Code::out_of_memory, "shared memory: rings of rank " + std::to_string(context_.rank) + " need more than " +
                                         std::to_string(arena_bytes_) + " bytes; TAMAKI_SLOT_BYTES makes them smaller", Scope::communicator);
  const std::size_t place = control_bytes() + static_cast<std::size_t>(own_member_) * arena_bytes_ + arena_used_;
  if (segment_.name().backing == Backing::memfd)
    if (Status s = segment_.reserve(place, size); !s) return pass(std::move(s));
  arena_used_ += size;
  return place;
}

void ShmTransport::describe(Link& link) {
  link.bell_shared = true;
  link.maps_regions = true;
  if (!single_copy_) {
    copy_trouble_ = "TAMAKI_SINGLE_COPY=off";
    return;
  }
  const Introduction& peer = introductions_[member_of(link.peer)];
  link.can_get = link.can_put = may_copy(peer.pid, peer.probe, &copy_trouble_);
  if (!link.can_get) log(Level::info, "no single copies with rank " + std::to_string(link.peer) + ": " + copy_trouble_);
}

std::byte* ShmTransport::map(Link& link, const MemoryName& name, std::size_t bytes) {
  if (name.region == 0) return nullptr;
  const auto part_of = [&](Mapping& mapping) {
    mapping.last_use = ++uses_;
    const bool inside = name.offset <= mapping.bytes && bytes <= mapping.bytes - name.offset;
    return inside ? mapping.base + name.offset : nullptr;
  };
  const auto found = mappings_.find({link.peer, name.region});
  if (found != mappings_.end()) return part_of(found->second);
  // Regions of a peer come and go; numbers are never reused, so old mappings are only a matter of memory. A step uses at
  // most one mapping a peer, so what goes here is none that was handed out for the step that is being run.
  if (mappings_.size() >= 64 + 4 * members_.size()) {
    const auto oldest = std::min_element(mappings_.begin(), mappings_.end(),
                                         [](const auto& a, const auto& b) { return a.second.last_use < b.second.last_use; });
    unmap_foreign_region(oldest->second.base, oldest->second.bytes);
    mappings_.erase(oldest);
  }
  Mapping mapping;
  Result<std::byte*> mapped = map_foreign_region(introductions_[member_of(link.peer)].pid, name, &mapping.bytes);
  if (!mapped) {
    log(Level::error, mapped.error().message);
    return nullptr;
  }
  mapping.base = *mapped;
  return part_of(mappings_[{link.peer, name.region}] = mapping);
}

std::vector<std::pair<std::string, std::string>> ShmTransport::facts() const {
  std::vector<std::pair<std::string, std::string>> facts;
  facts.emplace_back("backing", ready_ ? name_of(segment_.name().backing) : trouble_);
  facts.emplace_back("single copy", copy_trouble_.empty() ? "process_vm_readv, process_vm_writev" : copy_trouble_);
  return facts;
}

}  // namespace

Result<std::unique_ptr<Transport>> open_shm(const TransportContext& context) {
  const Result<const Options*> settings = options();
  if (!settings) return tl::unexpected<Error>(settings.error());
  return std::make_unique<ShmTransport>(context, **settings);
}

}  // namespace tamaki
