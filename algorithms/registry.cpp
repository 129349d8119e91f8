#include "algorithms/algorithm.hpp"

namespace tamaki {

#define TAMAKI_ALGORITHM(collective, name) extern const Algorithm k_##collective##_##name;
#include "algorithms/algorithms.def"
#undef TAMAKI_ALGORITHM

namespace {
constexpr const Algorithm* kAll[] = {
#define TAMAKI_ALGORITHM(collective, name) &k_##collective##_##name,
#include "algorithms/algorithms.def"
#undef TAMAKI_ALGORITHM
};
}  // namespace

std::span<const Algorithm* const> all_algorithms() { return kAll; }

const Algorithm* find_algorithm(Collective collective, std::string_view name) {
  for (const Algorithm* a : kAll)
    if (a->collective == collective && a->name == name) return a;
  return nullptr;
}

std::string algorithm_names(Collective collective) {
  std::string names;
  for (const Algorithm* a : kAll)
    if (a->collective == collective) names += (names.empty() ? "" : ", ") + std::string(a->name);
  return names;
}

}  // namespace tamaki
