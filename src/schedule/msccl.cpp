#include "schedule/msccl.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <deque>
#include <map>
#include <optional>
#include <tuple>

#include "base/xml.hpp"
#include "schedule/builder.hpp"
#include "schedule/check.hpp"
#include "schedule/logical.hpp"

namespace tamaki {
namespace {

constexpr int kMostRanks = 65'535;
constexpr int kMostChunks = 1 << 20;

struct RawStep {
  std::string type;
  Buffer source = Buffer::none, destination = Buffer::none;
  int source_chunk = 0, destination_chunk = 0, count = 1;
  int after_tb = -1, after_step = -1;
  int line = 0;
  bool receives() const { return type[0] == 'r' && type != "re"; }
  bool sends() const { return type == "s" || type == "rcs" || type == "rrs" || type == "rrcs"; }
  bool reduces() const { return type == "re" || type == "rrc" || type == "rrs" || type == "rrcs"; }
  bool keeps() const {
    return type == "r" || type == "cpy" || type == "re" || type == "rcs" || type == "rrc" || type == "rrcs";
  }
};
struct RawBlock {
  int send = -1, receive = -1, channel = 0, line = 0;
  std::vector<RawStep> steps;
};
struct RawRank {
  int chunks[3] = {0, 0, 0};  // input, output, scratch
  std::vector<RawBlock> blocks;
};
struct RawSchedule {
  std::string name;
  Collective collective = Collective::allreduce;
  int ranks = 0, chunks = 1;  // Program::chunks
  bool in_place = false;
  std::vector<RawRank> all;
};

class Reader {
 public:
  explicit Reader(std::string_view file) : file_(file) {}

  Result<RawSchedule> read(const XmlElement& algo) {
    RawSchedule raw;
    if (algo.name != "algo")
      return wrong(algo.line, fmt::format("the root element is <{}>, expected <algo>", algo.name));
    if (const std::string* name = algo.attribute("name")) raw.name = *name;
    const std::string* coll = algo.attribute("coll");
    if (coll == nullptr) return wrong(algo.line, "<algo> has no coll");
    static const std::map<std::string, Collective> kNames = {{"allreduce", Collective::allreduce},
                                                             {"allgather", Collective::allgather},
                                                             {"reducescatter", Collective::reduce_scatter},
                                                             {"reduce_scatter", Collective::reduce_scatter},
                                                             {"alltoall", Collective::alltoall},
                                                             {"broadcast", Collective::broadcast},
                                                             {"reduce", Collective::reduce}};
    const auto known = kNames.find(*coll);
    if (known == kNames.end())
      return wrong(
          algo.line,
          fmt::format("coll is \"{}\", must be one of allreduce, allgather, reduce_scatter, alltoall, "
                      "broadcast, reduce",
                      *coll));
    raw.collective = known->second;
    raw.ranks = number(algo, "ngpus", 1, kMostRanks);
    const int loop = number(algo, "nchunksperloop", 1, kMostChunks);
    raw.in_place = number(algo, "inplace", 0, 1, 0) == 1 && number(algo, "outofplace", 0, 1, 0) == 0;
    if (!error_.empty()) return fail(Code::invalid_argument, error_);
    raw.chunks = loop;
    if (has_blocks(raw.collective)) {
      if (loop % raw.ranks != 0)
        return wrong(algo.line,
                     fmt::format("nchunksperloop is {}, no multiple of the {} gpus", loop, raw.ranks));
      raw.chunks = loop / raw.ranks;
    }
    raw.all.resize(static_cast<std::size_t>(raw.ranks));
    std::vector<bool> seen(static_cast<std::size_t>(raw.ranks), false);
    for (const XmlElement& gpu : algo.children) {
      if (gpu.name != "gpu")
        return wrong(gpu.line, fmt::format("<{}> in <algo>, expected <gpu>", gpu.name));
      const int id = number(gpu, "id", 0, raw.ranks - 1);
      if (!error_.empty()) return fail(Code::invalid_argument, error_);
      if (seen[id]) return wrong(gpu.line, fmt::format("gpu {} twice", id));
      seen[id] = true;
      read_rank(gpu, raw.ranks, &raw.all[id]);
      if (!error_.empty()) return fail(Code::invalid_argument, error_);
    }
    const auto missing = std::find(seen.begin(), seen.end(), false);
    if (missing != seen.end())
      return wrong(algo.line, fmt::format("gpu {} is missing", missing - seen.begin()));
    return raw;
  }

