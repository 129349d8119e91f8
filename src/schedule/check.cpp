#include "schedule/check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "schedule/logical.hpp"

namespace tamaki {

const char* name_of(Buffer buffer) {
  switch (buffer) {
    case Buffer::input:
      return "input";
    case Buffer::output:
      return "output";
    case Buffer::scratch:
      return "scratch";
    default:
      return "none";
  }
}

std::string text_of(const Finding& f) {
  std::string place;
  if (f.rank >= 0) place += fmt::format("rank {} ", f.rank);
  if (f.lane >= 0) place += fmt::format("lane {} ", f.lane);
  if (f.step >= 0) place += fmt::format("step {} ", f.step);
  if (place.empty()) return f.text;
  place.back() = ':';
  return place + " " + f.text;
}

std::string describe(const Operand& o, std::int32_t width, bool source) {
  const auto place = [&] {
    return width == 1
               ? fmt::format("{} {}", name_of(o.buffer), o.chunk)
               : fmt::format("{} {}..{}", name_of(o.buffer), o.chunk, std::int64_t{o.chunk} + width - 1);
  };
  if (o.kind == Operand::Kind::local) return place();
  std::string text = fmt::format("{} {}", source ? "from" : "to", o.peer);
  if (o.channel != 0) text += fmt::format(" channel {}", o.channel);
  if (!source && o.buffer != Buffer::none) text += fmt::format(" ({})", place());
  return text;
}

namespace {

bool valid(Buffer b) { return b <= Buffer::none; }
bool valid(Operand::Kind k) { return k <= Operand::Kind::peer; }

/// Chunks of `buffer` on rank `rank` of the same schedule, or -1 where only that rank's program knows.
std::int64_t chunks_on(const Program& program, Buffer buffer, std::int32_t rank) {
  if (buffer == Buffer::scratch) return rank == program.rank ? program.scratch_chunks : -1;
  Program other;  // chunks_of() reads the header only
  other.collective = program.collective;
  other.ranks = program.ranks;
  other.rank = rank;
  other.root = program.root;
  other.chunks = program.chunks;
  return other.chunks_of(buffer);
}

class Checker {
 public:
  Checker(const Program& program, std::size_t limit) : p_(program), limit_(limit) {}

  std::vector<Finding> run() {
    if (header() && shape()) {
      for (lane_ = 0; lane_ < lanes() && !full(); ++lane_) walk_lane();
      lane_ = step_ = -1;
      if (found_.empty()) acyclic();
    }
    return std::move(found_);
  }

 private:
  std::int32_t lanes() const { return static_cast<std::int32_t>(p_.lanes.size()); }
  bool full() const { return found_.size() >= limit_; }
  void say(std::string text) {
    if (!full()) found_.push_back({p_.rank, lane_, step_, std::move(text)});
  }

  bool header() {
    if (static_cast<int>(p_.collective) >= kCollectives)
      say("the collective is not one that has schedules");
    if (p_.ranks < 1) say(fmt::format("{} ranks, must be at least 1", p_.ranks));
    if (p_.rank < 0 || p_.rank >= p_.ranks)
      say(fmt::format("rank {} is not in 0..{}", p_.rank, std::int64_t{p_.ranks} - 1));
    if (p_.root < 0 || p_.root >= p_.ranks)
      say(fmt::format("root {} is not in 0..{}", p_.root, std::int64_t{p_.ranks} - 1));
    if (p_.chunks < 1) say(fmt::format("{} chunks, must be at least 1", p_.chunks));
    if (p_.scratch_chunks < 0)
      say(fmt::format("{} scratch chunks, must not be negative", p_.scratch_chunks));
    if (p_.max_width < 1) say(fmt::format("max_width {}, must be at least 1", p_.max_width));
    if (std::int64_t{p_.ranks} * p_.chunks > std::numeric_limits<std::int32_t>::max())
      say(fmt::format("{} ranks times {} chunks is more than a chunk number can hold", p_.ranks,
                      p_.chunks));
    return found_.empty();
  }

