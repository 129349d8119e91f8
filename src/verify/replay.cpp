#include "verify/replay.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "verify/access_log.hpp"
#include "verify/values.hpp"

namespace tamaki::proof {
namespace {

/// Values of messages in flight, in blocks of one width each.
class MessagePool {
 public:
  explicit MessagePool(std::size_t nodes) : place_(nodes, -1), uses_(nodes, 0) {}
  void send(std::int32_t node, const std::vector<Value>& values, int receivers) {
    std::vector<std::int64_t>& free = free_[values.size()];
    if (free.empty()) {
      free.push_back(static_cast<std::int64_t>(pool_.size()));
      pool_.resize(pool_.size() + values.size());
    }
    place_[node] = free.back();
    free.pop_back();
    uses_[node] = receivers;
    std::copy(values.begin(), values.end(), pool_.begin() + place_[node]);
  }
  const Value* look(std::int32_t node) const { return pool_.data() + place_[node]; }
  void take(std::int32_t node, std::size_t width) {
    if (--uses_[node] == 0) free_[width].push_back(place_[node]);
  }

 private:
  std::vector<std::int64_t> place_;
  std::vector<std::int32_t> uses_;
  std::map<std::size_t, std::vector<std::int64_t>> free_;
  std::vector<Value> pool_;
};

class Replayer {
 public:
  Replayer(const Flat& flat, const Progress& progress, const VerifyOptions& options, Replay* result,
           std::vector<Finding>* findings)
      : flat_(flat),
        progress_(progress),
        options_(options),
        result_(*result),
        findings_(*findings),
        sets_(static_cast<int>(flat.programs.size())),
        values_(flat.cell_count),
        messages_(flat.nodes.size()),
        log_(flat, options, result, findings),
        head_(flat.programs[0]),
        reducing_(reduces(head_.collective)),
        barrier_(head_.collective == Collective::barrier) {
    // With one lane a rank nothing is concurrent, except in direct mode.
    tracked_ = options.direct || flat.lanes.size() > flat.programs.size();
  }

  void run() {
    place_inputs();
    for (std::int32_t node : progress_.order) {
      if (full()) return;
      step(node);
    }
    if (!barrier_) results();
  }

 private:
  bool full() const { return findings_.size() >= options_.limit; }
  void say(std::int32_t node, std::string text) {
    if (!full()) findings_.push_back(flat_.finding(node, std::move(text)));
  }

  void place_inputs() {
    for (const Program& p : flat_.programs)
      for (std::int32_t c = 0; c < p.chunks_of(Buffer::input); ++c)
        values_[flat_.cells[p.rank].input + c] = {.chunk = logical_chunk(p, Buffer::input, c),
                                                  .ranks = sets_.single(p.rank),
                                                  .expression = leaf_expression(p.rank),
                                                  .raw = true,
                                                  .ordered = true,
                                                  .canonical = p.ranks == 1};
  }

  /// "chunk 5", "part 0 of block 3", ...
  std::string chunk_text(std::int64_t logical) const {
    if (!has_blocks(head_.collective)) return fmt::format("chunk {}", logical);
    const std::int64_t block = logical / head_.chunks, part = logical % head_.chunks;
    const std::string what =
        head_.collective == Collective::alltoall
            ? fmt::format("the block from {} to {}", block / head_.ranks, block % head_.ranks)
            : fmt::format("block {}", block);
    return head_.chunks == 1 ? what : fmt::format("part {} of {}", part, what);
  }

  Buffer buffer_of(std::int32_t node, int operand) const {
    return flat_.program_of(node).operands[flat_.nodes[node].step->first_operand + operand].buffer;
  }

