#include "transports/shm/single_copy.hpp"

#include <sodium.h>
#include <sys/uio.h>

#include <cerrno>
#include <cstring>

namespace tamaki {
namespace {

// Two words: one that peers read, one that they write when they try.
struct ProbeWords {
  std::uint64_t value;
  std::uint64_t scratch;
};
ProbeWords& probe_words() {
  static ProbeWords words = [] {
    ProbeWords made{};
    randombytes_buf(&made.value, sizeof made.value);
    return made;
  }();
  return words;
}

using Transfer = ssize_t (*)(pid_t, const iovec*, unsigned long, const iovec*, unsigned long, unsigned long);

Status transfer_all(Transfer transfer, const char* what, int pid, std::byte* local, std::uint64_t address, std::size_t bytes) {
  while (bytes > 0) {
    iovec here{local, bytes}, there{reinterpret_cast<void*>(address), bytes};
    const ssize_t moved = transfer(pid, &here, 1, &there, 1, 0);
    if (moved <= 0) {
      if (moved < 0 && errno == EINTR) continue;
      const bool gone = moved < 0 && errno == ESRCH;
      const std::string text = std::string(what) + " of " + std::to_string(bytes) + " bytes at process " + std::to_string(pid);
      if (gone) return fail(Code::peer_lost, text + ": the process has ended", Scope::communicator);
      return fail_errno(text, Scope::communicator);
    }
    local += moved;
    address += static_cast<std::uint64_t>(moved);
    bytes -= static_cast<std::size_t>(moved);
  }
  return {};
}

}  // namespace

CopyProbe own_copy_probe() {
  return {.address = reinterpret_cast<std::uint64_t>(&probe_words()), .value = probe_words().value};
}

bool may_copy(int pid, const CopyProbe& probe, std::string* why) {
  std::uint64_t value = 0, zero = 0;
  iovec here{&value, sizeof value}, there{reinterpret_cast<void*>(probe.address), sizeof value};
  if (::process_vm_readv(pid, &here, 1, &there, 1, 0) != static_cast<ssize_t>(sizeof value)) {
    *why = std::string("process_vm_readv: ") + std::strerror(errno);
    return false;
  }
  if (value != probe.value) {
    *why = "process " + std::to_string(pid) + " is another one in this process's namespace";
    return false;
  }
  here.iov_base = &zero;
  there.iov_base = reinterpret_cast<void*>(probe.address + offsetof(ProbeWords, scratch));
  if (::process_vm_writev(pid, &here, 1, &there, 1, 0) == static_cast<ssize_t>(sizeof zero)) return true;
  *why = std::string("process_vm_writev: ") + std::strerror(errno);
  return false;
}

Status copy_from(int pid, std::byte* local, std::uint64_t address, std::size_t bytes) {
  return transfer_all(&::process_vm_readv, "process_vm_readv", pid, local, address, bytes);
}
Status copy_to(int pid, const std::byte* local, std::uint64_t address, std::size_t bytes) {
  return transfer_all(&::process_vm_writev, "process_vm_writev", pid, const_cast<std::byte*>(local), address, bytes);
}

}  // namespace tamaki
