// Runs programs on values that record where they came from.
//
// A value is a chunk's identity and the word of ranks whose contributions it holds, in the order in which
// they were combined; combining concatenates words. So a contribution that is missing, doubled or out of
// order shows.
//
// Direct mode: a message from a single input or output place may be read when its receiver takes it instead
// of when it is sent, and may be written to the receiver's `lands` place already when it is sent, once its
// sender has received anything from that receiver; both are chosen at random.
#include "verify/interpreter.hpp"

#include <algorithm>
#include <deque>
#include <map>
#include <random>
#include <set>
#include <span>
#include <tuple>

namespace tamaki {
namespace {

class Interpreter {
 public:
  Interpreter(const std::vector<Program>& programs, InterpretOptions options)
      : programs_(programs), o_(options), random_(options.seed), p_(static_cast<int>(programs.size())) {}

  /// Empty if the schedule does what its collective promises, else the first complaint found.
  std::string run() {
    prepare();
    std::vector<std::pair<int, int>> active;  // (rank, lane)
    for (int r = 0; r < p_; ++r)
      for (int l = 0; l < static_cast<int>(programs_[r].lanes.size()); ++l) active.push_back({r, l});
    while (complaint_.empty()) {
      std::shuffle(active.begin(), active.end(), random_);
      bool moved = false;
      std::erase_if(active, [&](auto a) { return ranks_[a.first].lanes[a.second].slice == o_.slices; });
      for (auto [r, l] : active) {
        // Some lanes run far ahead, others stand still.
        for (int burst = static_cast<int>(random_() % 4); burst >= 0 && complaint_.empty(); --burst) {
          if (!advance(r, l)) break;
          moved = true;
        }
      }
      if (active.empty()) break;
      if (!moved) complain(active[0].first, active[0].second, "deadlock");
    }
    if (complaint_.empty()) check_results();
    return complaint_;
  }

 private:
  struct Value {
    bool valid = false;
    int finishes = 0;
    int steps = 0;  // reducing steps that made it
    std::int64_t id = -1;
    std::vector<int> word;
    bool operator==(const Value&) const = default;
  };
  struct Message {
    int slice = 0;
    std::vector<std::int64_t> ids;  // of the chunks its sender's extent names
    std::vector<Value> values;
    const Operand* late = nullptr;  // direct: where to read it at the sender
    Operand late_operand;
    bool landed = false;
    Operand lands;
    std::set<int> known;  // barrier
  };
  struct LaneState {
    int slice = 0;
    std::int64_t step = 0;           // in this slice
    std::vector<LaneCursor> cursor;  // one or none
  };
  struct RankState {
    std::vector<LaneState> lanes;
    std::vector<std::vector<Value>> memory;  // [slice][cell]
    std::vector<std::set<int>> heard;        // [slice] ranks that this one has received something from
    std::set<int> known;                     // barrier: ranks known to have entered
  };
  using Fifo = std::tuple<int, int, int>;  // source, destination, channel

  void complain(int rank, int lane, const std::string& what) {
    if (!complaint_.empty()) return;
    const Program& program = programs_[rank];
    complaint_ = program.algorithm + " of " + std::to_string(p_) + " ranks: rank " + std::to_string(rank) +
                 " lane " + std::to_string(lane);
    if (lane >= 0)
      complaint_ += " slice " + std::to_string(ranks_[rank].lanes[lane].slice) + " step " +
                    std::to_string(ranks_[rank].lanes[lane].step);
    complaint_ += ": " + what;
  }

  /// Identity of an input or output chunk: equal for the chunks of two ranks that stand for the same data.
  std::int64_t identity(int rank, Buffer buffer, int chunk) const {
    const Program& program = programs_[rank];
    const std::int64_t own = std::int64_t{rank} * program.chunks;
    switch (program.collective) {
      case Collective::allgather:
      case Collective::gather:
        return buffer == Buffer::input ? own + chunk : chunk;
      case Collective::reduce_scatter:
      case Collective::scatter:
        return buffer == Buffer::output ? own + chunk : chunk;
      case Collective::alltoall: {
        const std::int64_t block = chunk / program.chunks, part = chunk % program.chunks;
        const std::int64_t pair =
            buffer == Buffer::input ? std::int64_t{rank} * p_ + block : block * p_ + rank;
        return pair * program.chunks + part;
      }
      default:
        return chunk;
    }
  }
  int size_of(std::int64_t id) const { return !o_.uneven ? 1 : sizes_.at(static_cast<std::size_t>(id)); }

  /// Chunks a buffer has on this rank: as far as sizes are concerned on all ranks, as memory only where it
  /// exists.
  static int extent_chunks(const Program& program, Buffer buffer) {
    Program all = {.collective = program.collective,
                   .ranks = program.ranks,
                   .rank = program.root,
                   .root = program.root,
                   .chunks = program.chunks,
                   .scratch_chunks = program.scratch_chunks};
    return all.chunks_of(buffer);
  }

