// Launchers: what their variables mean, and their own exchanges, imitated and real.

#include "communicator/bootstrap/environment.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <thread>

#if defined(__has_feature)  // clang
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
#define TAMAKI_TEST_SANITIZED 1
#endif
#endif
#ifndef TAMAKI_TEST_SANITIZED
#define TAMAKI_TEST_SANITIZED 0
#endif

namespace tamaki::bootstrap {
namespace {

using Variables = std::map<std::string, std::string>;

Result<Launch> detect(const Variables& variables) {
  return detect_launch([&](const char* name) {
    const auto it = variables.find(name);
    return it == variables.end() ? std::string() : it->second;
  });
}

Launch expect_launch(const Variables& variables, Launch::By by, int rank, int ranks) {
  const Result<Launch> launch = detect(variables);
  EXPECT_TRUE(launch) << launch.error().message;
  if (!launch) return {};
  EXPECT_EQ(name_of(launch->by), name_of(by));
  EXPECT_EQ(launch->rank, rank);
  EXPECT_EQ(launch->ranks, ranks);
  return *launch;
}

const Variables kTamaki = {{"TAMAKI_RANK", "2"}, {"TAMAKI_SIZE", "4"}, {"TAMAKI_RENDEZVOUS", "10.0.0.1:700"}, {"TAMAKI_SECRET", "s"}};
const Variables kSlurm = {{"SLURM_PROCID", "5"}, {"SLURM_NTASKS", "8"}, {"SLURM_STEP_ID", "0"}, {"SLURM_JOB_ID", "77"},
                          {"SLURM_STEP_NUM_NODES", "2"}, {"SLURM_STEP_NODELIST", "node[003-007,9],m2"}};
const Variables kHydra = {{"PMI_RANK", "1"}, {"PMI_SIZE", "3"}, {"PMI_FD", "9"}, {"MPI_LOCALNRANKS", "3"}};
const Variables kOpenMpi = {{"OMPI_COMM_WORLD_RANK", "3"}, {"OMPI_COMM_WORLD_SIZE", "6"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "6"},
                            {"PMIX_NAMESPACE", "123"}, {"PMIX_RANK", "3"}};
const Variables kTorch = {{"RANK", "1"}, {"WORLD_SIZE", "16"}, {"LOCAL_WORLD_SIZE", "8"}, {"MASTER_ADDR", "head"},
                          {"MASTER_PORT", "29500"}, {"TORCHELASTIC_RUN_ID", "abc"}};

Variables merged(std::initializer_list<Variables> all) {
  Variables out;
  for (const Variables& one : all) out.insert(one.begin(), one.end());
  return out;
}

TEST(Environment, NobodyIsOneRank) {
  expect_launch({}, Launch::By::nobody, 0, 1);
  expect_launch({{"RANK", "3"}, {"WORLD_SIZE", "4"}}, Launch::By::nobody, 0, 1);  // anybody may use such names
  expect_launch({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}}, Launch::By::nobody, 0, 1);  // a batch script
  expect_launch({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}, {"SLURM_STEP_ID", "4294967291"}}, Launch::By::nobody, 0, 1);
}

TEST(Environment, RecognisesEachLauncher) {
  const Launch tamaki = expect_launch(kTamaki, Launch::By::tamaki, 2, 4);
  EXPECT_EQ(tamaki.address, "10.0.0.1:700");
  EXPECT_FALSE(tamaki.secret_is_guessable);
  const Launch slurm = expect_launch(kSlurm, Launch::By::slurm, 5, 8);
  EXPECT_EQ(slurm.address.substr(0, 8), "node003:");
  EXPECT_FALSE(slurm.one_host);
  EXPECT_TRUE(slurm.secret_is_guessable);
  const Launch hydra = expect_launch(kHydra, Launch::By::hydra, 1, 3);
  EXPECT_EQ(hydra.pmi_fd, 9);
  EXPECT_TRUE(hydra.one_host);
  const Launch open_mpi = expect_launch(kOpenMpi, Launch::By::open_mpi, 3, 6);
  EXPECT_TRUE(open_mpi.pmix && open_mpi.one_host);
  const Launch torch = expect_launch(kTorch, Launch::By::torchrun, 1, 16);
  EXPECT_EQ(torch.address.substr(0, 5), "head:");
  EXPECT_FALSE(torch.one_host);
}

