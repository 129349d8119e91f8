#include "simulate/fair_share.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <random>

namespace tamaki::simulation {
namespace {

/// Progressive filling of all flows at once, the definition.
std::vector<double> filled(const FairShare& fair, const std::vector<double>& capacity) {
  const std::size_t groups = fair.group_count();
  std::vector<double> rate(groups, -1), rest = capacity;
  for (;;) {
    std::vector<double> flows(capacity.size());
    for (std::size_t g = 0; g < groups; ++g)
      if (rate[g] < 0)
        for (std::size_t i = 0; i < fair.links(g).size(); ++i)
          flows[fair.links(g)[i]] += double(fair.flows(g)) * fair.times(g)[i];
    double least = std::numeric_limits<double>::infinity();
    std::size_t tight = capacity.size();
    for (std::size_t l = 0; l < capacity.size(); ++l)
      if (flows[l] > 0 && rest[l] / flows[l] < least) least = rest[l] / flows[l], tight = l;
    if (tight == capacity.size()) return rate;
    for (std::size_t g = 0; g < groups; ++g) {
      bool crosses = false;
      for (const std::int32_t link : fair.links(g)) crosses = crosses || std::size_t(link) == tight;
      if (rate[g] >= 0 || !crosses || fair.flows(g) == 0) continue;
      rate[g] = least;
      for (std::size_t i = 0; i < fair.links(g).size(); ++i)
        rest[fair.links(g)[i]] -= double(fair.flows(g)) * fair.times(g)[i] * least;
    }
  }
}

TEST(FairShare, sharesAsTheDefinitionSays) {
  FairShare fair;  // Bertsekas and Gallager's example: a long flow over two links, one short flow, two
                   // short flows
  const std::int32_t a = fair.add_link(1), b = fair.add_link(1);
  const std::int32_t both[] = {a, b}, first[] = {a}, second[] = {b};
  const std::int32_t long_one = fair.add_group(both), x = fair.add_group(first), y = fair.add_group(second);
  fair.set_flows(long_one, 1);
  fair.set_flows(x, 1);
  fair.set_flows(y, 2);
  EXPECT_EQ(fair.solve().size(), 3u);
  EXPECT_DOUBLE_EQ(fair.rate(long_one), 1.0 / 3);
  EXPECT_DOUBLE_EQ(fair.rate(x), 2.0 / 3);
  EXPECT_DOUBLE_EQ(fair.rate(y), 1.0 / 3);
  fair.set_flows(y, 0);
  fair.solve();
  EXPECT_DOUBLE_EQ(fair.rate(long_one), 0.5);
  EXPECT_DOUBLE_EQ(fair.rate(x), 0.5);
  fair.set_flows(long_one, 0);
  fair.set_flows(long_one, 1);  // one ends as another begins
  EXPECT_TRUE(fair.solve().empty());
}

TEST(FairShare, changesGiveWhatFillingAnewGives) {
  for (unsigned seed = 1; seed <= 60; ++seed) {
    std::mt19937 random(seed);
    const auto below = [&](std::size_t n) { return std::size_t(random() % n); };
    FairShare fair;
    std::vector<double> capacity;
    const std::size_t links = 2 + below(40), groups = 1 + below(80);
    for (std::size_t l = 0; l < links; ++l) {
      capacity.push_back(below(3) == 0 ? 1.0 : 0.1 + double(below(1000)) / 100);
      fair.add_link(capacity.back());
    }
    for (std::size_t g = 0; g < groups; ++g) {
      std::vector<std::int32_t> route, times;
      for (std::size_t l = 0; l < links; ++l)
        if (below(links) < 3)
          route.push_back(std::int32_t(l)), times.push_back(seed % 2 == 0 ? 1 : 1 + std::int32_t(below(3)));
      if (route.empty()) route.push_back(0), times.push_back(1);
      fair.add_group(route, times);
    }
    for (int change = 0; change < 60; ++change) {
      for (std::size_t k = 1 + below(4); k > 0; --k)
        fair.set_flows(std::int32_t(below(groups)), std::int32_t(below(3)));
      fair.solve();
      const std::vector<double> wanted = filled(fair, capacity);
      for (std::size_t g = 0; g < groups; ++g)
        if (fair.flows(std::int32_t(g)) > 0) {
          ASSERT_NEAR(fair.rate(std::int32_t(g)), wanted[g], 1e-8 * wanted[g])
              << "seed " << seed << " change " << change << " group " << g;
        }
    }
  }
}

}  // namespace
}  // namespace tamaki::simulation
