#pragma once
// Pieces that the ways to join have in common.

#include "communicator/bootstrap/node.hpp"
#include "communicator/bootstrap/rendezvous.hpp"

namespace tamaki::bootstrap {

/// rank, ranks and timeout are in their ranges: 1 <= ranks <= 2^24, 0 <= rank < ranks.
Status check_place(int rank, int ranks);

/// Exchange of equally many bytes of every rank by the means of whoever started the job.
using OuterAllgather = std::function<Status(std::span<const std::byte> mine, std::span<std::byte> all)>;

/// One exchange of each rank's addresses; the secret is the one that rank 0 offers.
Result<std::unique_ptr<Control>> join_by_exchange(int rank, int ranks, const OuterAllgather& allgather, int timeout_ms);

/// Every rank publishes one text (at most 480 printable characters) and reads those of its parent and of rank 0.
struct TextBoard {
  std::function<Status(const std::string& mine)> publish;          // and waits until all have
  std::function<Result<std::string>(int rank)> read;
};
Result<std::unique_ptr<Control>> join_by_board(int rank, int ranks, const TextBoard& board, int timeout_ms);

/// All ranks know one address (`host:port`), where rank 0 listens. The n-th call on each rank belongs together.
Result<std::unique_ptr<Control>> join_by_address(int rank, int ranks, const std::string& host_and_port,
                                                 const Secret& secret, int timeout_ms);

}  // namespace tamaki::bootstrap
