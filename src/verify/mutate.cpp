#include "verify/mutate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <random>

namespace tamaki {
namespace {

constexpr const char* kNames[] = {
    "drop_step",         "duplicate_step",   "swap_steps",   "move_step",     "wrong_peer",
    "wrong_channel",     "wrong_chunk",      "wrong_buffer", "wrong_landing", "drop_operand",
    "duplicate_operand", "swap_operands",    "wrong_width",  "wrong_size",    "toggle_finish",
    "remove_dependency", "wrong_dependency", "garbage"};
static_assert(std::size(kNames) == kMutationKinds);

/// A step by itself. `id` is what dependencies refer to while steps move about.
struct EditStep {
  std::int32_t id = 0;
  std::vector<Operand> sources, destinations;
  std::vector<Dependency> after;
  Step rest;
};
using EditLanes = std::vector<std::vector<EditStep>>;

EditLanes take_apart(const Program& program) {
  EditLanes lanes(program.lanes.size());
  for (std::int32_t l = 0; l < static_cast<std::int32_t>(lanes.size()); ++l)
    for (LaneCursor cursor(program, l); !cursor.done(); cursor.advance()) {
      const ExpandedStep& s = cursor.current();
      EditStep made{.id = s.index, .rest = *s.step};
      made.sources.assign(s.sources, s.sources + s.step->sources);
      made.destinations.assign(s.destinations, s.destinations + s.step->destinations);
      made.rest.extent = s.extent;
      made.rest.extent.stride = 0;
      for (auto* side : {&made.sources, &made.destinations})
        for (Operand& o : *side) o.stride = 0;
      for (int d = 0; d < s.step->dependencies; ++d)
        made.after.push_back(program.dependencies[s.step->first_dependency + d]);
      lanes[l].push_back(std::move(made));
    }
  return lanes;
}

Program put_together(const Program& header, const EditLanes& lanes) {
  Program p = header;
  p.operands.clear();
  p.steps.clear();
  p.dependencies.clear();
  p.lanes.clear();
  for (const auto& lane : lanes) {
    const auto begin = static_cast<std::int32_t>(p.steps.size());
    for (const EditStep& e : lane) {
      Step s = e.rest;
      s.first_operand = static_cast<std::int32_t>(p.operands.size());
      s.sources = static_cast<std::uint16_t>(e.sources.size());
      s.destinations = static_cast<std::uint16_t>(e.destinations.size());
      p.operands.insert(p.operands.end(), e.sources.begin(), e.sources.end());
      p.operands.insert(p.operands.end(), e.destinations.begin(), e.destinations.end());
      s.first_dependency = static_cast<std::int32_t>(p.dependencies.size());
      for (Dependency d : e.after) {
        const auto& other = lanes[d.lane];
        const auto target =
            std::find_if(other.begin(), other.end(), [&](const EditStep& x) { return x.id == d.step; });
        if (target != other.end())
          p.dependencies.push_back({d.lane, static_cast<std::int32_t>(target - other.begin())});
      }
      s.dependencies = static_cast<std::uint16_t>(p.dependencies.size() - s.first_dependency);
      p.steps.push_back(s);
    }
    p.lanes.push_back({});
    if (!lane.empty())
      p.lanes.back().blocks.push_back({begin, static_cast<std::int32_t>(p.steps.size()), 1, 0});
  }
  return p;
}

class Mutator {
 public:
  Mutator(Program* program, MutationKind kind, std::uint64_t seed)
      : program_(*program), kind_(kind), random_(seed) {}

  std::string run() {
    if (kind_ == MutationKind::garbage) return garbage();
    lanes_ = take_apart(program_);
    // A step at which the change is possible; a few tries.
    for (int attempt = 0; attempt < 32; ++attempt) {
      lane_ = below(lanes_.size());
      if (lanes_.empty() || lanes_[lane_].empty()) continue;
      step_ = below(lanes_[lane_].size());
      const std::string place = fmt::format("rank {} lane {} step {}", program_.rank, lane_, step_);
      if (!change()) continue;
      program_ = put_together(program_, lanes_);
      return fmt::format("{}: {}{}", name_of(kind_), place, detail_);
    }
    return {};
  }

 private:
  std::size_t below(std::size_t n) { return n == 0 ? 0 : random_() % n; }
  EditStep& here() { return lanes_[lane_][step_]; }
  std::vector<EditStep>& lane() { return lanes_[lane_]; }

