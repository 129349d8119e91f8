#include "state.hpp"

#include <unistd.h>

#include <cstring>
#include <mutex>
#include <vector>

#include "base/log.hpp"
#include "base/options.hpp"
#include "execute/waiter.hpp"
#include "handles.hpp"
#include "library.hpp"
#include "setup.hpp"

namespace tamaki::mpi {

std::atomic<State*> g_cache[kCacheSlots];
std::atomic<Phase> g_phase{Phase::unknown};
bool g_statistics = false;

namespace {

// Each accelerated communicator has connections and memory of its own.
constexpr int kMostAccelerated = 64;
constexpr std::uint64_t kWorthSetup = 1 << 20;
constexpr std::uint64_t kRewriteNs = 5'000'000'000;

struct Process {
  std::mutex mutex;  // guards all below but what start() sets once; never held across a collective call
  std::vector<State*> states;  // all there ever were
  std::vector<State*> unused;
  int accelerated = 0;
  int next_id = 0;
  int error_code = MPI_ERR_OTHER;
  bool error_code_made = false;
  std::vector<std::unique_ptr<Ledger>> retired;  // of freed communicators, by name and size
  Ledger nowhere;
  std::uint64_t last_write_ns = 0;
  bool write_failed = false;

  // Set by start(), constant afterwards.
  pid_t pid = 0;
  int keyval = MPI_KEYVAL_INVALID;
  MPI_Comm world{};
  MPI_Comm null_comm{};
  Identity identity;
  std::string report;         // TAMAKI_MPI_STATS
  std::string options_error;  // non-empty: nothing is accelerated
  std::uint64_t min_bytes = 0, max_bytes = 0;
  std::int64_t setup_calls = 0;
};

// Never destroyed: MPI may call back, and ranks may still wait, while the process ends.
Process& process() {
  static Process& instance = *new Process;
  return instance;
}

void write_statistics_locked(Ending ending) {
  Process& p = process();
  std::vector<const Ledger*> ledgers;
  for (const State* state : p.states)
    if (state->ledger) ledgers.push_back(state->ledger.get());
  for (const auto& ledger : p.retired) ledgers.push_back(ledger.get());
  ledgers.push_back(&p.nowhere);
  const int error = write_report(p.report, p.identity.rank, render(p.identity, ledgers, ending));
  if (error != 0 && !p.write_failed) {
    p.write_failed = true;
    log(Level::warn, "cannot write TAMAKI_MPI_STATS=" + p.report + ": " + std::strerror(error));
  }
  p.last_write_ns = clock_ns();
}

void retire_ledger_locked(std::unique_ptr<Ledger> ledger) {
  Process& p = process();
  if (ledger->counters.empty()) return;
  for (auto& old : p.retired)
    if (old->name == ledger->name && old->ranks == ledger->ranks) {
      ++old->communicators;
      for (const Counter& c : ledger->counters) old->add(c);
      return;
    }
  p.retired.push_back(std::move(ledger));
}

void end_communicator(State& state) {
  if (!state.tamaki) return;
  if (const Status s = state.tamaki->finish(); !s) log(Level::info, "closing: " + s.error().message);
  state.tamaki.reset();
  const std::lock_guard lock(process().mutex);
  --process().accelerated;
}

int copy_nothing(MPI_Comm, int, void*, void*, void*, int* flag) {
  *flag = 0;  // a duplicate is a communicator of its own
  return MPI_SUCCESS;
}

int on_comm_deleted(MPI_Comm, int, void* value, void*) {
  State* state = static_cast<State*>(value);
  State* expected = state;
  g_cache[cache_slot(state->owner.load(std::memory_order_relaxed))].compare_exchange_strong(expected,
                                                                                            nullptr);
  end_communicator(*state);
  state->owner.store(nullptr, std::memory_order_relaxed);
  const std::lock_guard lock(process().mutex);
  if (state->ledger) retire_ledger_locked(std::move(state->ledger));
  state->known = {};
  process().unused.push_back(state);
  return MPI_SUCCESS;
}

// The attributes of MPI_COMM_SELF are deleted at the very start of MPI_Finalize: the one hook that every
// library runs.
int on_finalize(MPI_Comm, int, void*, void*) {
  Process& p = process();
  g_phase.store(Phase::over, std::memory_order_release);
  std::vector<State*> states;
  {
    const std::lock_guard lock(p.mutex);
    states = p.states;
  }
  for (State* state : states) end_communicator(*state);
  if (g_statistics) {
    const std::lock_guard lock(p.mutex);
    write_statistics_locked(Ending::finalized);
  }
  return MPI_SUCCESS;
}

// Processes that end without MPI_Finalize. A child of fork() has nothing to report.
[[gnu::destructor]] void on_exit() {
  if (g_phase.load(std::memory_order_acquire) != Phase::running || !g_statistics) return;
  Process& p = process();
  if (p.pid != ::getpid() || !p.mutex.try_lock()) return;
  write_statistics_locked(Ending::unfinalized);
  p.mutex.unlock();
}

void read_options() {
  Process& p = process();
  const Result<const Options*> given = options();
  if (!given) {
    p.options_error = given.error().message;
    return;
  }
  p.min_bytes = (*given)->mpi_min_bytes;
  p.max_bytes = (*given)->mpi_max_bytes;
  p.setup_calls = (*given)->mpi_setup_calls;
  p.report = (*given)->mpi_stats;
  g_statistics = !p.report.empty();
}

void read_identity() {
  Process& p = process();
  const Library& mpi = library();
  mpi.PComm_rank(p.world, &p.identity.rank);
  mpi.PComm_size(p.world, &p.identity.ranks);
  mpi.PQuery_thread(&p.identity.thread_level);
  char version[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  int length = 0;
  mpi.PGet_library_version(version, &length);
  p.identity.library.assign(version, std::strcspn(version, ",\n"));  // "MPICH Version:\t4.0.2\nMPICH ..."
  for (char& c : p.identity.library)
    if (c == '\t') c = ' ';
}

bool has_foreign_ranks(MPI_Comm comm, int ranks) {
  Process& p = process();
  const Library& mpi = library();
  MPI_Group world{}, group{};
  if (mpi.PComm_group(p.world, &world) != MPI_SUCCESS) return true;
  bool foreign = true;
  if (mpi.PComm_group(comm, &group) == MPI_SUCCESS) {
    std::vector<int> from(static_cast<std::size_t>(ranks)), to(static_cast<std::size_t>(ranks));
    for (int r = 0; r < ranks; ++r) from[static_cast<std::size_t>(r)] = r;
    if (mpi.PGroup_translate_ranks(group, ranks, from.data(), world, to.data()) == MPI_SUCCESS) {
      foreign = false;
      for (const int r : to) foreign = foreign || r == MPI_UNDEFINED;
    }
    mpi.PGroup_free(&group);
  }
  mpi.PGroup_free(&world);
  return foreign;
}

std::string communicator_name(MPI_Comm comm, int id) {
  char name[MPI_MAX_OBJECT_NAME] = "";
  int length = 0;
  if (library().PComm_get_name(comm, name, &length) == MPI_SUCCESS && length > 0) return name;
  return "communicator " + std::to_string(id);
}

State* make_state(MPI_Comm comm) {
  Process& p = process();
  const Library& mpi = library();
  int inter = 0, ranks = 0, rank = 0;
  if (mpi.PComm_test_inter(comm, &inter) != MPI_SUCCESS || mpi.PComm_size(comm, &ranks) != MPI_SUCCESS ||
      mpi.PComm_rank(comm, &rank) != MPI_SUCCESS)
    return nullptr;
  State* state = nullptr;
  int id = 0;
  {
    const std::lock_guard lock(p.mutex);
    id = p.next_id++;
    if (p.unused.empty()) {
      state = p.states.emplace_back(new State);
    } else {
      state = p.unused.back();
      p.unused.pop_back();
    }
    if (g_statistics)
      state->ledger = std::make_unique<Ledger>(Ledger{communicator_name(comm, id), id, ranks, 1, {}});
  }
  state->rank = rank;
  state->ranks = ranks;
  state->mode = Mode::passed;
  state->reason = Reason::accelerated;
  if (inter != 0)
    state->reason = Reason::intercommunicator;
  else if (ranks == 1)
    state->reason = Reason::one_rank;
  else if (has_foreign_ranks(comm, ranks))
    state->reason = Reason::foreign;
  else
    state->mode = Mode::fresh;
  state->calls_to_setup = comm == p.world ? 0 : p.setup_calls;
  state->reported = false;
  state->owner.store(to_raw(comm), std::memory_order_relaxed);
  if (mpi.PComm_set_attr(comm, p.keyval, state) == MPI_SUCCESS) return state;
  state->owner.store(nullptr, std::memory_order_relaxed);
  const std::lock_guard lock(p.mutex);
  p.unused.push_back(state);
  return nullptr;
}

}  // namespace

std::uint64_t clock_ns() { return static_cast<std::uint64_t>(now_ns()); }

bool start() {
  Process& p = process();
  const Library& mpi = library();
  if (!mpi.usable) {
    if (mpi.foreign) g_phase.store(Phase::over, std::memory_order_release);
    return false;
  }
  int flag = 0;
  if (mpi.PFinalized(&flag) == MPI_SUCCESS && flag != 0) {
    g_phase.store(Phase::over, std::memory_order_release);
    return false;
  }
  // Not yet, or only sessions (MPI 4), which have no MPI_COMM_SELF to hook the end to: everything passes.
  if (mpi.PInitialized(&flag) != MPI_SUCCESS || flag == 0) return false;
  const std::lock_guard lock(p.mutex);
  if (g_phase.load(std::memory_order_relaxed) != Phase::unknown)
    return g_phase.load(std::memory_order_relaxed) == Phase::running;
  p.pid = ::getpid();
  p.world = TAMAKI_HANDLE(MPI_Comm, MPI_COMM_WORLD, "comm_world");
  p.null_comm = TAMAKI_HANDLE(MPI_Comm, MPI_COMM_NULL, "comm_null");
  p.nowhere = Ledger{"none", -1, 0, 0, {}};
  const auto self = TAMAKI_HANDLE(MPI_Comm, MPI_COMM_SELF, "comm_self");
  read_options();
  read_identity();
  set_log_rank(p.identity.rank);
  build_handle_tables();
  int end_keyval = MPI_KEYVAL_INVALID;
  if (mpi.PComm_create_keyval(&copy_nothing, &on_comm_deleted, &p.keyval, nullptr) != MPI_SUCCESS ||
      mpi.PComm_create_keyval(&copy_nothing, &on_finalize, &end_keyval, nullptr) != MPI_SUCCESS ||
      mpi.PComm_set_attr(self, end_keyval, nullptr) != MPI_SUCCESS) {
    g_phase.store(Phase::over, std::memory_order_release);
    return false;
  }
  p.last_write_ns = clock_ns();
  g_phase.store(Phase::running, std::memory_order_release);
  return true;
}

State* find_state(Raw raw) {
  Process& p = process();
  const auto comm = from_raw<MPI_Comm>(raw);
  if (comm == p.null_comm || raw == nullptr) return nullptr;
  void* value = nullptr;
  int found = 0;
  if (library().PComm_get_attr(comm, p.keyval, &value, &found) != MPI_SUCCESS) return nullptr;
  State* state = found != 0 ? static_cast<State*>(value) : make_state(comm);
  if (state != nullptr) g_cache[cache_slot(raw)].store(state, std::memory_order_release);
  return state;
}

// Setting up takes milliseconds, which a communicator for a handful of small calls never gains back. Every
// rank makes the same eligible calls of the same sizes, so that all count alike.
bool due_for_setup(State& state, std::uint64_t bytes) {
  return bytes >= kWorthSetup || --state.calls_to_setup < 0;
}

void set_up(State& state) {
  Process& p = process();
  SetupWish wish;
  wish.comm = from_raw<MPI_Comm>(state.owner.load(std::memory_order_relaxed));
  wish.rank = state.rank;
  wish.ranks = state.ranks;
  wish.name = state.ledger ? state.ledger->name : communicator_name(wish.comm, 0);
  wish.min_bytes = p.min_bytes;
  wish.max_bytes = p.max_bytes;
  wish.clock = &state.clock;
  {
    const std::lock_guard lock(p.mutex);
    if (!p.options_error.empty()) {
      wish.may_accelerate = false;
      wish.refusal_text = p.options_error;
    } else if (p.accelerated >= kMostAccelerated) {
      wish.may_accelerate = false;
      wish.refusal = Reason::crowded;
    } else {
      ++p.accelerated;  // reserved, so that setups in other threads count it
    }
  }
  SetupResult made = join(wish);
  state.min_bytes = made.min_bytes;
  state.max_bytes = made.max_bytes;
  state.tamaki = std::move(made.tamaki);
  state.mode = state.tamaki ? Mode::accelerated : Mode::passed;
  state.reason = made.reason;
  static std::atomic<bool> warned{false};
  if (!made.warning.empty() && !warned.exchange(true))
    log(Level::warn, "calls on " + wish.name + " (" + std::to_string(state.ranks) +
                         " ranks) go to MPI, on this rank Tamaki could not be set up: " + made.warning);
  if (!state.tamaki && wish.may_accelerate) {
    const std::lock_guard lock(p.mutex);
    --p.accelerated;
  }
}

int raise(State& state, const Error& error) {
  Process& p = process();
  const Library& mpi = library();
  if (!state.reported)
    log(Level::error, error.message);  // a program that carries on is told each time, the log once
  state.reported = true;
  int code = MPI_ERR_OTHER;
  {
    const std::lock_guard lock(p.mutex);
    if (!p.error_code_made) {
      p.error_code_made = true;
      int error_class = 0, made = 0;
      if (mpi.PAdd_error_class(&error_class) == MPI_SUCCESS &&
          mpi.PAdd_error_code(error_class, &made) == MPI_SUCCESS) {
        p.error_code = made;
        mpi.PAdd_error_string(error_class, "Tamaki collective failed");
      }
    }
    code = p.error_code;
    if (code != MPI_ERR_OTHER) {
      std::string text = "Tamaki: " + error.message;
      text.resize(std::min<std::size_t>(text.size(), MPI_MAX_ERROR_STRING - 1));
      mpi.PAdd_error_string(code, text.c_str());
    }
  }
  mpi.PComm_call_errhandler(from_raw<MPI_Comm>(state.owner.load(std::memory_order_relaxed)), code);
  return code;
}

void count(State* state, Call call, Reason reason, std::string_view algorithm, std::uint64_t bytes,
           std::uint64_t nanoseconds) {
  Process& p = process();
  const std::lock_guard lock(p.mutex);
  Ledger& ledger = state != nullptr && state->ledger ? *state->ledger : p.nowhere;
  ledger.add({call, reason, std::string(algorithm), 1, bytes, nanoseconds});
  const std::uint64_t now = clock_ns();
  if (now - p.last_write_ns > kRewriteNs)
    write_statistics_locked(Ending::running);  // what a killed process leaves
}

const std::string& algorithm_of(State& state, const tamaki::Call& call) {
  std::uint64_t key = call.count;
  for (const std::uint64_t part :
       {static_cast<std::uint64_t>(call.collective), static_cast<std::uint64_t>(call.type),
        static_cast<std::uint64_t>(call.op.op), static_cast<std::uint64_t>(call.root),
        static_cast<std::uint64_t>(call.uneven)})
    key = (key ^ (part + 1)) * 0x9e3779b97f4a7c15u;
  State::Known& known = state.known[key >> 60];
  if (known.key != key || known.algorithm.empty()) {
    const Result<std::string> name = state.tamaki->algorithm_for(call);
    known.key = key;
    known.algorithm = name ? *name : "unknown";
  }
  return known.algorithm;
}

}  // namespace tamaki::mpi
