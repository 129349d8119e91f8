#include "simulate/cells.hpp"

#include <algorithm>
#include <bit>
#include <unordered_map>

#include "simulate/mix.hpp"

namespace tamaki::simulation {
namespace {

// Rounds of refinement; schedules that need more (chains) have nothing to merge.
constexpr int kRounds = 40;

/// Links of each FIFO.
struct Routes {
  std::vector<std::int32_t> links;
  std::vector<std::uint64_t> first;  // of each FIFO, and the end
  std::vector<double> latency_s, eager;
  std::vector<bool> inside;  // its host: no engine is in use
};

Result<Routes> find_routes(const Network& network, const Compiled& compiled) {
  Routes routes;
  const NetworkModel& model = network.model();
  Route route;
  for (const CompiledFifo& fifo : compiled.fifos) {
    if (Status found =
            network.route({fifo.source, fifo.destination, fifo.lane, fifo.receiver_lane}, &route);
        !found)
      return tl::unexpected<Error>(found.error());
    routes.first.push_back(routes.links.size());
    routes.links.insert(routes.links.end(), route.links.begin(), route.links.end());
    routes.latency_s.push_back(route.latency_s);
    routes.inside.push_back(route.inside);
    const bool asks = model.eager_bytes > 0 && !route.inside;
    routes.eager.push_back(asks ? model.eager_bytes + route.hops * model.eager_bytes_per_hop : 0);
  }
  routes.first.push_back(routes.links.size());
  return routes;
}

/// Numbers colours in order of first appearance. Returns how many there are.
std::int32_t number(const std::vector<std::uint64_t>& colours, std::vector<std::int32_t>* numbers) {
  std::unordered_map<std::uint64_t, std::int32_t> known;
  numbers->clear();
  for (const std::uint64_t colour : colours)
    numbers->push_back(known.try_emplace(colour, static_cast<std::int32_t>(known.size())).first->second);
  return static_cast<std::int32_t>(known.size());
}

class Refinement {
 public:
  Refinement(const Network& network, const Compiled& compiled, const Routes& routes)
      : network_(network),
        compiled_(compiled),
        routes_(routes),
        ranks_(compiled.shape_of_rank.size()),
        fifos_(compiled.fifos.size()),
        links_(static_cast<std::size_t>(network.links())) {
    for (std::size_t r = 0; r < ranks_.size(); ++r) ranks_[r] = first_colour(static_cast<std::int32_t>(r));
    for (std::size_t l = 0; l < links_.size(); ++l)
      links_[l] = std::bit_cast<std::uint64_t>(network.capacity(static_cast<std::int32_t>(l)));
    for (std::size_t f = 0; f < fifos_.size(); ++f)
      fifos_[f] = mix(std::bit_cast<std::uint64_t>(routes.latency_s[f]),
                      std::bit_cast<std::uint64_t>(routes.eager[f]), routes.inside[f] ? 1 : 0);
  }

  /// False: too little is alike.
  bool run() {
    std::size_t before = 0;
    for (int round = 0; round < kRounds; ++round) {
      refine();
      const auto rank_colours = static_cast<std::size_t>(number(ranks_, &rank_number));
      if (rank_colours * 2 > ranks_.size()) return false;
      const std::size_t colours = rank_colours + static_cast<std::size_t>(number(fifos_, &fifo_number)) +
                                  static_cast<std::size_t>(number(links_, &link_number));
      if (colours == before) return true;
      before = colours;
    }
    return false;
  }

  std::vector<std::int32_t> rank_number, fifo_number, link_number;

 private:
  std::uint64_t first_colour(std::int32_t rank) const {
    const auto shape = static_cast<std::size_t>(compiled_.shape_of_rank[static_cast<std::size_t>(rank)]);
    std::uint64_t colour = mix(shape, std::bit_cast<std::uint64_t>(network_.rank_speed(rank)), 1);
    // Which lanes share an engine.
    const auto lanes =
        static_cast<std::int32_t>(compiled_.shapes[shape].end_lane - compiled_.shapes[shape].first_lane);
    for (std::int32_t lane = 0; lane < lanes; ++lane) {
      std::int32_t same = 0;
      while (network_.engine(rank, same) != network_.engine(rank, lane)) ++same;
      colour = mix(colour, static_cast<std::uint64_t>(same), 2);
    }
    return colour;
  }

  void refine() {
    for (std::size_t f = 0; f < fifos_.size(); ++f) {
      const CompiledFifo& fifo = compiled_.fifos[f];
      std::uint64_t sum = 0;
      for (std::uint64_t i = routes_.first[f]; i < routes_.first[f + 1]; ++i)
        sum += mix(links_[static_cast<std::size_t>(routes_.links[i])]);
      fifos_[f] = mix(mix(fifos_[f], ranks_[static_cast<std::size_t>(fifo.source)],
                          static_cast<std::uint64_t>(fifo.sends)),
                      mix(sum, ranks_[static_cast<std::size_t>(fifo.destination)],
                          static_cast<std::uint64_t>(fifo.takes)),
                      3);
    }
    std::vector<std::uint64_t> crossing(links_.size());
    for (std::size_t f = 0; f < fifos_.size(); ++f)
      for (std::uint64_t i = routes_.first[f]; i < routes_.first[f + 1]; ++i)
        crossing[static_cast<std::size_t>(routes_.links[i])] += mix(fifos_[f]);
    for (std::size_t l = 0; l < links_.size(); ++l) links_[l] = mix(links_[l], crossing[l], 4);
    for (std::size_t r = 0; r < ranks_.size(); ++r)
      for (std::uint32_t i = compiled_.first_of_rank[r]; i < compiled_.first_of_rank[r + 1]; ++i)
        ranks_[r] = mix(ranks_[r], fifos_[static_cast<std::size_t>(compiled_.rank_fifos[i])], 5);
  }

