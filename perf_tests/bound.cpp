// The plain bound: what two cores can do, whatever the software. Two threads that see all buffers each reduce half of
// two f32 inputs into both outputs: inputs are read once, outputs are written once, then the two meet at a flag.
//
//   bound -b BYTES,... [-p out|in] [-r REPETITIONS] [-t SECONDS] [-f FOOTPRINT]
//
// Options and output as of allreduce_bench: "BYTES CALLS us us ...". For each size the fastest of ordinary and
// streaming stores is printed (the bound of a machine is what its best method reaches).
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace {

constexpr std::size_t kHuge = std::size_t{2} << 20, kPage = 4096;

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Binds to the `index`-th core this process could use when it began (threads inherit what their maker is bound to).
void bind_to(int index) {
  static const cpu_set_t allowed = [] {
    cpu_set_t set;
    CPU_ZERO(&set);
    sched_getaffinity(0, sizeof set, &set);
    return set;
  }();
  if (CPU_COUNT(&allowed) == 0) return;
  cpu_set_t one;
  CPU_ZERO(&one);
  for (int cpu = 0, seen = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &allowed) && seen++ == index % CPU_COUNT(&allowed)) CPU_SET(cpu, &one);
  pthread_setaffinity_np(pthread_self(), sizeof one, &one);
}

/// Memory that two processes could both map, as tmkMemAlloc's: a machine that gives huge pages to private memory only
/// has another bound for it.
float* touched(std::size_t bytes) {
  bytes = (bytes + kHuge - 1) / kHuge * kHuge;
  const int file = memfd_create("bound", MFD_CLOEXEC);
  if (file < 0 || ftruncate(file, static_cast<off_t>(bytes + kHuge)) != 0) std::exit(3);
  void* memory = mmap(nullptr, bytes + kHuge, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (memory == MAP_FAILED) std::exit(3);
  auto* aligned = reinterpret_cast<char*>((reinterpret_cast<std::size_t>(memory) + kHuge - 1) / kHuge * kHuge);
  madvise(aligned, bytes, MADV_HUGEPAGE);
  std::memset(aligned, 0, bytes);
  return reinterpret_cast<float*>(aligned);
}

void pause_core() {
#if defined(__x86_64__)
  _mm_pause();
#endif
}

/// Two threads meet: each raises its own flag (a line of its own) and waits for the other's.
struct alignas(64) Flag {
  std::atomic<long> value{0};
};
Flag flags[2];
void meet(int self, long turn) {
  flags[self].value.store(turn, std::memory_order_release);  // pairs with the acquire below
  while (flags[1 - self].value.load(std::memory_order_acquire) < turn) pause_core();
}

#if defined(__x86_64__)
__attribute__((target("avx512f"))) void reduce_wide(const float* a, const float* b, float* x, float* y, std::size_t n, bool stream) {
  for (std::size_t i = 0; i < n; i += 16) {
    const __m512 sum = _mm512_add_ps(_mm512_loadu_ps(a + i), _mm512_loadu_ps(b + i));
    if (stream) {
      _mm512_stream_ps(x + i, sum);
      _mm512_stream_ps(y + i, sum);
    } else {
      _mm512_storeu_ps(x + i, sum);
      _mm512_storeu_ps(y + i, sum);
    }
  }
  if (stream) _mm_sfence();
}
#endif

/// n floats; blocks of 16 that the wide form takes, the rest one by one.
void reduce(const float* a, const float* b, float* x, float* y, std::size_t n, bool stream) {
  std::size_t done = 0;
#if defined(__x86_64__)
  static const bool wide = __builtin_cpu_supports("avx512f");
  if (wide) reduce_wide(a, b, x, y, done = n / 16 * 16, stream);
#endif
  for (std::size_t i = done; i < n; ++i) x[i] = y[i] = a[i] + b[i];
}

struct Work {
  float *in[2], *out[2];
  std::size_t count, stride, buffers;
  bool stream;
};

/// The part of thread `self` in call number `i`, and the meeting after it.
void one_call(const Work& w, int self, int i, long* turn) {
  const std::size_t at = static_cast<std::size_t>(i) % w.buffers * w.stride;
  const std::size_t half = w.count / 2 / 16 * 16, begin = self == 0 ? 0 : half, end = self == 0 ? half : w.count;
  reduce(w.in[0] + at + begin, w.in[1] + at + begin, w.out[0] + at + begin, w.out[1] + at + begin, end - begin, w.stream);
  meet(self, ++*turn);
}

std::size_t parse_bytes(const char* text) {
  char* end;
  std::size_t value = std::strtoull(text, &end, 10);
  if (*end == 'K') value <<= 10;
  if (*end == 'M') value <<= 20;
  return value;
}

double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v[v.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::size_t> sizes{65536};
  std::size_t footprint = 0;
  int repetitions = 11, option;
  bool in_place = false;
  double seconds = 0.02;
  while ((option = getopt(argc, argv, "b:p:r:t:f:")) != -1) switch (option) {
      case 'b':
        sizes.clear();
        for (char* part = strtok(optarg, ","); part != nullptr; part = strtok(nullptr, ",")) sizes.push_back(parse_bytes(part));
        break;
      case 'p': in_place = std::strcmp(optarg, "in") == 0; break;
      case 'r': repetitions = std::max(1, std::atoi(optarg)); break;
      case 't': seconds = std::atof(optarg); break;
      case 'f': footprint = parse_bytes(optarg); break;
      default: return 2;
    }
  bind_to(0);  // the first call takes down the cores
  const std::size_t largest = *std::max_element(sizes.begin(), sizes.end());
  Work work{};
  for (int i = 0; i < 2; ++i) {
    work.out[i] = touched(largest + kPage + footprint);
    work.in[i] = in_place ? work.out[i] : touched(largest + kPage + footprint);
  }
  for (const std::size_t bytes : sizes) {
    work.count = bytes / sizeof(float);
    work.stride = (bytes + kPage - 1) / kPage * kPage / sizeof(float);
    work.buffers = bytes >= (std::size_t{1} << 20) ? std::max<std::size_t>(1, footprint / (work.stride * sizeof(float))) : 1;
    std::vector<double> best;
    int best_calls = 0;
    for (const bool stream : {false, true}) {
      if (stream && bytes < 65536) continue;
      work.stream = stream;
      std::vector<double> times;
      int calls = 10;
      for (int k = -1; k < repetitions; ++k) {  // the first one sets the number of calls
        for (Flag& flag : flags) flag.value = 0;
        double spent = 0;
        const auto part = [&](int self) {
          bind_to(self);
          long turn = 0;
          for (int i = 0; i < 5; ++i) one_call(work, self, i, &turn);
          const double begin = now();
          for (int i = 0; i < calls; ++i) one_call(work, self, i, &turn);
          if (self == 0) spent = (now() - begin) / calls;
        };
        std::thread other(part, 1);
        part(0);
        other.join();
        if (k >= 0) times.push_back(spent * 1e6);
        else calls = static_cast<int>(std::clamp(seconds / std::max(spent, 1e-8), 3.0, 1e6));
      }
      if (best.empty() || median(times) < median(best)) best = times, best_calls = calls;
    }
    std::printf("%zu %d", bytes, best_calls);
    for (const double us : best) std::printf(" %.4f", us);
    std::printf("\n");
    std::fflush(stdout);
  }
  return 0;
}
