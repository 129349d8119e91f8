// Children of a communicator. Their exchanges travel as messages of the parent, on a channel of their own.

#include <algorithm>
#include <cstring>

#include "communicator/communicator_impl.hpp"

namespace tamaki {
namespace {

struct Vote {
  std::int32_t color = 0;
  std::int32_t key = 0;
};

}  // namespace

/// Allgather among some ranks by doubling (Bruck): round k moves 2^k blocks over distance 2^k.
Status CommunicatorImpl::exchange_among(const std::vector<int>& group, int self, std::span<const std::byte> mine, std::span<std::byte> all) {
  const int p = static_cast<int>(group.size());
  const std::size_t bytes = mine.size();
  std::vector<std::byte> rotated(bytes * static_cast<std::size_t>(p));  // block i is that of member self + i
  std::memcpy(rotated.data(), mine.data(), bytes);
  for (int have = 1; have < p; have *= 2) {
    const int blocks = std::min(have, p - have);
    Call call;
    call.collective = Collective::send_recv;
    call.type = DataType::bytes;
    call.count = call.recv_count = static_cast<std::size_t>(blocks) * bytes;
    call.input = rotated.data();
    call.output = rotated.data() + static_cast<std::size_t>(have) * bytes;
    call.destination = group[static_cast<std::size_t>((self - have % p + p) % p)];
    call.source = group[static_cast<std::size_t>((self + have) % p)];
    gate_.enter();
    Result<RequestState*> started = start_inside(call, kSetupChannel);
    Status result = started ? wait_inside(*started) : Status(tl::unexpected<Error>(started.error()));
    gate_.leave();
    if (!result) return result;
    release(*started);
  }
  for (int i = 0; i < p; ++i)
    std::memcpy(all.data() + static_cast<std::size_t>((self + i) % p) * bytes, rotated.data() + static_cast<std::size_t>(i) * bytes, bytes);
  return {};
}

Result<std::unique_ptr<Communicator>> CommunicatorImpl::split(int color, int key, const CommunicatorConfig& config) {
  const Vote vote{color, key};
  std::vector<Vote> votes(members_.size());
  Call gather;
  gather.collective = Collective::allgather;
  gather.type = DataType::bytes;
  gather.count = sizeof vote;
  gather.input = &vote;
  gather.output = votes.data();
  if (Status gathered = run(gather); !gathered) return pass(std::move(gathered));
  const std::uint64_t serial = ++splits_;
  if (color < 0) return std::unique_ptr<Communicator>();

  std::vector<int> group;  // ranks here, ordered by (key, rank)
  for (int r = 0; r < ranks(); ++r)
    if (votes[static_cast<std::size_t>(r)].color == color) group.push_back(r);
  std::stable_sort(group.begin(), group.end(), [&](int a, int b) {
    return votes[static_cast<std::size_t>(a)].key < votes[static_cast<std::size_t>(b)].key;
  });
  Origin origin;
  origin.job = job_;
  origin.rank = static_cast<int>(std::find(group.begin(), group.end(), rank_) - group.begin());
  for (int r : group) origin.members.push_back(members_[static_cast<std::size_t>(r)]);
  std::uint64_t id = id_ ^ (serial * 0x9e3779b97f4a7c15) ^ (static_cast<std::uint64_t>(color) + 1) * 0xff51afd7ed558ccd;
  id = (id ^ (id >> 33)) * 0xc4ceb9fe1a85ec53;
  origin.id = id == 0 ? 1 : id;
  origin.config = config;
  const int self = origin.rank;
  origin.exchange = [this, group, self](std::span<const std::byte> mine, std::span<std::byte> all) {
    return exchange_among(group, self, mine, all);
  };
  return open(std::move(origin));
}

}  // namespace tamaki
