// PMIx, the exchange of Open MPI's runtime and of `srun --mpi=pmix`, by libpmix.so.2 where it is installed. The few
// declarations needed are stated here; they have not changed since PMIx 2.

#include <dlfcn.h>
#include <unistd.h>

#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>

#include "communicator/bootstrap/environment.hpp"

namespace tamaki::bootstrap {
namespace {

struct PmixProc {  // pmix_proc_t
  char space[256];
  std::uint32_t rank;
};
static_assert(sizeof(PmixProc) == 260);

struct PmixValue {  // pmix_value_t: a tag and a union, of which only the text is used
  std::uint16_t type;
  union {
    char* text;
    std::uint64_t room[7];
  };
};
static_assert(offsetof(PmixValue, text) == 8 && sizeof(PmixValue) >= 32);

constexpr int kSuccess = 0, kDoneAtOnce = -157;  // PMIX_SUCCESS, PMIX_OPERATION_SUCCEEDED
constexpr std::uint16_t kText = 3;               // PMIX_STRING
constexpr std::uint8_t kGlobal = 3;              // PMIX_GLOBAL

struct Api {
  int (*init)(PmixProc*, void*, std::size_t);
  int (*finalize)(const void*, std::size_t);
  int (*put)(std::uint8_t, const char*, PmixValue*);
  int (*commit)();
  int (*fence)(const PmixProc*, std::size_t, const void*, std::size_t, void (*)(int, void*), void*);
  int (*get)(const PmixProc*, const char*, const void*, std::size_t, void (*)(int, PmixValue*, void*), void*);
  const char* (*error_text)(int);
};

/// What a callback of PMIx' own thread brings. Shared with it, since it may come after the waiter has given up.
struct Answer {
  std::mutex mutex;
  std::condition_variable changed;
  bool here = false;
  int status = 0;
  std::string text;

  static void* handle(const std::shared_ptr<Answer>& answer) { return new std::shared_ptr<Answer>(answer); }
  static void bring(void* handle, int status, const PmixValue* value) {
    const std::unique_ptr<std::shared_ptr<Answer>> owner(static_cast<std::shared_ptr<Answer>*>(handle));
    Answer& answer = **owner;
    const std::lock_guard lock(answer.mutex);
    answer.here = true;
    answer.status = status;
    if (status == kSuccess && value != nullptr && value->type == kText && value->text != nullptr) answer.text = value->text;
    answer.changed.notify_all();
  }
  bool wait(Deadline deadline) {
    std::unique_lock lock(mutex);
    if (deadline == Deadline::max()) {
      changed.wait(lock, [&] { return here; });
      return true;
    }
    return changed.wait_until(lock, deadline, [&] { return here; });
  }
};

/// Initialised once and kept until the process ends: a process that goes without PMIx_Finalize ends the job.
class PmixSession {
 public:
  ~PmixSession() {
    if (open_ && pid_ == ::getpid()) api_.finalize(nullptr, 0);
  }

  Status open() {
    const std::lock_guard lock(mutex_);
    if (open_) return pid_ == ::getpid() ? Status() : fail(Code::invalid_usage, "PMIx was initialised before a fork");
    void* library = ::dlopen("libpmix.so.2", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return fail(Code::system, std::string("PMIx: ") + ::dlerror());
    const auto find = [&](const char* name, auto* function) {
      *function = reinterpret_cast<std::remove_pointer_t<decltype(function)>>(::dlsym(library, name));
      return *function != nullptr;
    };
    if (!find("PMIx_Init", &api_.init) || !find("PMIx_Finalize", &api_.finalize) || !find("PMIx_Put", &api_.put) ||
        !find("PMIx_Commit", &api_.commit) || !find("PMIx_Fence_nb", &api_.fence) ||
        !find("PMIx_Get_nb", &api_.get) || !find("PMIx_Error_string", &api_.error_text))
      return fail(Code::system, "PMIx: libpmix.so.2 lacks a function that is needed");
    const int status = api_.init(&self_, nullptr, 0);
    if (status != kSuccess) return failed("PMIx_Init", status);
    open_ = true;
    pid_ = ::getpid();
    return {};
  }

  std::uint32_t rank() const { return self_.rank; }

  Status publish(const std::string& key, const std::string& text, Deadline deadline) {
    PmixValue value{};
    value.type = kText;
    std::string copy = text;
    value.text = copy.data();  // PMIx_Put makes its own copy
    int status = api_.put(kGlobal, key.c_str(), &value);
    if (status == kSuccess) status = api_.commit();
    if (status != kSuccess) return failed("PMIx_Put", status);
    const auto answer = std::make_shared<Answer>();
    void* handle = Answer::handle(answer);
    status = api_.fence(nullptr, 0, nullptr, 0, [](int s, void* h) { Answer::bring(h, s, nullptr); }, handle);
    if (status == kDoneAtOnce) Answer::bring(handle, kSuccess, nullptr);
    if (status != kSuccess && status != kDoneAtOnce) return failed("PMIx_Fence", status);
    if (!answer->wait(deadline)) return fail(Code::timeout, "PMIx_Fence: no end by the deadline");
    return answer->status == kSuccess ? Status() : failed("PMIx_Fence", answer->status);
  }

  Result<std::string> read(const std::string& key, int rank, Deadline deadline) {
    PmixProc peer = self_;
    peer.rank = static_cast<std::uint32_t>(rank);
    const auto answer = std::make_shared<Answer>();
    const int status = api_.get(&peer, key.c_str(), nullptr, 0,
                                [](int s, PmixValue* value, void* h) { Answer::bring(h, s, value); },
                                Answer::handle(answer));
    if (status != kSuccess) return failed("PMIx_Get", status);
    if (!answer->wait(deadline))
      return fail(Code::timeout, "PMIx_Get: no addresses of rank " + std::to_string(rank) + " by the deadline");
    if (answer->status != kSuccess) return failed("PMIx_Get of rank " + std::to_string(rank), answer->status);
    return answer->text;
  }

 private:
  tl::unexpected<Error> failed(const std::string& call, int status) const {
    return fail(Code::system, call + ": " + api_.error_text(status) + " (" + std::to_string(status) + ")");
  }

  std::mutex mutex_;
  bool open_ = false;
  pid_t pid_ = 0;
  Api api_{};
  PmixProc self_{};
};

PmixSession& session() {
  static PmixSession instance;
  return instance;
}

}  // namespace

Result<TextBoard> pmix_board(const Launch& launch, unsigned generation, Deadline deadline) {
  if (Status status = session().open(); !status) return pass(std::move(status));
  if (session().rank() != static_cast<std::uint32_t>(launch.rank))
    return fail(Code::system, "PMIx says rank " + std::to_string(session().rank()) + ", the environment says rank " +
                                  std::to_string(launch.rank));
  const std::string key = "tamaki." + std::to_string(generation);
  TextBoard board;
  board.publish = [=](const std::string& mine) -> Status {
    Status status = session().publish(key, mine, deadline);
    if (!status && status.error().code == Code::timeout)
      status.error().message = "not all " + std::to_string(launch.ranks) +
                               " ranks came to PMIx' fence in time (it does not say which)";
    return status;
  };
  board.read = [=](int rank) { return session().read(key, rank, deadline); };
  return board;
}

}  // namespace tamaki::bootstrap
