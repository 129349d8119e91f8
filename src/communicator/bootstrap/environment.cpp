#include "communicator/bootstrap/environment.hpp"

#include <charconv>
#include <limits>
#include <optional>

#include "base/log.hpp"
#include "base/options.hpp"

namespace tamaki {
namespace bootstrap {
namespace {

constexpr int kMostRanks = 1 << 24;
constexpr int kHighest = std::numeric_limits<int>::max();

struct Range {
  int low, high;
};

/// The variable's value; nothing if unset; an error if it is no number of that range.
Result<std::optional<int>> number_of(const Lookup& lookup, const char* name, Range range) {
  const std::string text = lookup(name);
  if (text.empty()) return std::optional<int>();
  int value = 0;
  const auto r = std::from_chars(text.data(), text.data() + text.size(), value);
  if (r.ec != std::errc{} || r.ptr != text.data() + text.size() || value < range.low || value > range.high)
    return fail(Code::invalid_argument, std::string(name) + "=\"" + text + "\" is not a number in " +
                                            std::to_string(range.low) + ".." + std::to_string(range.high),
                Scope::process);
  return std::optional<int>(value);
}

/// Rank and size from a pair of variables, of which one is set.
Status place_from(const Lookup& lookup, const char* rank_name, const char* size_name, Launch* launch) {
  Result<std::optional<int>> size = number_of(lookup, size_name, {1, kMostRanks});
  if (!size) return pass(std::move(size));
  if (!*size)
    return fail(Code::invalid_argument, std::string(size_name) + " is not set, though " + rank_name + "=\"" +
                                            lookup(rank_name) + "\" is",
                Scope::process);
  Result<std::optional<int>> rank = number_of(lookup, rank_name, {0, **size - 1});
  if (!rank) {
    rank.error().message += " (" + std::string(size_name) + "=" + std::to_string(**size) + ")";
    return pass(std::move(rank));
  }
  if (!*rank)
    return fail(Code::invalid_argument, std::string(rank_name) + " is not set, though " + size_name + "=\"" +
                                            lookup(size_name) + "\" is",
                Scope::process);
  launch->rank = **rank;
  launch->ranks = **size;
  return {};
}

/// A port that is fixed by `text`, for rank 0 to listen on: outside the range from which Linux gives out ports.
int port_from(std::string_view text) { return 20000 + static_cast<int>(digest_of(text) % 12000); }

Status from_tamaki(const Lookup& lookup, Launch* launch) {
  launch->by = Launch::By::tamaki;
  if (Status status = place_from(lookup, "TAMAKI_RANK", "TAMAKI_SIZE", launch); !status) return status;
  launch->address = lookup("TAMAKI_RENDEZVOUS");
  launch->secret_text = lookup("TAMAKI_SECRET");
  if (launch->ranks == 1) return {};
  for (const char* name : {"TAMAKI_RENDEZVOUS", "TAMAKI_SECRET"})
    if (lookup(name).empty())
      return fail(Code::invalid_argument, std::string(name) + " is not set, though TAMAKI_RANK and TAMAKI_SIZE=" +
                                              std::to_string(launch->ranks) + " are", Scope::process);
  return {};
}

/// What the ranks agree on without a launcher's help: TAMAKI_RENDEZVOUS and TAMAKI_SECRET where set, or else `address`
/// and the job's name.
void fill_address(const Lookup& lookup, const std::string& address, Launch* launch) {
  const std::string rendezvous = lookup("TAMAKI_RENDEZVOUS"), secret = lookup("TAMAKI_SECRET");
  launch->address = rendezvous.empty() ? address : rendezvous;
  launch->secret_is_guessable = secret.empty();
  launch->secret_text = secret.empty() ? launch->job : secret;
}

Status from_torchrun(const Lookup& lookup, Launch* launch) {
  launch->by = Launch::By::torchrun;
  if (Status status = place_from(lookup, "RANK", "WORLD_SIZE", launch); !status) return status;
  Result<std::optional<int>> port = number_of(lookup, "MASTER_PORT", {0, 65535});
  if (!port) return pass(std::move(port));
  Result<std::optional<int>> local = number_of(lookup, "LOCAL_WORLD_SIZE", {1, kMostRanks});
  if (!local) return pass(std::move(local));
  const std::string host = lookup("MASTER_ADDR");
  launch->one_host = *local && **local == launch->ranks;
  launch->job = "torchrun " + lookup("TORCHELASTIC_RUN_ID") + " " + host + ":" + lookup("MASTER_PORT") + " " +
                lookup("TORCHELASTIC_RESTART_COUNT");
  if (host.empty() && launch->ranks > 1 && lookup("TAMAKI_RENDEZVOUS").empty() && !launch->one_host)
    return fail(Code::invalid_argument, "MASTER_ADDR is not set, though RANK and WORLD_SIZE=" +
                                            std::to_string(launch->ranks) + " are", Scope::process);
  const bool six = host.find(':') != std::string::npos;
  // MASTER_PORT itself belongs to torch's store.
  fill_address(lookup, (six ? "[" + host + "]" : host) + ":" +
                           std::to_string(port_from("torchrun " + lookup("MASTER_PORT") + " " + lookup("TORCHELASTIC_RUN_ID"))),
               launch);
  return {};
}

Status from_open_mpi(const Lookup& lookup, Launch* launch) {
  launch->by = Launch::By::open_mpi;
  if (Status status = place_from(lookup, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", launch); !status) return status;
  Result<std::optional<int>> local = number_of(lookup, "OMPI_COMM_WORLD_LOCAL_SIZE", {1, kMostRanks});
  if (!local) return pass(std::move(local));
  launch->one_host = *local && **local == launch->ranks;
  launch->pmix = !lookup("PMIX_NAMESPACE").empty();
  launch->job = "open mpi " + lookup("PMIX_NAMESPACE") + " " + lookup("OMPI_MCA_orte_hnp_uri") + " " +
                lookup("PMIX_SERVER_TMPDIR");
  fill_address(lookup, "", launch);
  return {};
}

/// `srun --mpi=pmi2` too speaks the old protocol on PMI_FD when the client begins with it.
Status from_pmi(const Lookup& lookup, Launch* launch) {
  launch->by = Launch::By::hydra;
  if (Status status = place_from(lookup, "PMI_RANK", "PMI_SIZE", launch); !status) return status;
  Result<std::optional<int>> fd = number_of(lookup, "PMI_FD", {0, kHighest});
  if (!fd) return pass(std::move(fd));
  Result<std::optional<int>> local = number_of(lookup, "MPI_LOCALNRANKS", {1, kMostRanks});
  if (!local) return pass(std::move(local));
  if (!lookup("SLURM_STEP_ID").empty() && lookup("SLURM_PROCID") == lookup("PMI_RANK")) launch->by = Launch::By::slurm;
  launch->pmi_fd = fd->value_or(-1);
  launch->one_host = *local && **local == launch->ranks;
  // Hydra names no job in the environment: who its ranks' parent is does, see join_by_host_file().
  launch->job = "pmi " + lookup("PMI_JOBID") + " " + lookup("SLURM_JOB_ID") + "." + lookup("SLURM_STEP_ID");
  fill_address(lookup, "", launch);
  return {};
}

/// First host of a Slurm node list: "n[003-007,9],m2" -> "n003".
std::string first_host(const std::string& list) {
  const auto open = list.find('['), comma = list.find(',');
  if (open == std::string::npos || comma < open) return list.substr(0, comma);
  return list.substr(0, open) + list.substr(open + 1, list.find_first_of(",-]", open + 1) - open - 1);
}

Status from_slurm(const Lookup& lookup, Launch* launch) {
  launch->by = Launch::By::slurm;
  const char* size_name = lookup("SLURM_STEP_NUM_TASKS").empty() ? "SLURM_NTASKS" : "SLURM_STEP_NUM_TASKS";
  if (Status status = place_from(lookup, "SLURM_PROCID", size_name, launch); !status) return status;
  const std::string nodes = !lookup("SLURM_STEP_NUM_NODES").empty() ? lookup("SLURM_STEP_NUM_NODES") : lookup("SLURM_NNODES");
  launch->one_host = nodes == "1";
  launch->pmix = !lookup("PMIX_NAMESPACE").empty();
  launch->job = "slurm " + lookup("SLURM_JOB_ID") + "." + lookup("SLURM_STEP_ID");
  const std::string list = !lookup("SLURM_STEP_NODELIST").empty() ? lookup("SLURM_STEP_NODELIST") : lookup("SLURM_NODELIST");
  const std::string host = first_host(list);
  fill_address(lookup, host.empty() ? "" : host + ":" + std::to_string(port_from(launch->job)), launch);
  return {};
}

/// srun started this very process: neither a batch script nor the shell of salloc, which have no step of their own.
bool in_slurm_step(const Lookup& lookup) {
  const std::string step = !lookup("SLURM_STEP_ID").empty() ? lookup("SLURM_STEP_ID") : lookup("SLURM_STEPID");
  std::uint32_t number = 0;
  const auto r = std::from_chars(step.data(), step.data() + step.size(), number);
  constexpr std::uint32_t kFirstSpecial = 0xfffffff0;  // batch script, extern and interactive steps
  return !lookup("SLURM_PROCID").empty() && r.ec == std::errc{} && number < kFirstSpecial;
}

}  // namespace

std::string_view name_of(Launch::By by) {
  constexpr std::string_view names[] = {"nobody", "tamaki run", "torchrun", "Open MPI's mpirun", "Hydra (mpiexec)", "Slurm"};
  return names[static_cast<int>(by)];
}

Result<Launch> detect_launch(const Lookup& lookup) {
  const auto set = [&](const char* name) { return !lookup(name).empty(); };
  Launch launch;
  Status status;
  if (set("TAMAKI_RANK") || set("TAMAKI_SIZE"))
    status = from_tamaki(lookup, &launch);
  else if (set("TORCHELASTIC_RUN_ID") && (set("RANK") || set("WORLD_SIZE")))
    status = from_torchrun(lookup, &launch);
  else if (set("OMPI_COMM_WORLD_RANK") || set("OMPI_COMM_WORLD_SIZE"))
    status = from_open_mpi(lookup, &launch);
  else if (set("PMI_RANK") || set("PMI_SIZE"))
    status = from_pmi(lookup, &launch);
  else if (in_slurm_step(lookup))
    status = from_slurm(lookup, &launch);
  else if (set("RANK") && set("WORLD_SIZE") && set("MASTER_ADDR") && set("MASTER_PORT"))
    status = from_torchrun(lookup, &launch);
  if (!status) return pass(std::move(status));
  return launch;
}

namespace {

tl::unexpected<Error> no_way(const Launch& launch, const std::string& tried) {
  return fail(Code::invalid_usage,
              "rank " + std::to_string(launch.rank) + " of " + std::to_string(launch.ranks) + ", started by " +
                  std::string(name_of(launch.by)) + ", has no way to find the other ranks (" + tried +
                  "); set TAMAKI_RENDEZVOUS=host:port of rank 0 and TAMAKI_SECRET on all ranks, or exchange addresses "
                  "by tmkCommInitCallbacks",
              Scope::process);
}

Result<std::unique_ptr<Control>> join_by_known_address(const Launch& launch, int timeout_ms) {
  if (launch.secret_is_guessable)
    log(Level::info, "the job's secret is derived from its name (" + launch.job + "); set TAMAKI_SECRET on a shared network");
  return join_by_address(launch.rank, launch.ranks, launch.address, derive_secret(launch.secret_text, "environment"),
                         timeout_ms);
}

Result<std::unique_ptr<Control>> join_launched(const Launch& launch, int timeout_ms) {
  // The n-th communicator from the environment is the n-th on every rank.
  static std::atomic<unsigned> communicators{0};
  const unsigned generation = communicators.fetch_add(1, std::memory_order_relaxed);
  const bool told = !options().has_value() ? false : !(*options())->rendezvous.empty() && !launch.secret_is_guessable;
  if (launch.by == Launch::By::tamaki || told) return join_by_known_address(launch, timeout_ms);

  std::string tried;
  const auto note = [&](const std::string& what) { tried += (tried.empty() ? "" : "; ") + what; };
  const Deadline deadline = deadline_in(timeout_ms);
  const MpiState mpi = launch.by == Launch::By::torchrun ? MpiState::absent : mpi_state();
  if (mpi == MpiState::initialized) {
    const Result<OuterAllgather> exchange = mpi_allgather(launch);
    if (exchange) return join_by_exchange(launch.rank, launch.ranks, *exchange, timeout_ms);
    note(exchange.error().message);
  } else if (mpi == MpiState::absent) {
    // A program that is going to initialise MPI leaves the launcher's connection to it.
    if (launch.pmi_fd >= 0) {
      const Result<TextBoard> board = pmi_board(launch.pmi_fd, launch, generation, deadline);
      if (board) return join_by_board(launch.rank, launch.ranks, *board, timeout_ms);
      note(board.error().message);
    }
    if (launch.pmix) {
      const Result<TextBoard> board = pmix_board(launch, generation, deadline);
      if (board) return join_by_board(launch.rank, launch.ranks, *board, timeout_ms);
      note(board.error().message);
    }
  } else {
    note(mpi == MpiState::linked ? "MPI is linked and not initialised: call MPI_Init first" : "MPI has been finalised");
  }
  if (launch.one_host) return join_by_host_file(launch, generation, timeout_ms);
  if (!launch.address.empty()) return join_by_known_address(launch, timeout_ms);
  return no_way(launch, tried);
}

}  // namespace
}  // namespace bootstrap

Result<std::unique_ptr<Control>> join_by_environment(int timeout_ms) {
  const Result<const Options*> current = options();
  if (!current) return tl::unexpected<Error>(current.error());
  if (timeout_ms <= 0) timeout_ms = static_cast<int>((*current)->timeout_ms);
  const Result<bootstrap::Launch> launch = bootstrap::detect_launch(&environment_variable);
  if (!launch) return tl::unexpected<Error>(launch.error());
  if (launch->ranks > 1) return bootstrap::join_launched(*launch, timeout_ms);
  bootstrap::NodeConfig alone;
  alone.secret = random_secret();
  alone.timeout_ms = timeout_ms;
  return bootstrap::Node::join(std::move(alone));
}

}  // namespace tamaki
