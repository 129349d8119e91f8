// Groups of calls, per thread.

#include <utility>

#include "communicator/communicator.hpp"

namespace tamaki {

Group& Group::current() {
  static thread_local Group group;
  return group;
}

void Group::fail(const Error& error) {
  if (failure_) failure_ = tl::unexpected<Error>(error);
}

Status Group::add(Communicator* communicator, const Call& call, Request** request) {
  if (Status valid = communicator->validate(call); !valid) {
    fail(valid.error());
    return valid;
  }
  Entry entry{communicator, call, request, {}};
  const std::size_t* const given[4] = {call.send_counts, call.send_displacements, call.recv_counts, call.recv_displacements};
  for (int i = 0; i < 4; ++i)
    if (given[i] != nullptr) entry.counts[i].assign(given[i], given[i] + communicator->ranks());
  entries_.push_back(std::move(entry));
  return {};
}

Status Group::end() {
  if (depth_ == 0) return tamaki::fail(Code::invalid_usage, "tmkGroupEnd without tmkGroupStart");
  if (--depth_ > 0) return {};
  std::vector<Entry> entries = std::exchange(entries_, {});
  if (Status failure = std::exchange(failure_, {}); !failure) return failure;
  // Launch all, then wait: sends and receives of the group need each other.
  Status result;
  std::vector<Request*> blocking;
  for (Entry& entry : entries) {
    const std::size_t** const given[4] = {&entry.call.send_counts, &entry.call.send_displacements, &entry.call.recv_counts,
                                          &entry.call.recv_displacements};
    for (int i = 0; i < 4; ++i)
      if (*given[i] != nullptr) *given[i] = entry.counts[i].data();
    Result<Request*> started = entry.communicator->start(entry.call);
    if (!started) {
      // Checked when it was added, so this is a failure of the communicator: what follows on it fails as well.
      if (result) result = tl::unexpected<Error>(started.error());
      continue;
    }
    if (entry.request != nullptr) *entry.request = *started;
    else blocking.push_back(*started);
  }
  for (std::size_t left = blocking.size(); left > 0; --left) {
    // Several communicators may be concerned: wait for whichever is ready, so that none starves another.
    const Result<int> ready = Communicator::wait_any(blocking);
    if (!ready) return tl::unexpected<Error>(ready.error());
    Request*& request = blocking[static_cast<std::size_t>(*ready)];
    if (!request->result && result) result = request->result;
    request->communicator->release(std::exchange(request, nullptr));
  }
  return result;
}

}  // namespace tamaki