 private:
  tl::unexpected<Error> wrong(int line, const std::string& text) const {
    return fail(Code::invalid_argument, fmt::format("{}:{}: {}", file_, line, text));
  }
  void say(int line, const std::string& text) {
    if (error_.empty()) error_ = fmt::format("{}:{}: {}", file_, line, text);
  }
  int number(const XmlElement& element, const char* name, int least, int most,
             std::optional<int> otherwise = {}) {
    const std::string* text = element.attribute(name);
    int value = otherwise.value_or(least);
    if (text == nullptr) {
      if (!otherwise) say(element.line, fmt::format("<{}> has no {}", element.name, name));
      return value;
    }
    const auto r = std::from_chars(text->data(), text->data() + text->size(), value);
    if (r.ec != std::errc{} || r.ptr != text->data() + text->size() || value < least || value > most) {
      say(element.line,
          fmt::format("{} of <{}> is \"{}\", must be {}..{}", name, element.name, *text, least, most));
      return otherwise.value_or(least);
    }
    return value;
  }
  Buffer buffer(const XmlElement& step, const char* name) {
    const std::string* text = step.attribute(name);
    if (text != nullptr && *text == "i") return Buffer::input;
    if (text != nullptr && *text == "o") return Buffer::output;
    if (text != nullptr && *text == "s") return Buffer::scratch;
    say(step.line, fmt::format("{} is \"{}\", must be i, o or s", name, text ? *text : ""));
    return Buffer::scratch;
  }

  void read_rank(const XmlElement& gpu, int ranks, RawRank* rank) {
    const char* names[] = {"i_chunks", "o_chunks", "s_chunks"};
    for (int i = 0; i < 3; ++i) rank->chunks[i] = number(gpu, names[i], 0, kMostChunks, 0);
    for (std::size_t t = 0; t < gpu.children.size() && error_.empty(); ++t) {
      const XmlElement& tb = gpu.children[t];
      if (tb.name != "tb") return say(tb.line, fmt::format("<{}> in <gpu>, expected <tb>", tb.name));
      if (number(tb, "id", 0, 1 << 20) != static_cast<int>(t))
        return say(tb.line, fmt::format("tb is not number {} of its gpu, as its place is", t));
      RawBlock block;
      block.send = number(tb, "send", -1, ranks - 1);
      block.receive = number(tb, "recv", -1, ranks - 1);
      block.channel = number(tb, "chan", -1, 0xfffe, 0);
      if (block.channel < 0) block.channel = 0;
      block.line = tb.line;
      for (const XmlElement& child : tb.children) {
        block.steps.push_back(read_step(child, static_cast<int>(block.steps.size())));
        const RawStep& step = block.steps.back();
        if (!error_.empty()) return;
        if (step.sends() && block.send < 0) return say(child.line, "sends, but its tb has no send");
        if (step.receives() && block.receive < 0)
          return say(child.line, "receives, but its tb has no recv");
      }
      rank->blocks.push_back(std::move(block));
    }
    for (const RawBlock& block : rank->blocks)
      for (const RawStep& step : block.steps) {
        if (step.after_tb < 0) continue;
        if (step.after_tb >= static_cast<int>(rank->blocks.size()) ||
            step.after_step >= static_cast<int>(rank->blocks[step.after_tb].steps.size()))
          return say(step.line, fmt::format("depends on step {} of tb {}, which there is not",
                                            step.after_step, step.after_tb));
      }
  }

