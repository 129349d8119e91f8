#pragma once
// Who started this process, as what rank of how many: read from the variables that launchers set.

#include <functional>
#include <string>

#include "communicator/bootstrap/join.hpp"

namespace tamaki::bootstrap {

struct Launch {
  enum class By {
    nobody,
    tamaki,    // tamaki run: TAMAKI_RANK, TAMAKI_SIZE, TAMAKI_RENDEZVOUS, TAMAKI_SECRET
    torchrun,  // RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT, TORCHELASTIC_RUN_ID
    open_mpi,  // OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE; PMIx
    hydra,     // PMI_RANK, PMI_SIZE, PMI_FD: MPICH and its descendants
    slurm,     // SLURM_PROCID, SLURM_STEP_NUM_TASKS or SLURM_NTASKS, SLURM_STEP_ID; PMI or PMIx where srun offers them
  };
  By by = By::nobody;
  int rank = 0;
  int ranks = 1;
  bool one_host = false;    // the launcher says that all ranks are on this host
  int pmi_fd = -1;          // PMI-1 wire protocol, -1: none
  bool pmix = false;        // a PMIx server is there
  std::string job;          // tells this job apart from others on this host; not secret
  std::string address;      // host:port where rank 0 can listen; empty: none is known
  std::string secret_text;  // what the secret is derived from when `address` is used
  bool secret_is_guessable = false;  // secret_text is only the job's name
};

std::string_view name_of(Launch::By by);

/// Value of an environment variable, empty if unset.
using Lookup = std::function<std::string(const char* name)>;

/// The innermost launcher counts: mpirun inside a Slurm job leaves Slurm's variables of another process in sight, so
/// TAMAKI_*, then torchrun's, Open MPI's, Hydra's, a Slurm step's, and plain RANK/WORLD_SIZE/MASTER_* are looked for.
/// Errors name variable, text and range.
Result<Launch> detect_launch(const Lookup& lookup);

// ---- The launchers' own means of exchange. `generation`: counts the communicators made from the environment. ------

/// PMI-1 over `fd`, opened at first use and kept until the process ends (the launcher ends the job of a process that
/// goes without a word).
Result<TextBoard> pmi_board(int fd, const Launch& launch, unsigned generation, Deadline deadline);
/// PMIx through libpmix.so.2, likewise.
Result<TextBoard> pmix_board(const Launch& launch, unsigned generation, Deadline deadline);

enum class MpiState { absent, linked, initialized, finalized };
/// MPI in this process: not there, there but not initialised (it will want the launcher's descriptor for itself), ready.
MpiState mpi_state();
/// Exchange through MPI_COMM_WORLD of an initialised MPI; its rank and size must be `launch`'s.
Result<OuterAllgather> mpi_allgather(const Launch& launch);

/// All ranks on one host: rank 0 leaves its rendezvous in a file that only this user can read.
Result<std::unique_ptr<Control>> join_by_host_file(const Launch& launch, unsigned generation, int timeout_ms);

}  // namespace tamaki::bootstrap