  void step(std::int32_t node) {
    const Node& n = flat_.nodes[node];
    const Step& s = *n.step;
    const FlatOperand* operands = flat_.operands.data() + n.first_operand;
    const int all = s.sources + s.destinations;
    if (options_.in_place) check_overlap(node);
    sources_.assign(s.sources, nullptr);
    for (int k = 0; k < s.sources; ++k) {
      if (operands[k].fifo < 0) {
        sources_[k] = values_.data() + operands[k].cell;
        if (tracked_)
          for (int w = 0; w < s.width; ++w) log_.read(node, operands[k].cell + w, sized_by(node, w));
      } else if (!arrive(node, k)) {
        sources_[k] = nullptr;
      }
    }
    results_.assign(s.width, Value{});
    for (int w = 0; w < s.width; ++w) combine(node, w);
    int receivers = 0;
    for (int k = s.sources; k < all; ++k) {
      if (operands[k].fifo >= 0) {
        ++receivers;
        depart(node, k);
        continue;
      }
      for (int w = 0; w < s.width; ++w) {
        const std::int32_t cell = operands[k].cell + w;
        // In place, a move of a chunk onto itself is left out; not so where a scalar may have to be
        // multiplied in.
        if (options_.in_place && !reducing_ && s.sources == 1 && operands[0].cell == operands[k].cell)
          continue;
        values_[cell] = results_[w];
        if (tracked_) log_.write(node, cell, sized_by(node, w));
      }
    }
    for (int k = 0; k < s.sources; ++k)
      if (operands[k].fifo >= 0) {
        const std::int32_t sender = flat_.owner[progress_.match[n.first_operand + k]];
        messages_.take(sender, flat_.nodes[sender].step->width);
      }
    if (receivers > 0) messages_.send(node, results_, receivers);
  }

  /// Input and output in one place: destinations may be a source's place, but not overlap it in part.
  void check_overlap(std::int32_t node) {
    const Node& n = flat_.nodes[node];
    const Step& s = *n.step;
    const FlatOperand* operands = flat_.operands.data() + n.first_operand;
    for (int d = s.sources; d < s.sources + s.destinations; ++d) {
      if (operands[d].fifo >= 0) continue;
      for (int k = 0; k < d; ++k) {
        if (operands[k].fifo >= 0 || (k >= s.sources && k == d)) continue;
        const int distance = std::abs(operands[k].cell - operands[d].cell);
        if (distance >= s.width || (distance == 0 && k < s.sources)) continue;
        say(node, fmt::format("operands overlap in place at {}", flat_.describe_cell(operands[d].cell)));
      }
    }
  }

  std::int64_t sized_by(std::int32_t node, int w) const {
    const Node& n = flat_.nodes[node];
    return logical_chunk(flat_.program_of(node), n.step->extent.buffer, n.extent_chunk + w);
  }
  bool same_size(std::int64_t a, std::int64_t b) const {
    return size_class(head_, a) == size_class(head_, b);
  }
  void not_exact(std::int32_t node, std::int64_t size, std::int64_t moved) {
    if (options_.uneven)
      say(node, fmt::format("moves {} with the size of {}, which differs when blocks have different sizes",
                            chunk_text(moved), chunk_text(size)));
    result_.uneven = false;
  }

  /// A message as source `k` of `node`: fetches its values, or says why they do not fit.
  bool arrive(std::int32_t node, int k) {
    const Node& n = flat_.nodes[node];
    const Step& s = *n.step;
    const std::int32_t sent = progress_.match[n.first_operand + k], sender = flat_.owner[sent];
    const Step& from = *flat_.nodes[sender].step;
    const std::int32_t landing = flat_.operands[sent].cell;
    sources_[k] = messages_.look(sender);
    if (options_.direct) {
      if (landing >= 0)
        for (int w = 0; w < from.width; ++w) log_.early_write_ends(sender, landing + w);
      if (const std::int32_t place = late_place(sender); place >= 0)
        for (int w = 0; w < from.width; ++w) log_.late_read_ends(node, place + w, sized_by(node, w));
    }
    if (from.width != s.width) {
      say(node,
          fmt::format("receives {} chunks, but {} sends {}", s.width, flat_.describe(sender), from.width));
      return false;
    }
    if (!barrier_ && (from.extent.buffer != Buffer::input || s.extent.buffer != Buffer::output))
      result_.pairwise_sizes = false;
    for (int w = 0; w < s.width && !barrier_; ++w) {
      const std::int64_t here = sized_by(node, w), there = sized_by(sender, w);
      if (!same_size(here, there)) {
        say(node, fmt::format("expects a message with the size of {}, but {} sends that of {}",
                              chunk_text(here), flat_.describe(sender), chunk_text(there)));
        return false;
      }
      if (here != there) not_exact(node, here, there);
    }
    if (landing >= 0) check_landing(node, sender, landing);
    return true;
  }