  /// Ranges that everything else relies on to walk the program.
  bool shape() {
    const auto steps = static_cast<std::int64_t>(p_.steps.size());
    std::int64_t expanded = 0;
    for (lane_ = 0; lane_ < lanes(); ++lane_)
      for (const Block& b : p_.lanes[lane_].blocks) {
        if (b.begin < 0 || b.end < b.begin || b.end > steps)
          say(fmt::format("a block of steps [{}, {}) is not within the program's {} steps", b.begin, b.end,
                          steps));
        if (b.times < 0) say(fmt::format("a block runs {} times", b.times));
        if (b.modulus < 0) say(fmt::format("a block has modulus {}", b.modulus));
        expanded +=
            std::int64_t{std::max(b.times, 0)} * std::max<std::int64_t>(0, std::int64_t{b.end} - b.begin);
        if (expanded > kMaxExpandedSteps || full()) break;
      }
    lane_ = -1;
    if (expanded > kMaxExpandedSteps)
      say(fmt::format("more than {} steps with loops unrolled", kMaxExpandedSteps));
    for (std::size_t i = 0; i < p_.steps.size() && !full(); ++i) {
      const Step& s = p_.steps[i];
      const std::int64_t operands = std::int64_t{s.first_operand} + s.sources + s.destinations;
      if (s.first_operand < 0 || operands > static_cast<std::int64_t>(p_.operands.size()))
        say(fmt::format("stored step {} has operands [{}, {}) of {}", i, s.first_operand, operands,
                        p_.operands.size()));
      const std::int64_t end = std::int64_t{s.first_dependency} + s.dependencies;
      if (s.dependencies > 0 &&
          (s.first_dependency < 0 || end > static_cast<std::int64_t>(p_.dependencies.size())))
        say(fmt::format("stored step {} has dependencies [{}, {}) of {}", i, s.first_dependency, end,
                        p_.dependencies.size()));
    }
    return found_.empty();
  }

  void walk_lane() {
    std::int64_t index = 0;
    for (const Block& block : p_.lanes[lane_].blocks) {
      const std::int32_t length = block.end - block.begin;
      for (std::int32_t i = 0; i < length && block.times > 0 && !full(); ++i) {
        step_ = static_cast<std::int32_t>(index + i);
        check_step(p_.steps[block.begin + i], block, length, static_cast<std::int32_t>(index + i));
      }
      index += std::int64_t{block.times} * length;
      if (full()) return;
    }
    step_ = -1;
  }

  /// Names the first iteration in which [chunk, chunk + width) leaves [0, size).
  bool bounds(std::int32_t chunk, std::int32_t stride, const Block& block, std::int32_t width,
              std::int64_t size, std::int32_t length, std::int32_t first, const std::string& what) {
    const auto inside = [&](std::int64_t c) { return c >= 0 && c + width <= size; };
    std::int64_t iteration = 0, bad = chunk;
    bool good = inside(chunk);
    if (good && stride != 0 && block.times > 1) {
      if (block.modulus == 0) {
        const std::int64_t last = block.times - 1;
        if (const std::int64_t c = chunk + last * stride; !inside(c)) {
          // Linear: find the first that is outside.
          const std::int64_t room = stride > 0 ? size - width - chunk : chunk;
          iteration = room / std::abs(std::int64_t{stride}) + 1;
          bad = chunk + iteration * stride;
          good = false;
        }
      } else if (const std::int64_t base = chunk / block.modulus * std::int64_t{block.modulus};
                 !inside(base + block.modulus - 1)) {
        const std::int64_t period = std::min<std::int64_t>(block.times, block.modulus);
        for (std::int64_t i = 1; i < period && good; ++i) {
          std::int64_t in = (chunk - base + i * stride) % block.modulus;
          if (in < 0) in += block.modulus;
          if (!inside(base + in)) iteration = i, bad = base + in, good = false;
        }
      }
    }
    if (good) return true;
    const std::int32_t step = step_;
    step_ = static_cast<std::int32_t>(first + iteration * length);
    say(fmt::format("{} {}..{} is outside of 0..{}", what, bad, bad + width - 1, size - 1));
    step_ = step;
    return false;
  }

  void check_step(const Step& s, const Block& block, std::int32_t length, std::int32_t first) {
    const Operand* operands = p_.operands.data() + s.first_operand;
    const int all = s.sources + s.destinations;
    if (s.sources == 0) say("has no source");
    if (s.destinations == 0) say("has no destination");
    if (s.width < 1 || s.width > p_.max_width)
      return say(fmt::format("width {} is not in 1..{} (max_width)", s.width, p_.max_width));
    bool sound = true;
    for (int i = 0; i < all && !full(); ++i)
      sound = check_operand(operands[i], i < s.sources, s, block, length, first) && sound;
    if (!sound || full()) return;
    if (check_extent(s, block, length, first)) check_sizes(s, block, length, first);
    check_overlap(s, block, length, first);
    check_finish(s);
    for (int i = 0; i < s.dependencies && !full(); ++i)
      check_dependency(p_.dependencies[s.first_dependency + i]);
  }