  RawStep read_step(const XmlElement& element, int place) {
    RawStep step;
    step.line = element.line;
    if (element.name != "step")
      return say(element.line, fmt::format("<{}> in <tb>, expected <step>", element.name)), step;
    if (number(element, "s", 0, 1 << 24) != place)
      say(element.line, fmt::format("step is not number {}, as its place is", place));
    const std::string* type = element.attribute("type");
    step.type = type != nullptr ? *type : "";
    static constexpr std::string_view kTypes[] = {"nop", "s",   "r",   "cpy", "re",
                                                  "rcs", "rrc", "rrs", "rrcs"};
    if (std::find(std::begin(kTypes), std::end(kTypes), step.type) == std::end(kTypes))
      return say(element.line,
                 fmt::format("type is \"{}\", must be one of nop, s, r, cpy, re, rcs, rrc, rrs, rrcs",
                             step.type)),
             step;
    step.after_tb = number(element, "depid", -1, 1 << 20, -1);
    step.after_step = number(element, "deps", -1, 1 << 24, -1);
    if (step.after_step < 0) step.after_tb = -1;
    if (step.type == "nop") return step;
    step.count = number(element, "cnt", 1, kMostChunks);
    if (step.type == "s" || step.type == "cpy" || step.reduces()) {
      step.source = buffer(element, "srcbuf");
      step.source_chunk = number(element, "srcoff", 0, kMostChunks);
    }
    if (step.keeps()) {
      step.destination = buffer(element, "dstbuf");
      step.destination_chunk = number(element, "dstoff", 0, kMostChunks);
    }
    return step;
  }

  std::string file_, error_;
};

/// Where the chunks of MSCCL's buffers are kept.
class Placing {
 public:
  explicit Placing(const RawSchedule& raw) : raw_(raw) {
    for (const RawRank& rank : raw.all)
      for (const RawBlock& block : rank.blocks)
        for (const RawStep& step : block.steps)
          writes_input_ = writes_input_ || step.destination == Buffer::input;
  }
  bool copies() const { return writes_input_ || raw_.in_place; }
  /// The input lies in the output: that is the place to work in.
  bool in_output() const {
    const Program shape = shape_of();
    return raw_.in_place && shape_chunks(shape, Buffer::output) >= shape_chunks(shape, Buffer::input);
  }
  /// Chunks of the copy of the input in scratch, in front of MSCCL's own scratch.
  int shared() const {
    return copies() && !in_output() ? static_cast<int>(shape_chunks(shape_of(), Buffer::input)) : 0;
  }
  /// Where MSCCL's chunk is kept on a rank.
  Operand place(int rank, Buffer buffer, int chunk) const {
    if (buffer == Buffer::scratch) return tmp(shared() + chunk);
    const Program shape = shape_of();
    const bool part = shape_chunks(shape, buffer) <
                      std::max(shape_chunks(shape, Buffer::input), shape_chunks(shape, Buffer::output));
    const int offset = part ? rank * raw_.chunks : 0;  // of the rank's own block in the larger buffer
    if (in_output()) return out(offset + chunk);
    if (copies() && raw_.in_place) return tmp(offset + chunk);
    if (copies() && buffer == Buffer::input) return tmp(chunk);
    return buffer == Buffer::input ? in(chunk) : out(chunk);
  }
  /// Results lie in the copy at the end, not in the output.
  bool copies_back() const { return raw_.in_place && !in_output(); }

 private:
  Program shape_of() const {
    Program shape;
    shape.collective = raw_.collective;
    shape.ranks = raw_.ranks;
    shape.chunks = raw_.chunks;
    return shape;
  }

