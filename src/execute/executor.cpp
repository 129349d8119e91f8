#include "execute/executor.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace tamaki {
namespace {

constexpr std::size_t kMailboxPlace = (kMailboxBytes + kLine - 1) / kLine * kLine;

std::byte* aligned_buffer(std::vector<std::byte>& memory, std::size_t bytes) {
  if (memory.size() < bytes + kLine) memory.resize(bytes + kLine);
  return reinterpret_cast<std::byte*>((reinterpret_cast<std::uintptr_t>(memory.data()) + kLine - 1) / kLine * kLine);
}

}  // namespace

void Workspace::fit(const Plan& plan, std::size_t slot_bytes) {
  const std::size_t operands = std::max<std::size_t>(plan.most_operands, 2);
  sources.resize(std::max(sources.size(), operands));
  destinations.resize(std::max(destinations.size(), operands));
  bool gets = false;
  for (const Link* link : plan.links) gets = gets || link->can_get;
  staging_stride = std::max(staging_stride, gets ? slot_bytes : kMailboxPlace);
  staging = aligned_buffer(staging_memory, staging_stride * sources.size());
  if (scratch != nullptr && plan.scratch_bytes <= scratch_bytes) return;
  std::vector<std::byte> larger;
  std::byte* place = aligned_buffer(larger, plan.scratch_bytes);
  if (scratch_bytes != 0) std::memcpy(place, scratch, scratch_bytes);
  scratch_memory = std::move(larger);  // the memory keeps its address
  scratch = place;
  scratch_bytes = plan.scratch_bytes;
}

void Execution::start(const Plan& plan, const void* input, void* output, const OpContext& op, Workspace& workspace,
                      const ExecutorLimits& limits, bool stream_messages) {
  plan_ = &plan;
  stream_messages_ = stream_messages;
  input_ = static_cast<const std::byte*>(input);
  output_ = static_cast<std::byte*>(output);
  op_ = &op;
  workspace_ = &workspace;
  limits_ = limits;
  lanes_.assign(plan.lanes.size(), LaneState{});
  open_lanes_ = static_cast<std::uint32_t>(plan.lanes.size());
  draining_ = false;
  pulled_any_ = false;
  links_open_ = false;
  if (plan.small) {
    direct_ = false;
    return;
  }
  targets_.resize(std::max<std::size_t>(targets_.size(), plan.most_operands));
  const bool overlap = input_ != nullptr && output_ != nullptr && input_ < output_ + plan.output_bytes &&
                       output_ < input_ + plan.input_bytes;
  direct_ = overlap ? plan.direct_in_place : plan.direct;
  if (direct_) {
    input_name_ = name_memory(input_, plan.input_bytes);
    output_name_ = name_memory(output_, plan.output_bytes);
    peer_outputs_.assign(plan.peers.size(), PeerOutput{});
    pulled_.assign(plan.links.size(), 0);
  }
}

inline std::byte* Execution::base(Buffer buffer) const {
  return buffer == Buffer::input ? const_cast<std::byte*>(input_) : buffer == Buffer::output ? output_ : workspace_->scratch;
}

inline std::byte* Execution::local(const PlanOperand& operand, std::uint32_t slice) const {
  return base(operand.buffer) + operand.offset + slice * plan_->slice_bytes;
}

inline bool Execution::dependencies_met(const PlanStep& step, std::uint32_t slice) const {
  for (std::uint32_t d = 0; d < step.dependencies; ++d) {
    const Dependency& needed = plan_->dependencies[step.first_dependency + d];
    const LaneState& lane = lanes_[needed.lane];
    if (lane.slice < slice || (lane.slice == slice && static_cast<std::int32_t>(lane.step) <= needed.step)) return false;
  }
  return true;
}

