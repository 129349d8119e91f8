#include "execute/plan.hpp"

#include <algorithm>
#include <map>
#include <utility>

namespace tamaki {
namespace {

class Compiler {
 public:
  explicit Compiler(const PlanRequest& request) : request_(request), program_(*request.program) {}

  Result<Plan> run() {
    plan_.algorithm = program_.algorithm;
    plan_.title = request_.title;
    plan_.collective = program_.collective;
    plan_.layout = make_layout(program_, request_.shape);
    plan_.element = request_.shape.element;
    plan_.tag = request_.tag;
    plan_.direct = request_.direct;
    plan_.direct_in_place = request_.direct_in_place;
    plan_.dependencies = program_.dependencies;
    if (Status sliced = slice(); !sliced) return pass(std::move(sliced));
    for (std::int32_t l = 0; l < static_cast<std::int32_t>(program_.lanes.size()); ++l) {
      const auto begin = static_cast<std::uint32_t>(plan_.steps.size());
      for (LaneCursor cursor(program_, l); !cursor.done(); cursor.advance())
        if (Status added = add(cursor.current()); !added) return pass(std::move(added));
      plan_.lanes.push_back({begin, static_cast<std::uint32_t>(plan_.steps.size())});
    }
    plan_.scratch_bytes = plan_.layout.scratch_stride * static_cast<std::uint64_t>(program_.scratch_chunks);
    plan_.kernel = reduces(program_.collective) ? reduce_kernel(request_.op.op, request_.op.type) : nullptr;
    plan_.input_bytes = extent(plan_.layout.input);
    plan_.output_bytes = extent(plan_.layout.output);
    plan_.single_copy = !reduces(program_.collective);
    plan_.small = largest_message_ <= kMailboxBytes;
    plan_.stream = plan_.output_bytes + plan_.input_bytes > (std::uint64_t{24} << 20);
    return std::move(plan_);
  }

 private:
  Status slice() {
    const auto width = static_cast<std::uint64_t>(std::max(1, program_.max_width));
    std::uint64_t each = request_.slot_bytes / width / kLine * kLine;
    if (each == 0)
      return fail(Code::invalid_usage, program_.algorithm + " with messages of " + std::to_string(width) +
                                           " chunks does not fit slots of " + std::to_string(request_.slot_bytes) + " bytes");
    plan_.slice_bytes = each;
    plan_.slices = static_cast<std::uint32_t>(std::max<std::uint64_t>(1, (plan_.layout.largest + each - 1) / each));
    return {};
  }

  static std::uint64_t extent(const std::vector<ByteRange>& places) {
    std::uint64_t end = 0;
    for (const ByteRange& place : places) end = std::max(end, place.offset + place.bytes);
    return end;
  }

  std::uint64_t chunk_bytes(const Extent& extent, std::int32_t j) const {
    if (extent.buffer == Buffer::scratch || extent.buffer == Buffer::none) return plan_.layout.largest;
    // A buffer that this rank does not have (a gather's output away from the root) has the sizes of its peers'.
    const auto chunk = static_cast<std::size_t>(extent.chunk + j);
    const std::vector<ByteRange>& own = extent.buffer == Buffer::input ? plan_.layout.input : plan_.layout.output;
    if (chunk < own.size()) return own[chunk].bytes;
    return chunk < plan_.layout.peer_output.size() ? plan_.layout.peer_output[chunk].bytes : plan_.layout.largest;
  }

  Result<std::int32_t> link_number(int peer, int channel) {
    const auto [found, added] = links_.try_emplace({peer, channel}, static_cast<std::int32_t>(plan_.links.size()));
    if (added) {
      Result<Link*> link = request_.connect(peer, channel);
      if (!link) return tl::unexpected<Error>(link.error());
      plan_.links.push_back(*link);
    }
    return found->second;
  }