  Operand* pick(bool peer, bool local) {
    std::vector<Operand*> all;
    for (auto* side : {&here().sources, &here().destinations})
      for (Operand& o : *side)
        if (o.kind == Operand::Kind::peer ? peer : local) all.push_back(&o);
    return all.empty() ? nullptr : all[below(all.size())];
  }
  std::int32_t other_than(std::int32_t now, std::int32_t count) {
    if (count < 2) return now;
    const auto n = static_cast<std::int32_t>(below(count - 1));
    return n >= now ? n + 1 : n;
  }

  bool change() {
    switch (kind_) {
      case MutationKind::drop_step:
        lane().erase(lane().begin() + step_);
        return true;
      case MutationKind::duplicate_step: {
        EditStep copy = here();
        copy.id = -1;
        lane().insert(lane().begin() + step_, std::move(copy));
        return true;
      }
      case MutationKind::swap_steps:
        if (step_ + 1 >= lane().size()) return false;
        std::swap(lane()[step_], lane()[step_ + 1]);
        return true;
      case MutationKind::move_step: {
        if (lane().size() < 3) return false;
        EditStep moved = here();
        lane().erase(lane().begin() + step_);
        const std::size_t to = below(lane().size() + 1);
        lane().insert(lane().begin() + to, std::move(moved));
        detail_ = fmt::format(" to {}", to);
        return true;
      }
      case MutationKind::wrong_peer: {
        Operand* o = pick(true, false);
        if (o == nullptr) return false;
        const std::int32_t now = o->peer;
        o->peer = other_than(now, program_.ranks);
        detail_ = fmt::format(" peer {} -> {}", now, o->peer);
        return true;
      }
      case MutationKind::wrong_channel: {
        Operand* o = pick(true, false);
        if (o == nullptr) return false;
        o->channel = static_cast<std::uint16_t>(
            other_than(o->channel, static_cast<std::int32_t>(lanes_.size()) + 1));
        return true;
      }
      case MutationKind::wrong_chunk:
        return wrong_chunk(pick(false, true));
      case MutationKind::wrong_buffer: {
        Operand* o = pick(false, true);
        if (o == nullptr) return false;
        o->buffer = static_cast<Buffer>(other_than(static_cast<int>(o->buffer), 3));
        if (program_.chunks_of(o->buffer) <= o->chunk) o->chunk = 0;
        return true;
      }
      case MutationKind::wrong_landing: {
        if (here().destinations.empty()) return false;
        Operand& o = here().destinations[below(here().destinations.size())];
        if (o.kind != Operand::Kind::peer) return false;
        if (o.buffer == Buffer::none)
          o.buffer = Buffer::output;
        else if (below(2) == 0)
          o.chunk = other_than(o.chunk, program_.chunks_of(Buffer::output));
        else
          o.buffer = Buffer::none, o.chunk = 0;
        return true;
      }
      case MutationKind::drop_operand: {
        auto& side = below(2) == 0 ? here().sources : here().destinations;
        if (side.size() < 2) return false;
        side.erase(side.begin() + below(side.size()));
        return true;
      }
      case MutationKind::duplicate_operand: {
        auto& side = below(2) == 0 ? here().sources : here().destinations;
        const Operand copy = side[below(side.size())];
        side.push_back(copy);
        return true;
      }
      case MutationKind::swap_operands: {
        auto& side = here().sources;
        if (side.size() < 2) return false;
        const std::size_t a = below(side.size() - 1);
        std::swap(side[a], side[a + 1]);
        return true;
      }
      case MutationKind::wrong_width:
        here().rest.width += below(2) == 0 ? 1 : -1;
        return true;
      case MutationKind::wrong_size: {
        Extent& e = here().rest.extent;
        if (below(4) == 0) {
          e.buffer = e.buffer == Buffer::input ? Buffer::output : Buffer::input;
          return true;
        }
        e.chunk = other_than(e.chunk, std::max(program_.chunks_of(e.buffer), 2));
        return true;
      }
      case MutationKind::toggle_finish:
        here().rest.finish = !here().rest.finish;
        return true;
      case MutationKind::remove_dependency:
        if (here().after.empty()) return false;
        here().after.erase(here().after.begin() + below(here().after.size()));
        return true;
      case MutationKind::wrong_dependency: {
        if (here().after.empty()) return false;
        Dependency& d = here().after[below(here().after.size())];
        d.step = other_than(d.step, static_cast<std::int32_t>(lanes_[d.lane].size()));
        return true;
      }
      default:
        return false;
    }
  }

