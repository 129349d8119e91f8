// What tcp costs over plain sockets, on loopback between two threads bound to two cores:
//   ping-pong   half a round trip in us: polling send and recv of header and payload; a link of the
//   transport stream      bytes per second of 64 KiB writes, with and without MSG_ZEROCOPY, and over a link
// All variants take turns in each repetition; medians are printed. Not part of the tests.
//   tcp_bench [repetitions=7]

#include <time.h>  // errqueue.h needs timespec

#include <linux/errqueue.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <thread>

#include "base/socket.hpp"
#include "conformance/link_group.hpp"

namespace tamaki {
namespace {

using Seconds = std::chrono::duration<double>;

void bind_to(int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(core, &set);
  pthread_setaffinity_np(pthread_self(), sizeof set, &set);
}

/// Runs both sides on a core each; the time is that of side 0.
template <class A, class B>
double timed(A&& side0, B&& side1) {
  std::thread other([&] {
    bind_to(1);
    side1();
  });
  double seconds = 0;
  std::thread first([&] {
    bind_to(0);
    const auto start = std::chrono::steady_clock::now();
    side0();
    seconds = Seconds(std::chrono::steady_clock::now() - start).count();
  });
  first.join();
  other.join();
  return seconds;
}

std::array<Socket, 2> pair() {
  Result<Listener> listener = Listener::open(Address::loopback(AF_INET));
  Result<Socket> a = Socket::connect(listener->address(), deadline_in(1000));
  Result<Socket> b = listener->accept(deadline_in(1000));
  return {std::move(*a), std::move(*b)};
}

void put(Socket& socket, std::span<const std::byte> data, int flags = 0) {
  while (!data.empty()) {
    const ssize_t n = ::send(socket.fd(), data.data(), data.size(), flags | MSG_NOSIGNAL);
    if (n > 0) data = data.subspan(static_cast<std::size_t>(n));
  }
}
void take(Socket& socket, std::span<std::byte> data) {
  while (!data.empty()) {
    const ssize_t n = ::recv(socket.fd(), data.data(), data.size(), 0);
    if (n > 0) data = data.subspan(static_cast<std::size_t>(n));
  }
}

double socket_ping_pong(std::size_t bytes, int rounds) {
  auto [a, b] = pair();
  std::vector<std::byte> x(bytes + 24), y(bytes + 24);
  const double seconds = timed(
      [&, &s = a] {
        for (int i = 0; i < rounds; ++i) {
          put(s, x);
          take(s, x);
        }
      },
      [&, &s = b] {
        for (int i = 0; i < rounds; ++i) {
          take(s, y);
          put(s, y);
        }
      });
  return seconds / rounds / 2 * 1e6;
}

/// Takes the notices of finished zero-copy sends; returns how many sends they cover, and whether the kernel
/// copied.
unsigned completions(int fd, bool* copied) {
  unsigned done = 0;
  while (true) {
    char control[128];
    msghdr message{};
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    if (::recvmsg(fd, &message, MSG_ERRQUEUE | MSG_DONTWAIT) < 0) return done;
    for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
      sock_extended_err error;
      std::memcpy(&error, CMSG_DATA(c), sizeof error);
      if (error.ee_origin != SO_EE_ORIGIN_ZEROCOPY) continue;
      done += error.ee_data - error.ee_info + 1;
      *copied = *copied || (error.ee_code & SO_EE_CODE_ZEROCOPY_COPIED) != 0;
    }
  }
}

double socket_stream(std::size_t bytes, int messages, bool zero_copy, bool* copied) {
  auto [a, b] = pair();
  const int on = 1;
  ::setsockopt(a.fd(), SOL_SOCKET, SO_ZEROCOPY, &on, sizeof on);
  std::vector<std::byte> x(bytes * 8), y(bytes);
  const double seconds = timed(
      [&, &s = a] {
        unsigned sent = 0, done = 0;
        for (int i = 0; i < messages; ++i) {
          std::span<const std::byte> data(x.data() + static_cast<std::size_t>(i % 8) * bytes, bytes);
          while (!data.empty()) {
            const ssize_t n =
                ::send(s.fd(), data.data(), data.size(), (zero_copy ? MSG_ZEROCOPY : 0) | MSG_NOSIGNAL);
            if (n > 0) {
              data = data.subspan(static_cast<std::size_t>(n));
              ++sent;
            }
            if (zero_copy)
              done += completions(s.fd(), copied);  // a slot is free only when its send is done
          }
        }
        while (zero_copy && done < sent) done += completions(s.fd(), copied);
        std::byte end;
        take(s, std::span(&end, 1));
      },
      [&, &s = b] {
        for (int i = 0; i < messages; ++i) take(s, y);
        put(s, std::span<const std::byte>(y.data(), 1));
      });
  return static_cast<double>(bytes) * messages / seconds / 1e9;
}

/// Both directions of a link; the transports poll.
double link_time(std::size_t bytes, int messages, bool stream) {
  using namespace testing;
  std::atomic<double> seconds{0};
  run_threads(transport_named("tcp"), 2, {.slot_bytes = 65536, .depth = 8}, [&](Rank& rank) {
    bind_to(rank.rank);
    Link& link = *rank.link(1 - rank.rank, 0);
    std::vector<std::byte> data(bytes);
    const auto out = [&](std::uint32_t n) {
      while (!try_send(link, data, n))
        if (!rank.transport->progress()) std::abort();
    };
    const auto in = [&](std::uint32_t n) {
      while (try_receive(link, data, n) == Got::nothing)
        if (!rank.transport->progress()) std::abort();
    };
    rank.barrier();
    const auto start = std::chrono::steady_clock::now();
    for (int i = 1; i <= messages; ++i) {
      const auto n = static_cast<std::uint32_t>(i);
      if (rank.rank == 0) out(n);
      if (!stream || rank.rank == 1) in(n);
      if (!stream && rank.rank == 1) out(n);
    }
    data.resize(1);
    if (stream) {
      if (rank.rank == 0)
        in(0);
      else
        out(0);
    }
    if (rank.rank == 0) seconds = Seconds(std::chrono::steady_clock::now() - start).count();
    rank.finish(link);
    rank.barrier();
  });
  return stream ? static_cast<double>(bytes) * messages / seconds / 1e9 : seconds / messages / 2 * 1e6;
}

int main_function(int repetitions) {
  std::map<std::string, std::vector<double>> results;
  std::vector<std::string> order;
  const auto add = [&](const std::string& name, double value) {
    if (!results.contains(name)) order.push_back(name);
    results[name].push_back(value);
  };
  bool copied = false;
  for (int i = 0; i < repetitions; ++i) {
    for (const std::size_t bytes : {8, 512, 4096, 65536}) {
      const std::string size = " " + std::to_string(bytes) + " B, us";
      const int rounds = bytes > 4096 ? 500 : 2000;
      add("ping-pong sockets         " + size, socket_ping_pong(bytes, rounds));
      add("ping-pong link            " + size, link_time(bytes, rounds, false));
    }
    for (const std::size_t bytes : {4096, 65536}) {
      const std::string size = " " + std::to_string(bytes) + " B, GB/s";
      const int messages = bytes > 4096 ? 4000 : 20000;
      add("stream sockets            " + size, socket_stream(bytes, messages, false, &copied));
      add("stream sockets, zero copy " + size, socket_stream(bytes, messages, true, &copied));
      add("stream link               " + size, link_time(bytes, messages, true));
    }
  }
  for (const std::string& name : order) {
    std::vector<double>& values = results[name];
    std::ranges::sort(values);
    std::printf("%s  median %8.2f  (%.2f .. %.2f)\n", name.c_str(), values[values.size() / 2],
                values.front(), values.back());
  }
  std::printf("MSG_ZEROCOPY: the kernel %s\n", copied ? "copied all the same" : "did not copy");
  return 0;
}

}  // namespace
}  // namespace tamaki

int main(int argc, char** argv) { return tamaki::main_function(argc > 1 ? std::atoi(argv[1]) : 7); }