  const RawSchedule& raw_;
  bool writes_input_ = false;
};

Program header_of(const RawSchedule& raw, int rank) {
  Program shape;
  shape.collective = raw.collective;
  shape.ranks = raw.ranks;
  shape.rank = rank;
  shape.chunks = raw.chunks;
  return shape;
}

Program convert(const RawSchedule& raw, const Placing& placing, int rank, int widest) {
  const RawRank& own = raw.all[rank];
  const Program shape = header_of(raw, rank);
  Builder b({.algorithm = raw.name.empty() ? "msccl" : raw.name,
             .collective = raw.collective,
             .ranks = raw.ranks,
             .rank = rank,
             .chunks = raw.chunks,
             .scratch_chunks = placing.shared() + own.chunks[2],
             .max_width = widest});
  std::vector<Builder::LaneBuilder> lanes;
  for (const RawBlock& block : own.blocks) lanes.push_back(b.lane(block.channel));
  std::vector<StepId> first;  // that everything waits for
  if (placing.copies()) {
    auto copying = b.lane(0);
    const int size = static_cast<int>(shape.chunks_of(Buffer::input));
    for (int c = 0; c < size; c += widest)
      first = {copying.copy(in(c), placing.place(rank, Buffer::input, c),
                            {.width = std::min(widest, size - c)})};
  }
  // Steps of a lane by number; those of nop: the number of real steps before them, and what they wait for.
  std::vector<std::vector<int>> real(own.blocks.size());
  for (std::size_t t = 0; t < own.blocks.size(); ++t) {
    int count = 0;
    for (const RawStep& step : own.blocks[t].steps)
      real[t].push_back(step.type == "nop" ? count - 1 : count++);
  }
  // A dependency on a nop is one on what runs before it and on what it waits for.
  const auto wait_for = [&](const auto& self, int tb, int step, int depth,
                            std::vector<StepId>* after) -> void {
    if (tb < 0 || depth > 64) return;
    if (real[tb][step] >= 0) after->push_back({tb, real[tb][step]});
    for (int s = step; s >= 0 && own.blocks[tb].steps[s].type == "nop"; --s)
      self(self, own.blocks[tb].steps[s].after_tb, own.blocks[tb].steps[s].after_step, depth + 1, after);
  };
  std::vector<StepId> last;
  for (std::size_t t = 0; t < own.blocks.size(); ++t) {
    const RawBlock& block = own.blocks[t];
    std::vector<StepId> pending;  // of nops
    bool begun = false;
    for (const RawStep& step : block.steps) {
      wait_for(wait_for, step.after_tb, step.after_step, 0, &pending);
      if (step.type == "nop") continue;
      std::vector<StepId> after;
      if (!begun) after = first;
      for (const StepId& id : pending)
        if (id.lane != static_cast<int>(t) &&
            std::none_of(after.begin(), after.end(),
                         [&](const StepId& x) { return x.lane == id.lane && x.step == id.step; }))
          after.push_back(id);
      pending.clear();
      begun = true;
      std::vector<Operand> sources, destinations;
      const Operand source = placing.place(rank, step.source, step.source_chunk);
      const Operand destination = placing.place(rank, step.destination, step.destination_chunk);
      if (step.type == "re") sources = {destination, source};
      if (step.receives()) sources.push_back(from(block.receive, block.channel));
      if (step.type == "s" || step.type == "cpy" || (step.reduces() && step.receives()))
        sources.push_back(source);
      if (step.keeps()) destinations.push_back(destination);
      if (step.sends()) destinations.push_back(to(block.send, {}, block.channel));
      const bool still = sources.size() == 1 && destinations.size() == 1 && sources[0] == destinations[0];
      if (still) destinations = sources;  // a copy to where the data is
      last.push_back(lanes[t].step(sources, destinations, {.width = step.count, .after = after}));
    }
  }
  if (placing.copies_back()) {
    auto copying = b.lane(0);
    const int size = static_cast<int>(shape.chunks_of(Buffer::output));
    for (int c = 0; c < size; c += widest)
      copying.copy(placing.place(rank, Buffer::output, c), out(c),
                   {.width = std::min(widest, size - c), .after = last});
  }
  return b.take();
}

/// Runs the programs on symbols to find sizes and finishing steps: every place holds a logical chunk and
/// the number of contributions in it. Stops where nothing moves on (for verify() to explain).
class SymbolRun {
 public:
  explicit SymbolRun(std::vector<Program>* programs) : programs_(*programs) {}