std::uint64_t Execution::part_bytes(const PlanStep& step, std::uint32_t slice, std::int32_t piece) const {
  std::uint64_t whole = plan_->layout.largest;
  if (step.width == 1) {
    whole = step.bytes;
  } else if (step.extent_buffer != Buffer::scratch && step.extent_buffer != Buffer::none) {
    const auto chunk = static_cast<std::size_t>(step.extent_chunk + piece);
    const auto& own = step.extent_buffer == Buffer::input ? plan_->layout.input : plan_->layout.output;
    const auto& places = chunk < own.size() ? own : plan_->layout.peer_output;
    if (chunk < places.size()) whole = places[chunk].bytes;
  }
  const std::uint64_t begin = slice * plan_->slice_bytes;
  return begin >= whole ? 0 : std::min(plan_->slice_bytes, whole - begin);
}

inline std::uint64_t Execution::message_bytes(const PlanStep& step, std::uint32_t slice) const {
  if (plan_->slices == 1) return step.bytes;
  if (step.width == 1) return part_bytes(step, slice, 0);
  std::uint64_t total = 0;
  for (std::int32_t j = 0; j < step.width; ++j) total += part_bytes(step, slice, j);
  return total;
}

Execution::Outcome Execution::fail_with(Error error) {
  error_ = std::move(error);
  return Outcome::failed;
}

Error Execution::mismatch(const Link& link) const {
  return {Code::mismatch, Scope::communicator,
          "rank " + std::to_string(link.peer) + " is in another operation, or calls it with other arguments, than this rank's " +
              plan_->title};
}

const std::byte* Execution::open_message(const PlanStep& step, int source, std::uint64_t bytes, std::uint32_t slice,
                                         Outcome* outcome) {
  const PlanOperand& operand = plan_->operands[step.first_operand + source];
  Link& link = *plan_->links[operand.link];
  std::byte* place = workspace_->staging + source * workspace_->staging_stride;
  if (link.in.mailbox && bytes <= kMailboxBytes) {
    if (bytes <= kLineData) return link.in.slot(link.in.next);
    if (link.in.receive_mailbox(place, bytes, plan_->tag)) return place;
    *outcome = Outcome::not_ready;
    return nullptr;
  }
  const SlotHeader* header = link.in.incoming();
  if (header->bytes != bytes) {
    *outcome = fail_with({Code::mismatch, Scope::communicator,
                          "rank " + std::to_string(link.peer) + " sent " + std::to_string(header->bytes) + " bytes where " +
                              std::to_string(bytes) + " were expected in this rank's " + plan_->title});
    return nullptr;
  }
  if (direct_ && header->output.address != 0) peer_outputs_[operand.peer_index] = {true, header->output};
  if (header->kind == MessageKind::slot) return link.in.incoming_payload();
  // A header-only message needs one range on this side too; both ends see the same widths, so it has one.
  const PlanOperand* destinations = plan_->operands.data() + step.first_operand + step.sources;
  const PlanOperand* kept = std::find_if(destinations, destinations + step.destinations, [](const PlanOperand& o) { return !o.peer; });
  const bool keeps = kept != destinations + step.destinations;
  if (header->kind == MessageKind::pushed) return keeps ? local(*kept, slice) : nullptr;
  if (link.common_memory) return reinterpret_cast<const std::byte*>(header->source.address);
  if (header->source.region != 0 && link.maps_regions) {
    if (const std::byte* mapped = link.transport->map(link, header->source, bytes)) return mapped;
    *outcome = fail_with({Code::system, Scope::communicator,
                          "shared memory of rank " + std::to_string(link.peer) + " cannot be mapped"});
    return nullptr;
  }
  // A plain receive copies straight to its place, everything else reduces out of staging while it is in cache.
  if (step.sources == 1 && !step.needs_kernel && keeps && step.contiguous) place = local(*kept, slice);
  if (Status got = link.transport->get(link, place, header->source.address, bytes); !got) {
    *outcome = fail_with(got.error());
    return nullptr;
  }
  return place;
}

