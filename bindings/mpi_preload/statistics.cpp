#include "statistics.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "mpi_header.hpp"

namespace tamaki::mpi {
namespace {

std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20) {
      char escape[8];
      std::snprintf(escape, sizeof escape, "\\u%04x", byte);
      out += escape;
    } else {
      out += c;
    }
  }
  return out + "\"";
}

std::string host_name() {
  char host[256] = "localhost";
  ::gethostname(host, sizeof host - 1);
  return host;
}

std::string expand(const std::string& pattern, int rank) {
  std::string path;
  bool distinct = false;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    const char next = pattern[i] == '%' && i + 1 < pattern.size() ? pattern[i + 1] : '\0';
    if (next == 'r')
      path += std::to_string(rank), distinct = true;
    else if (next == 'p')
      path += std::to_string(::getpid()), distinct = true;
    else if (next == 'h')
      path += host_name();
    else if (next == '%')
      path += '%';
    else {
      path += pattern[i];
      continue;
    }
    ++i;
  }
  return distinct ? path : path + "." + std::to_string(rank);
}

const char* thread_level_name(int level) {
  switch (level) {
    case MPI_THREAD_SINGLE:
      return "single";
    case MPI_THREAD_FUNNELED:
      return "funneled";
    case MPI_THREAD_SERIALIZED:
      return "serialized";
    case MPI_THREAD_MULTIPLE:
      return "multiple";
    default:
      return "unknown";
  }
}

}  // namespace

std::string_view name_of(Call call) {
  constexpr std::string_view names[kCalls] = {
      "MPI_Allreduce", "MPI_Reduce_scatter", "MPI_Reduce_scatter_block",
      "MPI_Allgather", "MPI_Bcast",          "MPI_Iallreduce"};
  return names[static_cast<int>(call)];
}

std::string_view text_of(Reason reason) {
  constexpr std::string_view texts[kReasons] = {"",
                                                "MPI is not running",
                                                "arguments look wrong",
                                                "zero bytes",
                                                "data type",
                                                "operation",
                                                "operation is not defined for the data type",
                                                "one rank",
                                                "intercommunicator",
                                                "has ranks of another MPI_COMM_WORLD",
                                                "smaller than TAMAKI_MPI_MIN_BYTES",
                                                "larger than TAMAKI_MPI_MAX_BYTES",
                                                "2 GiB or more a block",
                                                "could not be set up",
                                                "too many communicators",
                                                "nonblocking",
                                                "one of the first calls",
                                                "the rule's algorithm cannot serve it"};
  return texts[static_cast<int>(reason)];
}

void Ledger::add(const Counter& more) {
  for (Counter& c : counters)
    if (c.call == more.call && c.reason == more.reason && c.algorithm == more.algorithm) {
      c.calls += more.calls;
      c.bytes += more.bytes;
      c.nanoseconds += more.nanoseconds;
      return;
    }
  counters.push_back(more);
}

std::string render(const Identity& identity, const std::vector<const Ledger*>& ledgers, Ending ending) {
  constexpr const char* endings[] = {"running", "finalized", "unfinalized"};
  std::string out = "{\"rank\": " + std::to_string(identity.rank) +
                    ", \"ranks\": " + std::to_string(identity.ranks) +
                    ", \"host\": " + quoted(host_name()) + ", \"pid\": " + std::to_string(::getpid()) +
                    ", \"mpi\": " + quoted(identity.library) +
                    ", \"thread_level\": " + quoted(thread_level_name(identity.thread_level)) +
                    ", \"state\": " + quoted(endings[static_cast<int>(ending)]) + ",\n \"records\": [";
  const char* separator = "\n  ";
  for (const Ledger* ledger : ledgers)
    for (const Counter& c : ledger->counters) {
      out += separator;
      separator = ",\n  ";
      char seconds[32];
      std::snprintf(seconds, sizeof seconds, "%.9f", static_cast<double>(c.nanoseconds) * 1e-9);
      const bool ours = c.reason == Reason::accelerated;
      out += "{\"communicator\": " + quoted(ledger->name) + ", \"id\": " + std::to_string(ledger->id) +
             ", \"communicators\": " + std::to_string(ledger->communicators) +
             ", \"ranks\": " + std::to_string(ledger->ranks) + ", \"call\": " + quoted(name_of(c.call)) +
             ", \"path\": " + (ours ? "\"tamaki\"" : "\"mpi\"") +
             (ours ? ", \"algorithm\": " + quoted(c.algorithm)
                   : ", \"reason\": " + quoted(text_of(c.reason))) +
             ", \"calls\": " + std::to_string(c.calls) + ", \"bytes\": " + std::to_string(c.bytes) +
             ", \"seconds\": " + seconds + "}";
    }
  return out + "\n ]}\n";
}

int write_report(const std::string& pattern, int rank, const std::string& text) {
  const std::string path = expand(pattern, rank);
  const std::string fresh = path + ".part";  // renamed when complete: a reader never sees half a report
  const int fd = ::open(fresh.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) return errno;
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t n = ::write(fd, text.data() + done, text.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      const int error = n < 0 ? errno : EIO;
      ::close(fd);
      ::unlink(fresh.c_str());
      return error;
    }
    done += static_cast<std::size_t>(n);
  }
  if (::close(fd) != 0 || ::rename(fresh.c_str(), path.c_str()) != 0) return errno;
  return 0;
}

}  // namespace tamaki::mpi