TEST(Environment, InnermostLauncherCounts) {
  // mpirun inside a Slurm allocation or started through srun: Slurm's variables are those of another process.
  expect_launch(merged({kOpenMpi, kSlurm}), Launch::By::open_mpi, 3, 6);
  expect_launch(merged({kHydra, kSlurm}), Launch::By::hydra, 1, 3);
  expect_launch(merged({kTorch, kSlurm}), Launch::By::torchrun, 1, 16);
  expect_launch(merged({kTorch, kOpenMpi}), Launch::By::torchrun, 1, 16);
  expect_launch(merged({kTamaki, kSlurm, kOpenMpi, kTorch}), Launch::By::tamaki, 2, 4);
  // srun --mpi=pmi2: both say the same.
  const Launch pmi2 = expect_launch(merged({{{"PMI_RANK", "5"}, {"PMI_SIZE", "8"}, {"PMI_FD", "11"}}, kSlurm}),
                                    Launch::By::slurm, 5, 8);
  EXPECT_EQ(pmi2.pmi_fd, 11);
}

TEST(Environment, SlurmStepSizeGoesBeforeTheJobs) {
  expect_launch(merged({{{"SLURM_STEP_NUM_TASKS", "6"}}, kSlurm}), Launch::By::slurm, 5, 6);
  for (const auto& [list, first] : {std::pair("n1", "n1:"), {"n1,n2", "n1:"}, {"rack[1-3]", "rack1:"}, {"a,b[1-2]", "a:"}}) {
    Variables variables = kSlurm;
    variables["SLURM_STEP_NODELIST"] = list;
    EXPECT_EQ(detect(variables)->address.substr(0, std::string(first).size()), first) << list;
  }
}

TEST(Environment, InconsistentVariablesAreErrorsThatNameThem) {
  struct Case {
    Variables base;
    const char *name, *text, *mentions;
  };
  const Case cases[] = {
      {kTamaki, "TAMAKI_RANK", "4", "0..3"},
      {kTamaki, "TAMAKI_RANK", "x1", "TAMAKI_RANK=\"x1\""},
      {kTamaki, "TAMAKI_RANK", "-1", "0..3"},
      {kTamaki, "TAMAKI_RANK", "1 ", "TAMAKI_RANK=\"1 \""},
      {kTamaki, "TAMAKI_RANK", "", "TAMAKI_RANK is not set"},
      {kTamaki, "TAMAKI_SIZE", "0", "1.."},
      {kTamaki, "TAMAKI_SIZE", "", "TAMAKI_SIZE is not set"},
      {kTamaki, "TAMAKI_SECRET", "", "TAMAKI_SECRET is not set"},
      {kTamaki, "TAMAKI_RENDEZVOUS", "", "TAMAKI_RENDEZVOUS is not set"},
      {kSlurm, "SLURM_PROCID", "8", "SLURM_PROCID=\"8\""},
      {kSlurm, "SLURM_NTASKS", "many", "SLURM_NTASKS=\"many\""},
      {kHydra, "PMI_RANK", "3", "PMI_RANK=\"3\""},
      {kHydra, "PMI_FD", "nine", "PMI_FD=\"nine\""},
      {kHydra, "PMI_SIZE", "99999999999999", "PMI_SIZE="},
      {kOpenMpi, "OMPI_COMM_WORLD_RANK", "6", "OMPI_COMM_WORLD_SIZE=6"},
      {kOpenMpi, "OMPI_COMM_WORLD_SIZE", "", "OMPI_COMM_WORLD_SIZE is not set"},
      {kTorch, "RANK", "16", "0..15"},
      {kTorch, "MASTER_PORT", "65536", "0..65535"},
      {kTorch, "MASTER_ADDR", "", "MASTER_ADDR is not set"},
  };
  for (const Case& c : cases) {
    Variables variables = c.base;
    variables[c.name] = c.text;
    const Result<Launch> launch = detect(variables);
    ASSERT_FALSE(launch) << c.name << "=" << c.text;
    EXPECT_EQ(launch.error().code, Code::invalid_argument);
    EXPECT_NE(launch.error().message.find(c.mentions), std::string::npos) << launch.error().message;
    EXPECT_NE(launch.error().message.find(c.name), std::string::npos) << launch.error().message;
  }
}

// ---- Ranks as processes with variables ---------------------------------------------------------------------------