  /// Number of the memory cell, or -1 if out of bounds.
  int cell(int rank, const Operand& operand, int j) const {
    const Program& program = programs_[rank];
    const int chunk = operand.chunk + j;
    if (operand.buffer == Buffer::none || chunk < 0 || chunk >= program.chunks_of(operand.buffer))
      return -1;
    const int inputs = program.chunks_of(Buffer::input), outputs = program.chunks_of(Buffer::output);
    if (operand.buffer == Buffer::scratch) return inputs + outputs + chunk;
    if (operand.buffer == Buffer::input) return chunk;
    if (o_.in_place) {
      const int own = rank * program.chunks;
      switch (program.collective) {
        case Collective::allgather:
        case Collective::gather:
          if (chunk >= own && chunk < own + program.chunks) return chunk - own;
          break;
        case Collective::reduce_scatter:
        case Collective::scatter:
          if (inputs > 0) return own + chunk;
          break;
        default:
          if (inputs > 0) return chunk;
      }
    }
    return inputs + chunk;
  }

  void prepare() {
    std::int64_t identities = 1;
    for (int r = 0; r < p_; ++r) {
      const Program& program = programs_[r];
      if (program.rank != r || program.ranks != p_ || program.chunks != programs_[0].chunks ||
          program.max_width != programs_[0].max_width || program.root != programs_[0].root) {
        complaint_ = "headers of ranks 0 and " + std::to_string(r) + " disagree";
        return;
      }
      RankState state;
      state.lanes.resize(program.lanes.size());
      state.heard.resize(o_.slices);
      state.known = {r};
      const int inputs = program.chunks_of(Buffer::input);
      std::vector<Value> memory(inputs + program.chunks_of(Buffer::output) + program.scratch_chunks);
      for (int c = 0; c < inputs; ++c) memory[c] = {true, 0, 0, identity(r, Buffer::input, c), {r}};
      if (program.collective == Collective::barrier)
        for (Value& value : memory) value = {true, 0, 0, 0, {}};
      state.memory.assign(o_.slices, memory);
      identities = std::max<std::int64_t>(identities, std::int64_t{p_} * p_ * program.chunks);
      ranks_.push_back(std::move(state));
    }
    for (std::int64_t i = 0; i < identities; ++i) sizes_.push_back(static_cast<int>(random_() % 3));
  }

  bool advance(int rank, int lane_number) {
    const Program& program = programs_[rank];
    RankState& state = ranks_[rank];
    LaneState& lane = state.lanes[lane_number];
    if (lane.slice == o_.slices) return false;
    if (lane.cursor.empty()) lane.cursor.emplace_back(program, lane_number);
    if (lane.cursor[0].done()) {
      lane.cursor.clear();
      ++lane.slice;
      lane.step = 0;
      return true;
    }
    const ExpandedStep& step = lane.cursor[0].current();
    for (int d = 0; d < step.step->dependencies; ++d) {
      const Dependency& need = program.dependencies[step.step->first_dependency + d];
      const LaneState& other = state.lanes[need.lane];
      if (other.slice < lane.slice || (other.slice == lane.slice && other.step <= need.step)) return false;
    }
    if (!perform(rank, lane_number, step)) return false;
    lane.cursor[0].advance();
    ++lane.step;
    return true;
  }

