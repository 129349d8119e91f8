// Random calls on random communicators against a plain oracle: rank count x transport x algorithm x (collective, type,
// operation, count, alignment, in place, root).

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <numeric>

#include "algorithms/algorithm.hpp"
#include "support/oracle.hpp"
#include "support/thread_ranks.hpp"

namespace tamaki {
namespace {

using test::config_for;
using test::run_ranks;

constexpr Collective kTested[] = {Collective::allreduce, Collective::reduce,  Collective::broadcast,
                                  Collective::allgather, Collective::reduce_scatter, Collective::gather,
                                  Collective::scatter,   Collective::alltoall, Collective::barrier};

enum class Memory { ordinary, allocated, registered };

struct Spec {
  Collective collective;
  DataType type;
  ReduceOp op;
  std::size_t count;
  std::size_t offset;  // bytes from a 64-byte boundary
  int root;
  bool in_place;
  Memory memory;  // each rank decides for itself whether its buffers are of this kind
  std::uint64_t seed;
};

const char* name_of(Memory memory) {
  return memory == Memory::ordinary ? "" : memory == Memory::allocated ? ", tmkMemAlloc" : ", registered";
}

std::string show(const Spec& s, int p, const std::string& where) {
  return std::string(name_of(s.collective)) + " of " + std::to_string(s.count) + " x " + std::string(name_of(s.type)) + ", " +
         std::string(name_of(s.op)) + ", root " + std::to_string(s.root) + ", offset " + std::to_string(s.offset) +
         (s.in_place ? ", in place" : "") + name_of(s.memory) + ", " + std::to_string(p) + " ranks, " + where + ", seed " + std::to_string(s.seed);
}

rc::Gen<Spec> specs(int p) {
  return rc::gen::map(rc::gen::arbitrary<std::uint64_t>(), [p](std::uint64_t seed) {
    const auto pick = [&](std::uint64_t what, std::uint64_t below) { return test::mix(seed, what) % below; };
    Spec s;
    s.seed = seed;
    s.collective = kTested[pick(1, std::size(kTested))];
    do {
      s.type = static_cast<DataType>(pick(2, kDataTypes));
      s.op = static_cast<ReduceOp>(pick(3, kPredefinedOps + 1));  // with pre_mul_sum
      seed = test::mix(seed, 99);
    } while (reduces(s.collective) && !is_defined(s.op, s.type));
    // Small, around the number of ranks, around mailbox and slot sizes, and a few large ones.
    const std::size_t element = size_of(s.type);
    const std::size_t bases[] = {0, 1, 2, static_cast<std::size_t>(p), 56 / element, 560 / element, 4096 / element, 131072 / element, 300000 / element};
    const std::size_t base = bases[pick(4, std::size(bases))];
    s.count = base + pick(5, 4);
    if (s.count >= 2 && pick(6, 2) == 0) s.count -= 2;
    s.offset = pick(7, 64);
    s.root = static_cast<int>(pick(8, static_cast<std::uint64_t>(p)));
    s.in_place = pick(9, 2) == 0;
    s.memory = static_cast<Memory>(pick(10, 3));
    return s;
  });
}

/// A byte range at a given distance from a 64-byte boundary, with guards around it.
class Guarded {
 public:
  Guarded(std::size_t bytes, std::size_t offset, Memory memory) : bytes_(bytes) {
    if (memory == Memory::allocated) {
      const Result<void*> region = allocate_shared(bytes + 256);
      if (region) region_ = static_cast<std::byte*>(*region);
      else ADD_FAILURE() << region.error().message;
    }
    if (region_ == nullptr) memory_.resize(bytes + 256);
    whole_ = {region_ != nullptr ? region_ : memory_.data(), bytes + 256};
    std::fill(whole_.begin(), whole_.end(), std::byte{0xa5});
    const auto start = reinterpret_cast<std::uintptr_t>(whole_.data()) + 64;
    at_ = whole_.data() + 64 + (64 - start % 64) % 64 + offset % 64;
    if (memory == Memory::registered && bytes >= (80u << 10)) {
      const Result<std::uint32_t> pages = share_pages(at_, bytes);
      if (pages) pages_ = *pages;
      else ADD_FAILURE() << pages.error().message;
    }
  }
  ~Guarded() {
    if (pages_ != 0) {
      const Status status = unshare_pages(pages_);
      EXPECT_TRUE(status) << status.error().message;
    }
    if (region_ != nullptr) (void)free_shared(region_);
  }
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;
  std::span<std::byte> span() { return {at_, bytes_}; }
  bool intact() const {
    const auto untouched = [](const std::byte* from, const std::byte* to) {
      return std::all_of(from, to, [](std::byte b) { return b == std::byte{0xa5}; });
    };
    return untouched(whole_.data(), at_) && untouched(at_ + bytes_, whole_.data() + whole_.size());
  }