/// What each launched rank does: two communicators, one after the other, and one more beside the second.
std::string run_rank(int ranks_expected) {
  std::vector<std::unique_ptr<Control>> kept;
  for (int round = 0; round < 3; ++round) {
    auto control = join_by_environment(60000);
    if (!control) return "error: " + control.error().message;
    const int ranks = (*control)->ranks();
    if (ranks != ranks_expected) return "size " + std::to_string(ranks);
    std::vector<int> mine{(*control)->rank() * 3 + round}, all(static_cast<std::size_t>(ranks));
    const Status status = (*control)->allgather(std::as_bytes(std::span(mine)), std::as_writable_bytes(std::span(all)));
    if (!status) return "error: " + status.error().message;
    for (int r = 0; r < ranks; ++r)
      if (all[static_cast<std::size_t>(r)] != r * 3 + round) return "wrong";
    if (round > 0) kept.push_back(std::move(*control));
  }
  return "fine";
}

/// Runs this very program's test `filter` in `ranks` processes, each with its variables; returns their exit codes.
std::vector<int> spawn(int ranks, const std::function<Variables(int)>& variables,
                       const std::function<void(int)>& in_child = {}) {
  std::vector<pid_t> pids;
  for (int r = 0; r < ranks; ++r) {
    const pid_t pid = ::fork();
    if (pid == 0) {
      for (const auto& [name, text] : variables(r)) ::setenv(name.c_str(), text.c_str(), 1);
      ::setenv("TEST_RANKS", std::to_string(ranks).c_str(), 1);
      if (in_child) in_child(r);
      ::execl("/proc/self/exe", "unit_tests", "--gtest_filter=EnvironmentRank.DISABLED_Joins",
              "--gtest_also_run_disabled_tests", nullptr);
      ::_exit(127);
    }
    pids.push_back(pid);
  }
  std::vector<int> codes;
  for (const pid_t pid : pids) {
    int status = 0;
    ::waitpid(pid, &status, 0);
    codes.push_back(WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status));
  }
  return codes;
}

/// Leaves a byte in the file TEST_MARKS if all went well: launchers mix the ranks' outputs within lines.
struct Mark {
  ~Mark() {
    const char* path = std::getenv("TEST_MARKS");
    if (path == nullptr || ::testing::Test::HasFailure()) return;
    const int fd = ::open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
    EXPECT_EQ(::write(fd, "+", 1), 1);
    ::close(fd);
  }
};

/// One rank, started by a launcher: real ones and the imitations below.
TEST(EnvironmentRank, DISABLED_Joins) {
  const Mark mark;
  const char* ranks = std::getenv("TEST_RANKS");
  if (const char* library = std::getenv("TEST_MPI"); library != nullptr && *library != '\0') {
    void* mpi = ::dlopen(library, RTLD_NOW | RTLD_GLOBAL);
    ASSERT_NE(mpi, nullptr) << ::dlerror();
    EXPECT_EQ(mpi_state(), MpiState::linked);
    if (std::getenv("TEST_MPI_LATE") != nullptr) {
      EXPECT_EQ(run_rank(std::atoi(ranks)), "fine");
    }
    auto* init = reinterpret_cast<int (*)(int*, char***)>(::dlsym(mpi, "MPI_Init"));
    auto* finalize = reinterpret_cast<int (*)()>(::dlsym(mpi, "MPI_Finalize"));
    ASSERT_EQ(init(nullptr, nullptr), 0);
    EXPECT_EQ(mpi_state(), MpiState::initialized);
    EXPECT_EQ(run_rank(std::atoi(ranks)), "fine");
    ASSERT_EQ(finalize(), 0);
    EXPECT_EQ(mpi_state(), MpiState::finalized);
    return;
  }
  EXPECT_EQ(run_rank(ranks == nullptr ? 1 : std::atoi(ranks)), "fine");
}

TEST(EnvironmentLaunch, OwnVariables) {
  const std::string address = Listener::open(Address::loopback(AF_INET))->address().text();
  const auto variables = [&](int r) {
    return Variables{{"TAMAKI_RANK", std::to_string(r)}, {"TAMAKI_SIZE", "4"}, {"TAMAKI_RENDEZVOUS", address},
                     {"TAMAKI_SECRET", "a secret of the launcher"}};
  };
  EXPECT_EQ(spawn(4, variables), std::vector<int>(4, 0));
}

