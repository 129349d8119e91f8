#pragma once
// Any number of ranks folded onto the largest power of two m <= p: of the first 2(p-m) ranks each odd one
// hands its part to the even one before it and sits out. Neighbours fold, so rank order is kept.

#include "algorithms/shapes/arguments.hpp"

namespace tamaki {

struct Fold {
  int m = 1;           // ranks that stay
  int extra = 0;       // p - m
  bool active = true;  // this rank stays
  int index = 0;       // of this rank (or the one that stands for it) among those that stay
  int partner = -1;    // the other rank of the pair, -1: none

  Fold(int p, int rank) : m(floor_power_of_two(p)), extra(p - m) {
    if (rank >= 2 * extra) {
      index = rank - extra;
      return;
    }
    active = rank % 2 == 0;
    index = rank / 2;
    partner = rank ^ 1;
  }
  int rank_of(int other_index) const { return other_index < extra ? 2 * other_index : other_index + extra; }
};

}  // namespace tamaki