  bool check_operand(const Operand& o, bool source, const Step& s, const Block& block, std::int32_t length,
                     std::int32_t first) {
    if (!valid(o.kind) || !valid(o.buffer)) return say("an operand has an unknown kind or buffer"), false;
    const auto bounded = [&](std::int64_t size, const char* whose) {
      return bounds(o.chunk, o.stride, block, s.width, size, length, first,
                    fmt::format("{}{}", whose, name_of(o.buffer)));
    };
    if (o.kind == Operand::Kind::local) {
      if (o.buffer == Buffer::none) return say("a local operand names no buffer"), false;
      if (!source && o.buffer == Buffer::input) return say("writes to the input"), false;
      return bounded(p_.chunks_of(o.buffer), "");
    }
    if (o.peer < 0 || o.peer >= p_.ranks)
      return say(fmt::format("peer {} is not in 0..{}", o.peer, p_.ranks - 1)), false;
    if (o.peer == p_.rank) return say("sends or receives a message of its own rank"), false;
    if (source && o.buffer != Buffer::none) return say("a message that arrives names a place"), false;
    if (o.buffer == Buffer::input) return say("a message is said to land in the input of the peer"), false;
    if (o.buffer == Buffer::none) return true;
    const std::int64_t size = chunks_on(p_, o.buffer, o.peer);
    return bounded(size < 0 ? 1 << 30 : size, "the peer's ");  // the verifier knows the peer's scratch
  }

  bool check_extent(const Step& s, const Block& block, std::int32_t length, std::int32_t first) {
    const Extent& e = s.extent;
    const bool barrier = p_.collective == Collective::barrier;
    if (!valid(e.buffer) || e.buffer == Buffer::none) return say("its size is not given (extent)"), false;
    if ((e.buffer == Buffer::scratch) != barrier)
      return say(barrier ? "the extent of a barrier's step must be scratch"
                         : "an extent must be input or output"),
             false;
    return bounds(e.chunk, e.stride, block, s.width, shape_chunks(p_, e.buffer), length, first,
                  fmt::format("extent {}", name_of(e.buffer)));
  }

  static std::int32_t at(std::int32_t chunk, std::int32_t stride, const Block& block,
                         std::int64_t iteration) {
    return rotate(chunk, iteration * stride, stride != 0 ? block.modulus : 0);
  }
  /// After how many iterations relations between two rotating chunks repeat.
  static std::int64_t relation_period(const Block& block, bool moving) {
    if (!moving) return 1;
    return block.modulus == 0 ? block.times : std::min(block.times, block.modulus);
  }

  /// Local input and output operands have the size that the extent says, in every iteration.
  void check_sizes(const Step& s, const Block& block, std::int32_t length, std::int32_t first) {
    if (p_.collective == Collective::barrier) return;
    const Operand* operands = p_.operands.data() + s.first_operand;
    for (int k = 0; k < s.sources + s.destinations; ++k) {
      const Operand& o = operands[k];
      if (o.kind != Operand::Kind::local || o.buffer == Buffer::scratch) continue;
      const Extent& e = s.extent;
      if (e.buffer == o.buffer && e.chunk == o.chunk && e.stride == o.stride) continue;
      const std::int64_t period = relation_period(block, e.stride != 0 || o.stride != 0);
      for (std::int64_t i = 0; i < period; ++i) {
        const std::int32_t oc = at(o.chunk, o.stride, block, i), ec = at(e.chunk, e.stride, block, i);
        for (std::int32_t w = 0; w < s.width; ++w) {
          if (size_class(p_, logical_chunk(p_, o.buffer, oc + w)) ==
              size_class(p_, logical_chunk(p_, e.buffer, ec + w)))
            continue;
          step_ = static_cast<std::int32_t>(first + i * length);
          say(fmt::format("moves {} {} with the size of {} {}", name_of(o.buffer), oc + w,
                          name_of(e.buffer), ec + w));
          step_ = first;
          return;
        }
      }
    }
  }

  void check_overlap(const Step& s, const Block& block, std::int32_t length, std::int32_t first) {
    const Operand* operands = p_.operands.data() + s.first_operand;
    const int all = s.sources + s.destinations;
    if (all > 64) return check_overlap_many(s, block, length, first);
    for (int a = 0; a < all; ++a)
      for (int b = a + 1; b < all; ++b) {
        const Operand &x = operands[a], &y = operands[b];
        if (x.kind != y.kind || (a < s.sources) != (b < s.sources)) {
          if (x.kind != y.kind || x.kind == Operand::Kind::peer) continue;
        }
        if (x.kind == Operand::Kind::peer) {
          if (x.peer == y.peer && x.channel == y.channel)
            return say(fmt::format("uses the FIFO {} twice", describe(x, s.width, a < s.sources)));
          continue;
        }
        if (x.buffer != y.buffer) continue;
        const bool same_allowed = (a < s.sources) != (b < s.sources);
        const std::int64_t period = relation_period(block, x.stride != 0 || y.stride != 0);
        for (std::int64_t i = 0; i < period; ++i) {
          const std::int64_t distance =
              std::int64_t{at(x.chunk, x.stride, block, i)} - at(y.chunk, y.stride, block, i);
          if (std::abs(distance) >= s.width || (distance == 0 && same_allowed)) continue;
          step_ = static_cast<std::int32_t>(first + i * length);
          say(fmt::format("operands overlap at {} {}", name_of(x.buffer), at(x.chunk, x.stride, block, i)));
          step_ = first;
          return;
        }
      }
  }

