#pragma once
// How an algorithm writes down a program.
//
//   Builder b({.algorithm = "ring", .collective = Collective::allreduce, .ranks = p, .rank = r, .chunks = p});
//   auto lane = b.lane();
//   lane.send(in(r), right);
//   lane.repeat(p - 2, p, [&] { lane.step({in(r - 1, -1), from(left)}, {to(right)}); });
//   lane.step({in(r + 1), from(left)}, {out(r + 1), to(right, out(r + 1))}, {.finish = true});
//
// Nothing is checked here; src/schedule/check.hpp and src/verify do that.

#include <functional>
#include <initializer_list>
#include <span>

#include "schedule/program.hpp"

namespace tamaki {

constexpr Operand in(int chunk, int stride = 0) { return {.buffer = Buffer::input, .chunk = chunk, .stride = stride}; }
constexpr Operand out(int chunk, int stride = 0) { return {.buffer = Buffer::output, .chunk = chunk, .stride = stride}; }
constexpr Operand tmp(int chunk, int stride = 0) { return {.buffer = Buffer::scratch, .chunk = chunk, .stride = stride}; }

inline constexpr int kLaneChannel = 0xffff;  // placeholder: the number of the lane
/// A message that arrives from `peer`.
constexpr Operand from(int peer, int channel = kLaneChannel) {
  return {.kind = Operand::Kind::peer, .channel = static_cast<std::uint16_t>(channel), .peer = peer};
}
/// A message to `peer`; `lands`: the place (out or tmp of the peer) its plain receive puts it, where that is known.
constexpr Operand to(int peer, Operand lands = {}, int channel = kLaneChannel) {
  return {.kind = Operand::Kind::peer, .buffer = lands.buffer, .channel = static_cast<std::uint16_t>(channel),
          .peer = peer, .chunk = lands.chunk, .stride = lands.stride};
}

struct StepId {
  std::int32_t lane = 0;
  std::int32_t step = 0;
};

struct StepOptions {
  int width = 1;
  bool finish = false;
  std::span<const StepId> after = {};  // steps of other lanes that must have completed
  /// What the step's size is. Default: that of the first local input or output operand.
  Operand size_of = {};
};

struct ProgramHeader {
  std::string algorithm;
  Collective collective = Collective::allreduce;
  int ranks = 1;
  int rank = 0;
  int root = 0;
  int chunks = 1;
  int scratch_chunks = 0;
  int max_width = 1;
};

class Builder {
 public:
  explicit Builder(ProgramHeader header);

  class LaneBuilder {
   public:
    /// The general step: destinations = sources[0] op sources[1] op ...
    StepId step(std::span<const Operand> sources, std::span<const Operand> destinations, StepOptions options = {});
    StepId step(std::initializer_list<Operand> sources, std::initializer_list<Operand> destinations,
                StepOptions options = {}) {
      return step(std::span(sources.begin(), sources.size()), std::span(destinations.begin(), destinations.size()),
                  options);
    }
    StepId send(Operand source, Operand destination, StepOptions o = {}) { return step({source}, {destination}, o); }
    StepId recv(Operand source, Operand destination, StepOptions o = {}) { return step({source}, {destination}, o); }
    StepId copy(Operand source, Operand destination, StepOptions o = {}) { return step({source}, {destination}, o); }
    /// The steps `body` adds, `times` times; chunk numbers with a stride rotate within their group of `modulus`.
    /// Loops do not nest. Step ids given out inside are those of the first iteration.
    void repeat(int times, int modulus, const std::function<void()>& body);
    int number() const { return lane_; }

   private:
    friend class Builder;
    LaneBuilder(Builder* builder, int lane) : builder_(builder), lane_(lane) {}
    Builder* builder_;
    int lane_;
  };

  /// A new lane. Its messages use channel `channel`, by default the lane's number.
  LaneBuilder lane(int channel = -1);
  /// The finished program; the builder is empty afterwards.
  Program take();

 private:
  struct OpenLane {
    int channel = 0;
    std::int32_t expanded = 0;       // steps so far, loops unrolled
    std::vector<Block> blocks;       // begin and end in `steps` below
    std::vector<Step> steps;
    bool in_loop = false;
  };
  Program program_;
  std::vector<OpenLane> open_;
};

}  // namespace tamaki
