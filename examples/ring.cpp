// The C++ wrapper: a collective, and a group of point-to-point messages around a ring.
//
//   c++ -std=c++20 ring.cpp $(pkg-config --cflags --libs tamaki) -o ring && tamaki run -n 4 -- ./ring
#include <cstdio>
#include <numeric>
#include <tamaki/tamaki.hpp>
#include <vector>

int main() try {
  const tmk::Communicator comm = tmk::Communicator::from_environment({.name = "example"});
  const int rank = comm.rank(), size = comm.size();

  std::vector<float> gradients(1000, static_cast<float>(rank));
  comm.allreduce(gradients, tmk::Op::avg);

  std::vector<int> mine(4), left(4);
  std::iota(mine.begin(), mine.end(), 10 * rank);
  tmk::group([&] {
    comm.send(mine, (rank + 1) % size);
    comm.recv(left, (rank + size - 1) % size);
  });
  std::printf("rank %d of %d: average %g, from the left %d..%d\n", rank, size, static_cast<double>(gradients[0]),
              left.front(), left.back());
  const bool right = gradients[999] == static_cast<float>(size - 1) / 2 && left[0] == 10 * ((rank + size - 1) % size);
  return right ? 0 : 1;
} catch (const tmk::Error& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
