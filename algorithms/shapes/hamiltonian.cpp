#include "algorithms/shapes/hamiltonian.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

namespace tamaki {
namespace {

/// Points in the order of a ring. A point is the sum of what its coordinates add to the position.
using Ring = std::vector<int>;

/// Rings of some colours over the same points 0..points-1, under change: at every point each colour has two
/// edges. A square with opposite edges of one colour and the other two of another may have the colours
/// exchanged, which leaves that so: the two edges of a colour, if in different rings, then join these; if
/// in one ring, cut it in two where it runs along them in opposite directions, and turn a part of it round
/// where it does not.
class Colours {
 public:
  Colours(int colours, int points)
      : next_(static_cast<std::size_t>(colours),
              std::vector<std::array<int, 2>>(static_cast<std::size_t>(points))),
        place_(next_.size(), std::vector<Place>(static_cast<std::size_t>(points))),
        rings_(next_.size(), 0),
        points_(points) {}

  void set(int colour, int point, int before, int after) { next_[colour][point] = {before, after}; }

  /// Exchanges the colours of the square a-b-c-d: of `one` on a-b and c-d, of `other` on b-c and d-a.
  void exchange(int one, int other, int a, int b, int c, int d) {
    replace(one, a, b, d), replace(one, b, a, c), replace(one, c, d, b), replace(one, d, c, a);
    replace(other, a, d, b), replace(other, b, c, a), replace(other, c, b, d), replace(other, d, a, c);
  }

  /// The ring of a colour through point 0; all points only where the colour has one ring.
  Ring ring(int colour) const {
    Ring found = {0};
    for (int before = 0, at = next_[colour][0][1]; at != 0;) {
      found.push_back(at);
      const auto& edges = next_[colour][at];
      const int after = edges[edges[0] == before];
      before = std::exchange(at, after);
    }
    return found;
  }
  int points() const { return points_; }

  /// Exchanges squares until each colour has one ring. False if it gave up. Each exchange costs O(points),
  /// and so does the search for one that is of use, of which there are many.
  bool join() {
    const int colours = static_cast<int>(next_.size());
    for (int colour = 0; colour < colours; ++colour) walk(colour);
    std::uint32_t state = 1;
    constexpr int kMostDetours = 1000;
    int detours = 0;
    for (std::int64_t from = 0;;) {
      if (std::all_of(rings_.begin(), rings_.end(), [](int rings) { return rings == 1; })) return true;
      if (find_and_exchange(&from, Gain::better)) continue;
      // Then one that loses here what it gains there, at any place.
      if (++detours > kMostDetours) return false;
      state = state * 1664525u + 1013904223u;
      from = (state >> 8) % static_cast<std::uint32_t>(points_);
      if (!find_and_exchange(&from, Gain::equal)) return false;
    }
  }

 private:
  struct Place {
    int ring = -1, index = 0;
  };
  enum class Gain { better, equal };