/// Decides how each destination of the step is served, and collects the places to write to.
void Execution::choose(const PlanStep& step, std::uint64_t bytes, std::uint32_t slice) {
  const PlanOperand* operands = plan_->operands.data() + step.first_operand;
  const PlanOperand* destinations = operands + step.sources;
  writes_ = 0;
  const PlanOperand* kept = nullptr;
  for (int d = 0; d < step.destinations; ++d)
    if (!destinations[d].peer) {
      workspace_->destinations[writes_++] = local(destinations[d], slice);
      if (kept == nullptr) kept = &destinations[d];
    }
  const bool raw_move = step.sources == 1 && !operands[0].peer && !step.needs_kernel && step.contiguous;
  const bool from_user = raw_move && operands[0].buffer != Buffer::scratch;
  for (int d = 0; d < step.destinations; ++d) {
    const PlanOperand& operand = destinations[d];
    if (!operand.peer) continue;
    Link& link = *plan_->links[operand.link];
    Target& target = targets_[d];
    target = {};
    if (link.out.mailbox && bytes <= kMailboxBytes) {
      target.mailbox = true;  // sent from a local range after computing
      continue;
    }
    if (direct_ && operand.lands && step.contiguous && peer_outputs_[operand.peer_index].known) {
      MemoryName place = peer_outputs_[operand.peer_index].name;
      const std::uint64_t offset = operand.offset + slice * plan_->slice_bytes;
      place.address += offset;
      place.offset += offset;
      if (bytes >= limits_.direct_min) {
        if (link.common_memory) target.write = reinterpret_cast<std::byte*>(place.address);
        else if (link.maps_regions && place.region != 0) target.write = link.transport->map(link, place, bytes);
      }
      if (target.write != nullptr) {
        target.kind = MessageKind::pushed;
        workspace_->destinations[writes_++] = target.write;
        continue;
      }
      if (plan_->single_copy && link.can_put && bytes >= limits_.single_copy_min && (kept != nullptr || raw_move)) {
        target.kind = MessageKind::pushed;
        target.put = true;
        target.remote = place.address;
        continue;
      }
    }
    if (direct_ && from_user) {
      const LocalName& name = operands[0].buffer == Buffer::input ? input_name_ : output_name_;
      const std::uint64_t offset = operands[0].offset + slice * plan_->slice_bytes;
      const bool mapped = link.maps_regions && name.covers(offset, bytes);
      const bool by_loads = bytes >= limits_.direct_min && (link.common_memory || mapped);
      if (by_loads || (plan_->single_copy && link.peer_can_get && bytes >= limits_.single_copy_min)) {
        target.kind = MessageKind::pull;
        target.source = name;
        if (!mapped) target.source.region = 0;  // the peer is to copy, not to map
        target.source.address += offset;
        target.source.offset += offset;
        continue;
      }
    }
    target.write = link.out.payload();
    workspace_->destinations[writes_++] = target.write;
  }
}

/// One pass over memory: sources (workspace) -> all places that choose() collected.
void Execution::compute(const PlanStep& step, std::uint64_t bytes, std::uint32_t slice) {
  const std::byte** sources = workspace_->sources.data();
  std::byte** places = workspace_->destinations.data();
  const bool stream = plan_->stream || (stream_messages_ && step.peer_destinations != 0);
  if (step.contiguous) {
    if (step.needs_kernel) {
      if (writes_ == 0) return;
      plan_->kernel(*op_, {.sources = {sources, step.sources}, .destinations = {places, writes_},
                           .count = bytes / plan_->element, .finish = step.finish, .raw_source = step.raw_source,
                           .stream = stream});
      return;
    }
    std::size_t kept = 0;  // a place that is the source itself needs no copy
    for (std::size_t d = 0; d < writes_; ++d)
      if (places[d] != sources[0]) places[kept++] = places[d];
    if (kept > 0) copy_kernel(sources[0], {places, kept}, bytes, stream);
    return;
  }
  // Chunks that lie apart, piece by piece; messages hold the pieces one after the other.
  const PlanOperand* operands = plan_->operands.data() + step.first_operand;
  std::uint64_t at = 0;
  for (std::int32_t j = 0; j < step.width; ++j) {
    const std::uint64_t part = part_bytes(step, slice, j);
    if (part == 0) continue;
    const auto piece_of = [&](const PlanOperand& operand) {
      return base(operand.buffer) + plan_->layout.of(operand.buffer, operand.chunk + j, 0).offset + slice * plan_->slice_bytes;
    };
    const std::byte* from[kMostScattered];
    std::byte* into[kMostScattered];
    for (int s = 0; s < step.sources; ++s) from[s] = operands[s].peer ? sources[s] + at : piece_of(operands[s]);
    std::size_t writes = 0, peer_place = step.destinations - step.peer_destinations;
    for (int d = 0; d < step.destinations; ++d) {
      const PlanOperand& operand = operands[step.sources + d];
      if (operand.peer && places[peer_place] == nullptr) continue;  // sent straight from the source
      std::byte* place = operand.peer ? places[peer_place++] + at : piece_of(operand);
      if (step.needs_kernel || place != from[0]) into[writes++] = place;
    }
    if (step.needs_kernel && writes > 0)
      plan_->kernel(*op_, {.sources = {from, step.sources}, .destinations = {into, writes}, .count = part / plan_->element,
                           .finish = step.finish, .raw_source = step.raw_source, .stream = false});
    else if (writes > 0)
      copy_kernel(from[0], {into, writes}, part, false);
    at += part;
  }
}

