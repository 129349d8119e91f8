// Tamaki in C++20: owning handles, contiguous ranges and data types from element types, over the C
// interface (tamaki.h, whose documentation of shapes, units and errors holds here word for word). Header
// only.
//
//   tmk::Communicator comm = tmk::Communicator::from_environment();
//   std::vector<float> gradients = ...;
//   comm.allreduce(gradients);                              // in place, sum
//   tmk::Request r = comm.iallgather(mine, everyones);      // completes in r.wait() or when r goes
//   tmk::group([&] { comm.send(a, right); comm.recv(b, left); });
//
// Errors are exceptions of type tmk::Error. Where exceptions are not wanted, call the C functions with
// comm.get(): the wrapper keeps no state of its own. Sizes of ranges are checked against each other before
// anything is started.
#ifndef TAMAKI_TAMAKI_HPP
#define TAMAKI_TAMAKI_HPP

#if __cplusplus < 202002L
#error "tamaki.hpp needs C++20 (-std=c++20); tamaki.h serves older standards"
#endif

#include <chrono>
#include <complex>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <ranges>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "tamaki/tamaki.h"

namespace tmk {

/// A failed call: what() is the text of tmkGetLastError, with names and numbers.
class Error : public std::runtime_error {
 public:
  Error(tmkResult_t code, const std::string& text) : std::runtime_error(text), code_(code) {}
  tmkResult_t code() const noexcept { return code_; }

 private:
  tmkResult_t code_;
};

/// Throws the calling thread's last error unless `result` is success.
inline void check(tmkResult_t result) {
  if (result != tmkSuccess) [[unlikely]]
    throw Error(result, tmkGetLastError(nullptr));
}

// ---- Element types
// ---------------------------------------------------------------------------------------------

/// Storage of the formats that C++20 has no type for; convert with the arithmetic library of your choice,
/// or give its type a TypeOf of its own.
struct float16 {
  std::uint16_t bits;
};
struct bfloat16 {
  std::uint16_t bits;
};
struct float8e4m3 {
  std::uint8_t bits;
};
struct float8e5m2 {
  std::uint8_t bits;
};

/// The data type of elements of type T. For a type of your own with the same representation:
///   template <> struct tmk::TypeOf<my::half> : std::integral_constant<tmkDataType_t, tmkFloat16> {};
template <class T>
struct TypeOf;
template <class T>
requires(std::integral<T> && !std::same_as<T, bool>) struct TypeOf<T>
    : std::integral_constant<tmkDataType_t, static_cast<tmkDataType_t>(2 * (sizeof(T) == 1   ? 0
                                                                            : sizeof(T) == 2 ? 1
                                                                            : sizeof(T) == 4 ? 2
                                                                                             : 3) +
                                                                       (std::is_unsigned_v<T> ? 1 : 0))> {
};
template <>
struct TypeOf<float> : std::integral_constant<tmkDataType_t, tmkFloat32> {};
template <>
struct TypeOf<double> : std::integral_constant<tmkDataType_t, tmkFloat64> {};
template <>
struct TypeOf<float16> : std::integral_constant<tmkDataType_t, tmkFloat16> {};
template <>
struct TypeOf<bfloat16> : std::integral_constant<tmkDataType_t, tmkBfloat16> {};
template <>
struct TypeOf<float8e4m3> : std::integral_constant<tmkDataType_t, tmkFloat8e4m3> {};
template <>
struct TypeOf<float8e5m2> : std::integral_constant<tmkDataType_t, tmkFloat8e5m2> {};
template <>
struct TypeOf<std::complex<float>> : std::integral_constant<tmkDataType_t, tmkComplex64> {};
template <>
struct TypeOf<std::complex<double>> : std::integral_constant<tmkDataType_t, tmkComplex128> {};
template <>
struct TypeOf<std::byte> : std::integral_constant<tmkDataType_t, tmkBytes> {};

static_assert(TypeOf<std::int8_t>::value == tmkInt8 && TypeOf<std::uint16_t>::value == tmkUint16 &&
              TypeOf<std::int32_t>::value == tmkInt32 && TypeOf<std::uint64_t>::value == tmkUint64);

template <class T>
concept Element = std::is_trivially_copyable_v<T> && requires {
  TypeOf<T>::value;
};

template <class R>
using ElementOf = std::remove_cv_t<std::ranges::range_value_t<R>>;
/// What can be sent: vector, array, span, ... of elements.
template <class R>
concept Input = std::ranges::contiguous_range<R> && std::ranges::sized_range<R> && Element<ElementOf<R>>;
/// What can be received into.
template <class R>
concept Output = Input<R> && !std::is_const_v<std::remove_reference_t<std::ranges::range_reference_t<R>>>;
/// Output of the same elements as S.
template <class R, class S>
concept OutputOf = Output<R> && std::same_as<ElementOf<R>, ElementOf<S>>;

// ---- Operations
// ------------------------------------------------------------------------------------------------

enum class Op : tmkOp_t {
  sum = tmkSum,
  prod = tmkProd,
  min = tmkMin,
  max = tmkMax,
  avg = tmkAvg,
  bit_and = tmkBitAnd,
  bit_or = tmkBitOr,
  bit_xor = tmkBitXor,
  logical_and = tmkLogicalAnd,
  logical_or = tmkLogicalOr,
  logical_xor = tmkLogicalXor
};

class Communicator;

/// An operation made by make_operation() or pre_mul_sum(): valid on its communicator, which must live
/// longer.
template <Element T>
class Operation {
 public:
  Operation(Operation&& other) noexcept
      : value_(other.value_),
        comm_(std::exchange(other.comm_, nullptr)),
        function_(std::move(other.function_)) {}
  Operation& operator=(Operation&& other) noexcept {
    std::swap(value_, other.value_);
    std::swap(comm_, other.comm_);
    std::swap(function_, other.function_);
    return *this;
  }
  ~Operation() {
    if (comm_ != nullptr) static_cast<void>(tmkOpDestroy(value_, comm_));
  }
  tmkOp_t get() const noexcept { return value_; }