  Status run() {
    const std::size_t p = programs_.size();
    std::vector<std::vector<std::int32_t>> done(p);
    values_.resize(p);
    for (std::size_t r = 0; r < p; ++r) {
      const Program& program = programs_[r];
      done[r].assign(program.lanes.size(), 0);
      for (Buffer buffer : {Buffer::input, Buffer::output, Buffer::scratch})
        values_[r][static_cast<int>(buffer)].resize(static_cast<std::size_t>(program.chunks_of(buffer)));
      auto& input = values_[r][static_cast<int>(Buffer::input)];
      for (std::size_t c = 0; c < input.size(); ++c)
        input[c] = {logical_chunk(program, Buffer::input, static_cast<std::int64_t>(c)), 1};
    }
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t r = 0; r < p; ++r)
        for (std::size_t l = 0; l < programs_[r].lanes.size(); ++l)
          while (ready(r, l, done[r])) {
            if (Status s = step(r, l, done[r][l]); !s) return s;
            ++done[r][l];
            moved = true;
          }
    }
    return {};
  }

 private:
  struct Value {
    std::int64_t chunk = -1;
    int contributions = 0;
  };
  /// Lanes of these programs are one block of steps each.
  Step& at(std::size_t r, std::size_t l, std::int32_t i) {
    return programs_[r].steps[programs_[r].lanes[l].blocks[0].begin + i];
  }
  std::deque<std::vector<Value>>& fifo(int from, int to, int channel) {
    return fifos_[{from, to, channel}];
  }

  bool ready(std::size_t r, std::size_t l, const std::vector<std::int32_t>& done) {
    const Program& program = programs_[r];
    if (program.lanes[l].blocks.empty()) return false;
    const Block& block = program.lanes[l].blocks[0];
    if (done[l] >= block.end - block.begin) return false;
    const Step& s = at(r, l, done[l]);
    for (int d = 0; d < s.dependencies; ++d) {
      const Dependency& need = program.dependencies[s.first_dependency + d];
      if (done[need.lane] <= need.step) return false;
    }
    for (int k = 0; k < s.sources; ++k) {
      const Operand& o = program.operands[s.first_operand + k];
      if (o.kind == Operand::Kind::peer && fifo(o.peer, program.rank, o.channel).empty()) return false;
    }
    return true;
  }

  Status step(std::size_t r, std::size_t l, std::int32_t i) {
    Program& program = programs_[r];
    Step& s = at(r, l, i);
    const auto width = static_cast<std::size_t>(s.width);
    std::vector<Value> result(width);
    for (int k = 0; k < s.sources; ++k) {
      const Operand& o = program.operands[s.first_operand + k];
      std::vector<Value> source(width);
      if (o.kind == Operand::Kind::peer) {
        auto& queue = fifo(o.peer, program.rank, o.channel);
        source = std::move(queue.front());
        queue.pop_front();
        if (source.size() != width)
          return fail(Code::invalid_argument,
                      fmt::format("rank {} lane {} step {} receives {} chunks where rank {} sends {}", r, l,
                                  i, width, o.peer, source.size()));
      } else {
        const auto& buffer = values_[r][static_cast<int>(o.buffer)];
        if (o.chunk + width > buffer.size())
          return fail(Code::invalid_argument, fmt::format("rank {} lane {} step {}: {} is outside of 0..{}",
                                                          r, l, i, describe(o, s.width, true),
                                                          static_cast<std::int64_t>(buffer.size()) - 1));
        std::copy_n(buffer.begin() + o.chunk, width, source.begin());
      }
      for (std::size_t w = 0; w < width; ++w) {
        if (k == 0) result[w].chunk = source[w].chunk;
        result[w].contributions += source[w].contributions;
      }
    }
    // Complete: what is there of every rank (the verifier sees to it that it is so once each).
    if (program.ranks == 1 && reduces(program.collective))
      s.finish = program.operands[s.first_operand].buffer == Buffer::input;
    else if (s.sources > 1 && reduces(program.collective))
      s.finish = std::all_of(result.begin(), result.end(),
                             [&](const Value& v) { return v.contributions == program.ranks; });
    if (Status sized = size(&program, &s, result, r, l, i); !sized) return sized;
    for (int k = s.sources; k < s.sources + s.destinations; ++k) {
      const Operand& o = program.operands[s.first_operand + k];
      if (o.kind == Operand::Kind::peer) {
        fifo(program.rank, o.peer, o.channel).push_back(result);
        continue;
      }
      auto& buffer = values_[r][static_cast<int>(o.buffer)];
      if (o.chunk + width > buffer.size())
        return fail(Code::invalid_argument,
                    fmt::format("rank {} lane {} step {}: {} is outside of 0..{}", r, l, i,
                                describe(o, s.width, false), static_cast<std::int64_t>(buffer.size()) - 1));
      std::copy_n(result.begin(), width, buffer.begin() + o.chunk);
    }
    return {};
  }

