#pragma once
// A communicator that records what it is asked to do: the C interface can be tested alone, as any rank of
// any size.

#include <optional>
#include <thread>
#include <vector>

#include "bindings/c/handles.hpp"

namespace tamaki::testing {

class FakeCommunicator : public Communicator {
 public:
  FakeCommunicator(int rank, int ranks, CommunicatorConfig config = {})
      : config_(std::move(config)), topology_(Topology::flat(ranks)), rank_(rank) {}

  int rank() const override { return rank_; }
  int ranks() const override { return topology_.ranks(); }
  const CommunicatorConfig& config() const override { return config_; }
  const Topology& topology() const override { return topology_; }

  Status run(const Call& call) override {
    calls.push_back(call);
    if (throws) throw std::runtime_error("thrown on purpose");
    return next;
  }
  Result<Request*> start(const Call& call) override {
    calls.push_back(call);
    if (!next) return tl::unexpected<Error>(next.error());
    requests.push_back(new Request{this, false, {}});
    return requests.back();
  }
  Status validate(const Call&) const override { return {}; }
  Status test(Request* request) override {
    if (completes) request->done = true;
    request->result = outcome;
    return {};
  }
  Status wait(Request* request) override {
    request->done = true;
    request->result = outcome;
    return {};
  }
  void release(Request* request) override {
    ++released;
    delete request;
  }
  Result<std::unique_ptr<Communicator>> split(int color, int key,
                                              const CommunicatorConfig& config) override {
    split_key = key;
    if (color < 0) return nullptr;
    return std::make_unique<FakeCommunicator>(0, 1, config);
  }
  Status finish() override { return next; }
  void abort(const Failure& why) override { aborted = why; }
  Status health() const override { return healthy; }
  void set_timeout(int timeout_ms) override { config_.timeout_ms = timeout_ms; }
  Result<void*> register_memory(void* buffer, std::size_t) override { return buffer; }
  Status deregister_memory(void*) override { return {}; }
  std::vector<std::pair<std::string, std::string>> facts() const override { return {}; }
  Costs* costs() override { return nullptr; }
  Result<std::string> algorithm_for(const Call&) override { return std::string("fake"); }

  std::vector<Call> calls;
  std::vector<Request*> requests;
  int released = 0;
  Status next;     // of run, start and finish
  Status outcome;  // of requests
  Status healthy;
  bool completes = true;
  bool throws = false;
  int split_key = -1;
  std::optional<Failure> aborted;

 private:
  CommunicatorConfig config_;
  Topology topology_;
  int rank_;
};

}  // namespace tamaki::testing