  /// The same by sorting, for steps with an operand a rank: pairs would be too many.
  void check_overlap_many(const Step& s, const Block& block, std::int32_t length, std::int32_t first) {
    struct Piece {
      std::int64_t space, begin;
      bool source;
    };
    const Operand* operands = p_.operands.data() + s.first_operand;
    bool moving = false;
    for (int k = 0; k < s.sources + s.destinations; ++k) moving = moving || operands[k].stride != 0;
    std::vector<Piece> pieces;
    for (std::int64_t i = 0; i < relation_period(block, moving); ++i) {
      pieces.clear();
      for (int k = 0; k < s.sources + s.destinations; ++k) {
        const Operand& o = operands[k];
        const bool source = k < s.sources, peer = o.kind == Operand::Kind::peer;
        const std::int64_t space =
            peer ? 16 + std::int64_t{o.peer} * 2 + source : static_cast<int>(o.buffer);
        pieces.push_back(
            {space, peer ? std::int64_t{o.channel} * s.width : at(o.chunk, o.stride, block, i), source});
      }
      std::sort(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) {
        return a.space != b.space ? a.space < b.space : a.begin < b.begin;
      });
      for (std::size_t k = 1; k < pieces.size(); ++k) {
        const Piece &a = pieces[k - 1], &b = pieces[k];
        if (a.space != b.space || b.begin - a.begin >= s.width) continue;
        if (a.begin == b.begin && a.source != b.source &&
            (k < 2 || pieces[k - 2].space != a.space || pieces[k - 2].begin + s.width <= a.begin))
          continue;  // in place
        step_ = static_cast<std::int32_t>(first + i * length);
        say(a.space >= 16
                ? fmt::format("uses a FIFO of peer {} twice", (a.space - 16) / 2)
                : fmt::format("operands overlap at {} {}", name_of(static_cast<Buffer>(a.space)), b.begin));
        step_ = first;
        return;
      }
    }
  }

  void check_finish(const Step& s) {
    if (!s.finish) return;
    if (!reduces(p_.collective))
      say(fmt::format("is said to finish a result, but {} reduces nothing", name_of(p_.collective)));
    else if (s.sources == 1 && p_.ranks > 1)
      say("is said to finish a result, but combines nothing");
  }

  void check_dependency(const Dependency& d) {
    if (d.lane < 0 || d.lane >= lanes())
      return say(fmt::format("depends on lane {} of {}", d.lane, lanes()));
    const std::int64_t size = expanded_steps(p_, d.lane);
    if (d.step < 0 || d.step >= size)
      say(fmt::format("depends on step {} of lane {}, which has {} steps", d.step, d.lane, size));
  }

  /// Runs the lanes against each other by dependencies alone.
  void acyclic() {
    if (p_.dependencies.empty()) return;
    std::vector<LaneCursor> cursors;
    std::vector<std::int64_t> done(p_.lanes.size(), 0);
    std::vector<std::vector<std::int32_t>> waiting(p_.lanes.size());  // on a lane: who
    std::vector<std::int32_t> ready;
    for (std::int32_t l = 0; l < lanes(); ++l) cursors.emplace_back(p_, l), ready.push_back(l);
    std::vector<Dependency> blocker(p_.lanes.size(), {-1, -1});
    while (!ready.empty()) {
      const std::int32_t l = ready.back();
      ready.pop_back();
      blocker[l] = {-1, -1};
      while (!cursors[l].done() && blocker[l].lane < 0) {
        const Step& s = *cursors[l].current().step;
        for (int i = 0; i < s.dependencies; ++i) {
          const Dependency& d = p_.dependencies[s.first_dependency + i];
          if (done[d.lane] > d.step) continue;
          blocker[l] = d;
          waiting[d.lane].push_back(l);
          break;
        }
        if (blocker[l].lane >= 0) break;
        cursors[l].advance();
        ++done[l];
        ready.insert(ready.end(), waiting[l].begin(), waiting[l].end());
        waiting[l].clear();
      }
    }
    for (std::int32_t l = 0; l < lanes() && !full(); ++l) {
      if (blocker[l].lane < 0) continue;
      lane_ = l;
      step_ = static_cast<std::int32_t>(done[l]);
      say(fmt::format("waits for lane {} step {}, which waits, directly or not, for this step",
                      blocker[l].lane, blocker[l].step));
    }
  }

  const Program& p_;
  const std::size_t limit_;
  std::vector<Finding> found_;
  std::int32_t lane_ = -1, step_ = -1;
};

}  // namespace

std::vector<Finding> check(const Program& program, std::size_t limit) {
  return Checker(program, limit).run();
}

}  // namespace tamaki
