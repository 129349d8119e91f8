#include <gtest/gtest.h>

#include <cstring>

#include "base/memory_limits.hpp"
#include "base/shared_region.hpp"

namespace tamaki {
namespace {

TEST(SharedRegion, isZeroedAlignedNamedAndFreed) {
  const Result<void*> made = allocate_shared(3 << 20);
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(*made) % (2 << 20), 0u);
  auto* bytes = static_cast<unsigned char*>(*made);
  EXPECT_EQ(bytes[0] | bytes[(3 << 20) - 1], 0);
  const MemoryName name = name_memory(bytes + 100, 1000);
  EXPECT_NE(name.region, 0u);
  EXPECT_EQ(name.offset, 100u);
  EXPECT_EQ(name_memory(bytes + (4 << 20) - 10, 11).region, 0u) << "reaches beyond the region";
  EXPECT_TRUE(free_shared(*made));
  EXPECT_EQ(name_memory(bytes, 1).region, 0u);
  const Status again = free_shared(*made);
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code, Code::invalid_argument);
}

TEST(SharedRegion, moreThanThereIsIsAnErrorAndTakesNothing) {
  const std::uint64_t before = available_memory();
  ASSERT_GT(before, 0u);
  for (const std::uint64_t bytes : {before + (std::uint64_t{1} << 30), std::uint64_t{1} << 50, ~std::uint64_t{0}}) {
    const Result<void*> made = allocate_shared(bytes);
    ASSERT_FALSE(made);
    EXPECT_EQ(made.error().code, Code::out_of_memory) << made.error().message;
  }
  EXPECT_GT(available_memory(), before / 2);
}

}  // namespace
}  // namespace tamaki