  void check_landing(std::int32_t node, std::int32_t sender, std::int32_t landing) {
    const Node& n = flat_.nodes[node];
    const Step& s = *n.step;
    bool lands = false;
    for (int d = s.sources; d < s.sources + s.destinations; ++d) {
      const FlatOperand& o = flat_.operands[n.first_operand + d];
      lands = lands || (o.fifo < 0 && o.cell == landing);
    }
    if (s.sources != 1 || !lands)
      say(node, fmt::format("does not put the message in {}, as {} says", flat_.describe_cell(landing),
                            flat_.describe(sender)));
    else if (s.finish)
      say(node, fmt::format("finishes a message that {} says lands in {} as it is", flat_.describe(sender),
                            flat_.describe_cell(landing)));
  }

  /// Where a message of `sender` may be read late, or -1.
  std::int32_t late_place(std::int32_t sender) const {
    const Step& s = *flat_.nodes[sender].step;
    const FlatOperand& o = flat_.operands[flat_.nodes[sender].first_operand];
    if (s.sources != 1 || o.fifo >= 0 || buffer_of(sender, 0) == Buffer::scratch) return -1;
    return o.cell;
  }

  void depart(std::int32_t node, int k) {
    if (!options_.direct) return;
    const Node& n = flat_.nodes[node];
    const FlatOperand& o = flat_.operands[n.first_operand + k];
    if (const std::int32_t place = late_place(node); place >= 0)
      for (int w = 0; w < n.step->width; ++w) log_.late_read_begins(node, place + w);
    const Fifo& f = flat_.fifos[o.fifo];
    if (o.cell >= 0 && log_.may_write_early(f.source, f.destination))
      for (int w = 0; w < n.step->width; ++w) log_.early_write_begins(node, o.cell + w, sized_by(node, w));
  }

  void combine(std::int32_t node, int w) {
    const Step& s = *flat_.nodes[node].step;
    Value& result = results_[w];
    result.chunk = Value::kBroken;
    if (barrier_) return;
    const std::int64_t size = sized_by(node, w);
    const FlatOperand* operands = flat_.operands.data() + flat_.nodes[node].first_operand;
    if (s.sources > 1 && !reducing_)
      return say(node, fmt::format("combines {} sources, but {} reduces nothing", s.sources,
                                   name_of(head_.collective)));
    ExpressionFold expression;
    bool canonical = s.sources == head_.ranks;
    for (int k = 0; k < s.sources; ++k) {
      if (sources_[k] == nullptr) return;
      const Value& v = sources_[k][w];
      const bool local = operands[k].fifo < 0;
      if (v.chunk == Value::kNothing)
        return say(node, local ? fmt::format("reads {} before anything is written there",
                                             flat_.describe_cell(operands[k].cell + w))
                               : std::string("receives what has never been written"));
      if (!v.known()) return;
      if (!same_size(v.chunk, size))
        return say(node,
                   fmt::format("takes {} with the size of {}", chunk_text(v.chunk), chunk_text(size)));
      if (v.chunk != size) not_exact(node, size, v.chunk);
      if (local && buffer_of(node, k) == Buffer::input && !v.raw)
        return say(node, fmt::format("reads {} after other data was put there in place",
                                     flat_.describe_cell(operands[k].cell + w)));
      canonical = canonical && !v.finished && v.ranks == sets_.single(k);
      if (k == 0) {
        result = v;
      } else {
        if (v.chunk != result.chunk)
          return broken(result, node,
                        fmt::format("combines {} with {}", chunk_text(result.chunk), chunk_text(v.chunk)));
        if (v.finished || result.finished)
          return broken(result, node,
                        fmt::format("combines {} with a result that is finished", chunk_text(v.chunk)));
        RankSet both;
        if (!sets_.unite(result.ranks, v.ranks, &both))
          return broken(result, node,
                        fmt::format("doubles the contributions of ranks {} to {}",
                                    sets_.common(result.ranks, v.ranks), chunk_text(v.chunk)));
        const bool follows = SetTable::is_run(result.ranks) && SetTable::is_run(v.ranks) &&
                             SetTable::begin_of(result.ranks) + SetTable::size_of(result.ranks) ==
                                 SetTable::begin_of(v.ranks);
        result.ordered = result.ordered && v.ordered && follows;
        result.ranks = both;
      }
      expression.add(v.expression);
    }
    result.expression = expression.result();
    result.raw = false;
    if (s.sources > 1 || canonical) result.canonical = canonical;
    if (reducing_) finish(node, result);
  }