Execution::Outcome Execution::run_step(const PlanStep& step, std::uint32_t slice) {
  const std::uint64_t bytes = message_bytes(step, slice);
  if (bytes == 0) return Outcome::done;
  if (step.dependencies != 0 && !dependencies_met(step, slice)) return Outcome::not_ready;
  const PlanOperand* operands = plan_->operands.data() + step.first_operand;
  const PlanOperand* destinations = operands + step.sources;
  if (step.peer_destinations != 0)
    for (int d = 0; d < step.destinations; ++d)
      if (destinations[d].peer && !plan_->links[destinations[d].link]->out.can_send()) return Outcome::not_ready;
  if (step.peer_sources != 0)
    for (int s = 0; s < step.sources; ++s) {
      if (!operands[s].peer) continue;
      const Link& link = *plan_->links[operands[s].link];
      const RingEnd::Arrival arrival = link.in.arrived(plan_->tag);
      if (arrival == RingEnd::Arrival::none) {
        // The second line of a short message travels while the first is polled, not after it.
        if (bytes > kLineData && bytes <= 2 * kLineData) __builtin_prefetch(link.in.slot(link.in.next) + kLine);
        return Outcome::not_ready;
      }
      if (arrival == RingEnd::Arrival::mismatch) return fail_with(mismatch(link));
    }
  Outcome outcome = Outcome::failed;
  for (int s = 0; s < step.sources; ++s) {
    const std::byte* data = operands[s].peer ? open_message(step, s, bytes, slice, &outcome) : local(operands[s], slice);
    if (data == nullptr) return outcome;
    workspace_->sources[s] = data;
  }
  if (step.peer_destinations == 0) {
    for (int d = 0; d < step.destinations; ++d) workspace_->destinations[d] = local(destinations[d], slice);
    writes_ = step.destinations;
    compute(step, bytes, slice);
  } else if (Outcome sent = send_all(step, bytes, slice); sent != Outcome::done) {
    return sent;
  }
  if (step.peer_sources != 0)
    for (int s = 0; s < step.sources; ++s) {
      if (!operands[s].peer) continue;
      Link& link = *plan_->links[operands[s].link];
      if (link.in.mailbox && bytes <= kMailboxBytes) {
        link.in.release_mailbox();
      } else {
        link.in.release();
        if (link.needs_flush) link.transport->flush(link);
      }
      link.ring();
    }
  return Outcome::done;
}

