// tamaki topo: this machine or a described one, and a communicator on it.
#include <fmt/format.h>

#include <charconv>
#include <memory>

#include "arguments.hpp"
#include "command.hpp"
#include "output_file.hpp"
#include "simulate/parallel.hpp"
#include "topology/discover/discover.hpp"
#include "topology/draw.hpp"
#include "topology/machine.hpp"
#include "topology/parse/catalogue.hpp"
#include "topology/parse/description.hpp"
#include "topology/parse/nccl.hpp"
#include "topology/placement/files.hpp"
#include "topology/placement/groups.hpp"
#include "topology/recognize.hpp"

namespace tamaki::tools {
namespace {

struct TopoArguments {
  std::string machine, placement, members, parallel, parallel_order = "tp-dp-pp", order = "slot",
                                                     colour = "tp";
  std::string svg, json, xml, vcoord, rankfile, hostlist;
  int ranks = 0;
  bool list = false, sources = false, all = false;
};

constexpr std::int32_t kMostListedRanks = 64;

constexpr const char* kFooter = R"(
MACHINE is one of
  torus:8x8x8 mesh:4x4 torus:4x4x2m   a host at each point; m: no wrap in that dimension, t: wrap
  hosts:4x2                           4 hosts of 2 ranks behind one switch
  rails:100x8                         100 hosts of 8 GPUs and 8 NICs, rail-optimized
  NAME or NAME:SHAPE                  a description (--list): fugaku:48x6x48, sakuraone, eos:32
  a path                              with a '/', or ending in .json or .xml: a description, hwloc
                                      XML (lstopo --of xml) or an NCCL topology file
and without it, what is found on this machine.

Examples:
  tamaki topo                                    this machine
  tamaki topo --svg here.svg --xml nccl.xml      drawn, and as NCCL_TOPO_FILE
  tamaki topo fugaku:48x6x48 --sources           with the source of every figure
  tamaki topo torus:8x8x8 --members 0-7,64-71 --svg part.svg
  tamaki topo fugaku:48x6x48 --parallel 6x8x288 --colour tp --svg groups.svg
  tamaki topo fugaku:8x8x8 --order first --vcoord vcoord.txt
  tamaki topo hosts:4x2 --placement rankfile.txt

Exit status: 0 in order, 2 wrong usage (also: a description that is refused), 3 a file cannot be
read or written, or this machine cannot be read.)";

/// "0-7,64-71,3" -> ranks in that order.
Result<std::vector<std::int32_t>> parse_members(const std::string& text, std::int32_t ranks) {
  std::vector<std::int32_t> members;
  std::vector<bool> taken(static_cast<std::size_t>(ranks));
  const auto wrong = [&](const std::string& why) {
    return fail(Code::invalid_argument, fmt::format("--members \"{}\": {}", text, why));
  };
  for (const std::string& item : split_list(text)) {
    std::int32_t first = 0, last = 0;
    const char* end = item.data() + item.size();
    auto [at, error] = std::from_chars(item.data(), end, first);
    last = first;
    if (error == std::errc() && at != end && *at == '-') {
      const auto second = std::from_chars(at + 1, end, last);
      at = second.ptr;
      error = second.ec;
    }
    if (error != std::errc() || at != end)
      return wrong(fmt::format("\"{}\" is no rank or range, as 3 or 0-7", item));
    if (first < 0 || last < first || last >= ranks)
      return wrong(fmt::format("{} is not in 0..{}", item, ranks - 1));
    for (std::int32_t rank = first; rank <= last; ++rank) {
      if (taken[static_cast<std::size_t>(rank)]) return wrong(fmt::format("rank {} is there twice", rank));
      taken[static_cast<std::size_t>(rank)] = true;
      members.push_back(rank);
    }
  }
  if (members.empty()) return wrong("names no rank");
  return members;
}

Result<Placement> placement_of(const TopoArguments& a, const Machine& machine) {
  if (!a.placement.empty()) return read_placement(machine, a.placement);
  const auto order = a.order == "slot"   ? RankOrder::by_slot
                     : a.order == "host" ? RankOrder::by_host
                                         : RankOrder::first_dimension_fastest;
  const std::int64_t most = machine.slots();
  if (a.ranks == 0 && most > kMostPlacedRanks)
    return fail(Code::invalid_argument, fmt::format("{} has {} slots; give --ranks", machine.name, most));
  return place(machine, a.ranks > 0 ? a.ranks : static_cast<std::int32_t>(most), order);
}

std::string place_text(const Machine& machine, std::int32_t rank, const Place& place) {
  std::string text = fmt::format("  {:>6}  {:<12}", rank, host_name(machine, place.host));
  if (machine.torus() != nullptr)
    text += fmt::format("  ({})", fmt::join(machine.torus()->logical_coordinates(place.host), ","));
  if (machine.torus() != nullptr && !machine.torus()->logical.empty())
    text += fmt::format("  physical ({})", fmt::join(machine.torus()->coordinates(place.host), ","));
  if (place.numa >= 0) text += fmt::format("  numa {}", place.numa);
  if (place.gpu >= 0) text += fmt::format("  gpu {}", place.gpu);
  if (place.nic >= 0) text += fmt::format("  nic {}", place.nic);
  return text + "\n";
}

/// What is printed of a communicator: what it was recognized as, and where its ranks are.
std::string communicator_text(const Machine& machine, const Placement& placement, bool all) {
  const Recognized found = recognize(machine, placement);
  std::string text = fmt::format("communicator: {} rank{}: {}\n", placement.size(),
                                 placement.size() == 1 ? "" : "s", found.what);
  text += fmt::format("  ports a rank: {}\n", found.topology.ports);
  const std::int32_t shown = all ? placement.size() : std::min(placement.size(), kMostListedRanks);
  for (std::int32_t rank = 0; rank < shown; ++rank)
    text += place_text(machine, rank, placement.ranks[static_cast<std::size_t>(rank)]);
  if (shown < placement.size()) text += fmt::format("  and {} more (--all)\n", placement.size() - shown);
  return text;
}

std::string sources_text(const Machine& machine) {
  constexpr const char* kKinds[] = {"source", "assumption", "fit"};
  std::string text = "sources:\n";
  for (const Note& note : machine.notes.list)
    text += fmt::format("  {:<32} {}: {}\n", note.field.empty() ? "machine" : note.field,
                        kKinds[static_cast<int>(note.kind)], note.text);
  if (machine.notes.list.empty()) text += "  none are given\n";
  return text;
}

/// Group number of each rank among those of a kind.
std::vector<std::int32_t> group_numbers(const std::vector<std::vector<std::int32_t>>& groups,
                                        std::int32_t ranks) {
  std::vector<std::int32_t> number(static_cast<std::size_t>(ranks), 0);
  for (std::size_t g = 0; g < groups.size(); ++g)
    for (const std::int32_t rank : groups[g])
      number[static_cast<std::size_t>(rank)] = static_cast<std::int32_t>(g);
  return number;
}

std::string list_text() {
  std::string text;
  for (const std::string& name : description_names()) {
    const Result<Machine> machine = machine_from(name);
    text += machine ? fmt::format("{:<12} {} hosts, {} slots\n", name, machine->hosts, machine->slots())
                    : fmt::format("{:<12} {}\n", name, machine.error().message);
  }
  return text;
}

struct Output {
  const char* option;
  const std::string& path;
  OutputFile file = {};
};

int show(const TopoArguments& a) {
  if (a.list) {
    fmt::print("{}", list_text());
    return kOk;
  }
  Output outputs[] = {{"--svg", a.svg},       {"--json", a.json},         {"--xml", a.xml},
                      {"--vcoord", a.vcoord}, {"--rankfile", a.rankfile}, {"--hostlist", a.hostlist}};
  bool to_stdout = false;
  for (Output& output : outputs) {
    if (Status opened = output.file.open(output.option, output.path); !opened)
      return report_error("topo", opened.error());
    if (output.path == "-" && to_stdout)
      return report_error("topo", {Code::invalid_argument, Scope::request, "two outputs to stdout"});
    to_stdout = to_stdout || output.path == "-";
  }
  const Result<Machine> machine = a.machine.empty() ? this_machine() : machine_from(a.machine);
  if (!machine) return report_error("topo", machine.error());

  const bool placed = a.ranks > 0 || !a.placement.empty() || !a.members.empty() || !a.parallel.empty() ||
                      !a.vcoord.empty() || !a.rankfile.empty() || !a.hostlist.empty();
  Placement placement;
  MachinePicture picture;
  std::string text = describe(*machine);
  text += fmt::format("  hash {:016x}\n", hash_of(*machine));
  if (placed) {
    Result<Placement> whole = placement_of(a, *machine);
    if (!whole) return report_error("topo", whole.error());
    placement = std::move(*whole);
    if (!a.members.empty()) {
      const Result<std::vector<std::int32_t>> members = parse_members(a.members, placement.size());
      if (!members) return report_error("topo", members.error());
      placement = restrict_to(placement, *members);
    }
    if (!a.parallel.empty()) {
      const Result<ParallelSizes> sizes = parse_parallel(a.parallel);
      if (!sizes) return report_error("topo", sizes.error());
      if (sizes->ranks() != placement.size())
        return report_error("topo", {Code::invalid_argument, Scope::request,
                                     fmt::format("--parallel {} are {} ranks; {} are placed", a.parallel,
                                                 sizes->ranks(), placement.size())});
      const Result<ParallelGroups> groups = parallel_groups(*sizes, a.parallel_order);
      if (!groups) return report_error("topo", groups.error());
      const Result<std::string> described = describe_groups(*machine, placement, *groups);
      if (!described) return report_error("topo", described.error());
      text += *described;
      const auto& chosen = a.colour == "pp" ? groups->pp : a.colour == "dp" ? groups->dp : groups->tp;
      picture.colour_of_rank = group_numbers(chosen, placement.size());
    }
    text += communicator_text(*machine, placement, a.all);
    picture.placement = placement;
  }
  if (a.sources) text += sources_text(*machine);
  for (Output& output : outputs) {
    if (output.path.empty()) continue;
    const std::string_view option = output.option;
    const Status written =
        output.file.write(option == "--svg"        ? draw_machine(*machine, picture)
                          : option == "--json"     ? machine_to_json(*machine)
                          : option == "--xml"      ? machine_to_nccl_xml(*machine)
                          : option == "--vcoord"   ? placement_to_vcoord(*machine, placement)
                          : option == "--rankfile" ? placement_to_rankfile(*machine, placement)
                                                   : placement_to_hostlist(*machine, placement));
    if (!written) return report_error("topo", written.error());
  }
  if (!to_stdout) fmt::print("{}", text);
  return kOk;
}

}  // namespace