  std::int32_t peer_number(int peer) {
    const auto [found, added] = peers_.try_emplace(peer, static_cast<std::int32_t>(plan_.peers.size()));
    if (added) plan_.peers.push_back(peer);
    return found->second;
  }

  /// Whether chunks [first, first + width) at `place_of` lie one after the other without gaps, for all slices.
  template <class PlaceOf>
  bool is_contiguous(std::int32_t width, PlaceOf place_of) const {
    if (width == 1) return true;
    if (plan_.slices > 1) return false;
    for (std::int32_t j = 1; j < width; ++j) {
      const ByteRange before = place_of(j - 1), here = place_of(j);
      if (here.bytes != 0 && before.offset + before.bytes != here.offset) return false;
    }
    return true;
  }

  Status add(const ExpandedStep& from) {
    PlanStep step;
    step.first_operand = static_cast<std::uint32_t>(plan_.operands.size());
    step.sources = from.step->sources;
    step.destinations = from.step->destinations;
    step.width = from.step->width;
    step.extent_buffer = from.extent.buffer;
    step.extent_chunk = from.extent.chunk;
    step.first_dependency = static_cast<std::uint32_t>(from.step->first_dependency);
    step.dependencies = from.step->dependencies;
    step.finish = from.step->finish;
    for (std::int32_t j = 0; j < step.width; ++j) step.bytes += chunk_bytes(from.extent, j);
    for (int i = 0; i < step.sources + step.destinations; ++i) {
      const bool source = i < step.sources;
      const Operand& operand = source ? from.sources[i] : from.destinations[i - step.sources];
      PlanOperand made;
      if (operand.kind == Operand::Kind::peer) {
        const Result<std::int32_t> link = link_number(operand.peer, operand.channel);
        if (!link) return tl::unexpected<Error>(link.error());
        made.peer = true;
        made.link = *link;
        made.peer_index = peer_number(operand.peer);
        ++(source ? step.peer_sources : step.peer_destinations);
        const std::vector<ByteRange>& there = plan_.layout.peer_output;
        if (!source && operand.buffer == Buffer::output &&
            static_cast<std::size_t>(operand.chunk + step.width) <= there.size()) {
          made.lands = is_contiguous(step.width, [&](std::int32_t j) { return there[operand.chunk + j]; });
          made.offset = there[operand.chunk].offset;
        }
        largest_message_ = std::max(largest_message_, std::min<std::uint64_t>(step.bytes, plan_.slice_bytes * step.width));
      } else {
        made.buffer = operand.buffer;
        made.chunk = operand.chunk;
        const auto place = [&](std::int32_t j) {
          return plan_.layout.of(operand.buffer, operand.chunk + j, chunk_bytes(from.extent, j));
        };
        made.offset = place(0).offset;
        step.contiguous = step.contiguous && is_contiguous(step.width, place);
        if (source && operand.buffer == Buffer::input) step.raw_source = static_cast<std::int16_t>(i);
      }
      plan_.operands.push_back(made);
    }
    if (!step.contiguous && step.sources + step.destinations > kMostScattered)
      return fail(Code::invalid_usage, program_.algorithm + " has steps of more than " + std::to_string(kMostScattered) +
                                           " operands whose chunks lie apart at this size");
    step.needs_kernel = step.sources > 1 || (reduces(program_.collective) &&
                                             !move_is_copy(request_.op.op, step.finish, step.raw_source >= 0));
    plan_.most_operands = std::max<std::uint32_t>(plan_.most_operands, step.sources + step.destinations);
    plan_.steps.push_back(step);
    return {};
  }

  const PlanRequest& request_;
  const Program& program_;
  Plan plan_;
  std::uint64_t largest_message_ = 0;
  std::map<std::pair<int, int>, std::int32_t> links_;
  std::map<int, std::int32_t> peers_;
};

}  // namespace

Result<Plan> compile_plan(const PlanRequest& request) { return Compiler(request).run(); }

}  // namespace tamaki
