// The ways to join a job: by id, by the caller's callbacks, by the launcher's exchange, by a known address.

#include "communicator/bootstrap/join.hpp"

#include <cerrno>
#include <cstring>
#include <thread>

#include "base/options.hpp"

namespace tamaki {
namespace bootstrap {
namespace {

constexpr int kMostRanks = 1 << 24;

Result<int> timeout_or_option(int timeout_ms) {
  if (timeout_ms > 0) return timeout_ms;
  const Result<const Options*> current = options();
  if (!current) return tl::unexpected<Error>(current.error());
  return static_cast<int>((*current)->timeout_ms);
}

/// A node's configuration with what all ways share: place, deadline, listeners.
Result<NodeConfig> prepare(int rank, int ranks, int timeout_ms) {
  if (Status status = check_place(rank, ranks); !status) return pass(std::move(status));
  Result<int> timeout = timeout_or_option(timeout_ms);
  if (!timeout) return pass(std::move(timeout));
  NodeConfig config;
  config.rank = rank;
  config.ranks = ranks;
  config.timeout_ms = *timeout;
  config.deadline = deadline_in(*timeout);
  if (ranks == 1) return config;
  Result<std::vector<Listener>> listeners = open_listeners();
  if (!listeners) return pass(std::move(listeners));
  config.listeners = std::move(*listeners);
  return config;
}

// UniqueId: "TMKI", secret (32), addresses of the rendezvous (80), digest of all that (8), zeros.
constexpr char kMagic[] = "TMKI";
constexpr std::size_t kIdBytes = 4 + kSecretBytes + AddressSet::kBytes;
static_assert(kIdBytes + 8 <= sizeof(UniqueId));

std::uint64_t checksum(const UniqueId& id) {
  return digest_of(std::string_view(reinterpret_cast<const char*>(id.bytes), kIdBytes));
}

UniqueId encode(const Secret& secret, const AddressSet& addresses) {
  UniqueId id{};
  std::memcpy(id.bytes, kMagic, 4);
  std::memcpy(id.bytes + 4, secret.data(), secret.size());
  const std::vector<std::byte> list = addresses.encode();
  std::memcpy(id.bytes + 4 + kSecretBytes, list.data(), list.size());
  const std::uint64_t sum = checksum(id);
  std::memcpy(id.bytes + kIdBytes, &sum, sizeof sum);
  return id;
}

bool decode(const UniqueId& id, Secret* secret, AddressSet* addresses) {
  const std::uint64_t sum = checksum(id);
  if (std::memcmp(id.bytes, kMagic, 4) != 0 || std::memcmp(id.bytes + kIdBytes, &sum, sizeof sum) != 0) return false;
  std::memcpy(secret->data(), id.bytes + 4, secret->size());
  *addresses = AddressSet::decode(std::span(id.bytes).subspan(4 + kSecretBytes, AddressSet::kBytes));
  return !addresses->addresses.empty();
}

}  // namespace

Status check_place(int rank, int ranks) {
  if (ranks < 1 || ranks > kMostRanks)
    return fail(Code::invalid_argument, "number of ranks " + std::to_string(ranks) + " is not in 1.." +
                                            std::to_string(kMostRanks));
  if (rank < 0 || rank >= ranks)
    return fail(Code::invalid_argument, "rank " + std::to_string(rank) + " is not in 0.." + std::to_string(ranks - 1) +
                                            " (" + std::to_string(ranks) + " ranks)");
  return {};
}

Result<std::unique_ptr<Control>> join_by_exchange(int rank, int ranks, const OuterAllgather& allgather, int timeout_ms) {
  Result<NodeConfig> config = prepare(rank, ranks, timeout_ms);
  if (!config) return pass(std::move(config));
  constexpr std::size_t kEach = kSecretBytes + AddressSet::kBytes;
  std::vector<std::byte> mine(kEach), all(kEach * static_cast<std::size_t>(ranks));
  const Secret offer = random_secret();
  std::memcpy(mine.data(), offer.data(), offer.size());
  const std::vector<std::byte> addresses = addresses_of(config->listeners).encode();
  std::memcpy(mine.data() + kSecretBytes, addresses.data(), addresses.size());
  if (Status status = allgather(mine, all); !status) return pass(std::move(status));
  std::memcpy(config->secret.data(), all.data(), kSecretBytes);
  if (rank > 0)
    config->parent = AddressSet::decode(
        std::span(all).subspan(kEach * static_cast<std::size_t>(parent_of(rank)) + kSecretBytes, AddressSet::kBytes));
  wipe(all);
  return Node::join(std::move(*config));
}

Result<std::unique_ptr<Control>> join_by_board(int rank, int ranks, const TextBoard& board, int timeout_ms) {
  Result<NodeConfig> config = prepare(rank, ranks, timeout_ms);
  if (!config) return pass(std::move(config));
  const Secret offer = random_secret();
  const std::string mine = (rank == 0 ? to_hex(offer) : std::string()) + to_hex(addresses_of(config->listeners).encode());
  if (Status status = board.publish(mine); !status) return pass(std::move(status));
  const auto wrong = [](int of, const std::string& text) {
    return fail(Code::system, "the launcher gives \"" + text + "\" as the addresses of rank " + std::to_string(of));
  };
  std::array<std::byte, AddressSet::kBytes> addresses;
  Result<std::string> root = board.read(0);
  if (!root) return pass(std::move(root));
  if (root->size() != 2 * (kSecretBytes + addresses.size()) ||
      !from_hex(std::string_view(*root).substr(0, 2 * kSecretBytes), config->secret))
    return wrong(0, std::to_string(root->size()) + " characters");
  std::string parent = root->substr(2 * kSecretBytes);
  if (rank > 0 && parent_of(rank) != 0) {
    Result<std::string> read = board.read(parent_of(rank));
    if (!read) return pass(std::move(read));
    parent = *read;
  }
  if (!from_hex(parent, addresses)) return wrong(rank > 0 ? parent_of(rank) : 0, parent);
  if (rank > 0) config->parent = AddressSet::decode(addresses);
  return Node::join(std::move(*config));
}

namespace {

/// Where rank 0 listens: on the address itself if it is a number and ours, else on all (a name may well resolve to
/// 127.0.1.1 on its own host and to something else elsewhere).
Result<std::vector<Listener>> open_at(const std::string& host_and_port, Deadline give_up) {
  const Result<Address> number = Address::parse(host_and_port);
  std::uint16_t port = 0;
  if (number) {
    port = number->port();
  } else {
    const auto colon = host_and_port.rfind(':');
    const Result<Address> with_port =
        Address::parse("0.0.0.0:" + host_and_port.substr(colon == std::string::npos ? 0 : colon + 1));
    if (!with_port) return tl::unexpected<Error>(with_port.error());
    port = with_port->port();
  }
  if (port == 0)
    return fail(Code::invalid_argument, "\"" + host_and_port + "\" has no port 1..65535");
  while (true) {
    Result<Listener> listener = fail(Code::system, "");
    if (number) listener = Listener::open(*number);
    if (!listener) listener = Listener::open(Address::any(AF_INET6).with_port(port));
    if (!listener) listener = Listener::open(Address::any(AF_INET).with_port(port));
    if (listener) {
      std::vector<Listener> one;
      one.push_back(std::move(*listener));
      return one;
    }
    // The rendezvous of the communicator before this one may still be waiting for its last rank.
    if (Clock::now() >= give_up) return pass(std::move(listener));
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

}  // namespace

Result<std::unique_ptr<Control>> join_by_address(int rank, int ranks, const std::string& host_and_port,
                                                 const Secret& secret, int timeout_ms) {
  // Communicators are made in the same order on all ranks; the number keeps a fast rank of the next one out of the
  // rendezvous of this one, which listens at the same address.
  static std::atomic<unsigned> generation{0};
  Result<NodeConfig> config = prepare(rank, ranks, timeout_ms);
  if (!config) return pass(std::move(config));
  config->rendezvous_label = std::to_string(generation.fetch_add(1, std::memory_order_relaxed));
  config->secret = derive_secret(std::span<const std::byte>(secret), "job " + config->rendezvous_label);
  if (ranks == 1) return Node::join(std::move(*config));
  config->rendezvous_holder = 0;
  if (rank == 0) {
    RendezvousConfig own;
    own.secret = config->secret;
    own.label = config->rendezvous_label;
    own.holder = 0;
    Result<std::vector<Listener>> listeners = open_at(host_and_port, deadline_in(config->timeout_ms / 2));
    if (!listeners) return pass(std::move(listeners));
    own.listeners = std::move(*listeners);
    const Address heard = own.listeners[0].address();
    Result<AddressSet> hosted = host_rendezvous(std::move(own));
    if (!hosted) return pass(std::move(hosted));
    config->holds_rendezvous = true;
    // A wildcard is no address to connect to, and the name's own meaning here is not to be relied on.
    const bool wildcard = heard == Address::any(heard.family()).with_port(heard.port());
    if (wildcard)
      config->rendezvous.addresses = {Address::loopback(AF_INET).with_port(heard.port()),
                                      Address::loopback(AF_INET6).with_port(heard.port())};
    else
      config->rendezvous.addresses = {heard};
    return Node::join(std::move(*config));
  }
  Result<std::vector<Address>> addresses = Address::resolve(host_and_port);
  if (!addresses) return pass(std::move(addresses));
  config->rendezvous.addresses = std::move(*addresses);
  return Node::join(std::move(*config));
}

}  // namespace bootstrap

Result<UniqueId> make_unique_id() {
  Result<std::vector<Listener>> listeners = bootstrap::open_listeners();
  if (!listeners) return pass(std::move(listeners));
  bootstrap::RendezvousConfig config;
  config.secret = random_secret();
  config.listeners = std::move(*listeners);
  const Secret secret = config.secret;
  const Result<bootstrap::AddressSet> addresses = bootstrap::host_rendezvous(std::move(config));
  if (!addresses) return tl::unexpected<Error>(addresses.error());
  return bootstrap::encode(secret, *addresses);
}

Result<std::unique_ptr<Control>> join_by_id(const UniqueId& id, int rank, int ranks, int timeout_ms) {
  Result<bootstrap::NodeConfig> config = bootstrap::prepare(rank, ranks, timeout_ms);
  if (!config) return pass(std::move(config));
  if (!bootstrap::decode(id, &config->secret, &config->rendezvous))
    return fail(Code::invalid_argument, "the unique id was not made by tmkGetUniqueId, or was damaged on its way");
  config->holds_rendezvous = bootstrap::hosts_rendezvous(config->secret);
  return bootstrap::Node::join(std::move(*config));
}

Result<std::unique_ptr<Control>> join_by_callbacks(int rank, int ranks, AllgatherFunction allgather, void* context,
                                                   int timeout_ms) {
  if (allgather == nullptr) return fail(Code::invalid_argument, "the allgather function is null");
  const bootstrap::OuterAllgather outer = [&](std::span<const std::byte> mine, std::span<std::byte> all) -> Status {
    const int code = allgather(mine.data(), all.data(), mine.size(), context);
    if (code != 0)
      return fail(Code::system, "the caller's allgather function returned " + std::to_string(code) + " on rank " +
                                    std::to_string(rank));
    return {};
  };
  return bootstrap::join_by_exchange(rank, ranks, outer, timeout_ms);
}

}  // namespace tamaki