  /// Chunks whose sizes are those of what the step moves.
  Status size(Program* program, Step* s, const std::vector<Value>& moved, std::size_t r, std::size_t l,
              std::int32_t i) {
    const auto fits = [&](Buffer buffer, std::int64_t first) {
      if (first < 0 || first + s->width > shape_chunks(*program, buffer)) return false;
      for (int w = 0; w < s->width; ++w)
        if (moved[w].chunk < 0 || size_class(*program, logical_chunk(*program, buffer, first + w)) !=
                                      size_class(*program, moved[w].chunk))
          return false;
      return true;
    };
    for (int k = 0; k < s->sources + s->destinations; ++k) {  // the exact ones first
      const Operand& o = program->operands[s->first_operand + k];
      if (o.kind == Operand::Kind::local && o.buffer != Buffer::scratch && fits(o.buffer, o.chunk)) {
        s->extent = {o.buffer, o.chunk, 0};
        return {};
      }
    }
    const bool input = shape_chunks(*program, Buffer::input) >= shape_chunks(*program, Buffer::output);
    const Buffer buffer = input ? Buffer::input : Buffer::output;
    const std::int64_t wanted = moved[0].chunk < 0                ? 0
                                : has_blocks(program->collective) ? size_class(*program, moved[0].chunk)
                                                                  : moved[0].chunk;
    if (fits(buffer, wanted)) {
      s->extent = {buffer, static_cast<std::int32_t>(wanted), 0};
      return {};
    }
    if (moved[0].chunk < 0) {  // reads what was never written: for verify() to say
      s->extent = {buffer, 0, 0};
      return {};
    }
    return fail(Code::invalid_argument,
                fmt::format("rank {} tb {} step {} moves {} chunks that do not follow each other", r, l, i,
                            s->width));
  }

  std::vector<Program>& programs_;
  std::vector<std::array<std::vector<Value>, 3>> values_;  // [rank][buffer]
  std::map<std::tuple<int, int, int>, std::deque<std::vector<Value>>> fifos_;
};

}  // namespace

Result<std::vector<Program>> schedule_from_msccl(std::string_view text, std::string_view file) {
  Result<XmlElement> root = parse_xml(text, file);
  if (!root) return pass(std::move(root));
  Result<RawSchedule> raw = Reader(file).read(*root);
  if (!raw) return pass(std::move(raw));
  const Placing placing(*raw);
  int widest = 1;
  for (const RawRank& rank : raw->all)
    for (const RawBlock& block : rank.blocks)
      for (const RawStep& step : block.steps) widest = std::max(widest, step.count);
  std::vector<Program> programs;
  for (int r = 0; r < raw->ranks; ++r) programs.push_back(convert(*raw, placing, r, widest));
  if (Status run = SymbolRun(&programs).run(); !run)
    return fail(Code::invalid_argument, fmt::format("{}: {}", file, run.error().message));
  return programs;
}

namespace {

/// One rank's steps as MSCCL has them.
class Writer {
 public:
  explicit Writer(const Program& program) : p_(program) {
    // A place for each message that is combined: as many a lane as its widest step needs.
    scratch_ = p_.scratch_chunks;
  }

