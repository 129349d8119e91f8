// Calls, requests and progress.

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "base/log.hpp"
#include "base/shared_region.hpp"
#include "communicator/communicator_impl.hpp"

namespace tamaki {
namespace {

/// Leaves the gate at the end of a scope.
class Inside {
 public:
  explicit Inside(Gate& gate) : gate_(gate) { gate_.enter(); }
  ~Inside() { gate_.leave(); }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;

 private:
  Gate& gate_;
};

bool same_plan(const PlanKey& key, const Call& call) {
  return !call.uneven && key.collective == call.collective && key.count == call.count && key.type == call.type &&
         key.op == call.op.op && key.root == call.root && key.commutative == call.op.commutative && !key.uneven &&
         key.channel == 0;
}

void fill_key(const Call& call, int ranks, int channel, PlanKey* key) {
  key->collective = call.collective;
  key->type = call.type;
  key->op = reduces(call.collective) ? call.op.op : ReduceOp::sum;
  key->commutative = reduces(call.collective) ? call.op.commutative : true;
  key->uneven = call.uneven;
  key->channel = channel;
  key->root = call.collective == Collective::send_recv ? (call.destination >= 0 ? call.destination : -2 - call.source) : call.root;
  key->count = call.count;
  key->uneven_sizes.clear();
  if (!call.uneven) return;
  for (const std::size_t* sizes : {call.send_counts, call.send_displacements, call.recv_counts, call.recv_displacements}) {
    key->uneven_sizes.push_back(sizes != nullptr);
    if (sizes != nullptr) key->uneven_sizes.insert(key->uneven_sizes.end(), sizes, sizes + ranks);
  }
}

std::string bad_range(const char* name, std::int64_t value, std::int64_t high) {
  return std::string(name) + "=" + std::to_string(value) + " is not in 0.." + std::to_string(high);
}

}  // namespace

void Gate::wait() {
  for (int i = 0; taken_.exchange(true, std::memory_order_acquire); ++i) {
    if (i < 1000) cpu_relax();
    else std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
}

// ---- checks -------------------------------------------------------------------------------------------------------

Status CommunicatorImpl::validate(const Call& call) const {
  const int p = ranks();
  const bool rooted = call.collective == Collective::reduce || call.collective == Collective::broadcast ||
                      call.collective == Collective::gather || call.collective == Collective::scatter;
  if (rooted && (call.root < 0 || call.root >= p)) return fail(Code::invalid_argument, bad_range("root", call.root, p - 1));
  if (static_cast<int>(call.type) >= kDataTypes) return fail(Code::invalid_argument, bad_range("type", static_cast<int>(call.type), kDataTypes - 1));
  if (reduces(call.collective) && !is_defined(call.op.op, call.type))
    return fail(Code::invalid_argument, "operation " + std::string(name_of(call.op.op)) + " is not defined for type " +
                                            std::string(name_of(call.type)));
  if (call.collective == Collective::send_recv) {
    for (int peer : {call.destination, call.source})
      if (peer < -1 || peer >= p) return fail(Code::invalid_argument, bad_range("peer", peer, p - 1));
    if (call.destination < 0 && call.source < 0) return fail(Code::invalid_argument, "neither a destination nor a source is given");
  }
  const std::size_t limit = SIZE_MAX / 2 / size_of(call.type) / static_cast<std::size_t>(p);
  if (call.count > limit || call.recv_count > limit)
    return fail(Code::invalid_argument, "count=" + std::to_string(std::max(call.count, call.recv_count)) + " is not in 0.." + std::to_string(limit));
  return check_pointers(call);
}

/// Null buffers where bytes are to be moved.
Status CommunicatorImpl::check_pointers(const Call& call) const {
  const auto missing = [&](const char* which) {
    return fail(Code::invalid_argument, std::string(which) + " buffer is null in " + title_of(call, {}));
  };
  if (call.collective == Collective::barrier) return {};
  if (call.uneven) {
    const auto any = [&](const std::size_t* counts) {
      return counts != nullptr && std::any_of(counts, counts + ranks(), [](std::size_t c) { return c != 0; });
    };
    if (any(call.send_counts) && call.input == nullptr) return missing("send");
    if (any(call.recv_counts) && call.collective != Collective::reduce_scatter && call.output == nullptr) return missing("receive");
    return {};
  }
  if (call.collective == Collective::send_recv) {
    if (call.destination >= 0 && call.count > 0 && call.input == nullptr) return missing("send");
    if (call.source >= 0 && (call.destination >= 0 ? call.recv_count : call.count) > 0 && call.output == nullptr) return missing("receive");
    return {};
  }
  if (call.count == 0) return {};
  const bool root = call.root == rank_;
  const bool reads = (call.collective != Collective::broadcast && call.collective != Collective::scatter) || root;
  const bool writes = (call.collective != Collective::reduce && call.collective != Collective::gather) || root;
  if (reads && call.input == nullptr) return missing("send");
  if (writes && call.output == nullptr) return missing("receive");
  return {};
}

// ---- calls --------------------------------------------------------------------------------------------------------

Result<CachedPlan*> CommunicatorImpl::plan_for(const Call& call, int channel) {
  if (last_plan_ != nullptr && channel == 0 && same_plan(last_plan_->key, call)) {
    if (Status pointers = check_pointers(call); !pointers) return pass(std::move(pointers));
    return last_plan_;
  }
  if (Status valid = validate(call); !valid) return pass(std::move(valid));
  fill_key(call, ranks(), channel, &probe_);
  CachedPlan* found = plans_.find(probe_);
  if (found == nullptr) {
    Result<CachedPlan*> made = make_plan(call, probe_);
    if (!made) return made;
    found = *made;
  }
  if (channel == 0) last_plan_ = found;
  return found;
}

Status CommunicatorImpl::run(const Call& call) {
  const Inside inside(gate_);
  return run_inside(call);
}

/// Not failed, and in the process that made it: a forked copy would read and write its parent's rings.
Status CommunicatorImpl::usable() const {
  if (generation_ != fork_generation())
    return tamaki::fail(Code::invalid_usage, "this communicator belongs to the process that made it, not to its forked child");
  return health();
}

Status CommunicatorImpl::run_inside(const Call& call) {
  if (failed_.load(std::memory_order_acquire) || generation_ != fork_generation()) return usable();
  if (call.collective == Collective::send_recv || outstanding()) {
    Result<RequestState*> started = start_inside(call, kMessageChannel);
    if (!started) return pass(std::move(started));
    Status result = wait_inside(*started);
    RequestState* half = (*started)->other_half;
    free_requests_.push_back(*started);
    if (half != nullptr) free_requests_.push_back(half);
    return result;
  }
  Result<CachedPlan*> plan = plan_for(call, 0);
  if (!plan) return pass(std::move(plan));
  if (config_.check)
    if (Status compared = compare_arguments(call); !compared) return compared;
  ++calls_;
  ++collective_calls_;
  op_ = call.op;
  op_.type = call.type;
  op_.ranks = ranks();
  StoreTrial& stores = (*plan)->stores;
  const bool large = !(*plan)->plan.small;
  const std::int64_t began = large && stores.timed() ? now_ns() : 0;
  execution_.start((*plan)->plan, call.input, call.output, op_, workspace_, limits_, large && stores.stream());
  Waiter waiter(wait_policy_, yields_);
  while (true) {
    for (Transport* transport : active_transports_)
      if (Status moved = transport->progress(); !moved) return fail_here(std::move(moved.error()));
    const Progress progress = execution_.advance();
    if (progress == Progress::done) {
      if (large) stores.executed(began != 0 ? now_ns() - began : 0);
      return {};
    }
    if (progress == Progress::moved) {
      waiter.progressed();
    } else if (progress == Progress::failed) {
      return fail_here(execution_.error());
    } else if (!waiter.spin()) {
      if (Status rested = rest(waiter, &execution_); !rested) return rested;
    }
  }
}

RequestState* CommunicatorImpl::new_request() {
  RequestState* request;
  if (free_requests_.empty()) {
    requests_.push_back(std::make_unique<RequestState>());
    request = requests_.back().get();
  } else {
    request = free_requests_.back();
    free_requests_.pop_back();
  }
  request->communicator = this;
  request->done = false;
  request->result = {};
  request->plan = nullptr;
  request->destination = request->source = -1;
  request->other_half = nullptr;
  request->stuck_since_ns = 0;
  return request;
}

Result<RequestState*> CommunicatorImpl::start_inside(const Call& call, int channel) {
  if (failed_.load(std::memory_order_acquire) || generation_ != fork_generation()) return tl::unexpected<Error>(usable().error());
  if (call.collective == Collective::send_recv) {
    if (Status valid = validate(call); !valid) return pass(std::move(valid));
    if (call.destination >= 0 && call.source >= 0) {
      Call half = call;
      half.source = -1;
      half.output = nullptr;
      Result<RequestState*> sent = start_inside(half, channel);
      if (!sent) return sent;
      half = call;
      half.destination = -1;
      half.input = nullptr;
      half.count = call.recv_count;
      Result<RequestState*> received = start_inside(half, channel);
      if (!received) {
        // The send is on its way and cannot be recalled: the communicator is no longer in a known state.
        return tl::unexpected<Error>(fail_here(received.error()).error());
      }
      (*received)->other_half = *sent;
      return received;
    }
    if (call.destination == rank_ || call.source == rank_) {
      RequestState* request = new_request();
      request->queue = RequestState::Queue::self;
      request->self_send = call.destination >= 0;
      request->self_data = call.input;
      request->self_place = call.output;
      request->self_bytes = call.count * size_of(call.type);
      (request->self_send ? self_sends_ : self_receives_).push_back(request);
      match_self();
      return request;
    }
  }
  const bool message = call.collective == Collective::send_recv;
  Result<CachedPlan*> plan = plan_for(call, message ? channel : 0);
  if (!plan) return tl::unexpected<Error>(plan.error());
  if (config_.check && !message)
    if (Status compared = compare_arguments(call); !compared) return pass(std::move(compared));
  ++calls_;
  if (!message) ++collective_calls_;
  RequestState* request = new_request();
  request->plan = *plan;
  request->op = call.op;
  request->op.type = call.type;
  request->op.ranks = ranks();
  request->queue = message ? RequestState::Queue::message : RequestState::Queue::collective;
  request->destination = message ? call.destination : -1;
  request->source = message ? call.source : -1;
  request->execution.start((*plan)->plan, call.input, call.output, request->op, workspace_, limits_, (*plan)->stores.stream());
  if (message) messages_.push_back(request);
  else collectives_.push_back(request);
  work_.fetch_add(1, std::memory_order_release);
  work_.notify_one();
  return request;
}

Result<Request*> CommunicatorImpl::start(const Call& call) {
  const Inside inside(gate_);
  Result<RequestState*> started = start_inside(call, kMessageChannel);
  if (!started) return tl::unexpected<Error>(started.error());
  progress();
  return *started;
}

// ---- progress -----------------------------------------------------------------------------------------------------

void CommunicatorImpl::complete(RequestState* request, Status result) {
  request->result = std::move(result);
  request->done = true;
  if (request->queue != RequestState::Queue::self) work_.fetch_sub(1, std::memory_order_relaxed);
}

void CommunicatorImpl::match_self() {
  while (!self_sends_.empty() && !self_receives_.empty()) {
    RequestState* send = self_sends_.front();
    RequestState* receive = self_receives_.front();
    self_sends_.pop_front();
    self_receives_.pop_front();
    Status result;
    if (send->self_bytes != receive->self_bytes)
      result = tamaki::fail(Code::mismatch, "rank " + std::to_string(rank_) + " sends itself " + std::to_string(send->self_bytes) +
                                                " bytes and receives " + std::to_string(receive->self_bytes));
    else if (send->self_bytes != 0)
      std::memmove(receive->self_place, send->self_data, send->self_bytes);
    complete(send, result);
    complete(receive, result);
  }
}

/// Messages of one peer and direction one after the other; everything else side by side.
bool CommunicatorImpl::progress_messages() {
  bool moved = false;
  ++stamp_;
  for (std::size_t i = 0; i < messages_.size();) {
    RequestState* request = messages_[i];
    const bool sends = request->destination >= 0;
    const int peer = sends ? request->destination : request->source;
    // Channels are separate streams; the setup channel never has messages of users before it.
    std::uint32_t& busy = (sends ? send_busy_ : receive_busy_)[static_cast<std::size_t>(peer)];
    if (busy == stamp_ && request->plan->key.channel == kMessageChannel) {
      ++i;
      continue;
    }
    const Progress progress = request->execution.advance();
    if (progress == Progress::done || progress == Progress::failed) {
      messages_.erase(messages_.begin() + static_cast<std::ptrdiff_t>(i));
      complete(request, progress == Progress::done ? Status{} : fail_here(request->execution.error()));
      moved = true;
      continue;
    }
    moved = moved || progress == Progress::moved;
    if (progress == Progress::moved) request->stuck_since_ns = 0;
    if (request->plan->key.channel == kMessageChannel) busy = stamp_;
    ++i;
  }
  return moved;
}

bool CommunicatorImpl::progress() {
  bool moved = false;
  for (Transport* transport : active_transports_)
    if (Status status = transport->progress(); !status) (void)fail_here(std::move(status.error()));
  if (!messages_.empty()) moved = progress_messages();
  while (!collectives_.empty()) {
    RequestState* request = collectives_.front();
    const Progress progress = request->execution.advance();
    if (progress == Progress::moved) moved = true;
    if (progress == Progress::moved || progress == Progress::waiting) break;
    collectives_.pop_front();
    complete(request, progress == Progress::done ? Status{} : fail_here(request->execution.error()));
    moved = true;
  }
  if (failed_.load(std::memory_order_acquire) && (outstanding() || !self_sends_.empty() || !self_receives_.empty())) {
    // After a failure nothing outstanding can be completed. What had arrived before has just been taken.
    const Status failure = health();
    for (auto* queue : {&self_sends_, &self_receives_, &collectives_}) {
      for (RequestState* request : *queue) complete(request, failure);
      queue->clear();
    }
    for (RequestState* request : messages_) complete(request, failure);
    messages_.clear();
    moved = true;
  }
  return moved;
}

Status CommunicatorImpl::wait_inside(RequestState* request) {
  Waiter waiter(wait_policy_, yields_);
  RequestState* half = request->other_half;
  while (!request->done || (half != nullptr && !half->done)) {
    if (progress()) {
      waiter.progressed();
    } else if (!waiter.spin()) {
      RequestState* late = !request->done ? request : half;
      RequestState* head = late->queue == RequestState::Queue::collective && !collectives_.empty() ? collectives_.front() : late;
      if (Status rested = rest(waiter, head->queue == RequestState::Queue::self ? nullptr : &head->execution); !rested) progress();
    }
  }
  if (half != nullptr && request->result && !half->result) return half->result;
  return request->result;
}

Status CommunicatorImpl::test(Request* request) {
  auto* state = static_cast<RequestState*>(request);
  const Inside inside(gate_);
  if (!state->done || (state->other_half != nullptr && !state->other_half->done))
    if (progress()) state->stuck_since_ns = 0;
  serve_unopened();
  // Polling has no slow phase of its own: deadlines are seen here.
  if (!state->done && state->queue != RequestState::Queue::self) {
    const std::int64_t now = now_ns();
    if (state->stuck_since_ns == 0) state->stuck_since_ns = now;
    RequestState* head = state->queue == RequestState::Queue::collective && !collectives_.empty() ? collectives_.front() : state;
    const std::int64_t stuck = now - state->stuck_since_ns;
    if (stuck > std::int64_t{config_.timeout_ms} * 1'000'000) {
      (void)fail_here(timed_out(&head->execution, stuck));
      progress();
    } else if (!look_for_departed(&head->execution, stuck)) {
      progress();
    }
  }
  if (state->other_half != nullptr && state->done && !state->other_half->done) state->done = false;
  return {};
}

Status CommunicatorImpl::wait(Request* request) {
  const Inside inside(gate_);
  return wait_inside(static_cast<RequestState*>(request));
}

void CommunicatorImpl::release(Request* request) {
  const Inside inside(gate_);
  auto* state = static_cast<RequestState*>(request);
  if (state->other_half != nullptr) free_requests_.push_back(state->other_half);
  free_requests_.push_back(state);
}

Result<int> Communicator::wait_any(std::span<Request* const> requests) {
  bool any = false;
  for (int round = 0;; ++round) {
    for (std::size_t i = 0; i < requests.size(); ++i) {
      if (requests[i] == nullptr) continue;
      any = true;
      if (Status tested = requests[i]->communicator->test(requests[i]); !tested) return pass(std::move(tested));
      if (requests[i]->done) return static_cast<int>(i);
    }
    if (!any) return -1;
    if (round > 1000) ::sched_yield();
    if (round > 20000) std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

// ---- end, progress thread, memory ---------------------------------------------------------------------------------

Status CommunicatorImpl::finish() {
  const Inside inside(gate_);
  Waiter waiter(wait_policy_, yields_);
  while (outstanding()) {
    if (progress()) waiter.progressed();
    else if (!waiter.spin()) {
      RequestState* head = !collectives_.empty() ? collectives_.front() : messages_.front();
      if (Status rested = rest(waiter, &head->execution); !rested) progress();
    }
  }
  return health();
}

void CommunicatorImpl::progress_thread_main() {
  int idle = 0;
  while (!stopping_.load(std::memory_order_acquire)) {
    if (work_.load(std::memory_order_acquire) == 0) {
      work_.wait(0, std::memory_order_acquire);
      idle = 0;
      continue;
    }
    bool moved = false;
    if (gate_.try_enter()) {
      moved = progress();
      if (!moved) serve_unopened();
      gate_.leave();
    }
    idle = moved ? 0 : idle + 1;
    if (idle > 200) std::this_thread::sleep_for(std::chrono::microseconds(50));
    else ::sched_yield();
  }
}

Result<void*> CommunicatorImpl::register_memory(void* buffer, std::size_t bytes) {
  const Inside inside(gate_);
  std::uint32_t shared = 0;
  const bool of_use = std::any_of(identities_.begin(), identities_.end(), [&](const RankIdentity& other) {
    return other.host == identities_[rank_].host && other.address_space != identities_[rank_].address_space;
  });
  if (of_use && share_registered_) {
    const Result<std::uint32_t> pages = share_pages(buffer, bytes);
    if (!pages && pages.error().code == Code::invalid_argument) return tl::unexpected<Error>(pages.error());
    if (pages) shared = *pages;
    else log(Level::info, "tmkRegister: this buffer will be staged: " + pages.error().message);
  }
  auto handle = std::make_unique<char>();
  registrations_[handle.get()] = shared;
  return handle.release();
}

Status CommunicatorImpl::deregister_memory(void* handle) {
  const Inside inside(gate_);
  const auto found = registrations_.find(handle);
  if (found == registrations_.end())
    return tamaki::fail(Code::invalid_argument, "handle is not one of tmkRegister of this communicator");
  const std::uint32_t shared = found->second;
  registrations_.erase(found);
  delete static_cast<char*>(handle);
  return shared == 0 ? Status{} : unshare_pages(shared);
}

}  // namespace tamaki