  const Network& network_;
  const Compiled& compiled_;
  const Routes& routes_;
  std::vector<std::uint64_t> ranks_, fifos_, links_;  // colours
};

/// Every rank and FIFO by itself.
void keep_apart(const Network& network, const Compiled& compiled, Refinement* colours) {
  const auto count = [](std::vector<std::int32_t>* numbers, std::size_t n) {
    numbers->resize(n);
    for (std::size_t i = 0; i < n; ++i) (*numbers)[i] = static_cast<std::int32_t>(i);
  };
  count(&colours->rank_number, compiled.shape_of_rank.size());
  count(&colours->fifo_number, compiled.fifos.size());
  count(&colours->link_number, static_cast<std::size_t>(network.links()));
}

/// Cells of the colours. False: they are not equitable (two hashes fell together).
bool fill(const Network& network, const Compiled& compiled, const Routes& routes, const Refinement& colours,
          Cells* cells) {
  *cells = {};
  cells->cell_of_rank = colours.rank_number;
  for (std::size_t r = 0; r < colours.rank_number.size(); ++r) {
    const auto cell = static_cast<std::size_t>(colours.rank_number[r]);
    if (cell == cells->rank.size()) {
      cells->rank.push_back(static_cast<std::int32_t>(r));
      cells->count.push_back(0);
      cells->first_of_cell.push_back(static_cast<std::uint32_t>(cells->fifos.size()));
      for (std::uint32_t i = compiled.first_of_rank[r]; i < compiled.first_of_rank[r + 1]; ++i)
        cells->fifos.push_back(colours.fifo_number[static_cast<std::size_t>(compiled.rank_fifos[i])]);
    }
    ++cells->count[cell];
  }
  cells->first_of_cell.push_back(static_cast<std::uint32_t>(cells->fifos.size()));

  std::vector<std::uint8_t> used(colours.link_number.size());
  for (const std::int32_t link : routes.links) used[static_cast<std::size_t>(link)] = 1;
  std::vector<std::int32_t> compact, size;  // colours that are used
  cells->colour_of_link.assign(used.size(), -1);
  for (std::size_t l = 0; l < used.size(); ++l) {
    if (used[l] == 0) continue;
    const auto colour = static_cast<std::size_t>(colours.link_number[l]);
    if (compact.size() <= colour) compact.resize(colour + 1, -1);
    if (compact[colour] < 0) {
      compact[colour] = static_cast<std::int32_t>(size.size());
      size.push_back(0);
      cells->capacity.push_back(network.capacity(static_cast<std::int32_t>(l)));
    }
    cells->colour_of_link[l] = compact[colour];
    ++size[static_cast<std::size_t>(compact[colour])];
  }

  for (std::size_t f = 0; f < colours.fifo_number.size(); ++f) {
    const auto colour = static_cast<std::size_t>(colours.fifo_number[f]);
    if (colour == cells->cell_fifos.size())
      cells->cell_fifos.push_back({.fifo = static_cast<std::int32_t>(f),
                                   .count = 0,
                                   .latency_s = routes.latency_s[f],
                                   .eager = routes.eager[f],
                                   .inside = routes.inside[f]});
    ++cells->cell_fifos[colour].count;
  }
  std::vector<std::int32_t> crossed;
  for (CellFifo& fifo : cells->cell_fifos) {
    const auto f = static_cast<std::size_t>(fifo.fifo);
    crossed.clear();
    for (std::uint64_t i = routes.first[f]; i < routes.first[f + 1]; ++i)
      crossed.push_back(cells->colour_of_link[static_cast<std::size_t>(routes.links[i])]);
    std::sort(crossed.begin(), crossed.end());
    fifo.first_link = static_cast<std::uint32_t>(cells->route_links.size());
    for (std::size_t i = 0; i < crossed.size();) {
      std::size_t end = i;
      while (end < crossed.size() && crossed[end] == crossed[i]) ++end;
      const std::int64_t flows = static_cast<std::int64_t>(end - i) * fifo.count,
                         all = size[static_cast<std::size_t>(crossed[i])];
      if (flows % all != 0) return false;
      cells->route_links.push_back(crossed[i]);
      cells->route_times.push_back(static_cast<std::int32_t>(flows / all));
      i = end;
    }
    fifo.links = static_cast<std::uint32_t>(cells->route_links.size()) - fifo.first_link;
  }
  return true;
}

}  // namespace

Result<Cells> make_cells(const Network& network, const Compiled& compiled, AlikeRanks ranks) {
  const Result<Routes> routes = find_routes(network, compiled);
  if (!routes) return tl::unexpected<Error>(routes.error());
  Refinement colours(network, compiled, *routes);
  Cells cells;
  if (ranks == AlikeRanks::merge && colours.run() && fill(network, compiled, *routes, colours, &cells))
    return cells;
  keep_apart(network, compiled, &colours);
  fill(network, compiled, *routes, colours, &cells);
  return cells;
}

}  // namespace tamaki::simulation
