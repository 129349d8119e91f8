#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <memory>

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
  EXPECT_FALSE(name_memory(bytes + (4 << 20) - 10, 11).covers(0, 11)) << "reaches beyond the region";
  EXPECT_TRUE(name_memory(bytes + (4 << 20) - 10, 11).covers(0, 10));
  EXPECT_EQ(name_memory(bytes + (4 << 20) - 10, 10 + 8192).region, 0u) << "a whole page beyond";
  EXPECT_TRUE(free_shared(*made));
  EXPECT_EQ(name_memory(bytes, 1).region, 0u);
  const Status again = free_shared(*made);
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code, Code::invalid_argument);
}

/// Pages with a pattern, at the places [at, at + bytes) of an mmap with a page to spare at both ends.
struct Pages {
  explicit Pages(std::size_t size) : bytes(size) {
    base = static_cast<unsigned char*>(::mmap(nullptr, bytes + 2 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    for (std::size_t i = 0; i < bytes + 2 * kPage; ++i) base[i] = pattern(i);
  }
  ~Pages() { ::munmap(base, bytes + 2 * kPage); }
  static unsigned char pattern(std::size_t i) { return static_cast<unsigned char>(i * 2654435761u >> 24); }
  bool intact() const {
    for (std::size_t i = 0; i < bytes + 2 * kPage; ++i)
      if (base[i] != pattern(i)) return false;
    return true;
  }
  static inline const std::size_t kPage = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  std::size_t bytes;
  unsigned char* base;
};

TEST(SharePages, keepsContentsAndIsSeenThroughTheFile) {
  Pages pages(64 * Pages::kPage);
  unsigned char* buffer = pages.base + 16;  // as malloc hands it out
  const std::size_t bytes = 64 * Pages::kPage;
  const Result<std::uint32_t> region = share_pages(buffer, bytes);
  ASSERT_TRUE(region) << region.error().message;
  EXPECT_TRUE(pages.intact());
  const LocalName name = name_memory(buffer, bytes);
  ASSERT_EQ(name.region, *region);
  const std::size_t head = Pages::kPage - 16;
  EXPECT_FALSE(name.covers(0, 8)) << "the page's beginning belongs to others";
  EXPECT_FALSE(name.covers(head - 1, 8));
  EXPECT_TRUE(name.covers(head, 63 * Pages::kPage));
  EXPECT_FALSE(name.covers(head, 63 * Pages::kPage + 1));
  EXPECT_EQ(name_memory(buffer - Pages::kPage, bytes).region, 0u);
  std::size_t mapped = 0;
  const Result<std::byte*> other = map_foreign_region(::getpid(), name, &mapped);
  ASSERT_TRUE(other) << other.error().message;
  EXPECT_EQ(mapped, 63 * Pages::kPage);
  auto* seen = reinterpret_cast<unsigned char*>(*other);
  EXPECT_EQ(0, std::memcmp(seen, pages.base + Pages::kPage, mapped));
  seen[100] = static_cast<unsigned char>(~seen[100]);
  EXPECT_EQ(pages.base[Pages::kPage + 100], seen[100]);
  seen[100] = static_cast<unsigned char>(~seen[100]);

  const Result<std::uint32_t> second = share_pages(buffer + 4 * Pages::kPage, 32 * Pages::kPage);
  ASSERT_TRUE(second) << "a part of a shared range: " << second.error().message;
  EXPECT_EQ(*second, *region);
  EXPECT_TRUE(unshare_pages(*region));
  EXPECT_EQ(name_memory(buffer, bytes).region, *region) << "still one user";
  EXPECT_TRUE(unshare_pages(*region));
  EXPECT_EQ(name_memory(buffer, bytes).region, 0u);
  EXPECT_TRUE(pages.intact());
  seen[100] = static_cast<unsigned char>(~seen[100]);
  EXPECT_TRUE(pages.intact()) << "private again";
  EXPECT_FALSE(unshare_pages(*region));
  unmap_foreign_region(*other, mapped);
}

TEST(SharePages, refusesWhatCannotBeMoved) {
  Pages pages(64 * Pages::kPage);
  const auto refused = [](void* pointer, std::size_t bytes, Code code) {
    const Result<std::uint32_t> region = share_pages(pointer, bytes);
    ASSERT_FALSE(region);
    EXPECT_EQ(region.error().code, code) << region.error().message;
  };
  refused(pages.base + 8, 100, Code::invalid_usage);                 // no whole page
  refused(pages.base + 8, 4 * Pages::kPage, Code::invalid_usage);    // few of them
  ::mprotect(pages.base + 3 * Pages::kPage, Pages::kPage, PROT_READ);
  refused(pages.base, pages.bytes, Code::invalid_usage);
  EXPECT_TRUE(pages.intact());
  ::mprotect(pages.base + 3 * Pages::kPage, Pages::kPage, PROT_READ | PROT_WRITE);
  ::munmap(pages.base + 5 * Pages::kPage, Pages::kPage);
  refused(pages.base, pages.bytes, Code::invalid_argument);
  unsigned char local[256 << 10];
  refused(local, sizeof local, Code::invalid_usage);  // the stack
  const Result<void*> shared = allocate_shared(1 << 20);
  ASSERT_TRUE(shared);
  refused(*shared, 1 << 20, Code::invalid_usage);
  EXPECT_TRUE(free_shared(*shared));
}

TEST(SharePages, aSmallNeighbourIsNoUser) {
  Pages pages(64 * Pages::kPage);
  unsigned char* begin = pages.base + Pages::kPage;
  const Result<std::uint32_t> region = share_pages(begin, 64 * Pages::kPage);
  ASSERT_TRUE(region) << region.error().message;
  EXPECT_FALSE(share_pages(begin - 400, 400)) << "ends where the region begins";
  EXPECT_FALSE(share_pages(begin - 400, 500)) << "reaches into its first page";
  EXPECT_FALSE(share_pages(begin + 64 * Pages::kPage, 400)) << "begins where it ends";
  EXPECT_TRUE(unshare_pages(*region));
  EXPECT_EQ(name_memory(begin, 64 * Pages::kPage).region, 0u);
  EXPECT_TRUE(pages.intact());
}

TEST(SharePages, leavesAloneWhatCameAfterAnEarlyFree) {
  auto pages = std::make_unique<Pages>(16 * Pages::kPage);
  unsigned char* base = pages->base;
  const Result<std::uint32_t> region = share_pages(base, 16 * Pages::kPage);
  ASSERT_TRUE(region) << region.error().message;
  pages.reset();
  void* again = ::mmap(base, 16 * Pages::kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  ASSERT_EQ(again, base);
  base[5] = 77;
  const Status status = unshare_pages(*region);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, Code::invalid_usage);
  EXPECT_EQ(base[5], 77);
  EXPECT_EQ(name_memory(base, Pages::kPage).region, 0u);
  ::munmap(base, 16 * Pages::kPage);
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
