#include "schedule/fuse.hpp"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "schedule/logical.hpp"

namespace tamaki {
namespace {

bool is_peer(const Operand& o) { return o.kind == Operand::Kind::peer; }

/// A step while it grows.
struct Open {
  std::vector<Operand> sources, destinations;
  std::vector<Dependency> dependencies;
  std::int32_t width = 1;
  Extent extent;
  bool finish = false;
  bool awaited = false;              // another step depends on it
  std::int32_t first = 0, last = 0;  // positions in the block of the steps it was made of
};

/// Reads and writes of each scratch chunk, to tell what is read later.
class ScratchUses {
 public:
  explicit ScratchUses(const Program& program) : uses_(program.scratch_chunks) {
    if (program.scratch_chunks == 0) return;
    for (std::int32_t lane = 0; lane < static_cast<std::int32_t>(program.lanes.size()); ++lane)
      for (LaneCursor cursor(program, lane); !cursor.done(); cursor.advance()) {
        const ExpandedStep& s = cursor.current();
        for (int k = 0; k < s.step->sources; ++k) add(s.sources[k], s, true);
        for (int k = 0; k < s.step->destinations; ++k) add(s.destinations[k], s, false);
      }
  }
  /// Nothing reads the chunk after step `index` of `lane` before it is written again.
  bool dead(std::int32_t chunk, std::int32_t lane, std::int32_t index) const {
    const Uses& uses = uses_[chunk];
    if (uses.reader != kNobody && uses.reader != lane)
      return false;  // another lane reads it, who knows when
    const auto next = std::upper_bound(uses.all.begin(), uses.all.end(), std::pair{lane, index},
                                       [](const auto& at, const Use& use) {
                                         return at < std::pair{use.lane, use.index};
                                       });
    return next == uses.all.end() || next->lane != lane || !next->reads;  // of one step, reads come first
  }

 private:
  static constexpr std::int32_t kNobody = -1, kSeveral = -2;
  struct Use {
    std::int32_t lane, index;
    bool reads;
  };
  struct Uses {
    std::vector<Use> all;  // ascending by lane and index
    std::int32_t reader = kNobody;
  };
  void add(const Operand& o, const ExpandedStep& s, bool reads) {
    if (is_peer(o) || o.buffer != Buffer::scratch) return;
    for (std::int32_t w = 0; w < s.step->width; ++w) {
      Uses& uses = uses_[o.chunk + w];
      uses.all.push_back({s.lane, s.index, reads});
      if (reads) uses.reader = uses.reader == kNobody || uses.reader == s.lane ? s.lane : kSeveral;
    }
  }
  std::vector<Uses> uses_;
};

class Fuser {
 public:
  explicit Fuser(const Program& program)
      : in_(program), uses_(program), awaited_(program.steps.size(), false) {}

  Program run() {
    if (!each_step_in_one_block()) return in_;
    mark_awaited();
    out_ = in_;
    out_.operands.clear();
    out_.steps.clear();
    out_.dependencies.clear();
    for (lane_ = 0; lane_ < static_cast<std::int32_t>(in_.lanes.size()); ++lane_) {
      index_ = 0;
      for (std::size_t b = 0; b < in_.lanes[lane_].blocks.size(); ++b) {
        const Block& block = in_.lanes[lane_].blocks[b];
        fuse_block(block, out_.lanes[lane_].blocks[b]);
        index_ += block.times * (block.end - block.begin);
      }
    }
    for (Dependency& d : out_.dependencies) d.step = renumbered(d);
    return std::move(out_);
  }

 private:
  bool each_step_in_one_block() const {
    std::vector<bool> seen(in_.steps.size(), false);
    for (const Lane& lane : in_.lanes)
      for (const Block& block : lane.blocks)
        for (std::int32_t i = block.begin; i < block.end; ++i) {
          if (seen[i]) return false;
          seen[i] = true;
        }
    return true;
  }

  /// Block of an expanded step; *within: its number there.
  const Block* locate(const Dependency& d, std::int32_t* within) const {
    std::int32_t first = 0;
    for (const Block& block : in_.lanes[d.lane].blocks) {
      const std::int32_t size = block.times * (block.end - block.begin);
      if (d.step < first + size) return *within = d.step - first, &block;
      first += size;
    }
    return nullptr;
  }