  std::string gpu() {
    std::vector<std::vector<Mark>> ends(p_.lanes.size());  // of each expanded step: the last op
    // In an order that dependencies agree with: lanes take turns.
    std::vector<LaneCursor> cursors;
    for (std::size_t l = 0; l < p_.lanes.size(); ++l) {
      cursors.emplace_back(p_, static_cast<std::int32_t>(l));
      first_scratch_.push_back(scratch_);
      int most = 0;
      for (LaneCursor c(p_, static_cast<std::int32_t>(l)); !c.done(); c.advance()) {
        const ExpandedStep& step = c.current();
        most = std::max(most, step.step->width * (step.step->sources + 1));
      }
      scratch_ += most;
    }
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t l = 0; l < cursors.size(); ++l)
        while (!cursors[l].done()) {
          const ExpandedStep& step = cursors[l].current();
          std::vector<Mark> after;
          bool ready = true;
          for (int d = 0; d < step.step->dependencies && ready; ++d) {
            const Dependency& need = p_.dependencies[step.step->first_dependency + d];
            ready = static_cast<int>(ends[need.lane].size()) > need.step;
            if (ready) after.push_back(ends[need.lane][need.step]);
          }
          if (!ready) break;
          if (!ends[l].empty()) after.push_back(ends[l].back());
          ends[l].push_back(take_apart(step, static_cast<int>(l), std::move(after)));
          cursors[l].advance();
          moved = true;
        }
    }
    std::string text =
        fmt::format("  <gpu id=\"{}\" i_chunks=\"{}\" o_chunks=\"{}\" s_chunks=\"{}\">\n", p_.rank,
                    p_.chunks_of(Buffer::input), p_.chunks_of(Buffer::output), scratch_);
    for (std::size_t t = 0; t < blocks_.size(); ++t) {
      const Tb& tb = blocks_[t];
      text += fmt::format("    <tb id=\"{}\" send=\"{}\" recv=\"{}\" chan=\"{}\">\n", t, tb.send,
                          tb.receive, tb.channel);
      for (std::size_t s = 0; s < tb.ops.size(); ++s) {
        const Op& op = tb.ops[s];
        text += fmt::format(
            "      <step s=\"{}\" type=\"{}\" srcbuf=\"{}\" srcoff=\"{}\" dstbuf=\"{}\" dstoff=\"{}\" "
            "cnt=\"{}\" depid=\"{}\" "
            "deps=\"{}\" hasdep=\"{}\"/>\n",
            s, op.type, letter(op.source), op.source.chunk, letter(op.destination), op.destination.chunk,
            op.count, op.after.tb, op.after.step, op.awaited ? 1 : 0);
      }
      text += "    </tb>\n";
    }
    return text + "  </gpu>\n";
  }
  int channels() const {
    int most = 0;
    for (const Tb& tb : blocks_) most = std::max(most, tb.channel);
    return most + 1;
  }

 private:
  struct Mark {
    int tb = -1, step = -1;
  };
  struct Op {
    const char* type = "nop";
    Operand source = tmp(0), destination = tmp(0);
    int count = 0;
    Mark after;
    bool awaited = false;
  };
  struct Tb {
    int send = -1, receive = -1, channel = 0;
    std::vector<Op> ops;
  };

  static char letter(const Operand& o) {
    return o.buffer == Buffer::input ? 'i' : o.buffer == Buffer::output ? 'o' : 's';
  }

  int block_for(int send, int receive, int channel) {
    for (std::size_t t = 0; t < blocks_.size(); ++t)
      if (blocks_[t].send == send && blocks_[t].receive == receive && blocks_[t].channel == channel)
        return static_cast<int>(t);
    blocks_.push_back({send, receive, channel, {}});
    return static_cast<int>(blocks_.size()) - 1;
  }

  /// Adds an op that waits for all of `after`; MSCCL's steps wait for one, further ones take nops.
  Mark add(int tb, Op op, std::vector<Mark> after) {
    std::erase_if(after,
                  [&](const Mark& m) { return m.tb == tb || m.tb < 0; });  // a tb is in order by itself
    for (std::size_t i = 0; i < after.size(); ++i) {
      blocks_[after[i].tb].ops[after[i].step].awaited = true;
      if (i + 1 < after.size())
        blocks_[tb].ops.push_back({.after = after[i]});
      else
        op.after = after[i];
    }
    blocks_[tb].ops.push_back(op);
    return {tb, static_cast<int>(blocks_[tb].ops.size()) - 1};
  }

  Mark take_apart(const ExpandedStep& step, int lane, std::vector<Mark> after) {
    const Step& s = *step.step;
    const int width = s.width, own = block_for(-1, -1, lane);
    int free = first_scratch_[lane];
    std::vector<Operand> places;  // of the sources
    const Operand* kept = nullptr;
    for (int d = 0; d < s.destinations; ++d)
      if (step.destinations[d].kind == Operand::Kind::local && kept == nullptr)
        kept = &step.destinations[d];
    for (int k = 0; k < s.sources; ++k) {
      const Operand& source = step.sources[k];
      if (source.kind == Operand::Kind::local) {
        places.push_back(source);
        continue;
      }
      Operand place = s.sources == 1 && kept != nullptr ? *kept : tmp(free);
      if (place.buffer == Buffer::scratch && !(s.sources == 1 && kept != nullptr)) free += width;
      after = {add(block_for(-1, source.peer, source.channel),
                   {.type = "r", .source = place, .destination = place, .count = width}, after)};
      places.push_back(place);
    }
    Operand result = places[0];
    if (s.sources > 1) {
      // Where the result is kept, if that is a source too; else there, or in scratch.
      result = kept != nullptr ? *kept : tmp(free);
      const auto same = [&](const Operand& o) {
        return o.buffer == result.buffer && o.chunk == result.chunk;
      };
      const auto held = std::find_if(places.begin(), places.end(), same);
      if (held == places.end()) {
        after = {
            add(own, {.type = "cpy", .source = places[0], .destination = result, .count = width}, after)};
        places.erase(places.begin());
      } else {
        places.erase(held);
      }
      for (const Operand& place : places)
        after = {add(own, {.type = "re", .source = place, .destination = result, .count = width}, after)};
    }
    for (int d = 0; d < s.destinations; ++d) {
      const Operand& o = step.destinations[d];
      if (o.kind == Operand::Kind::peer)
        after = {add(block_for(o.peer, -1, o.channel),
                     {.type = "s", .source = result, .destination = result, .count = width}, after)};
      else if (o.buffer != result.buffer || o.chunk != result.chunk)
        after = {add(own, {.type = "cpy", .source = result, .destination = o, .count = width}, after)};
    }
    if (after.empty() || (s.sources == 1 && s.destinations == 1 && step.sources[0] == step.destinations[0]))
      after = {add(own, {}, after)};
    return after.back();
  }

  const Program& p_;
  std::vector<Tb> blocks_;
  std::vector<int> first_scratch_;  // of each lane
  int scratch_ = 0;
};

}  // namespace