  /// Runs the step if its messages and slots are there.
  bool perform(int rank, int lane_number, const ExpandedStep& step) {
    const Program& program = programs_[rank];
    RankState& state = ranks_[rank];
    const LaneState& lane = state.lanes[lane_number];
    const bool barrier = program.collective == Collective::barrier;
    const int width = step.step->width;
    if (width < 1 || width > program.max_width)
      return complain(rank, lane_number, "width exceeds max_width"), false;
    std::vector<std::int64_t> ids;
    int total = 0;
    for (int j = 0; j < width; ++j) {
      if (step.extent.buffer == Buffer::none || step.extent.chunk < 0 ||
          step.extent.chunk + j >= extent_chunks(program, step.extent.buffer))
        return complain(rank, lane_number, "extent out of bounds"), false;
      ids.push_back(barrier ? 0 : identity(rank, step.extent.buffer, step.extent.chunk + j));
      total += barrier ? 1 : size_of(ids.back());
    }
    if (total == 0) return true;  // nothing to move: both sides skip it

    const std::span sources(step.sources, step.step->sources);
    const std::span destinations(step.destinations, step.step->destinations);
    for (const Operand& source : sources) {
      if (source.kind != Operand::Kind::peer) continue;
      use_channel(rank, lane_number, Fifo(source.peer, rank, source.channel), false);
      if (fifos_[{source.peer, rank, source.channel}].empty()) return false;
    }
    for (const Operand& destination : destinations) {
      if (destination.kind != Operand::Kind::peer) continue;
      use_channel(rank, lane_number, Fifo(rank, destination.peer, destination.channel), true);
      if (static_cast<int>(fifos_[{rank, destination.peer, destination.channel}].size()) >= o_.slots)
        return false;
    }

    std::vector<Value> result(width);
    bool first = true;
    bool pushed = false;
    for (const Operand& source : sources) {
      std::vector<Value> values(width);
      if (source.kind == Operand::Kind::peer) {
        auto& fifo = fifos_[{source.peer, rank, source.channel}];
        Message message = std::move(fifo.front());
        fifo.pop_front();
        if (message.slice != lane.slice)
          return complain(rank, lane_number, "message of another slice"), false;
        if (message.ids.size() != ids.size())
          return complain(rank, lane_number, "message of another width"), false;
        for (int j = 0; j < width; ++j)
          if (!barrier && size_of(message.ids[j]) != size_of(ids[j]))
            return complain(rank, lane_number, "message of another size"), false;
        if (message.late != nullptr)
          message.values = load(source.peer, lane.slice, message.late_operand, ids);
        values = std::move(message.values);
        state.heard[lane.slice].insert(source.peer);
        state.known.insert(message.known.begin(), message.known.end());
        if (message.lands.buffer != Buffer::none) {
          const bool plain =
              sources.size() == 1 && std::any_of(destinations.begin(), destinations.end(), [&](auto& d) {
                return d.kind == Operand::Kind::local && d.buffer == message.lands.buffer &&
                       d.chunk == message.lands.chunk;
              });
          if (!plain)
            return complain(rank, lane_number, "does not put the message where its sender said"), false;
        }
        pushed = message.landed;
      } else {
        values = load(rank, lane.slice, source, ids);
      }
      for (int j = 0; j < width; ++j) {
        if (!barrier && size_of(ids[j]) == 0) continue;
        Value& value = values[j];
        if (!value.valid) return complain(rank, lane_number, "reads what was never written"), false;
        if (!barrier && o_.uneven && value.id != ids[j])
          return complain(rank, lane_number, "extent names another chunk than the one moved"), false;
        if (first) {
          result[j] = value;
        } else {
          if (value.id != result[j].id)
            return complain(rank, lane_number, "combines different chunks"), false;
          result[j].word.insert(result[j].word.end(), value.word.begin(), value.word.end());
          result[j].finishes += value.finishes;
          result[j].steps = std::max(result[j].steps, value.steps);
        }
      }
      first = false;
    }
    for (Value& value : result) {
      if (sources.size() > 1) ++value.steps;
      if (step.step->finish) ++value.finishes;
    }
    if (pushed) {  // the place already holds it, and must still do so
      for (const Operand& destination : destinations)
        if (destination.kind == Operand::Kind::local && destination.buffer != Buffer::scratch)
          for (int j = 0; j < width; ++j) {
            const int at = cell(rank, destination, j);
            if (at >= 0 && size_of(ids[j]) > 0) result[j] = state.memory[lane.slice][at];
          }
    }
    for (const Operand& destination : destinations) {
      if (destination.kind == Operand::Kind::peer) {
        if (destination.peer < 0 || destination.peer >= p_ || destination.peer == rank)
          return complain(rank, lane_number, "sends to rank " + std::to_string(destination.peer)), false;
        Message message = {.slice = lane.slice, .ids = ids, .values = result};
        message.known = state.known;
        message.lands = destination;
        const bool single = sources.size() == 1 && sources[0].kind == Operand::Kind::local;
        const bool user =
            single && (sources[0].buffer == Buffer::input || sources[0].buffer == Buffer::output);
        const bool may_land =
            destination.buffer == Buffer::output && state.heard[lane.slice].count(destination.peer) > 0;
        if (o_.direct && may_land && random_() % 3 != 0) {
          message.landed = true;
          store(destination.peer, lane_number, lane.slice, destination, result, ids);
        } else if (o_.direct && user && !step.step->finish && random_() % 4 != 0) {
          message.late_operand = sources[0];
          message.late = &sources[0];
        }
        fifos_[{rank, destination.peer, destination.channel}].push_back(std::move(message));
      } else {
        if (destination.buffer == Buffer::input)
          return complain(rank, lane_number, "writes to the input"), false;
        if (!pushed) store(rank, lane_number, lane.slice, destination, result, ids);
      }
    }
    return complaint_.empty();
  }