  void broken(Value& value, std::int32_t node, std::string text) {
    value.chunk = Value::kBroken;
    say(node, std::move(text));
  }

  void finish(std::int32_t node, Value& result) {
    const Step& s = *flat_.nodes[node].step;
    const bool complete = result.ranks == sets_.all();
    if (s.finish) {
      if (result.finished)
        return broken(result, node, fmt::format("finishes {} twice", chunk_text(result.chunk)));
      if (!complete)
        return broken(result, node,
                      fmt::format("finishes {} without the contributions of ranks {}",
                                  chunk_text(result.chunk), sets_.missing(result.ranks)));
      result.finished = true;
    } else if (complete && s.sources > 1) {
      broken(result, node,
             fmt::format("completes {} but is not said to finish it", chunk_text(result.chunk)));
    }
  }

  int owner(std::int64_t logical) const {
    switch (head_.collective) {
      case Collective::broadcast:
      case Collective::scatter:
        return head_.root;
      case Collective::alltoall:
        return static_cast<int>(logical / head_.chunks / head_.ranks);
      default:
        return static_cast<int>(logical / head_.chunks);
    }
  }

  void results() {
    for (const Program& p : flat_.programs)
      for (std::int32_t c = 0; c < p.chunks_of(Buffer::output) && !full(); ++c) result(p, c);
  }

  void result(const Program& p, std::int32_t c) {
    const Value& v = values_[flat_.cells[p.rank].output + c];
    const std::int64_t wanted = logical_chunk(p, Buffer::output, c);
    const auto wrong = [&](std::string text) {
      findings_.push_back({p.rank, -1, -1, fmt::format("output {}: {}", c, text)});
    };
    if (v.chunk == Value::kBroken) {  // for which something has been said where it broke
      if (findings_.empty()) wrong("is not known");
      return;
    }
    if (v.chunk == Value::kNothing) return wrong("is never written");
    if (v.chunk != wanted)
      return wrong(fmt::format("holds {} instead of {}", chunk_text(v.chunk), chunk_text(wanted)));
    if (!reducing_) {
      if (v.ranks != sets_.single(owner(wanted)))
        wrong(fmt::format("holds the data of ranks {} instead of rank {}", sets_.text(v.ranks),
                          owner(wanted)));
      return;
    }
    if (v.ranks != sets_.all())
      return wrong(fmt::format("lacks the contributions of ranks {}", sets_.missing(v.ranks)));
    if (!v.finished) return wrong("is complete but was never finished");
    result_.ordered = result_.ordered && v.ordered;
    result_.canonical = result_.canonical && v.canonical;
    if (options_.keeps_order && !v.ordered) return wrong("is not combined in rank order");
    if (options_.canonical && !v.canonical)
      return wrong(
          fmt::format("is not made by one step with the contributions 0..{} in order", p.ranks - 1));
    if (head_.collective != Collective::allreduce) return;
    const Value& first = values_[flat_.cells[0].output + c];
    if (v.expression != first.expression)
      wrong("is combined in another association than on rank 0: bits may differ between ranks");
  }

  const Flat& flat_;
  const Progress& progress_;
  const VerifyOptions& options_;
  Replay& result_;
  std::vector<Finding>& findings_;
  SetTable sets_;
  std::vector<Value> values_;  // of each cell
  MessagePool messages_;
  AccessLog log_;
  const Program& head_;
  const bool reducing_, barrier_;
  bool tracked_ = true;
  std::vector<const Value*> sources_;
  std::vector<Value> results_;
};

}  // namespace

void replay(const Flat& flat, const Progress& progress, const VerifyOptions& options, Replay* result,
            std::vector<Finding>* findings) {
  Replayer(flat, progress, options, result, findings).run();
}

}  // namespace tamaki::proof
