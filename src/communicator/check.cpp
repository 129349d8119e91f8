// Check mode: before a collective, every rank tells every other what it is about to do.

#include <cstring>

#include "communicator/communicator_impl.hpp"
#include "schedule/builder.hpp"

namespace tamaki {
namespace {

/// One cache line's worth of what must be equal. `count` is 0 for uneven forms, whose counts differ by right.
struct Arguments {
  std::uint64_t call = 0;
  std::uint64_t count = 0;
  std::int32_t root = 0;
  std::uint8_t collective = 0, type = 0, op = 0, uneven = 0;
  bool operator==(const Arguments&) const = default;
};

std::string describe_arguments(const Arguments& a) {
  Call call;
  call.collective = static_cast<Collective>(a.collective);
  call.type = static_cast<DataType>(a.type);
  call.op.op = static_cast<ReduceOp>(a.op);
  call.count = a.count;
  call.root = a.root;
  call.uneven = a.uneven != 0;
  return title_of(call, {}) + " as collective " + std::to_string(a.call);
}

}  // namespace

Status CommunicatorImpl::compare_arguments(const Call& call) {
  Arguments mine;
  mine.call = collective_calls_ + 1;
  mine.collective = static_cast<std::uint8_t>(call.collective);
  mine.type = static_cast<std::uint8_t>(call.type);
  mine.op = static_cast<std::uint8_t>(reduces(call.collective) ? call.op.op : ReduceOp::sum);
  mine.count = call.uneven ? 0 : call.count;
  mine.root = call.root;
  mine.uneven = call.uneven;
  std::vector<Arguments> all(members_.size());

  // The plan of this exchange is the same whatever the calls are, so that ranks in different calls meet in it.
  Call gather;
  gather.collective = Collective::allgather;
  gather.type = DataType::bytes;
  gather.count = sizeof mine;
  PlanKey key;
  key.collective = Collective::allgather;
  key.type = DataType::bytes;
  key.count = sizeof mine;
  key.channel = kCheckChannel;
  CachedPlan* plan = plans_.find(key);
  if (plan == nullptr) {
    const int p = ranks();
    Builder builder({.algorithm = "check", .collective = Collective::allgather, .ranks = p, .rank = rank_, .chunks = 1});
    auto sends = builder.lane(kCheckChannel);
    auto receives = builder.lane(kCheckChannel);
    receives.copy(in(0), out(rank_));
    for (int i = 1; i < p; ++i) {
      const int next = (rank_ + i) % p, previous = (rank_ - i + p) % p;
      sends.send(in(0), to(next));
      receives.recv(from(previous), out(previous));
    }
    const Program program = builder.take();
    Result<Plan> compiled = compile_plan({.program = &program, .shape = shape_of(gather, p, rank_), .op = {}, .direct = false,
                                          .direct_in_place = false, .tag = 0x636b, .slot_bytes = slot_bytes_,
                                          .title = "comparison of arguments before " + title_of(call, {}),
                                          .connect = [this](int peer, int channel) { return link_to(peer, channel); }});
    if (!compiled) return pass(std::move(compiled));
    workspace_.fit(*compiled, slot_bytes_);
    plan = plans_.insert(key, std::move(*compiled), [this](const CachedPlan* cached) { return in_use(cached); });
  }
  RequestState request;
  request.communicator = this;
  request.plan = plan;
  request.execution.start(plan->plan, &mine, all.data(), request.op, workspace_, limits_, false);
  Waiter waiter(wait_policy_, yields_);
  while (true) {
    for (Transport* transport : active_transports_)
      if (Status moved = transport->progress(); !moved) return fail_here(std::move(moved.error()));
    const Progress progress = request.execution.advance();
    if (progress == Progress::done) break;
    if (progress == Progress::failed) return fail_here(request.execution.error());
    if (progress == Progress::moved) waiter.progressed();
    else if (!waiter.spin())
      if (Status rested = rest(waiter, &request.execution); !rested) return rested;
  }
  for (std::size_t r = 1; r < all.size(); ++r)
    if (!(all[r] == all[0]))
      return fail_here({Code::mismatch, Scope::communicator,
                        "ranks 0 and " + std::to_string(r) + " disagree: rank 0 calls " + describe_arguments(all[0]) + ", rank " +
                            std::to_string(r) + " calls " + describe_arguments(all[r])});
  return {};
}

}  // namespace tamaki