  void mark_awaited() {
    std::int32_t within = 0;
    for (const Dependency& d : in_.dependencies)
      if (const Block* block = locate(d, &within))
        awaited_[block->begin + within % (block->end - block->begin)] = true;
  }

  std::int32_t renumbered(const Dependency& d) const {
    std::int32_t first = 0, old_first = 0;
    for (std::size_t b = 0; b < in_.lanes[d.lane].blocks.size(); ++b) {
      const Block &old = in_.lanes[d.lane].blocks[b], &now = out_.lanes[d.lane].blocks[b];
      const std::int32_t length = old.end - old.begin, new_length = now.end - now.begin;
      if (d.step < old_first + old.times * length) {
        const std::int32_t within = d.step - old_first;
        return first + within / length * new_length + position_[old.begin + within % length];
      }
      old_first += old.times * length;
      first += now.times * new_length;
    }
    return d.step;
  }

  Open open(const Block& block, std::int32_t position) const {
    const Step& s = in_.steps[block.begin + position];
    const auto operands = in_.operands.begin() + s.first_operand;
    const auto dependencies = in_.dependencies.begin() + (s.dependencies > 0 ? s.first_dependency : 0);
    return {{operands, operands + s.sources},
            {operands + s.sources, operands + s.sources + s.destinations},
            {dependencies, dependencies + s.dependencies},
            s.width,
            s.extent,
            s.finish,
            bool(awaited_[block.begin + position]),
            position,
            position};
  }

  void fuse_block(const Block& block, Block& now) {
    now.begin = static_cast<std::int32_t>(out_.steps.size());
    position_.resize(in_.steps.size(), 0);
    std::vector<Open> done;  // a step that has grown may now take in the one before it
    for (std::int32_t i = 0; i < block.end - block.begin; ++i) {
      done.push_back(open(block, i));
      while (done.size() > 1 && join(block, done[done.size() - 2], done.back())) done.pop_back();
    }
    for (const Open& step : done) close(block, now, step);
    now.end = static_cast<std::int32_t>(out_.steps.size());
  }

  void close(const Block& block, const Block& now, const Open& o) {
    for (std::int32_t i = o.first; i <= o.last; ++i)
      position_[block.begin + i] = static_cast<std::int32_t>(out_.steps.size()) - now.begin;
    Step s;
    s.first_operand = static_cast<std::int32_t>(out_.operands.size());
    s.sources = static_cast<std::uint16_t>(o.sources.size());
    s.destinations = static_cast<std::uint16_t>(o.destinations.size());
    s.width = o.width;
    s.extent = o.extent;
    s.finish = o.finish;
    s.first_dependency = static_cast<std::int32_t>(out_.dependencies.size());
    s.dependencies = static_cast<std::uint16_t>(o.dependencies.size());
    out_.operands.insert(out_.operands.end(), o.sources.begin(), o.sources.end());
    out_.operands.insert(out_.operands.end(), o.destinations.begin(), o.destinations.end());
    out_.dependencies.insert(out_.dependencies.end(), o.dependencies.begin(), o.dependencies.end());
    out_.steps.push_back(s);
  }

  /// Makes `a` the step that does what `a` and then `b` do, if one can.
  bool join(const Block& block, Open& a, const Open& b) const {
    if (a.width != b.width || a.awaited || !same_size(block, a.extent, b.extent)) return false;
    for (const Dependency& d : b.dependencies)
      if (std::find(a.dependencies.begin(), a.dependencies.end(), d) == a.dependencies.end()) return false;
    Open joined = a;
    if (!receive_into(block, a, b, &joined) && !pass_on(block, b, &joined)) return false;
    if (joined.sources.size() + joined.destinations.size() > 0xffff || !sound(block, joined)) return false;
    joined.last = b.last;
    joined.awaited = b.awaited;
    a = std::move(joined);
    return true;
  }