  void replace(int colour, int point, int old, int now) {
    auto& edges = next_[colour][point];
    edges[edges[0] == old ? 0 : 1] = now;
  }
  bool joined(int colour, int a, int b) const {
    return next_[colour][a][0] == b || next_[colour][a][1] == b;
  }
  void walk(int colour) {
    auto& places = place_[colour];
    std::fill(places.begin(), places.end(), Place{});
    rings_[colour] = 0;
    for (int start = 0; start < points_; ++start) {
      if (places[start].ring >= 0) continue;
      int before = next_[colour][start][0], at = start;
      for (int index = 0; places[at].ring < 0; ++index) {
        places[at] = {rings_[colour], index};
        const auto& edges = next_[colour][at];
        const int after = edges[edges[0] == before];
        before = std::exchange(at, after);
      }
      ++rings_[colour];
    }
  }
  bool forwards(int colour, int a, int b) const {
    return place_[colour][b].index == place_[colour][a].index + 1 ||
           (place_[colour][b].index == 0 && place_[colour][a].index > 1);
  }
  /// Rings more of a colour when its edges a-b and d-c are exchanged for a-d and b-c.
  int more(int colour, int a, int b, int c, int d) const {
    if (place_[colour][a].ring != place_[colour][d].ring) return -1;
    return forwards(colour, a, b) == forwards(colour, d, c) ? 0 : 1;
  }
  /// The first square from point `from` on, around all of them, of which the rings become fewer, or stay as
  /// many with fewer of one colour.
  bool find_and_exchange(std::int64_t* from, Gain gain) {
    const int colours = static_cast<int>(next_.size());
    for (int k = 0; k < points_; ++k) {
      const int a = static_cast<int>((*from + k) % points_);
      for (int one = 0; one < colours; ++one)
        for (int other = one + 1; other < colours; ++other)
          for (int b : next_[one][a])
            for (int d : next_[other][a])
              for (int c : next_[one][d]) {
                if (c == a || c == b || !joined(other, b, c)) continue;
                const int of_one = more(one, a, b, c, d), of_other = more(other, a, d, c, b);
                const int sum = of_one + of_other;
                if (gain == Gain::better ? sum >= 0 : sum != 0 || of_one == of_other) continue;
                exchange(one, other, a, b, c, d);
                walk(one), walk(other);
                *from = a;
                return true;
              }
    }
    return false;
  }

