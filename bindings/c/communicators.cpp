// Making, dividing and ending communicators.
#include <cstring>

#include "config.hpp"
#include "guard.hpp"

using namespace tamaki;
using namespace tamaki::c;

namespace {

static_assert(sizeof(tmkUniqueId) == sizeof(UniqueId));
constexpr int kMostRanks = 1 << 24;

Status check_job(int ranks, int rank) {
  if (ranks < 1 || ranks > kMostRanks)
    return fail(Code::invalid_argument,
                "ranks=" + std::to_string(ranks) + " is not in 1.." + std::to_string(kMostRanks));
  if (rank < 0 || rank >= ranks)
    return fail(Code::invalid_argument,
                "rank=" + std::to_string(rank) + " is not in 0.." + std::to_string(ranks - 1));
  return {};
}

/// The options' configuration with `config` on top.
Result<CommunicatorConfig> configuration(const tmkConfig_t* config) {
  Result<CommunicatorConfig> base = default_config();
  if (!base) return base;
  return read_config(config, std::move(*base));
}

/// join(timeout_ms) -> Result<unique_ptr<Control>>, then the communicator over it.
template <class Join>
tmkResult_t create(const char* function, tmkComm_t* comm, const tmkConfig_t* config, Join&& join) noexcept {
  return guard(function, [&]() -> Status {
    if (comm == nullptr) return null_argument("comm");
    *comm = nullptr;
    TMK_TRY(refuse_in_group());
    Result<CommunicatorConfig> settings = configuration(config);
    if (!settings) return pass(std::move(settings));
    Result<std::unique_ptr<Control>> control = join(settings->timeout_ms);
    if (!control) return pass(std::move(control));
    auto made = Communicator::create(std::shared_ptr<Control>(std::move(*control)), std::move(*settings));
    if (!made) return pass(std::move(made));
    *comm = adopt(std::move(*made));
    return {};
  });
}

Status split(tmkComm& comm, int color, int key, tmkComm_t* newcomm, const tmkConfig_t* config) {
  if (newcomm == nullptr) return null_argument("newcomm");
  *newcomm = nullptr;
  TMK_TRY(refuse_in_group());
  if (color < 0 && color != TMK_SPLIT_NOCOLOR)
    return fail(Code::invalid_argument,
                "color=" + std::to_string(color) + " is neither 0..2147483647 nor TMK_SPLIT_NOCOLOR (-1)");
  Result<CommunicatorConfig> settings = read_config(config, comm.impl->config());
  if (!settings) return pass(std::move(settings));
  auto made = comm.impl->split(color, key, *settings);
  if (!made) return pass(std::move(made));
  if (*made != nullptr) *newcomm = adopt(std::move(*made));
  return {};
}

}  // namespace

tmkResult_t tmkGetUniqueId(tmkUniqueId* id) {
  return guard("tmkGetUniqueId", [&]() -> Status {
    if (id == nullptr) return null_argument("id");
    Result<UniqueId> made = make_unique_id();
    if (!made) return pass(std::move(made));
    std::memcpy(id, &*made, sizeof *id);
    return {};
  });
}

tmkResult_t tmkCommInitRank(tmkComm_t* comm, int ranks, tmkUniqueId id, int rank,
                            const tmkConfig_t* config) {
  return create("tmkCommInitRank", comm, config, [&](int timeout_ms) -> Result<std::unique_ptr<Control>> {
    if (Status s = check_job(ranks, rank); !s) return pass(std::move(s));
    UniqueId name;
    std::memcpy(&name, &id, sizeof name);
    return join_by_id(name, rank, ranks, timeout_ms);
  });
}

tmkResult_t tmkCommInitEnv(tmkComm_t* comm, const tmkConfig_t* config) {
  return create("tmkCommInitEnv", comm, config,
                [](int timeout_ms) { return join_by_environment(timeout_ms); });
}

tmkResult_t tmkCommInitCallbacks(tmkComm_t* comm, int ranks, int rank, tmkAllgatherFunction allgather,
                                 void* context, const tmkConfig_t* config) {
  return create("tmkCommInitCallbacks", comm, config,
                [&](int timeout_ms) -> Result<std::unique_ptr<Control>> {
                  if (Status s = check_job(ranks, rank); !s) return pass(std::move(s));
                  if (allgather == nullptr) return null_argument("allgather");
                  return join_by_callbacks(rank, ranks, allgather, context, timeout_ms);
                });
}

tmkResult_t tmkCommSplit(tmkComm_t comm, int color, int key, tmkComm_t* newcomm,
                         const tmkConfig_t* config) {
  return guard("tmkCommSplit", comm, [&](tmkComm& c) { return split(c, color, key, newcomm, config); });
}

tmkResult_t tmkCommDup(tmkComm_t comm, tmkComm_t* newcomm) {
  return guard("tmkCommDup", comm, [&](tmkComm& c) { return split(c, 0, c.rank, newcomm, nullptr); });
}

tmkResult_t tmkCommDestroy(tmkComm_t comm) {
  if (!alive(comm)) return report_handle("tmkCommDestroy", comm);
  return guard("tmkCommDestroy", [&]() -> Status {
    TMK_TRY(refuse_in_group());
    // What made it unusable has been told by the calls that failed; ending it is then no failure of its
    // own.
    Status finished;
    if (comm->impl->health()) finished = comm->impl->finish();
    retire(comm);
    return finished;
  });
}

tmkResult_t tmkCommAbort(tmkComm_t comm) {
  return guard("tmkCommAbort", comm, [](tmkComm& c) -> Status {
    c.impl->abort({Code::aborted, -1,
                   "communicator" + c.name + " was aborted by its rank " + std::to_string(c.rank)});
    return {};
  });
}

tmkResult_t tmkCommGetAsyncError(tmkComm_t comm, tmkResult_t* error) {
  return guard("tmkCommGetAsyncError", comm, [&](tmkComm& c) -> Status {
    if (error == nullptr) return null_argument("error");
    const Status health = c.impl->health();
    *error = health ? tmkSuccess : report("tmkCommGetAsyncError", &c, health.error());
    return {};
  });
}

tmkResult_t tmkCommRank(tmkComm_t comm, int* rank) {
  return guard("tmkCommRank", comm, [&](tmkComm& c) -> Status {
    if (rank == nullptr) return null_argument("rank");
    *rank = c.rank;
    return {};
  });
}

tmkResult_t tmkCommSize(tmkComm_t comm, int* size) {
  return guard("tmkCommSize", comm, [&](tmkComm& c) -> Status {
    if (size == nullptr) return null_argument("size");
    *size = c.ranks;
    return {};
  });
}

tmkResult_t tmkCommSetTimeout(tmkComm_t comm, int timeout_ms) {
  return guard("tmkCommSetTimeout", comm, [&](tmkComm& c) -> Status {
    if (timeout_ms < 1)
      return fail(Code::invalid_argument,
                  "timeout_ms=" + std::to_string(timeout_ms) + " is not in 1..2147483647");
    c.impl->set_timeout(timeout_ms);
    return {};
  });
}
