#include "base/types.hpp"

namespace tamaki {
namespace {

constexpr std::string_view kTypeNames[kDataTypes] = {"i8",   "u8",  "i16", "u16",     "i32",     "u32",  "i64",  "u64",
                                                     "f16",  "bf16", "f32", "f64",    "f8e4m3",  "f8e5m2", "c64",
                                                     "c128", "bytes"};
constexpr std::string_view kOpNames[] = {"sum",  "prod", "min",  "max",  "avg",  "band", "bor",
                                         "bxor", "land", "lor",  "lxor", "premulsum", "user"};
constexpr std::string_view kCollectiveNames[] = {"allreduce", "reduce", "broadcast", "allgather", "reduce_scatter",
                                                 "gather",    "scatter", "alltoall", "barrier",   "sendrecv"};

template <class Enum, std::size_t N>
std::optional<Enum> find(const std::string_view (&names)[N], std::string_view name) {
  for (std::size_t i = 0; i < N; ++i)
    if (names[i] == name) return static_cast<Enum>(i);
  return std::nullopt;
}

}  // namespace

std::string_view name_of(DataType type) { return kTypeNames[static_cast<int>(type)]; }
std::string_view name_of(ReduceOp op) { return kOpNames[static_cast<int>(op)]; }
std::string_view name_of(Collective collective) { return kCollectiveNames[static_cast<int>(collective)]; }
std::optional<DataType> parse_data_type(std::string_view name) { return find<DataType>(kTypeNames, name); }
std::optional<ReduceOp> parse_reduce_op(std::string_view name) { return find<ReduceOp>(kOpNames, name); }
std::optional<Collective> parse_collective(std::string_view name) { return find<Collective>(kCollectiveNames, name); }

}  // namespace tamaki