TEST(EnvironmentLaunch, HostNameAsRendezvous) {
  const std::string port = std::to_string(Listener::open(Address::loopback(AF_INET))->address().port());
  const auto variables = [&](int r) {
    return Variables{{"TAMAKI_RANK", std::to_string(r)}, {"TAMAKI_SIZE", "3"}, {"TAMAKI_RENDEZVOUS", "localhost:" + port},
                     {"TAMAKI_SECRET", "s"}};
  };
  EXPECT_EQ(spawn(3, variables), std::vector<int>(3, 0));
}

TEST(EnvironmentLaunch, TorchrunOnOneHostAndAsIfOnSeveral) {
  for (const char* local : {"4", "2"}) {
    const auto variables = [&](int r) {
      return Variables{{"RANK", std::to_string(r)}, {"WORLD_SIZE", "4"}, {"LOCAL_WORLD_SIZE", local},
                       {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", std::to_string(20000 + ::getpid() % 9000)},
                       {"TORCHELASTIC_RUN_ID", "run " + std::to_string(::getpid())}};
    };
    // The imitation's ranks are children of one process, as torchrun's are.
    const std::string id = std::to_string(::getpid());
    const auto fixed = [&](int r) {
      Variables v = variables(r);
      v["TORCHELASTIC_RUN_ID"] = "run " + id;
      v["MASTER_PORT"] = std::to_string(20000 + std::atoi(id.c_str()) % 9000);
      return v;
    };
    EXPECT_EQ(spawn(4, fixed), std::vector<int>(4, 0)) << local;
  }
}

TEST(EnvironmentLaunch, SlurmOnOneHostWithoutPmi) {
  const std::string job = std::to_string(::getpid());
  const auto variables = [&](int r) {
    return Variables{{"SLURM_PROCID", std::to_string(r)}, {"SLURM_NTASKS", "3"}, {"SLURM_STEP_ID", "0"},
                     {"SLURM_JOB_ID", job}, {"SLURM_STEP_NUM_NODES", "1"}};
  };
  EXPECT_EQ(spawn(3, variables), std::vector<int>(3, 0));
  EXPECT_EQ(spawn(3, variables), std::vector<int>(3, 0));  // the same job's files are gone or replaced
}

// ---- PMI-1 imitated: the answers of Slurm's pmi2 plug-in to old clients --------------------------------------------

class ProcessManager {
 public:
  explicit ProcessManager(int ranks) : ranks_(ranks) {
    for (int r = 0; r < ranks; ++r) {
      int pair[2];
      EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
      ours_.emplace_back(pair[0]);
      theirs_.emplace_back(pair[1]);
    }
  }
  int fd(int rank) const { return theirs_[static_cast<std::size_t>(rank)].get(); }
  /// Serves until all clients have gone; returns how many said finalize.
  int serve() {
    theirs_.clear();
    std::vector<std::string> pending(ours_.size());
    std::size_t open = ours_.size();
    int waiting = 0, finalized = 0;
    while (open > 0) {
      std::vector<pollfd> entries;
      for (const FileDescriptor& fd : ours_) entries.push_back({fd.get(), POLLIN, 0});
      if (::poll(entries.data(), entries.size(), 20000) <= 0) break;
      for (std::size_t r = 0; r < ours_.size(); ++r) {
        if (entries[r].revents == 0 || !ours_[r]) continue;
        char buffer[512];
        const ssize_t n = ::read(ours_[r].get(), buffer, sizeof buffer);
        if (n <= 0) {
          ours_[r].reset();
          --open;
          continue;
        }
        pending[r].append(buffer, static_cast<std::size_t>(n));
        while (pending[r].find('\n') != std::string::npos) {
          const std::string line = pending[r].substr(0, pending[r].find('\n'));
          pending[r].erase(0, line.size() + 1);
          if (line == "cmd=barrier_in") {
            if (++waiting == ranks_) {
              waiting = 0;
              for (const FileDescriptor& fd : ours_) say(fd, "cmd=barrier_out rc=0");
            }
          } else {
            if (line == "cmd=finalize") ++finalized;
            say(ours_[r], answer(line));
          }
        }
      }
    }
    return finalized;
  }

 private:
  static void say(const FileDescriptor& fd, const std::string& line) {
    const std::string text = line + "\n";
    // In two pieces, as a stream may bring it.
    [[maybe_unused]] auto n = ::write(fd.get(), text.data(), 5);
    n = ::write(fd.get(), text.data() + 5, text.size() - 5);
  }
  static std::string field(const std::string& line, const std::string& key) {
    const auto at = line.find(key + "=");
    if (at == std::string::npos) return {};
    const auto begin = at + key.size() + 1;
    return line.substr(begin, line.find(' ', begin) - begin);
  }
  std::string answer(const std::string& line) {
    const std::string command = field(line, "cmd");
    if (command == "init") return "cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1";
    if (command == "get_maxes") return "cmd=maxes rc=0 kvsname_max=256 keylen_max=256 vallen_max=256";
    if (command == "get_my_kvsname") return "cmd=my_kvsname rc=0 kvsname=77.0";
    if (command == "finalize") return "cmd=finalize_ack rc=0";
    if (command == "put") {
      EXPECT_LE(field(line, "value").size(), 255u);
      values_[field(line, " key")] = field(line, "value");
      return "cmd=put_result rc=0";
    }
    if (command == "get") {
      const auto it = values_.find(field(line, " key"));
      return it == values_.end() ? "cmd=get_result rc=1" : "cmd=get_result rc=0 value=" + it->second;
    }
    return "cmd=unknown rc=-1";
  }

  int ranks_;
  std::vector<FileDescriptor> ours_, theirs_;
  std::map<std::string, std::string> values_;
};

TEST(EnvironmentLaunch, PmiOfAnImitatedSlurm) {
  constexpr int kRanks = 10;
  ProcessManager manager(kRanks);
  const auto variables = [&](int r) {
    return Variables{{"PMI_RANK", std::to_string(r)}, {"PMI_SIZE", "10"}, {"PMI_FD", std::to_string(manager.fd(r))},
                     {"SLURM_PROCID", std::to_string(r)}, {"SLURM_NTASKS", "10"}, {"SLURM_STEP_ID", "0"},
                     {"SLURM_STEP_NUM_NODES", "1"}, {"SLURM_JOB_ID", "77"}};
  };
  std::vector<int> codes;
  int finalized = 0;
  std::thread server;
  const auto only_own = [&](int rank) {
    for (int r = 0; r < kRanks; ++r)
      if (r != rank) ::close(manager.fd(r));
  };
  // The clients are forked before the server's thread exists, and wait at their sockets.
  std::vector<pid_t> pids;
  {
    const pid_t pid = ::fork();
    if (pid == 0) {
      codes = spawn(kRanks, variables, only_own);
      ::_exit(codes == std::vector<int>(kRanks, 0) ? 0 : 1);
    }
    pids.push_back(pid);
  }
  finalized = manager.serve();
  int status = 0;
  ::waitpid(pids[0], &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  EXPECT_EQ(finalized, kRanks);
}

TEST(EnvironmentLaunch, PmiDescriptorThatIsSomethingElseIsNotTouched) {
  Launch launch;
  launch.ranks = 2;
  char path[] = "/tmp/tamaki-test-XXXXXX";
  const FileDescriptor file(::mkstemp(path));
  ::unlink(path);
  const auto board = pmi_board(file.get(), launch, 0, deadline_in(1000));
  ASSERT_FALSE(board);
  EXPECT_NE(board.error().message.find("PMI_FD"), std::string::npos);
  EXPECT_EQ(::lseek(file.get(), 0, SEEK_END), 0);  // nothing was written
  EXPECT_FALSE(pmi_board(9999, launch, 0, deadline_in(1000)));
}

// ---- The host file ------------------------------------------------------------------------------------------------

TEST(EnvironmentHostFile, IsPrivateAndGoneAfterwards) {
  const std::string folder = "/tmp/tamaki-test-" + std::to_string(::getpid());
  ASSERT_EQ(::mkdir(folder.c_str(), 0700), 0);
  const char* before = std::getenv("XDG_RUNTIME_DIR");
  const std::string saved = before == nullptr ? "" : before;
  ::setenv("XDG_RUNTIME_DIR", folder.c_str(), 1);
  const std::string own = folder + "/tamaki-" + std::to_string(::geteuid());
  Launch launch;
  launch.ranks = 2;
  launch.job = "a job";
  std::atomic<bool> seen{false};
  std::thread zero([&] {
    Launch mine = launch;
    const auto control = join_by_host_file(mine, 0, 15000);
    EXPECT_TRUE(control) << control.error().message;
  });
  for (int i = 0; i < 2000 && !seen; ++i) {
    if (std::filesystem::exists(own))
      for (const auto& entry : std::filesystem::directory_iterator(own)) {
        struct stat facts {};
        if (entry.path().extension().empty() && ::stat(entry.path().c_str(), &facts) == 0) {
          EXPECT_EQ(facts.st_mode & 0777, 0600u);
          seen = true;
        }
      }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  EXPECT_TRUE(seen);
  struct stat facts {};
  EXPECT_EQ(::stat(own.c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0777, 0700u);
  Launch mine = launch;
  mine.rank = 1;
  const auto control = join_by_host_file(mine, 0, 15000);
  EXPECT_TRUE(control) << control.error().message;
  zero.join();
  EXPECT_TRUE(std::filesystem::is_empty(own));

  // A file of a process that is gone counts as none; a folder that others may enter is not used.
  mine.job = "nobody's job";
  const auto late = join_by_host_file(mine, 0, 100);
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().code, Code::timeout);
  EXPECT_NE(late.error().message.find("rank 0"), std::string::npos);
  if (saved.empty())
    ::unsetenv("XDG_RUNTIME_DIR");
  else
    ::setenv("XDG_RUNTIME_DIR", saved.c_str(), 1);
  std::filesystem::remove_all(folder);
}

// ---- Real launchers -------------------------------------------------------------------------------------------------

bool installed(const char* program) {
  return std::system(("command -v " + std::string(program) + " >/dev/null 2>&1").c_str()) == 0;
}

/// Runs `launcher` with this program as its ranks; empty if all went well, else what they printed.
std::string launch_real(const std::string& launcher, int ranks, const std::string& variables = "") {
  char path[4096] = {};
  if (::readlink("/proc/self/exe", path, sizeof path - 1) <= 0) return "no /proc/self/exe";
  std::string marks = ::testing::TempDir() + "tamaki_marks_XXXXXX";
  const int marks_fd = ::mkstemp(marks.data());
  if (marks_fd < 0) return "mkstemp " + marks;
  // LeakSanitizer would report libpmix' own leaks.
  const std::string command = "LSAN_OPTIONS=detect_leaks=0 TEST_MARKS='" + marks + "' TEST_RANKS=" + std::to_string(ranks) + " " + variables + " timeout 120 " + launcher + " -n " +
                              std::to_string(ranks) + " '" + path +
                              "' --gtest_filter=EnvironmentRank.DISABLED_Joins --gtest_also_run_disabled_tests --gtest_color=no 2>&1";
  FILE* pipe = ::popen(command.c_str(), "r");
  std::string text;
  if (pipe == nullptr) {
    ::close(marks_fd);
    ::unlink(marks.c_str());
    return "popen";
  }
  char buffer[4096];
  for (std::size_t n; (n = std::fread(buffer, 1, sizeof buffer, pipe)) > 0;) text.append(buffer, n);
  const int status = ::pclose(pipe);
  const auto passed = ::lseek(marks_fd, 0, SEEK_END);
  ::close(marks_fd);
  ::unlink(marks.c_str());
  return status == 0 && passed == ranks ? std::string() : text + "\nstatus " + std::to_string(status);
}

const char kMpich[] = "mpirun.mpich";
const char kOpenMpiRun[] = "mpirun.openmpi --allow-run-as-root --oversubscribe";

TEST(EnvironmentReal, Hydra) {
  if (!installed(kMpich)) GTEST_SKIP() << "mpirun.mpich is not installed";
  for (const int ranks : {1, 4, 10}) EXPECT_EQ(launch_real(kMpich, ranks), "") << ranks;
}

TEST(EnvironmentReal, OpenMpi) {
  if (!installed("mpirun.openmpi")) GTEST_SKIP() << "mpirun.openmpi is not installed";
  for (const int ranks : {1, 4, 10}) EXPECT_EQ(launch_real(kOpenMpiRun, ranks), "") << ranks;
}

TEST(EnvironmentReal, ProgramsThatUseMpiThemselves) {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__) || TAMAKI_TEST_SANITIZED
  GTEST_SKIP() << "the distribution's MPI replaces malloc and does not run inside a sanitizer";
#endif
  // Before MPI_Init the launcher's connection is left to MPI and a file of this host serves; after it MPI itself does.
  for (const char* late : {"", "TEST_MPI_LATE=1"}) {
    if (installed(kMpich)) {
      EXPECT_EQ(launch_real(kMpich, 4, std::string("TEST_MPI=libmpich.so.12 ") + late), "") << late;
    }
    if (installed("mpirun.openmpi")) {
      EXPECT_EQ(launch_real(kOpenMpiRun, 4, std::string("TEST_MPI=libmpi.so.40 ") + late), "") << late;
    }
  }
}

}  // namespace
}  // namespace tamaki::bootstrap