  bool wrong_chunk(Operand* o) {
    if (o == nullptr) return false;
    const std::int32_t now = o->chunk;
    o->chunk = other_than(now, program_.chunks_of(o->buffer));
    detail_ = fmt::format(" chunk {} -> {}", now, o->chunk);
    return o->chunk != now;
  }

  std::int32_t any_number() {
    constexpr std::int32_t kOdd[] = {-1,     0,       1,          2,          3,           7,
                                     0x7fff, 0x10000, 0x7ffffffe, 0x7fffffff, -0x7fffffff, -2};
    return below(3) == 0 ? static_cast<std::int32_t>(random_()) : kOdd[below(std::size(kOdd))];
  }

  std::string garbage() {
    const int what = static_cast<int>(below(8));
    std::string place = "header";
    const auto in = [&](auto& list, const char* name) -> auto* {
      const std::size_t i = below(list.size());
      place = fmt::format("{} {}", name, i);
      return list.empty() ? nullptr : &list[i];
    };
    if (what == 0) {
      std::int32_t* fields[] = {&program_.ranks,  &program_.rank,           &program_.root,
                                &program_.chunks, &program_.scratch_chunks, &program_.max_width};
      *fields[below(6)] = any_number();
      if (below(6) == 0) program_.collective = static_cast<Collective>(random_() % 256);
    } else if (what <= 3) {
      Operand* o = in(program_.operands, "operand");
      if (o == nullptr) return {};
      switch (below(6)) {
        case 0:
          o->kind = static_cast<Operand::Kind>(random_() % 256);
          break;
        case 1:
          o->buffer = static_cast<Buffer>(random_() % 256);
          break;
        case 2:
          o->channel = static_cast<std::uint16_t>(any_number());
          break;
        case 3:
          o->peer = any_number();
          break;
        case 4:
          o->chunk = any_number();
          break;
        default:
          o->stride = any_number();
      }
    } else if (what <= 5) {
      Step* s = in(program_.steps, "step");
      if (s == nullptr) return {};
      switch (below(8)) {
        case 0:
          s->first_operand = any_number();
          break;
        case 1:
          s->sources = static_cast<std::uint16_t>(any_number());
          break;
        case 2:
          s->destinations = static_cast<std::uint16_t>(any_number());
          break;
        case 3:
          s->width = any_number();
          break;
        case 4:
          s->extent.chunk = any_number();
          break;
        case 5:
          s->extent.stride = any_number();
          break;
        case 6:
          s->first_dependency = any_number();
          break;
        default:
          s->dependencies = static_cast<std::uint16_t>(any_number());
      }
    } else if (what == 6) {
      Lane* lane = in(program_.lanes, "lane");
      if (lane == nullptr || lane->blocks.empty()) return {};
      Block& block = lane->blocks[below(lane->blocks.size())];
      std::int32_t* fields[] = {&block.begin, &block.end, &block.times, &block.modulus};
      *fields[below(4)] = any_number();
    } else {
      Dependency* d = in(program_.dependencies, "dependency");
      if (d == nullptr) return {};
      (below(2) == 0 ? d->lane : d->step) = any_number();
    }
    return fmt::format("garbage: rank {} {}", program_.rank, place);
  }

  Program& program_;
  const MutationKind kind_;
  std::mt19937_64 random_;
  EditLanes lanes_;
  std::size_t lane_ = 0, step_ = 0;
  std::string detail_;
};

}  // namespace

const char* name_of(MutationKind kind) {
  return static_cast<int>(kind) < kMutationKinds ? kNames[static_cast<int>(kind)] : "unknown";
}

Mutation mutate(std::vector<Program>* programs, MutationKind kind, std::uint64_t seed) {
  if (programs->empty()) return {kind, {}};
  std::mt19937_64 random(seed * 0x9e3779b97f4a7c15u + static_cast<std::uint64_t>(kind));
  Program& program = (*programs)[random() % programs->size()];
  return {kind, Mutator(&program, kind, random()).run()};
}

Program unrolled(const Program& program) { return put_together(program, take_apart(program)); }

}  // namespace tamaki