Execution::Outcome Execution::send_all(const PlanStep& step, std::uint64_t bytes, std::uint32_t slice) {
  const PlanOperand* operands = plan_->operands.data() + step.first_operand;
  const PlanOperand* destinations = operands + step.sources;
  const bool one_range_source = step.sources == 1 && !step.needs_kernel && (step.contiguous || operands[0].peer);
  if (plan_->small || bytes <= kMailboxBytes) {
    // Mailboxes are filled from one range: the source of a move, else a local destination, else staging.
    bool any_slot = false;
    for (int d = 0; d < step.destinations; ++d)
      any_slot = any_slot || (destinations[d].peer && !plan_->links[destinations[d].link]->out.mailbox);
    const std::byte* data = one_range_source ? workspace_->sources[0] : nullptr;
    writes_ = 0;
    for (int d = 0; d < step.destinations; ++d)
      if (!destinations[d].peer) {
        std::byte* place = local(destinations[d], slice);
        workspace_->destinations[writes_++] = place;
        if (data == nullptr && step.contiguous) data = place;
      }
    if (data != nullptr) {
      for (std::uint32_t i = 0; i < step.peer_destinations; ++i) workspace_->destinations[writes_ + i] = nullptr;
    } else {
      // The last staging place is never a source's: a step has at most most_operands - 1 sources.
      std::byte* place = workspace_->staging + (workspace_->sources.size() - 1) * workspace_->staging_stride;
      for (std::uint32_t i = 0; i < step.peer_destinations; ++i) workspace_->destinations[writes_ + i] = place;
      data = place;
      writes_ += step.contiguous ? 1 : step.peer_destinations;
    }
    if (writes_ > 0) compute(step, bytes, slice);
    for (int d = 0; d < step.destinations; ++d) {
      if (!destinations[d].peer) continue;
      Link& link = *plan_->links[destinations[d].link];
      if (link.out.mailbox) {
        link.out.send_mailbox(data, bytes, plan_->tag);
      } else {
        SlotHeader* header = link.out.outgoing();
        header->bytes = static_cast<std::uint32_t>(bytes);
        header->kind = MessageKind::slot;
        header->output = {};
        std::memcpy(link.out.payload(), data, bytes);
        link.out.commit(plan_->tag);
      }
      if (link.needs_flush) link.transport->flush(link);
      link.ring();
    }
    return Outcome::done;
  }
  choose(step, bytes, slice);
  if (writes_ > 0) compute(step, bytes, slice);
  const std::byte* kept = nullptr;
  for (int d = 0; d < step.destinations && kept == nullptr; ++d)
    if (!destinations[d].peer) kept = local(destinations[d], slice);
  if (kept == nullptr) kept = workspace_->sources[0];
  for (int d = 0; d < step.destinations; ++d) {
    if (!destinations[d].peer) continue;
    Link& link = *plan_->links[destinations[d].link];
    const Target& target = targets_[d];
    if (target.put)
      if (Status put = link.transport->put(link, kept, target.remote, bytes); !put) return fail_with(put.error());
    SlotHeader* header = link.out.outgoing();
    header->bytes = static_cast<std::uint32_t>(bytes);
    header->kind = target.kind;
    header->source = target.source;
    header->output = direct_ && output_ != nullptr ? output_name_ : MemoryName{};
    if (target.kind == MessageKind::pull) {
      pulled_[destinations[d].link] = link.out.next;
      pulled_any_ = true;
    }
    link.out.commit(plan_->tag);
    if (link.needs_flush) link.transport->flush(link);
    link.ring();
  }
  return Outcome::done;
}

bool Execution::drained() {
  if (flushes_)
    for (Link* link : plan_->links)
      if (link->needs_flush && !link->out.drained()) return false;
  if (!pulled_any_) return true;
  for (std::size_t l = 0; l < pulled_.size(); ++l) {
    if (pulled_[l] == 0) continue;
    RingEnd& out = plan_->links[l]->out;
    out.credited = out.credit->consumed.load(std::memory_order_acquire);  // pairs with release()
    if (static_cast<std::int32_t>(out.credited - pulled_[l]) < 0) return false;
    pulled_[l] = 0;
  }
  return true;
}