void add_topo(CLI::App& app, int* status) {
  auto a = std::make_shared<TopoArguments>();
  CLI::App* sub = app.add_subcommand("topo", "Show this machine or a described one, and ranks on it");
  sub->footer(kFooter);
  auto* machine = sub->add_option("machine", a->machine, "what to show; see below")->check(not_empty());
  auto* ranks = sub->add_option("-n,--ranks", a->ranks, "place this many ranks")
                    ->transform(whole_number(1, kMostRanks));
  sub->add_option("--order", a->order,
                  "slot: fill hosts in turn; host: one rank a host, round and round; first: along the "
                  "first dimension of a torus, as Fujitsu MPI")
      ->check(CLI::IsMember({"slot", "host", "first"}))
      ->capture_default_str();
  sub->add_option("--placement", a->placement,
                  "place ranks as a file says: Fujitsu vcoord, Open MPI rankfile or Slurm host list")
      ->check(not_empty())
      ->excludes(ranks);
  sub->add_option("--members", a->members, "only these ranks, as 0-7,64-71: a communicator of them")
      ->check(not_empty());
  auto* parallel = sub->add_option("--parallel", a->parallel, "TPxPPxDP: where the groups of training lie")
                       ->check(not_empty());
  sub->add_option("--parallel-order", a->parallel_order, "the three from fastest to slowest in the rank")
      ->check(not_empty())
      ->capture_default_str()
      ->needs(parallel);
  sub->add_option("--colour", a->colour, "groups that the picture tells apart: tp, pp or dp")
      ->check(CLI::IsMember({"tp", "pp", "dp"}))
      ->needs(parallel);
  sub->add_flag("--all", a->all, "list every rank, not only the first 64");
  sub->add_flag("--sources", a->sources, "where each figure comes from");
  sub->add_flag("--list", a->list, "the descriptions there are")->excludes(machine);
  const auto output = [&](const char* name, std::string* path, const char* help) {
    sub->add_option(name, *path, help)->check(not_empty());
  };
  output("--svg", &a->svg, "draw it (file, or - for stdout, as for all that follow)");
  output("--json", &a->json, "the description");
  output("--xml", &a->xml, "the first host as an NCCL topology file");
  output("--vcoord", &a->vcoord, "the placement for Fujitsu MPI");
  output("--rankfile", &a->rankfile, "the placement for Open MPI");
  output("--hostlist", &a->hostlist, "the placement for Slurm (SLURM_HOSTFILE)");
  sub->callback([=] { *status = show(*a); });
}

}  // namespace tamaki::tools
