// Reductions by a function of the caller. It combines two operands in place of the second, so what must not
// be overwritten goes through two blocks on the stack, in turn; nothing is allocated.

#include <algorithm>
#include <cstring>

#include "execute/kernels/targets.hpp"

namespace tamaki {
namespace {

constexpr std::size_t kBlockBytes = 8192;  // a multiple of every element's size; two of them on the stack

bool aligned(const void* p, DataType type) {
  const std::size_t alignment = std::min<std::size_t>(is_complex(type) ? size_of(type) / 2 : size_of(type),
                                                      alignof(std::max_align_t));
  return reinterpret_cast<std::uintptr_t>(p) % alignment == 0;
}

/// One block: sources and destinations `at` bytes further on. `in` and `inout` of the function are always
/// aligned for the type, whatever the caller's buffers are.
void fold_block(const OpContext& context, const KernelArguments& arguments, std::size_t at,
                std::size_t count) {
  alignas(64) std::byte blocks[2][kBlockBytes];
  const std::size_t bytes = count * size_of(context.type);
  const std::size_t sources = arguments.sources.size();
  std::byte* const target = arguments.destinations[0] + at;

  const std::byte* in = arguments.sources[0] + at;
  if (!aligned(in, context.type)) {
    std::memcpy(blocks[0], in, bytes);
    in = blocks[0];
  }
  for (std::size_t k = 1; k < sources; ++k) {
    const std::byte* next = arguments.sources[k] + at;
    // The last result goes straight to its place, unless that is where `in` lies. All other sources are
    // used up by then, so it does not matter whether the place is one of them.
    const bool direct = k + 1 == sources && target != in && aligned(target, context.type);
    std::byte* inout = direct ? target : in == blocks[0] ? blocks[1] : blocks[0];
    if (inout != next) std::memcpy(inout, next, bytes);
    context.user(in, inout, count, static_cast<int>(context.type), context.user_context);
    in = inout;
  }
  for (std::byte* destination : arguments.destinations) {
    if (destination + at != in) std::memcpy(destination + at, in, bytes);
  }
}

void fold_by_user(const OpContext& context, const KernelArguments& arguments) {
  const std::size_t size = size_of(context.type);
  if (arguments.sources.size() == 1) {
    return copy_kernel(arguments.sources[0], arguments.destinations, arguments.count * size,
                       arguments.stream);
  }
  const std::size_t block = kBlockBytes / size;
  for (std::size_t done = 0; done < arguments.count; done += block) {
    fold_block(context, arguments, done * size, std::min(block, arguments.count - done));
  }
}

}  // namespace

void add_user_kernels(KernelTable& table) {
  for (int type = 0; type < kDataTypes; ++type) {
    table.set(ReduceOp::user, static_cast<DataType>(type), &fold_by_user);
  }
}

}  // namespace tamaki