Progress Execution::advance() {
  if (!links_open_) {
    for (Link* link : plan_->links)
      if (!link->open) return Progress::waiting;
    links_open_ = true;
    flushes_ = std::any_of(plan_->links.begin(), plan_->links.end(), [](const Link* link) { return link->needs_flush; });
  }
  bool moved = false;
  if (!draining_) {
    for (std::size_t l = 0; l < lanes_.size(); ++l) {
      LaneState& lane = lanes_[l];
      const Plan::LaneRange range = plan_->lanes[l];
      const std::uint32_t steps = range.end - range.begin;
      if (lane.slice >= plan_->slices) continue;
      while (true) {
        if (lane.step == steps) {
          lane.step = 0;
          if (++lane.slice >= plan_->slices) {
            --open_lanes_;
            break;
          }
          continue;
        }
        const Outcome outcome = run_step(plan_->steps[range.begin + lane.step], lane.slice);
        if (outcome == Outcome::not_ready) break;
        if (outcome == Outcome::failed) return Progress::failed;
        ++lane.step;
        moved = true;
      }
    }
    if (open_lanes_ != 0) return moved ? Progress::moved : Progress::waiting;
    draining_ = true;
  }
  return drained() ? Progress::done : moved ? Progress::moved : Progress::waiting;
}

bool Execution::step_ready(const PlanStep& step, std::uint32_t slice) const {
  if (message_bytes(step, slice) == 0) return true;
  if (!dependencies_met(step, slice)) return false;
  for (int o = 0; o < step.sources + step.destinations; ++o) {
    const PlanOperand& operand = plan_->operands[step.first_operand + o];
    if (!operand.peer) continue;
    Link& link = *plan_->links[operand.link];
    if (o < step.sources ? link.in.arrived(plan_->tag) == RingEnd::Arrival::none : !link.out.can_send()) return false;
  }
  return true;
}

bool Execution::can_move() {
  for (const Link* link : plan_->links)
    if (!link->open) return false;
  if (draining_) return drained();
  for (std::size_t l = 0; l < lanes_.size(); ++l) {
    const LaneState& lane = lanes_[l];
    const Plan::LaneRange range = plan_->lanes[l];
    if (lane.slice >= plan_->slices) continue;
    if (lane.step >= range.end - range.begin || step_ready(plan_->steps[range.begin + lane.step], lane.slice)) return true;
  }
  return false;
}

Execution::Missing Execution::find_missing(bool (*counts)(const Link&, const void*), const void* context) const {
  for (const Link* link : plan_->links)
    if (!link->open && counts(*link, context)) return {Missing::What::connection, link, 0};
  for (std::size_t l = 0; l < pulled_.size() && draining_; ++l)
    if (pulled_any_ && pulled_[l] != 0 && counts(*plan_->links[l], context)) return {Missing::What::reader, plan_->links[l], 0};
  for (std::size_t l = 0; l < lanes_.size(); ++l) {
    const LaneState& lane = lanes_[l];
    const Plan::LaneRange range = plan_->lanes[l];
    if (lane.slice >= plan_->slices || lane.step >= range.end - range.begin) continue;
    const PlanStep& step = plan_->steps[range.begin + lane.step];
    for (int o = 0; o < step.sources + step.destinations; ++o) {
      const PlanOperand& operand = plan_->operands[step.first_operand + o];
      if (!operand.peer) continue;
      Link& link = *plan_->links[operand.link];
      const bool source = o < step.sources;
      if (source ? link.in.arrived(plan_->tag) == RingEnd::Arrival::here : link.out.can_send()) continue;
      if (counts(link, context)) return {source ? Missing::What::message : Missing::What::room, &link, l};
    }
  }
  return {};
}

std::string Execution::text_of(const Missing& missing) const {
  if (missing.link == nullptr) return "another lane of this rank";
  const std::string rank = "rank " + std::to_string(missing.link->peer);
  if (missing.what == Missing::What::connection) return "a connection with " + rank;
  if (missing.what == Missing::What::reader) return rank + " to read this rank's buffer";
  const LaneState& lane = lanes_[missing.lane];
  const Plan::LaneRange range = plan_->lanes[missing.lane];
  return (missing.what == Missing::What::message ? "a message from " : "room for a message to ") + rank + " (lane " +
         std::to_string(missing.lane) + ", step " + std::to_string(lane.step + 1) + " of " +
         std::to_string(range.end - range.begin) + ", slice " + std::to_string(lane.slice + 1) + " of " +
         std::to_string(plan_->slices) + ")";
}

}  // namespace tamaki