 private:
  std::size_t bytes_;
  std::vector<std::byte> memory_;
  std::byte* region_ = nullptr;
  std::uint32_t pages_ = 0;
  std::span<std::byte> whole_;
  std::byte* at_;
};

/// Elements a rank gives and gets, in units of `count`.
std::pair<int, int> blocks(Collective c, int p, bool root) {
  switch (c) {
    case Collective::allgather: return {1, p};
    case Collective::gather: return {1, root ? p : 0};
    case Collective::reduce_scatter: return {p, 1};
    case Collective::scatter: return {root ? p : 0, 1};
    case Collective::alltoall: return {p, p};
    case Collective::barrier: return {0, 0};
    case Collective::reduce: return {1, root ? 1 : 0};
    case Collective::broadcast: return {root ? 1 : 0, 1};
    default: return {1, 1};
  }
}

/// Runs one call and compares. Returns what is wrong, or nothing.
std::optional<std::string> run_one(Communicator& c, const Spec& s, bool* refused) {
  const int p = c.ranks(), r = c.rank();
  const std::size_t element = size_of(s.type), block = s.count * element;
  const auto [gives, gets] = blocks(s.collective, p, r == s.root);
  const bool many_in = s.collective == Collective::reduce_scatter || s.collective == Collective::scatter || s.collective == Collective::alltoall;
  const std::size_t vector = many_in ? static_cast<std::size_t>(p) * s.count : s.count;  // elements of every rank's data
  OpContext op;
  op.op = reduces(s.collective) ? s.op : ReduceOp::sum;
  op.type = s.type;
  op.ranks = p;
  if (op.op == ReduceOp::pre_mul_sum) test::set_test_scalar(&op);
  const DataType fill_type = s.type;
  std::vector<std::vector<std::byte>> inputs(static_cast<std::size_t>(p), std::vector<std::byte>(vector * element));
  for (int i = 0; i < p; ++i)
    test::fill_input(fill_type, op.op, s.seed, i, p, test::Inputs::exact, inputs[static_cast<std::size_t>(i)]);

  const Memory memory = test::mix(s.seed, 11, static_cast<std::uint64_t>(r)) % 4 != 0 ? s.memory : Memory::ordinary;
  Guarded in(block * static_cast<std::size_t>(gives), s.offset, memory), out(block * static_cast<std::size_t>(gets), s.offset * 7 + 1, memory);
  Call call;
  call.collective = s.collective;
  call.type = s.type;
  call.count = s.count;
  call.op = op;
  call.root = s.root;
  const auto& own = inputs[static_cast<std::size_t>(r)];
  const std::size_t own_at = static_cast<std::size_t>(r) * block;
  call.output = gets > 0 ? out.span().data() : nullptr;
  // The collective's in-place form: the input lies where the output will be, or the output in the input.
  const bool in_place = s.in_place && gives > 0 && gets > 0 && block > 0;
  if (!in_place) {
    std::copy_n(own.begin(), in.span().size(), in.span().begin());
    call.input = gives > 0 ? in.span().data() : nullptr;
  } else if (s.collective == Collective::allgather || s.collective == Collective::gather) {
    std::copy_n(own.begin(), block, out.span().begin() + static_cast<std::ptrdiff_t>(own_at));
    call.input = out.span().data() + own_at;
  } else if (s.collective == Collective::reduce_scatter || s.collective == Collective::scatter) {
    std::copy_n(own.begin(), in.span().size(), in.span().begin());
    call.input = in.span().data();
    call.output = in.span().data() + own_at;
  } else {
    std::copy_n(own.begin(), out.span().size(), out.span().begin());
    call.input = call.output;
  }
  const Status status = c.run(call);
  if (!status) {
    *refused = status.error().code == Code::invalid_usage;
    return *refused ? std::nullopt : std::optional(status.error().message);
  }
  if (!in.intact() || !out.intact()) return "bytes outside the buffers were written";
  if (gets == 0 || block == 0) return std::nullopt;
  const std::byte* result = static_cast<const std::byte*>(call.output);
  if (reduces(s.collective)) {
    const test::Expected expected = test::expect_allreduce(op, inputs);
    if (s.collective != Collective::reduce_scatter) return test::differs_exactly(expected, {result, block});
    // Compare within the whole vector: the own block of the result, the expected bits elsewhere.
    std::vector<std::vector<std::byte>> parts;
    for (const auto& input : inputs) parts.emplace_back(input.begin() + static_cast<std::ptrdiff_t>(own_at), input.begin() + static_cast<std::ptrdiff_t>(own_at + block));
    return test::differs_exactly(test::expect_allreduce(op, parts), {result, block});
  }
  const auto same = [&](std::size_t at, int from, std::size_t from_at) {
    return std::memcmp(result + at, inputs[static_cast<std::size_t>(from)].data() + from_at, block) == 0;
  };
  for (int b = 0; b < gets; ++b) {
    const std::size_t at = static_cast<std::size_t>(b) * block;
    const bool right = s.collective == Collective::broadcast ? same(0, s.root, 0)
                       : s.collective == Collective::scatter ? same(0, s.root, own_at)
                       : s.collective == Collective::alltoall ? same(at, b, own_at)
                                                              : same(at, b, 0);
    if (!right) return "block " + std::to_string(b) + " is wrong";
  }
  return std::nullopt;
}

void check_many(int p, const CommunicatorConfig& config, const std::vector<Spec>& calls) {
  std::mutex mutex;
  std::vector<std::string> findings;
  run_ranks(p, config, [&](Communicator& c) {
    for (const Spec& spec : calls) {
      bool refused = false;
      const auto wrong = run_one(c, spec, &refused);
      if (!wrong) continue;
      const std::lock_guard lock(mutex);
      findings.push_back(show(spec, p, config.transports + " " + config.algorithm) + ", rank " + std::to_string(c.rank()) + ": " + *wrong);
      if (!c.health()) return;
    }
  });
  for (const std::string& finding : findings) RC_FAIL(finding);
}

/// Every name an algorithm has in some collective, and none (the library's choice).
std::vector<std::string> algorithm_choices() {
  std::vector<std::string> names = {""};
  for (const Algorithm* a : all_algorithms())
    if (std::find(names.begin(), names.end(), a->name) == names.end()) names.emplace_back(a->name);
  return names;
}

class Collectives : public ::testing::TestWithParam<const char*> {};

TEST_P(Collectives, agreeWithTheOracle) {
  const auto names = algorithm_choices();
  const std::string transport = GetParam();
  rc::check([&] {
    const int p = *rc::gen::elementOf(std::vector<int>{1, 2, 2, 3, 4, 5, 6, 7, 8, 9});
    const std::string algorithm = *rc::gen::elementOf(names);
    const auto calls = *rc::gen::container<std::vector<Spec>>(12, specs(p));
    check_many(p, config_for(transport, algorithm), calls);
  });
}

INSTANTIATE_TEST_SUITE_P(Transports, Collectives, ::testing::Values("inproc", "shm", "tcp"));

/// Affine maps x -> a x + b modulo 2^16, packed: composition is associative and not commutative.
void compose(const void* in, void* inout, std::size_t count, int, void*) {
  const auto* first = static_cast<const std::uint32_t*>(in);
  auto* second = static_cast<std::uint32_t*>(inout);
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint32_t a1 = first[i] & 0xffff, b1 = first[i] >> 16, a2 = second[i] & 0xffff, b2 = second[i] >> 16;
    second[i] = ((a1 * a2) & 0xffff) | ((a1 * b2 + b1) & 0xffff) << 16;
  }
}

TEST(UserOperation, keepsRankOrderWhereItDoesNotCommute) {
  for (int p : {2, 3, 5, 8})
    for (const std::string& algorithm : algorithm_choices())
      run_ranks(p, config_for("inproc", algorithm), [&](Communicator& c) {
        for (std::size_t n : {1u, 17u, 4000u, 70000u}) {
          std::vector<std::uint32_t> in(n), out(n), want(n);
          const auto value = [](int r, std::size_t i) { return static_cast<std::uint32_t>(test::mix(7, static_cast<std::uint64_t>(r), i)); };
          for (std::size_t i = 0; i < n; ++i) {
            in[i] = value(c.rank(), i);
            want[i] = value(p - 1, i);
            for (int r = p - 2; r >= 0; --r) {
              const std::uint32_t lower = value(r, i);
              compose(&lower, &want[i], 1, 0, nullptr);
            }
          }
          Call call;
          call.type = DataType::uint32;
          call.input = in.data();
          call.output = out.data();
          call.count = n;
          call.op.op = ReduceOp::user;
          call.op.user = compose;
          call.op.commutative = false;
          const Status s = c.run(call);
          if (!s && s.error().code == Code::invalid_usage) return;  // the algorithm says that it changes the order
          ASSERT_TRUE(s) << s.error().message;
          ASSERT_EQ(out, want) << algorithm << " p=" << p << " n=" << n;
        }
      });
}

/// Reproducible mode: bits that depend on nothing but inputs and their ranks.
TEST(Reproducible, sameBitsAcrossAlgorithmsTransportsAndSizesOfSlots) {
  for (DataType type : {DataType::float32, DataType::float16, DataType::bfloat16, DataType::float64})
    for (int p : {2, 3, 6, 7}) {
      const std::size_t n = 3001;
      std::vector<std::byte> first;
      std::mutex mutex;
      int compared = 0;
      for (const char* transport : {"inproc", "shm"})
        for (const std::string& algorithm : algorithm_choices()) {
          CommunicatorConfig config = config_for(transport, algorithm);
          config.reproducible = true;
          run_ranks(p, config, [&](Communicator& c) {
            std::vector<std::byte> in(n * size_of(type)), out(in.size());
            test::fill_input(type, ReduceOp::sum, 5, c.rank(), p, test::Inputs::rough, in);
            Call call;
            call.type = type;
            call.input = in.data();
            call.output = out.data();
            call.count = n;
            const Status s = c.run(call);
            if (!s) {
              ASSERT_EQ(s.error().code, Code::invalid_usage) << s.error().message;  // not one of the canonical ones
              return;
            }
            const std::lock_guard lock(mutex);
            if (first.empty()) first = out;
            ASSERT_EQ(std::memcmp(first.data(), out.data(), out.size()), 0) << algorithm << " over " << transport << ", p=" << p;
            ++compared;
          });
        }
      EXPECT_GE(compared, 4 * p);  // default, one shot and two shot at least, on two transports
    }
}

/// Counts beyond 2^31 elements; about 9 GB of memory.
TEST(Slow, countsBeyondTwoToTheThirtyOne) {
  run_ranks(2, config_for("inproc"), [&](Communicator& c) {
    const std::size_t n = (std::size_t{1} << 31) + 1000003;
    std::vector<std::uint8_t> in(n, static_cast<std::uint8_t>(3 + c.rank())), out(n);
    in[n - 1] = 200;
    Call call;
    call.type = DataType::uint8;
    call.input = in.data();
    call.output = out.data();
    call.count = n;
    const Status s = c.run(call);
    ASSERT_TRUE(s) << s.error().message;
    EXPECT_EQ(std::count(out.begin(), out.end() - 1, 7), static_cast<std::ptrdiff_t>(n - 1));
    EXPECT_EQ(out[n - 1], 400 % 256);
  });
}

/// Uneven forms, zero counts among them, and permuted displacements.
TEST(Uneven, blocksOfEverySize) {
  for (const char* transport : {"inproc", "shm", "tcp"})
    for (int p : {1, 2, 3, 5})
      run_ranks(p, config_for(transport), [&](Communicator& c) {
        const auto ranks = static_cast<std::size_t>(p);
        const auto self = static_cast<std::size_t>(c.rank());
        for (std::uint64_t seed = 0; seed < 6; ++seed) {
          const std::size_t most = seed < 3 ? 9 : 60000;
          std::vector<std::size_t> counts(ranks), places(ranks);
          std::size_t total = 0;
          for (std::size_t i = ranks; i-- > 0;) {  // last rank's block first, gaps of one
            counts[i] = test::mix(seed, i) % 3 == 0 ? 0 : test::mix(seed, i, 1) % most;
            places[i] = total;
            total += counts[i] + 1;
          }
          const auto value = [&](std::size_t r, std::size_t i) { return static_cast<std::uint32_t>(test::mix(seed + 100, r, i)); };
          std::vector<std::uint32_t> mine(counts[self] + 1), all(total + 1, 7u);
          for (std::size_t i = 0; i < counts[self]; ++i) mine[i] = value(self, i);
          Call call;
          call.type = DataType::uint32;
          call.uneven = true;
          const auto check_all = [&](const char* what) {
            for (std::size_t r = 0; r < ranks; ++r) {
              for (std::size_t i = 0; i < counts[r]; ++i) ASSERT_EQ(all[places[r] + i], value(r, i)) << what << " p=" << p << " seed " << seed;
              ASSERT_EQ(all[places[r] + counts[r]], 7u) << what << ": the gap was written";
            }
          };
          call.collective = Collective::allgather;
          call.input = mine.data();
          call.output = all.data();
          call.count = counts[self];
          call.recv_counts = counts.data();
          call.recv_displacements = places.data();
          Status s = c.run(call);
          ASSERT_TRUE(s) << s.error().message;
          check_all("allgatherv");

          const int root = static_cast<int>(seed) % p;
          std::fill(all.begin(), all.end(), 7u);
          call.collective = Collective::gather;
          call.root = root;
          if (c.rank() != root) call.recv_counts = call.recv_displacements = nullptr;
          s = c.run(call);
          ASSERT_TRUE(s) << s.error().message;
          if (c.rank() == root) check_all("gatherv");

          std::vector<std::uint32_t> back(counts[self] + 1, 9u);
          call.collective = Collective::scatter;
          call.send_counts = c.rank() == root ? counts.data() : nullptr;
          call.send_displacements = c.rank() == root ? places.data() : nullptr;
          call.recv_counts = call.recv_displacements = nullptr;
          call.input = all.data();
          call.output = back.data();
          s = c.run(call);
          ASSERT_TRUE(s) << s.error().message;
          mine[counts[self]] = 9u;
          ASSERT_EQ(back, mine) << "scatterv";

          // Packed blocks of different sizes for each pair.
          std::vector<std::size_t> give(ranks), get(ranks);
          std::size_t given = 0, got = 0;
          for (std::size_t i = 0; i < ranks; ++i) {
            given += give[i] = test::mix(seed, self, i) % most;
            got += get[i] = test::mix(seed, i, self) % most;
          }
          std::vector<std::uint32_t> out(given), in(got), want;
          for (std::size_t i = 0, at = 0; i < ranks; ++i)
            for (std::size_t k = 0; k < give[i]; ++k) out[at++] = value(self * 16 + i, k);
          for (std::size_t i = 0; i < ranks; ++i)
            for (std::size_t k = 0; k < get[i]; ++k) want.push_back(value(i * 16 + self, k));
          call.collective = Collective::alltoall;
          call.input = out.data();
          call.output = in.data();
          call.send_counts = give.data();
          call.recv_counts = get.data();
          call.send_displacements = call.recv_displacements = nullptr;
          s = c.run(call);
          ASSERT_TRUE(s) << s.error().message;
          ASSERT_EQ(in, want) << "alltoallv";

          std::size_t sum = std::accumulate(counts.begin(), counts.end(), std::size_t{0}), before = 0;
          for (std::size_t i = 0; i < self; ++i) before += counts[i];
          std::vector<std::uint32_t> addends(sum), part(counts[self]);
          for (std::size_t i = 0; i < sum; ++i) addends[i] = value(self, i);
          call.collective = Collective::reduce_scatter;
          call.input = addends.data();
          call.output = part.data();
          call.recv_counts = counts.data();
          call.send_counts = nullptr;
          s = c.run(call);
          ASSERT_TRUE(s) << s.error().message;
          for (std::size_t i = 0; i < part.size(); ++i) {
            std::uint32_t expected = 0;
            for (std::size_t r = 0; r < ranks; ++r) expected += value(r, before + i);
            ASSERT_EQ(part[i], expected) << "reduce_scatterv";
          }
        }
      });
}

}  // namespace
}  // namespace tamaki