 private:
  friend class Communicator;
  Operation(tmkOp_t value, tmkComm_t comm, std::shared_ptr<void> function)
      : value_(value), comm_(comm), function_(std::move(function)) {}
  tmkOp_t value_;
  tmkComm_t comm_;
  std::shared_ptr<void> function_;
};

/// A predefined operation or an Operation<T>: what reducing collectives of T take.
template <Element T>
class OpOf {
 public:
  OpOf(Op op) noexcept : value_(static_cast<tmkOp_t>(op)) {}                 // NOLINT: implicit by intent
  OpOf(const Operation<T>& operation) noexcept : value_(operation.get()) {}  // NOLINT
  tmkOp_t get() const noexcept { return value_; }

 private:
  tmkOp_t value_;
};

// ---- Requests and groups
// ---------------------------------------------------------------------------------------

/// An operation under way. Its buffers must stay untouched until it is complete. Destruction waits for
/// completion and drops the outcome; call wait() to learn of failures.
class [[nodiscard]] Request {
 public:
  Request() = default;
  explicit Request(tmkRequest_t request) noexcept : request_(request) {}
  Request(Request&& other) noexcept : request_(std::exchange(other.request_, nullptr)) {}
  Request& operator=(Request&& other) noexcept {
    Request(std::move(other)).swap(*this);  // the old one is waited for
    return *this;
  }
  ~Request() { static_cast<void>(tmkWait(&request_)); }

  /// True once complete, then and ever after. Throws its failure, once.
  bool test() {
    int done = 0;
    check(tmkTest(&request_, &done));
    return done != 0;
  }
  void wait() { check(tmkWait(&request_)); }
  bool complete() const noexcept { return request_ == nullptr; }
  tmkRequest_t* get() noexcept { return &request_; }
  void swap(Request& other) noexcept { std::swap(request_, other.request_); }

 private:
  tmkRequest_t request_ = nullptr;
};

/// Index of a request that completed, blocking until there is one; -1 if all were complete before. Throws
/// its failure.
inline int wait_any(std::span<Request> requests) {
  static_assert(sizeof(Request) == sizeof(tmkRequest_t) && std::is_standard_layout_v<Request>);
  int index = -1;
  check(tmkWaitAny(static_cast<int>(requests.size()), requests.empty() ? nullptr : requests.front().get(),
                   &index));
  return index;
}
/// Completes all, then throws the first failure, if any.
inline void wait_all(std::span<Request> requests) {
  check(tmkWaitAll(static_cast<int>(requests.size()), requests.empty() ? nullptr : requests.front().get()));
}

/// Collects the calls of this thread until end(), which launches them together. A group that goes without
/// end() (an exception passed) launches none of them.
class [[nodiscard]] Group {
 public:
  Group() { check(tmkGroupStart()); }
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;
  ~Group() {
    if (!open_) return;
    static_cast<void>(tmkBarrier(nullptr));  // a call in error: the group will launch nothing
    static_cast<void>(tmkGroupEnd());
  }
  void end() {
    open_ = false;
    check(tmkGroupEnd());
  }