  std::vector<Value> load(int rank, int slice, const Operand& operand,
                          const std::vector<std::int64_t>& ids) {
    std::vector<Value> values(ids.size());
    for (int j = 0; j < static_cast<int>(ids.size()); ++j) {
      const int at = cell(rank, operand, j);
      if (at < 0)
        complain(rank, 0, "reads out of bounds");
      else
        values[j] = ranks_[rank].memory[slice][at];
    }
    return values;
  }
  void store(int rank, int lane, int slice, const Operand& operand, const std::vector<Value>& values,
             const std::vector<std::int64_t>& ids) {
    for (int j = 0; j < static_cast<int>(values.size()); ++j) {
      if (programs_[rank].collective != Collective::barrier && size_of(ids[j]) == 0) continue;
      const int at = cell(rank, operand, j);
      if (at < 0)
        return complain(rank, std::min(lane, static_cast<int>(programs_[rank].lanes.size()) - 1),
                        "writes out of bounds");
      ranks_[rank].memory[slice][at] = values[j];
    }
  }

  /// A channel belongs to one lane in each direction.
  void use_channel(int rank, int lane, const Fifo& fifo, bool sending) {
    const auto [entry, added] = owners_[sending].try_emplace(fifo, lane);
    if (!added && entry->second != lane)
      complain(rank, lane, "shares a channel with lane " + std::to_string(entry->second));
  }

  void check_results() {
    for (auto& [fifo, messages] : fifos_)
      if (!messages.empty())
        return complain(std::get<1>(fifo), -1,
                        "leaves a message of rank " + std::to_string(std::get<0>(fifo)) + " unread");
    for (int r = 0; r < p_; ++r) {
      const Program& program = programs_[r];
      if (program.collective == Collective::barrier) {
        if (static_cast<int>(ranks_[r].known.size()) != p_)
          complain(r, -1, "leaves before all have entered");
        continue;
      }
      for (int slice = 0; slice < o_.slices; ++slice)
        for (int c = 0; c < program.chunks_of(Buffer::output); ++c) check_chunk(r, slice, c);
    }
  }
  void check_chunk(int r, int slice, int c) {
    const Program& program = programs_[r];
    const std::int64_t id = identity(r, Buffer::output, c);
    if (size_of(id) == 0) return;
    const std::string place = "output chunk " + std::to_string(c) + " ";
    const Value& value = ranks_[r].memory[slice][cell(r, {.buffer = Buffer::output}, c)];
    if (!value.valid) return complain(r, -1, place + "is never written");
    if (value.id != id)
      return complain(r, -1,
                      place + "holds chunk " + std::to_string(value.id) + ", not " + std::to_string(id));
    if (value.finishes != (reduces(program.collective) ? 1 : 0))
      return complain(r, -1, place + "is finished " + std::to_string(value.finishes) + " times");
    if (!reduces(program.collective)) return;
    std::vector<int> word = value.word;
    if (!o_.keeps_order) std::sort(word.begin(), word.end());
    for (int i = 0; i < p_; ++i)
      if (static_cast<int>(word.size()) != p_ || word[i] != i) {
        std::string text;
        for (int rank : value.word) text += " " + std::to_string(rank);
        return complain(r, -1, place + "combines ranks" + text);
      }
    if (o_.canonical && value.steps > 1) complain(r, -1, place + "is made by more than one step");
  }

  const std::vector<Program>& programs_;
  InterpretOptions o_;
  std::mt19937_64 random_;
  int p_;
  std::string complaint_;
  std::vector<int> sizes_;
  std::vector<RankState> ranks_;
  std::map<Fifo, std::deque<Message>> fifos_;
  std::map<Fifo, int> owners_[2];
};

}  // namespace

std::string interpret(const std::vector<Program>& programs, const InterpretOptions& options) {
  return Interpreter(programs, options).run();
}

std::string second_opinion(const Algorithm& algorithm, const Problem& problem,
                           const std::vector<Program>& programs) {
  for (std::uint64_t seed = 1; seed <= 12; ++seed)
    for (bool in_place : {false, true})
      for (bool direct : {false, true})
        for (bool uneven : {false, true}) {
          if (in_place && !algorithm.in_place_safe) continue;
          if (direct && !(in_place ? algorithm.direct_in_place_safe : algorithm.direct_safe)) continue;
          if (uneven && !algorithm.uneven_safe) continue;
          const std::string complaint = interpret(
              programs,
              {.slices = 1 + static_cast<int>(seed % 3),
               .slots = 2 + static_cast<int>(seed % 2),
               .in_place = in_place,
               .direct = direct,
               .uneven = uneven,
               .keeps_order = algorithm.canonical || (algorithm.keeps_order && !problem.commutative),
               .canonical = algorithm.canonical,
               .seed = seed * 7919});
          if (!complaint.empty())
            return complaint + (in_place ? " (in place)" : "") + (direct ? " (direct)" : "") +
                   (uneven ? " (uneven)" : "");
        }
  return {};
}

}  // namespace tamaki