  std::vector<std::vector<std::array<int, 2>>> next_;  // [colour][point]: its neighbours
  std::vector<std::vector<Place>> place_;
  std::vector<int> rings_;  // of each colour
  int points_;
};

/// Exchanges squares of the torus of n rows (colour `rows`, along them) and m >= n columns (`columns`), n
/// >= 3, point (i, j) being i * m + j, so that each colour becomes one ring.
///
/// At most one square for each gap between two columns: where these are the gaps 0..m-2, each exchange
/// joins two more columns, which makes one ring of them. (The gap between the last and the first column
/// too: then that exchange keeps the one ring if m is odd.) Seen from the rows, strands that run on through
/// all gaps, exchange E_r at a gap turns strands r and r+1 back into each other, on both sides. E_0 E_1 ...
/// E_(n-2) makes one ring of all strands, E_(n-1) behind them keeps it if n is odd, and E_0 E_1 E_0 is the
/// same as E_0 (the relation of Temperley and Lieb), so that any even number of further gaps is used up
/// without an effect.
void exchange_torus(Colours* colours, int rows, int columns, int n, int m) {
  const bool all_gaps = n % 2 == 0 && m % 2 != 0;
  const int gaps = all_gaps ? m : m - 1, turns = n % 2 != 0 && m % 2 == 0 ? n : n - 1;
  for (int gap = 0; gap < gaps; ++gap) {
    const int idle = gaps - turns, r = gap < idle ? gap % 2 : gap - idle;
    const int i = r, j = gap, down = (i + 1) % n, right = (j + 1) % m;
    colours->exchange(rows, columns, i * m + j, i * m + right, down * m + right, down * m + j);
  }
}

/// Sets the colours of a torus: along the rows, and along the columns.
void set_torus(Colours* colours, int rows, int columns, int n, int m) {
  for (int i = 0; i < n; ++i)
    for (int j = 0; j < m; ++j) {
      colours->set(rows, i * m + j, i * m + (j + m - 1) % m, i * m + (j + 1) % m);
      colours->set(columns, i * m + j, (i + n - 1) % n * m + j, (i + 1) % n * m + j);
    }
}

/// Two rings over the product of two rings, that share no edge. Sizes of 3 and more.
std::vector<Ring> product_of_two(const Ring& a, const Ring& b) {
  const Ring &rows = a.size() <= b.size() ? a : b, &columns = a.size() <= b.size() ? b : a;
  const int n = static_cast<int>(rows.size()), m = static_cast<int>(columns.size());
  Colours colours(2, n * m);
  set_torus(&colours, 0, 1, n, m);
  exchange_torus(&colours, 0, 1, n, m);
  std::vector<Ring> rings;
  for (int colour : {0, 1}) {
    rings.push_back(colours.ring(colour));
    for (int& point : rings.back()) point = rows[point / m] + columns[point % m];
  }
  return rings;
}

/// Three rings over the product of a graph that has two (`a` and `b`, over the same points) with the ring
/// `c`: two on the product of `a` and `c`; then the copies of `b` are joined. Two if that should fail.
std::vector<Ring> product_of_three(const Ring& a, const Ring& b, const Ring& c) {
  const bool few = a.size() < c.size();  // rows are the shorter one
  const int n = static_cast<int>(few ? a.size() : c.size()),
            m = static_cast<int>(few ? c.size() : a.size());
  const auto point_of = [&](std::size_t in_a, std::size_t in_c) {
    return static_cast<int>(few ? in_a : in_c) * m + static_cast<int>(few ? in_c : in_a);
  };
  Colours colours(3, n * m);
  set_torus(&colours, 0, 1, n, m);
  exchange_torus(&colours, 0, 1, n, m);
  std::vector<std::pair<int, std::size_t>> in_a;  // point, where in `a`
  for (std::size_t i = 0; i < a.size(); ++i) in_a.emplace_back(a[i], i);
  std::sort(in_a.begin(), in_a.end());
  const auto place = [&](int point) {
    return std::lower_bound(in_a.begin(), in_a.end(), std::pair{point, std::size_t{0}})->second;
  };
  for (std::size_t i = 0; i < b.size(); ++i) {
    const std::size_t before = place(b[(i + b.size() - 1) % b.size()]), here = place(b[i]),
                      after = place(b[(i + 1) % b.size()]);
    for (std::size_t k = 0; k < c.size(); ++k)
      colours.set(2, point_of(here, k), point_of(before, k), point_of(after, k));
  }
  const bool all = colours.join();
  if (!all) return product_of_two(a, c);
  std::vector<Ring> rings;
  for (int colour : {0, 1, 2}) {
    rings.push_back(colours.ring(colour));
    for (int& point : rings.back()) point = few ? a[point / m] + c[point % m] : c[point / m] + a[point % m];
  }
  return rings;
}

/// Rings over the product of rings, as many as these.
std::vector<Ring> product_of(const std::vector<Ring>& factors) {
  if (factors.size() == 1) return factors;
  // Halves; a ring of one with a ring of the other, the odd one with two.
  const auto middle = factors.begin() + static_cast<std::ptrdiff_t>(factors.size() / 2);
  const std::vector<Ring> fewer = product_of({factors.begin(), middle}),
                          more = product_of({middle, factors.end()});
  std::vector<Ring> rings;
  const std::size_t pairs = std::min(fewer.size(), more.size());
  for (std::size_t i = 0; i < pairs; ++i) {
    const bool extra = i + 1 == pairs && more.size() > pairs;
    for (Ring& ring :
         extra ? product_of_three(more[i], more[i + 1], fewer[i]) : product_of_two(fewer[i], more[i]))
      rings.push_back(std::move(ring));
  }
  return rings;
}

/// Along a grid of two lines, the first of an even number of points: out and back in its rows but for their
/// first points, and back along these.
Ring ring_of_lines(const Ring& even, const Ring& other) {
  Ring ring;
  const std::size_t rows = even.size(), columns = other.size();
  for (std::size_t i = 0; i < rows; ++i)
    for (std::size_t k = 1; k < columns; ++k) ring.push_back(even[i] + other[i % 2 == 0 ? k : columns - k]);
  for (std::size_t i = rows; i-- > 0;) ring.push_back(even[i] + other[0]);
  return ring;
}

/// Rings over the product of some rings' points with a line: each of them out and back in the line's rows
/// but for one point, and back along that. A ring goes from row to row at this point and its neighbours:
/// others' rings at others.
std::vector<Ring> with_line(const std::vector<Ring>& rings, const Ring& line) {
  std::vector<int> taken;
  const auto is_free = [&](int point) {
    return std::find(taken.begin(), taken.end(), point) == taken.end();
  };
  std::vector<Ring> longer;
  for (const Ring& ring : rings) {
    const std::size_t size = ring.size();
    std::size_t start = 0;
    const auto at = [&](std::size_t i) { return ring[(start + i) % size]; };
    while (start < size && !(is_free(at(0)) && is_free(at(1)) && is_free(at(size - 1)))) ++start;
    if (start == size) continue;
    taken.insert(taken.end(), {at(0), at(1), at(size - 1)});
    Ring grown;
    for (std::size_t row = 0; row < line.size(); ++row)
      for (std::size_t i = 1; i < size; ++i) grown.push_back(line[row] + at(row % 2 == 0 ? i : size - i));
    for (std::size_t row = line.size(); row-- > 0;) grown.push_back(line[row] + at(0));
    longer.push_back(std::move(grown));
  }
  return longer;
}

HamiltonianRings make_rings(const Grid& grid) {
  std::vector<Ring> factors, odd, even;  // rings; lines
  for (int d = 0; d < grid.dimensions(); ++d) {
    Ring side;
    for (int x = 0; x < grid.size(d); ++x) side.push_back(x * grid.stride(d));
    (is_ring(grid, d) ? factors : grid.size(d) % 2 != 0 ? odd : even).push_back(std::move(side));
  }
  std::vector<Ring> rings;
  if (grid.points() == 1) {
    rings = {{0}};
  } else if (grid.points() == 2) {
    rings = even;
  } else {
    while (!even.empty() && even.size() + odd.size() >= 2) {
      const Ring first = std::move(even.back());
      even.pop_back();
      std::vector<Ring>& rest = odd.empty() ? even : odd;
      factors.push_back(ring_of_lines(first, rest.back()));
      rest.pop_back();
    }
    // Shortest in front, so that the ring with which three are made of two is short.
    std::stable_sort(factors.begin(), factors.end(),
                     [](const Ring& a, const Ring& b) { return a.size() < b.size(); });
    rings = product_of(factors);
    for (const std::vector<Ring>* lines : {&even, &odd})
      for (const Ring& line : *lines) rings = with_line(rings, line);
  }
  HamiltonianRings made{std::move(rings), {}};
  for (const Ring& ring : made.rings) {
    std::vector<int>& index = made.index.emplace_back(static_cast<std::size_t>(grid.points()), 0);
    for (std::size_t i = 0; i < ring.size(); ++i) index[ring[i]] = static_cast<int>(i);
  }
  return made;
}

}  // namespace

std::string refuse_without_hamiltonian_rings(const Topology& topology, const Problem& problem) {
  if (std::string reason = refuse_without_grid(topology, problem); !reason.empty()) return reason;
  const Grid grid(topology);
  if (grid.points() <= 2) return {};
  bool any_ring = false, any_even = false;
  for (int d = 0; d < grid.dimensions(); ++d) {
    any_ring = any_ring || is_ring(grid, d);
    any_even = any_even || grid.size(d) % 2 == 0;
  }
  if (any_ring) return {};
  const std::string points = std::to_string(grid.points());
  if (grid.dimensions() == 1)
    return "needs a ring through all ranks, and a line of " + points + " has none";
  if (!any_even)
    return "needs a ring through all ranks, and a mesh of " + points + " points, an odd number, has none";
  return {};
}

std::shared_ptr<const HamiltonianRings> hamiltonian_rings(const Grid& grid) {
  // All ranks' programs, built one after the other for the simulator and the proof, have the same rings.
  thread_local std::vector<int> last_key;
  thread_local std::shared_ptr<const HamiltonianRings> last;
  std::vector<int> key;
  for (int d = 0; d < grid.dimensions(); ++d)
    key.insert(key.end(), {grid.size(d), is_ring(grid, d) ? 1 : 0});
  if (last == nullptr || key != last_key) {
    last = std::make_shared<const HamiltonianRings>(make_rings(grid));
    last_key = std::move(key);
  }
  return last;
}

}  // namespace tamaki