 private:
  bool open_ = true;
};

/// Runs body() inside a group.
template <std::invocable Body>
void group(Body&& body) {
  Group g;
  std::forward<Body>(body)();
  g.end();
}

// ---- Memory
// ----------------------------------------------------------------------------------------------------

/// `size` zeroed elements which ranks on the same host access without staging (tmkMemAlloc).
template <class T>
requires std::is_trivially_copyable_v<T>
class SharedBuffer {
 public:
  SharedBuffer() = default;
  explicit SharedBuffer(std::size_t size) : size_(size) {
    if (size > static_cast<std::size_t>(PTRDIFF_MAX) / sizeof(T))
      throw Error(tmkInvalidArgument,
                  "SharedBuffer: size=" + std::to_string(size) + " exceeds the address space");
    void* memory = nullptr;
    check(tmkMemAlloc(&memory, size * sizeof(T)));
    data_ = static_cast<T*>(memory);
  }
  SharedBuffer(SharedBuffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  SharedBuffer& operator=(SharedBuffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~SharedBuffer() { static_cast<void>(tmkMemFree(data_)); }

  T* data() noexcept { return data_; }
  const T* data() const noexcept { return data_; }
  std::size_t size() const noexcept { return size_; }
  T* begin() noexcept { return data_; }
  T* end() noexcept { return data_ + size_; }
  const T* begin() const noexcept { return data_; }
  const T* end() const noexcept { return data_ + size_; }
  T& operator[](std::size_t i) noexcept { return data_[i]; }
  const T& operator[](std::size_t i) const noexcept { return data_[i]; }

 private:
  T* data_ = nullptr;
  std::size_t size_ = 0;
};

// ---- Communicators
// ---------------------------------------------------------------------------------------------

/// Settings of one communicator; what is not set takes the option's value. See tmkConfig_t.
struct Config {
  std::optional<std::chrono::milliseconds> timeout{};
  std::optional<bool> reproducible{};
  std::optional<bool> progress_thread{};
  std::optional<bool> check{};
  std::string transports{};
  std::string algorithm{};
  std::string name{};
};

/// The name of a job; made by one rank and given to the others by the caller's means.
inline tmkUniqueId make_unique_id() {
  tmkUniqueId id;
  check(tmkGetUniqueId(&id));
  return id;
}

/// Declares memory to the transports of a communicator for as long as it lives (tmkRegister).
class [[nodiscard]] Registration {
 public:
  Registration(Registration&& other) noexcept
      : comm_(other.comm_), handle_(std::exchange(other.handle_, nullptr)) {}
  Registration& operator=(Registration&& other) noexcept {
    std::swap(comm_, other.comm_);
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Registration() {
    if (handle_ != nullptr) static_cast<void>(tmkDeregister(comm_, handle_));
  }

 private:
  friend class Communicator;
  Registration(tmkComm_t comm, void* handle) noexcept : comm_(comm), handle_(handle) {}
  tmkComm_t comm_;
  void* handle_;
};

/// Owns a communicator. One thread at a time is inside it; others wait. Collectives are called by all ranks
/// in the same order. Destruction completes outstanding work and drops its outcome: close() tells it.
class Communicator {
 public:
  Communicator() = default;
  explicit Communicator(tmkComm_t comm) noexcept : comm_(comm) {}
  Communicator(Communicator&& other) noexcept : comm_(std::exchange(other.comm_, nullptr)) {}
  Communicator& operator=(Communicator&& other) noexcept {
    std::swap(comm_, other.comm_);
    return *this;
  }
  ~Communicator() {
    if (comm_ != nullptr) static_cast<void>(tmkCommDestroy(comm_));
  }

  /// tmkCommInitEnv
  static Communicator from_environment(const Config& config = {}) {
    return make([](tmkComm_t* c, const tmkConfig_t* s) { return tmkCommInitEnv(c, s); }, config);
  }
  /// tmkCommInitRank
  static Communicator from_id(const tmkUniqueId& id, int ranks, int rank, const Config& config = {}) {
    return make([&](tmkComm_t* c, const tmkConfig_t* s) { return tmkCommInitRank(c, ranks, id, rank, s); },
                config);
  }
  /// tmkCommInitCallbacks. allgather(std::span<const std::byte> mine, std::span<std::byte> all) receives
  /// everyone's bytes in rank order. It is called during this function only; an exception of it becomes a
  /// failure of this rank.
  template <class Allgather>
  requires std::invocable<Allgather&, std::span<const std::byte>, std::span<std::byte>>
  static Communicator from_allgather(int ranks, int rank, Allgather&& allgather,
                                     const Config& config = {}) {
    struct Context {
      std::remove_reference_t<Allgather>* function;
      std::size_t ranks;
    } context{&allgather, static_cast<std::size_t>(ranks)};
    const tmkAllgatherFunction callback = [](const void* mine, void* all, std::size_t bytes,
                                             void* opaque) -> int {
      try {
        const Context& c = *static_cast<Context*>(opaque);
        (*c.function)(std::span(static_cast<const std::byte*>(mine), bytes),
                      std::span(static_cast<std::byte*>(all), bytes * c.ranks));
        return 0;
      } catch (...) {
        return 1;
      }
    };
    return make(
        [&](tmkComm_t* c, const tmkConfig_t* s) {
          return tmkCommInitCallbacks(c, ranks, rank, callback, &context, s);
        },
        config);
  }

  /// Collective. Ranks of one colour form a communicator, ordered by (key, rank). No colour: an empty
  /// Communicator.
  Communicator split(std::optional<int> color, int key) const {
    tmkComm_t made = nullptr;
    check(tmkCommSplit(comm_, color.value_or(TMK_SPLIT_NOCOLOR), key, &made, nullptr));
    return Communicator(made);
  }
  Communicator split(std::optional<int> color, int key, const Config& config) const {
    return make(
        [&](tmkComm_t* c, const tmkConfig_t* s) {
          return tmkCommSplit(comm_, color.value_or(TMK_SPLIT_NOCOLOR), key, c, s);
        },
        config);
  }
  Communicator duplicate() const {
    tmkComm_t made = nullptr;
    check(tmkCommDup(comm_, &made));
    return Communicator(made);
  }

  /// Ends the communicator and throws what its outstanding work failed with.
  void close() { check(tmkCommDestroy(std::exchange(comm_, nullptr))); }
  /// From any thread; a call that is blocked inside throws an Error of code tmkAborted.
  void abort() const { check(tmkCommAbort(comm_)); }
  /// tmkSuccess, or what made the communicator unusable.
  tmkResult_t health() const {
    tmkResult_t error = tmkSuccess;
    check(tmkCommGetAsyncError(comm_, &error));
    return error;
  }
  void set_timeout(std::chrono::milliseconds timeout) const {
    check(tmkCommSetTimeout(comm_, static_cast<int>(timeout.count())));
  }

  int rank() const {
    int value = 0;
    check(tmkCommRank(comm_, &value));
    return value;
  }
  int size() const {
    int value = 0;
    check(tmkCommSize(comm_, &value));
    return value;
  }
  tmkComm_t get() const noexcept { return comm_; }
  tmkComm_t release() noexcept { return std::exchange(comm_, nullptr); }
  explicit operator bool() const noexcept { return comm_ != nullptr; }

  /// The sum over ranks of scalar * x.
  template <Element T>
  Operation<T> pre_mul_sum(const T& scalar) const {
    tmkOp_t op = 0;
    check(tmkOpCreatePreMulSum(&op, &scalar, TypeOf<T>::value, comm_));
    return Operation<T>(op, comm_, nullptr);
  }
  enum class Order { any, by_rank };
  /// function(lower, upper) -> T combines elements, `lower` from lower ranks. Associative; must not throw.
  /// Order::any only if it is commutative.
  template <Element T, class Function>
  requires std::is_nothrow_invocable_r_v<T, const Function&, T, T> Operation<T> make_operation(
      Function function, Order order)
  const {
    const tmkReduceFunction loop = [](const void* in, void* inout, std::size_t count, tmkDataType_t,
                                      void* context) {
      const Function& f = *static_cast<const Function*>(context);
      for (std::size_t i = 0; i < count; ++i) {  // by memcpy: buffers may have any alignment
        T lower, upper;
        std::memcpy(&lower, static_cast<const std::byte*>(in) + i * sizeof(T), sizeof(T));
        std::memcpy(&upper, static_cast<std::byte*>(inout) + i * sizeof(T), sizeof(T));
        const T result = f(lower, upper);
        std::memcpy(static_cast<std::byte*>(inout) + i * sizeof(T), &result, sizeof(T));
      }
    };
    auto kept = std::make_shared<Function>(std::move(function));
    tmkOp_t op = 0;
    check(tmkOpCreate(&op, loop, order == Order::any ? 1 : 0, kept.get(), comm_));
    return Operation<T>(op, comm_, std::move(kept));
  }

  /// Registers the memory of `range`, which must outlive the Registration.
  template <Output R>
  Registration register_memory(R& range) const {
    void* handle = nullptr;
    check(tmkRegister(comm_, std::ranges::data(range), std::ranges::size(range) * sizeof(ElementOf<R>),
                      &handle));
    return Registration(comm_, handle);
  }

  // Collectives. Shapes as in tamaki.h: p = size(), r = rank(). A single range is the in-place form.

  /// send[n] -> recv[n]
  template <Input S, OutputOf<S> R>
  void allreduce(const S& send, R&& recv, OpOf<ElementOf<S>> op = Op::sum) const {
    same("allreduce", count(send), count(recv));
    check(tmkAllreduce(data(send), data(recv), count(recv), type<S>, op.get(), comm_));
  }
  template <Output R>
  void allreduce(R&& data_, OpOf<ElementOf<R>> op = Op::sum) const {
    check(tmkAllreduce(TMK_IN_PLACE, data(data_), count(data_), type<R>, op.get(), comm_));
  }
  template <Input S, OutputOf<S> R>
  requires std::ranges::borrowed_range<S> && std::ranges::borrowed_range<R> Request
  iallreduce(S&& send, R&& recv, OpOf<ElementOf<S>> op = Op::sum)
  const {
    same("iallreduce", count(send), count(recv));
    return started([&](tmkRequest_t* r) {
      return tmkIallreduce(data(send), data(recv), count(recv), type<S>, op.get(), comm_, r);
    });
  }
  template <Output R>
  requires std::ranges::borrowed_range<R> Request iallreduce(R&& data_, OpOf<ElementOf<R>> op = Op::sum)
  const {
    return started([&](tmkRequest_t* r) {
      return tmkIallreduce(TMK_IN_PLACE, data(data_), count(data_), type<R>, op.get(), comm_, r);
    });
  }

  /// send[n] -> recv[n] on root; recv may be empty elsewhere.
  template <Input S, OutputOf<S> R>
  void reduce(const S& send, R&& recv, int root, OpOf<ElementOf<S>> op = Op::sum) const {
    if (rank() == root) same("reduce", count(send), count(recv));
    check(tmkReduce(data(send), data(recv), count(send), type<S>, op.get(), root, comm_));
  }

  /// root's data[n] -> data[n]
  template <Output R>
  void broadcast(R&& data_, int root) const {
    check(tmkBroadcast(data(data_), data(data_), count(data_), type<R>, root, comm_));
  }
  template <Output R>
  requires std::ranges::borrowed_range<R> Request ibroadcast(R&& data_, int root)
  const {
    return started([&](tmkRequest_t* r) {
      return tmkIbroadcast(data(data_), data(data_), count(data_), type<R>, root, comm_, r);
    });
  }

  /// send[n] -> recv[p*n]
  template <Input S, OutputOf<S> R>
  void allgather(const S& send, R&& recv) const {
    same("allgather", count(send) * ranks(), count(recv));
    check(tmkAllgather(data(send), data(recv), count(send), type<S>, comm_));
  }
  /// In place: block r of data[p*n] is sent.
  template <Output R>
  void allgather(R&& data_) const {
    check(tmkAllgather(TMK_IN_PLACE, data(data_), blocks("allgather", count(data_)), type<R>, comm_));
  }
  template <Input S, OutputOf<S> R>
  requires std::ranges::borrowed_range<S> && std::ranges::borrowed_range<R> Request iallgather(S&& send,
                                                                                               R&& recv)
  const {
    same("iallgather", count(send) * ranks(), count(recv));
    return started([&](tmkRequest_t* r) {
      return tmkIallgather(data(send), data(recv), count(send), type<S>, comm_, r);
    });
  }
  /// send[counts[r]] -> recv[sum(counts)], packed
  template <Input S, OutputOf<S> R>
  void allgatherv(const S& send, R&& recv, std::span<const std::size_t> counts) const {
    same("allgatherv", count(send), own("allgatherv", counts));
    same("allgatherv", total(counts), count(recv));
    check(tmkAllgatherv(data(send), data(recv), counts.data(), nullptr, type<S>, comm_));
  }

  /// send[p*n] -> recv[n]
  template <Input S, OutputOf<S> R>
  void reduce_scatter(const S& send, R&& recv, OpOf<ElementOf<S>> op = Op::sum) const {
    same("reduce_scatter", count(send), count(recv) * ranks());
    check(tmkReduceScatter(data(send), data(recv), count(recv), type<S>, op.get(), comm_));
  }
  template <Input S, OutputOf<S> R>
  requires std::ranges::borrowed_range<S> && std::ranges::borrowed_range<R> Request
  ireduce_scatter(S&& send, R&& recv, OpOf<ElementOf<S>> op = Op::sum)
  const {
    same("ireduce_scatter", count(send), count(recv) * ranks());
    return started([&](tmkRequest_t* r) {
      return tmkIreduceScatter(data(send), data(recv), count(recv), type<S>, op.get(), comm_, r);
    });
  }
  /// send[sum(counts)] -> recv[counts[r]]
  template <Input S, OutputOf<S> R>
  void reduce_scatterv(const S& send, R&& recv, std::span<const std::size_t> counts,
                       OpOf<ElementOf<S>> op = Op::sum) const {
    same("reduce_scatterv", count(recv), own("reduce_scatterv", counts));
    same("reduce_scatterv", total(counts), count(send));
    check(tmkReduceScatterv(data(send), data(recv), counts.data(), type<S>, op.get(), comm_));
  }

  /// send[n] -> recv[p*n] on root; recv may be empty elsewhere.
  template <Input S, OutputOf<S> R>
  void gather(const S& send, R&& recv, int root) const {
    if (rank() == root) same("gather", count(send) * ranks(), count(recv));
    check(tmkGather(data(send), data(recv), count(send), type<S>, root, comm_));
  }
  /// send[counts[r]] -> recv[sum(counts)], packed, on root; recv and counts may be empty elsewhere.
  template <Input S, OutputOf<S> R>
  void gatherv(const S& send, R&& recv, std::span<const std::size_t> counts, int root) const {
    if (rank() == root) same("gatherv", (own("gatherv", counts), total(counts)), count(recv));
    check(tmkGatherv(data(send), count(send), data(recv), counts.data(), nullptr, type<S>, root, comm_));
  }

  /// root's send[p*n] -> recv[n]; send may be empty elsewhere.
  template <Input S, OutputOf<S> R>
  void scatter(const S& send, R&& recv, int root) const {
    if (rank() == root) same("scatter", count(send), count(recv) * ranks());
    check(tmkScatter(data(send), data(recv), count(recv), type<S>, root, comm_));
  }
  /// root's send[sum(counts)], packed -> recv[counts[r]]; send and counts may be empty elsewhere.
  template <Input S, OutputOf<S> R>
  void scatterv(const S& send, std::span<const std::size_t> counts, R&& recv, int root) const {
    if (rank() == root) same("scatterv", (own("scatterv", counts), total(counts)), count(send));
    check(tmkScatterv(data(send), counts.data(), nullptr, data(recv), count(recv), type<S>, root, comm_));
  }

  /// send[p*n] -> recv[p*n]
  template <Input S, OutputOf<S> R>
  void alltoall(const S& send, R&& recv) const {
    same("alltoall", count(send), count(recv));
    check(tmkAlltoall(data(send), data(recv), blocks("alltoall", count(send)), type<S>, comm_));
  }
  /// Packed blocks of send_counts[i] to and recv_counts[i] from rank i.
  template <Input S, OutputOf<S> R>
  void alltoallv(const S& send, std::span<const std::size_t> send_counts, R&& recv,
                 std::span<const std::size_t> recv_counts) const {
    same("alltoallv", (own("alltoallv", send_counts), total(send_counts)), count(send));
    same("alltoallv", (own("alltoallv", recv_counts), total(recv_counts)), count(recv));
    check(tmkAlltoallv(data(send), send_counts.data(), nullptr, data(recv), recv_counts.data(), nullptr,
                       type<S>, comm_));
  }

  void barrier() const { check(tmkBarrier(comm_)); }
  Request ibarrier() const {
    return started([&](tmkRequest_t* r) { return tmkIbarrier(comm_, r); });
  }

  // Point to point.

  template <Input S>
  void send(const S& range, int peer) const {
    check(tmkSend(data(range), count(range), type<S>, peer, comm_));
  }
  template <Output R>
  void recv(R&& range, int peer) const {
    check(tmkRecv(data(range), count(range), type<R>, peer, comm_));
  }
  template <Input S, OutputOf<S> R>
  void sendrecv(const S& range, int dest, R&& into, int source) const {
    check(tmkSendrecv(data(range), count(range), dest, data(into), count(into), source, type<S>, comm_));
  }
  template <Input S>
  requires std::ranges::borrowed_range<S> Request isend(S&& range, int peer)
  const {
    return started(
        [&](tmkRequest_t* r) { return tmkIsend(data(range), count(range), type<S>, peer, comm_, r); });
  }
  template <Output R>
  requires std::ranges::borrowed_range<R> Request irecv(R&& range, int peer)
  const {
    return started(
        [&](tmkRequest_t* r) { return tmkIrecv(data(range), count(range), type<R>, peer, comm_, r); });
  }

 private:
  template <class R>
  static constexpr tmkDataType_t type = TypeOf<ElementOf<R>>::value;

  template <class R>
  static auto data(R&& range) noexcept {
    return std::ranges::data(range);
  }
  template <class R>
  static std::size_t count(const R& range) noexcept {
    return std::ranges::size(range);
  }
  std::size_t ranks() const { return static_cast<std::size_t>(size()); }

  static void same(const char* function, std::size_t needed, std::size_t given) {
    if (needed != given) [[unlikely]]
      throw Error(tmkInvalidArgument, std::string(function) +
                                          ": sizes do not fit: " + std::to_string(needed) +
                                          " elements against " + std::to_string(given));
  }
  std::size_t blocks(const char* function, std::size_t elements) const {
    if (elements % ranks() != 0) [[unlikely]]
      throw Error(tmkInvalidArgument, std::string(function) + ": " + std::to_string(elements) +
                                          " elements do not divide into " + std::to_string(ranks()) +
                                          " blocks");
    return elements / ranks();
  }
  /// counts[rank()], after a look at the array's length.
  std::size_t own(const char* function, std::span<const std::size_t> counts) const {
    same(function, ranks(), counts.size());
    return counts[static_cast<std::size_t>(rank())];
  }
  static std::size_t total(std::span<const std::size_t> counts) noexcept {
    std::size_t sum = 0;
    for (const std::size_t c : counts) sum += c;
    return sum;
  }

  template <class Start>
  static Request started(Start&& start) {
    tmkRequest_t request = nullptr;
    check(start(&request));
    return Request(request);
  }

  template <class Init>
  static Communicator make(Init&& init, const Config& config) {
    tmkConfig_t settings = TMK_CONFIG_INIT;
    if (config.timeout) settings.timeout_ms = static_cast<int>(config.timeout->count());
    if (config.reproducible) settings.reproducible = *config.reproducible ? 1 : 0;
    if (config.progress_thread) settings.progress_thread = *config.progress_thread ? 1 : 0;
    if (config.check) settings.check = *config.check ? 1 : 0;
    if (!config.transports.empty()) settings.transports = config.transports.c_str();
    if (!config.algorithm.empty()) settings.algorithm = config.algorithm.c_str();
    if (!config.name.empty()) settings.name = config.name.c_str();
    tmkComm_t made = nullptr;
    check(init(&made, &settings));
    return Communicator(made);
  }

  tmkComm_t comm_ = nullptr;
};

}  // namespace tmk

#endif
