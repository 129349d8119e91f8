#pragma once
// Ranks that are alike, simulated as one.
//
// Ranks, FIFOs and links are coloured so that
//   ranks of one colour have one shape and speed, and in each place of their lists FIFOs of one colour;
//   FIFOs of one colour come from ranks of one colour to ranks of one colour, in the same places of their
//   lists, with the same latency, over as many links of each colour; links of one colour have one capacity
//   and are crossed by as many FIFOs of each colour.
// Such a colouring is an equitable partition. Then things of one colour are in the same state at any time:
// the rates that are max-min fair among the colours are so among all (they are feasible, every flow has a
// bottleneck of its colour, and there is only one such allocation), so equal states stay equal. It is
// enough to simulate one rank and one FIFO of each colour, over one link of each colour that bears m flows
// for each of a colour's.
//
// The coarsest colouring is found by refinement: colours are hashes (64 bits) of own colour and neighbours'
// colours, until their number stays. A ring is one rank, the torus algorithms are one rank on a torus, and
// a chain has no two alike. Where fewer than half of the ranks are saved, each rank is a cell of its own.

#include <cstdint>
#include <vector>

#include "base/result.hpp"
#include "simulate/compiled.hpp"

namespace tamaki::simulation {

struct CellFifo {
  std::int32_t fifo = 0;  // one of them, in Compiled::fifos
  std::int32_t count = 1;
  double latency_s = 0;
  double eager = 0;              // messages of more bytes ask first; 0: none do
  bool inside = false;           // between ranks of one host, which takes no engine
  std::uint32_t first_link = 0;  // in Cells::route_links and route_times
  std::uint32_t links = 0;
};

struct Cells {
  std::vector<std::int32_t> rank;   // of each cell: one of its ranks
  std::vector<std::int32_t> count;  // of each cell: how many
  std::vector<std::int32_t> cell_of_rank;
  std::vector<std::int32_t> fifos;           // lists of cells, in `cell_fifos`
  std::vector<std::uint32_t> first_of_cell;  // in `fifos`, and the end
  std::vector<CellFifo> cell_fifos;
  std::vector<std::int32_t> route_links;     // colours of links
  std::vector<std::int32_t> route_times;     // flows on one such link for each of the colour's
  std::vector<double> capacity;              // of each colour of links
  std::vector<std::int32_t> colour_of_link;  // -1: nobody uses it
};

/// Errors: no route.
Result<Cells> make_cells(const Network& network, const Compiled& compiled, AlikeRanks ranks);

}  // namespace tamaki::simulation
