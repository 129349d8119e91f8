// The oracle of the collective tests, tested: what it calls exact is exact in any order, and what it
// tolerates is not everything.

#include "support/oracle.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace tamaki {
namespace {

using test::fold;

std::vector<DataType> all_types() {
  std::vector<DataType> types;
  for (int t = 0; t < kDataTypes; ++t) types.push_back(static_cast<DataType>(t));
  return types;
}

/// An allreduce in wide arithmetic against steps in another order, each rounded to the type.
TEST(Oracle, ExactInputsAreExactInAnyOrder) {
  std::mt19937_64 random(5);
  for (DataType type : all_types()) {
    for (int o = 0; o <= static_cast<int>(ReduceOp::pre_mul_sum); ++o) {
      const auto op = static_cast<ReduceOp>(o);
      if (!is_defined(op, type)) continue;
      for (int ranks : {1, 2, 3, 5, 8, 64}) {
        const std::size_t count = 40;
        OpContext context;
        context.op = op;
        context.type = type;
        context.ranks = ranks;
        test::set_test_scalar(&context);
        auto inputs = test::make_inputs(type, op, 99, ranks, count, test::Inputs::exact);
        const test::Expected expected = test::expect_allreduce(context, inputs);
        // One rank after the other, rounding to the type at every step, in a random order.
        std::vector<std::vector<std::byte>> order = inputs;
        std::shuffle(order.begin(), order.end(), random);
        std::vector<std::byte> sum(count * size_of(type));
        for (int k = 0; k < ranks; ++k) {
          const std::byte* own[] = {order[k].data()};
          order[k] = fold(context, own, count, false, op == ReduceOp::pre_mul_sum ? 0 : -1);
          const std::byte* both[] = {k == 0 ? order[k].data() : sum.data(), order[k].data()};
          sum = fold(context, std::span(both).first(k == 0 ? 1 : 2), count, k + 1 == ranks);
        }
        const auto difference = test::differs_exactly(expected, sum);
        EXPECT_EQ(difference, std::nullopt) << *difference << " ranks " << ranks;
      }
    }
  }
}

TEST(Oracle, RoughInputsStayWithinToleranceAndErrorsDoNot) {
  for (DataType type : all_types()) {
    for (ReduceOp op : {ReduceOp::sum, ReduceOp::avg, ReduceOp::prod, ReduceOp::pre_mul_sum}) {
      if (!is_defined(op, type)) continue;
      for (int ranks : {2, 3, 8}) {
        OpContext context;
        context.op = op;
        context.type = type;
        context.ranks = ranks;
        test::set_test_scalar(&context);
        const auto inputs = test::make_inputs(type, op, 123, ranks, 50, test::Inputs::rough);
        const test::Expected expected = test::expect_allreduce(context, inputs);
        std::vector<std::byte> sum = inputs[0];
        for (int k = 0; k < ranks; ++k) {
          const std::byte* own[] = {inputs[k].data()};
          const std::vector<std::byte> x =
              fold(context, own, 50, false, op == ReduceOp::pre_mul_sum ? 0 : -1);
          const std::byte* both[] = {sum.data(), x.data()};
          sum = k == 0 ? x : fold(context, both, 50, k + 1 == ranks);
        }
        const auto difference = test::differs(expected, sum);
        EXPECT_EQ(difference, std::nullopt) << *difference;
        sum = inputs[0];  // one contribution instead of all
        if (test::precision(type) >= 8) {
          EXPECT_NE(test::differs(expected, sum), std::nullopt)
              << name_of(type) << " " << name_of(op) << " " << ranks;
        }
      }
    }
  }
}

}  // namespace
}  // namespace tamaki