Result<std::string> schedule_to_msccl(std::span<const Program> programs, const MscclOptions& options) {
  if (programs.empty()) return fail(Code::invalid_argument, "there are no programs");
  const Program& head = programs[0];
  switch (head.collective) {
    case Collective::gather:
    case Collective::scatter:
    case Collective::barrier:
      return fail(Code::invalid_argument, fmt::format("MSCCL has no {}", name_of(head.collective)));
    default:
      break;
  }
  if (head.root != 0)
    return fail(Code::invalid_argument, fmt::format("root is {}; MSCCL's is 0", head.root));
  std::string gpus;
  int channels = 1;
  for (const Program& program : programs) {
    Writer writer(program);
    gpus += writer.gpu();
    channels = std::max(channels, writer.channels());
  }
  const std::int64_t chunks = std::int64_t{head.chunks} * (has_blocks(head.collective) ? head.ranks : 1);
  return fmt::format(
             "<algo name=\"{}\" proto=\"{}\" nchannels=\"{}\" nchunksperloop=\"{}\" ngpus=\"{}\" "
             "coll=\"{}\" inplace=\"0\" "
             "outofplace=\"1\" minBytes=\"{}\" maxBytes=\"{}\">\n",
             xml_escape(head.algorithm), xml_escape(options.protocol), channels, chunks, head.ranks,
             name_of(head.collective), options.min_bytes, options.max_bytes) +
         gpus + "</algo>\n";
}

}  // namespace tamaki
