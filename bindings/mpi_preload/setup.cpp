#include "setup.hpp"

#include <climits>
#include <cstring>

#include "base/options.hpp"
#include "execute/waiter.hpp"
#include "library.hpp"

namespace tamaki::mpi {
namespace {

// Ranks agree by rounds of one fixed-size MPI_Allgather, each followed by one of payload if all ranks ask
// for it. How many exchanges Tamaki's own set-up makes, and where it fails on which rank, need therefore
// not be the same everywhere: a rank that has ended, well or ill, says so in its next round, and the
// others' exchange fails instead of waiting for it. Rounds go on until nobody exchanges any more; what is
// said in the last one is the result.
struct Round {
  enum State : std::uint32_t { refuse, willing, exchange, joined, failed };
  std::uint32_t state = refuse;
  std::uint32_t reason = 0;
  std::uint64_t bytes = 0;
  std::uint64_t min_bytes = 0;
  std::uint64_t max_bytes = 0;
};

class Exchange {
 public:
  explicit Exchange(const SetupWish& wish) : wish_(wish), all_(static_cast<std::size_t>(wish.ranks)) {}

  bool round(const Round& mine) {
    if (broken_) return false;
    const int code = library().PAllgather(&mine, static_cast<int>(sizeof mine), byte_type(), all_.data(),
                                          static_cast<int>(sizeof mine), byte_type(), wish_.comm);
    broken_ = code != MPI_SUCCESS;
    return !broken_;
  }
  const std::vector<Round>& all() const { return all_; }
  bool broken() const { return broken_; }

  int allgather(const void* mine, void* into, std::size_t bytes) {
    if (ended_ || bytes > INT_MAX) return 1;
    Round ask;
    ask.state = Round::exchange;
    ask.bytes = bytes;
    if (!round(ask)) return 1;
    for (const Round& other : all_)
      if (other.state != Round::exchange || other.bytes != bytes) {
        ended_ = true;
        return 1;
      }
    const int code = library().PAllgather(mine, static_cast<int>(bytes), byte_type(), into,
                                          static_cast<int>(bytes), byte_type(), wish_.comm);
    broken_ = code != MPI_SUCCESS;
    return broken_ ? 1 : 0;
  }

  /// This rank has ended as `state`; true if all ranks ended as joined.
  bool conclude(Round::State state) {
    ended_ = true;
    Round mine;
    mine.state = state;
    for (;;) {
      if (!round(mine)) return false;
      bool all_joined = true, going_on = false;
      for (const Round& other : all_) {
        going_on = going_on || other.state == Round::exchange;
        all_joined = all_joined && other.state == Round::joined;
      }
      if (!going_on) return all_joined;
    }
  }

  int first(Round::State state) const {
    for (std::size_t r = 0; r < all_.size(); ++r)
      if (all_[r].state == state) return static_cast<int>(r);
    return -1;
  }

  static int callback(const void* mine, void* all, std::size_t bytes, void* self) {
    return static_cast<Exchange*>(self)->allgather(mine, all, bytes);
  }

 private:
  static MPI_Datatype byte_type() {
    static const auto type = TAMAKI_HANDLE(MPI_Datatype, MPI_BYTE, "byte");
    return type;
  }
  const SetupWish& wish_;
  std::vector<Round> all_;
  bool ended_ = false;
  bool broken_ = false;
};

// A rank blocked in a collective must let MPI advance: a peer may be waiting for a message that this rank
// has started to send and that MPI can only finish from inside MPI. A probe that matches nothing does it.
// On MPI_COMM_SELF MPICH looks at messages to itself only; so the world, and a message from this rank to
// itself that nobody sends. Should the program do so after all, with this very tag, the probe would answer
// without advancing: then the next tag.
//
// A probe can cost microseconds (MPICH over UCX), more than a short collective: none for the first
// kPatienceNs of a wait, then at most a quarter of the time.
constexpr std::uint64_t kPatienceNs = 100'000;

void let_mpi_advance(void* context) {
  AdvanceClock& clock = *static_cast<AdvanceClock*>(context);
  const auto began = static_cast<std::uint64_t>(now_ns());
  if (clock.began_ns == 0) {
    clock.began_ns = began;
    clock.not_before_ns = began + kPatienceNs;
  }
  if (began < clock.not_before_ns) return;
  static const auto world = TAMAKI_HANDLE(MPI_Comm, MPI_COMM_WORLD, "comm_world");
  static const int rank = [] {
    int own = 0;
    library().PComm_rank(world, &own);
    return own;
  }();
  thread_local int tag = 32767;  // the largest that every MPI has
  int matched = 0;
  if (library().PIprobe(rank, tag, world, &matched, MPI_STATUS_IGNORE) == MPI_SUCCESS && matched != 0)
    tag = tag > 32000 ? tag - 1 : 32767;
  const auto ended = static_cast<std::uint64_t>(now_ns());
  clock.not_before_ns = ended + 3 * (ended - began);
}

// MPI waits for a late rank as long as it takes, and so must we; a rank that dies is noticed by other
// means. The option's default deadline bounds the set-up only; one that the user has set holds for calls as
// well.
bool timeout_was_set() {
  for (const OptionFact& fact : option_facts())
    if (fact.name == "TAMAKI_TIMEOUT_MS") return fact.origin != "default";
  return false;
}

Result<std::unique_ptr<Communicator>> create(const SetupWish& wish, Exchange& exchange) {
  Result<CommunicatorConfig> config = default_config();
  if (!config) return pass(std::move(config));
  config->name = wish.name;
  config->progress_thread = false;  // nothing is non-blocking here, and MPI may allow one thread only
  config->on_idle = &let_mpi_advance;
  config->idle_context = wish.clock;
  auto control =
      join_by_callbacks(wish.rank, wish.ranks, &Exchange::callback, &exchange, config->timeout_ms);
  if (!control) return pass(std::move(control));
  auto made = Communicator::create(std::shared_ptr<Control>(std::move(*control)), *config);
  if (made && !timeout_was_set()) (*made)->set_timeout(INT_MAX);
  return made;
}

}  // namespace

SetupResult join(const SetupWish& wish) {
  SetupResult result;
  result.reason = Reason::unavailable;
  Exchange exchange(wish);
  Round mine;
  mine.state = wish.may_accelerate ? Round::willing : Round::refuse;
  mine.reason = static_cast<std::uint32_t>(wish.refusal);
  mine.min_bytes = wish.min_bytes;
  mine.max_bytes = wish.max_bytes;
  if (!exchange.round(mine)) return result;
  result.min_bytes = exchange.all()[0].min_bytes;
  result.max_bytes = exchange.all()[0].max_bytes;
  if (const int refuser = exchange.first(Round::refuse); refuser >= 0) {
    result.reason = static_cast<Reason>(exchange.all()[static_cast<std::size_t>(refuser)].reason);
    if (refuser == wish.rank) result.warning = wish.refusal_text;
    return result;
  }
  auto made = create(wish, exchange);
  if (exchange.conclude(made ? Round::joined : Round::failed)) {
    result.tamaki = std::move(*made);
    result.reason = Reason::accelerated;
    return result;
  }
  if (!made && !exchange.broken() && exchange.first(Round::failed) == wish.rank)
    result.warning = made.error().message;
  return result;
}

}  // namespace tamaki::mpi
