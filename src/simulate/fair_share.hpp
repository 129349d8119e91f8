#pragma once
// Max-min fair rates of flows over links, kept up to date as flows come and go.
//
// An allocation is max-min fair when no link carries more than its capacity and every flow has a
// bottleneck: a link of its route that is full and on which no flow is faster (Bertsekas and Gallager, Data
// Networks, 2nd ed., 6.5.2). It is unique. Progressive filling finds it: all rates grow together, and those
// of a link stop when it is full.
//
// A change concerns few flows as a rule. solve() fills anew only a set S of flows, with all others kept as
// they are: first those that came and those whose bottleneck was a link of a flow that came or went. Then
// it looks on the links of S for flows outside of S that have lost their bottleneck or that are faster than
// a flow of S that is held back there, takes them into S and fills again. When there are none left, every
// flow has a bottleneck, so the result is the one that filling everything would give.

#include <cstdint>
#include <span>
#include <vector>

namespace tamaki::simulation {

class FairShare {
 public:
  /// A link of `capacity` bytes (or any unit) a second, > 0. Returns its number, counted from 0.
  std::int32_t add_link(double capacity);
  /// A route that flows take; it has none at first. `links`: different ones, at least one. `times` (empty:
  /// all 1): how often the rate of a flow counts on each of them, for links that stand for several. Returns
  /// the group's number, counted from 0.
  std::int32_t add_group(std::span<const std::int32_t> links, std::span<const std::int32_t> times = {});
  /// The group now has that many flows. Rates follow at solve().
  void set_flows(std::int32_t group, std::int32_t flows) {
    groups_[static_cast<std::size_t>(group)].flows = flows;
    mark(group);
  }
  std::int32_t flows(std::int32_t group) const { return groups_[static_cast<std::size_t>(group)].flows; }
  /// Rate of each flow of the group, as of the last solve() with flows.
  double rate(std::int32_t group) const { return rate_[static_cast<std::size_t>(group)]; }
  std::span<const std::int32_t> links(std::int32_t group) const {
    const Group& g = groups_[static_cast<std::size_t>(group)];
    return {route_.data() + g.first, static_cast<std::size_t>(g.hops)};
  }
  std::span<const std::int32_t> times(std::int32_t group) const {
    const Group& g = groups_[static_cast<std::size_t>(group)];
    return {times_.data() + g.first, static_cast<std::size_t>(g.hops)};
  }
  double capacity(std::int32_t link) const { return capacity_[static_cast<std::size_t>(link)]; }
  std::size_t link_count() const { return capacity_.size(); }
  std::size_t group_count() const { return groups_.size(); }

  /// Brings all rates up to date. The groups with flows whose rate is another than before (or had none);
  /// valid until the next call.
  std::span<const std::int32_t> solve();
  /// Flows that were filled by all solve() so far, those filled again counted again: the work done.
  std::int64_t filled() const { return filled_; }
  bool dirty() const { return !dirty_.empty(); }

 private:
  struct Group {
    std::uint32_t first = 0;  // in route_ and position_
    std::int32_t hops = 0;
    std::int32_t flows = 0;
    std::int32_t placed = 0;       // flows that the rates count; > 0: the group is on its links' lists
    std::int32_t bottleneck = -1;  // link
    std::int32_t narrowest = -1;   // link that holds the group back when it is alone
    double alone_rate = 0;         // of one flow, then
    bool alone = false;            // it has flows, and its links to itself; on no lists
    std::uint32_t in_set = 0;      // == stamp_: in S
    bool marked = false;           // in dirty_
  };
  struct Member {
    std::int32_t group = 0;
    std::uint32_t slot = 0;  // in route_: which hop of the group this is
    std::int32_t times = 1;
  };
  struct Share {  // of a link that S uses
    std::int32_t link = 0;
    std::int64_t flows = 0;  // of S, not yet held back; each counted `times` times
    double rest = 0;         // capacity that is left for them
    double level() const { return rest > 0 ? rest / static_cast<double>(flows) : 0; }
  };

  void mark(std::int32_t group) {
    Group& g = groups_[static_cast<std::size_t>(group)];
    if (!g.marked) g.marked = true, dirty_.push_back(group);
  }
  bool enter_alone(std::int32_t group);
  void leave_alone(std::int32_t group);
  void admit(std::int32_t group);
  void place(std::int32_t group);
  void remove(std::int32_t group);
  void take_in(std::int32_t group);
  void take_in_held_by(std::int32_t link);
  void gather_shares();
  void fill();
  void hold_back(std::size_t share, double level);
  void fill_by_heap(std::vector<std::int32_t>* live);
  bool take_in_wronged();

  std::vector<double> capacity_;
  struct Users {
    std::int32_t alone =
        -1;  // the one group that has flows on the link, if it is alone on all of its links
    std::int32_t listed = 0;  // size of members_
  };
  std::vector<Users> users_;  // of each link
  std::vector<std::vector<Member>>
      members_;  // of each link: groups that have flows on it and are not alone
  std::vector<Group> groups_;
  std::vector<double> rate_, old_rate_;
  std::vector<std::int32_t> route_;      // links, group after group
  std::vector<std::int32_t> times_;      // beside route_
  std::vector<std::uint32_t> position_;  // beside route_: where the group is in members_ of that link
  std::vector<std::int32_t> dirty_, set_, changed_, comers_, shared_;
  std::vector<std::uint8_t> held_;  // of each group: its rate is found (meaningful in S while filling)
  std::vector<Share> shares_;
  std::vector<std::int32_t> share_of_link_;  // valid where link_stamp_ == fill_stamp_
  std::vector<std::uint32_t> link_stamp_;
  std::uint32_t stamp_ = 0, fill_stamp_ = 0;
  std::int64_t filled_ = 0;
};

}  // namespace tamaki::simulation