  bool same_size(const Block& block, const Extent& x, const Extent& y) const {
    if (x == y) return true;
    const bool fixed = block.times <= 1 || (x.stride == 0 && y.stride == 0);
    return fixed && x.buffer != Buffer::scratch && y.buffer != Buffer::scratch &&
           logical_chunk(in_, x.buffer, x.chunk) == logical_chunk(in_, y.buffer, y.chunk);
  }
  static bool same_place(const Operand& x, const Operand& y) { return !is_peer(x) && x == y; }

  /// `place` is scratch that nobody reads after the step at `position`, in any iteration.
  bool dead(const Block& block, const Operand& place, std::int32_t position, std::int32_t width) const {
    if (place.buffer != Buffer::scratch) return false;
    for (std::int32_t i = 0; i < block.times; ++i) {
      const std::int32_t chunk = place.stride == 0
                                     ? place.chunk
                                     : rotate(place.chunk, std::int64_t{i} * place.stride, block.modulus);
      for (std::int32_t w = 0; w < width; ++w)
        if (!uses_.dead(chunk + w, lane_, index_ + i * (block.end - block.begin) + position)) return false;
    }
    return true;
  }

  /// recv -> X, then a step that takes X: takes the message itself.
  bool receive_into(const Block& block, const Open& a, const Open& b, Open* joined) const {
    if (a.sources.size() != 1 || !is_peer(a.sources[0]) || a.destinations.size() != 1 ||
        is_peer(a.destinations[0]) || a.finish)
      return false;
    const Operand place = a.destinations[0];
    const auto takes = [&](const Operand& o) { return same_place(o, place); };
    if (std::count_if(b.sources.begin(), b.sources.end(), takes) != 1) return false;
    const bool overwritten = std::any_of(b.destinations.begin(), b.destinations.end(), takes);
    if (!overwritten && !dead(block, place, b.last, b.width)) return false;
    joined->sources = b.sources;
    *std::find_if(joined->sources.begin(), joined->sources.end(), takes) = a.sources[0];
    joined->destinations = b.destinations;
    joined->finish = b.finish;
    return true;
  }

  /// A step that makes X, then one that moves X on: makes both places.
  bool pass_on(const Block& block, const Open& b, Open* joined) const {
    if (b.sources.size() != 1 || b.finish) return false;
    const auto made = std::find_if(joined->destinations.begin(), joined->destinations.end(),
                                   [&](const Operand& o) { return same_place(o, b.sources[0]); });
    if (made == joined->destinations.end()) return false;
    if (dead(block, *made, b.last, b.width)) joined->destinations.erase(made);
    joined->destinations.insert(joined->destinations.end(), b.destinations.begin(), b.destinations.end());
    return true;
  }

  /// No FIFO twice, no overlap but of a destination with a source at the very same place.
  bool sound(const Block& block, const Open& o) const {
    std::vector<const Operand*> all;
    for (const Operand& s : o.sources) all.push_back(&s);
    for (const Operand& d : o.destinations) all.push_back(&d);
    if (all.size() > 64) return false;
    for (std::size_t i = 0; i < all.size(); ++i)
      for (std::size_t j = i + 1; j < all.size(); ++j) {
        const Operand &x = *all[i], &y = *all[j];
        const bool both_sides = i < o.sources.size() && j >= o.sources.size();
        if (is_peer(x) != is_peer(y)) continue;
        if (is_peer(x)) {
          if (!both_sides && x.peer == y.peer && x.channel == y.channel) return false;
          continue;
        }
        if (x.buffer != y.buffer) continue;
        if (x.stride != y.stride && block.times > 1) return false;
        if (std::abs(x.chunk - y.chunk) < o.width && !(x.chunk == y.chunk && both_sides)) return false;
        if (block.modulus != 0 && block.times > 1 && x.stride != 0 && x.chunk != y.chunk && o.width > 1)
          return false;
      }
    return true;
  }

  const Program& in_;
  Program out_;
  ScratchUses uses_;
  std::vector<bool> awaited_;           // of stored steps
  std::vector<std::int32_t> position_;  // of a stored step: that of its fused step in the block
  std::int32_t lane_ = 0, index_ = 0;
};

}  // namespace

Program fuse(const Program& program) { return Fuser(program).run(); }

}  // namespace tamaki
