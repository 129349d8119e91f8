// Reading a description.
#include "topology/parse/description.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "topology/parse/catalogue.hpp"
#include "topology/parse/document.hpp"

namespace tamaki {
namespace {

constexpr const char* kFormat = "tamaki-machine-1";
constexpr std::int32_t kMostRepeats = kMostParts;

/// "gpu:3" -> part. False where it is none.
bool parse_part(std::string_view text, Part* part) {
  const std::size_t colon = text.find(':');
  if (colon == std::string_view::npos) return false;
  for (const auto kind : {Part::Kind::numa, Part::Kind::gpu, Part::Kind::nic, Part::Kind::hub})
    if (text.substr(0, colon) == name_of(kind)) {
      part->kind = kind;
      const std::string_view number = text.substr(colon + 1);
      const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), part->index);
      return error == std::errc() && end == number.data() + number.size();
    }
  return false;
}

/// "switch:3", "host:12" or "host:12:1" (its NIC 1).
bool parse_end(std::string_view text, Graph::End* end) {
  *end = {};
  const auto number = [&](std::int32_t* value) {
    const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
    text.remove_prefix(static_cast<std::size_t>(stop - text.data()));
    return error == std::errc();
  };
  if (text.starts_with("switch:")) {
    end->is_switch = true;
    text.remove_prefix(7);
    return number(&end->index) && text.empty();
  }
  if (!text.starts_with("host:")) return false;
  text.remove_prefix(5);
  if (!number(&end->index)) return false;
  if (text.empty()) return true;
  if (text.front() != ':') return false;
  text.remove_prefix(1);
  return number(&end->nic) && text.empty();
}

template <class Enum>
Enum named(JsonField& field, std::string_view name, Enum otherwise,
           std::initializer_list<std::pair<const char*, Enum>> names) {
  const std::string text = field.text(name, std::string());
  if (!field.has(name)) return otherwise;
  std::string known;
  for (const auto& [own, value] : names) {
    if (text == own) return value;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", own);
  }
  field.fail(fmt::format("{} is no {}; there are {}", json_quote(text), name, known));
  return otherwise;
}

/// Two ends out of "between": ["gpu:0", "hub:0"].
template <class End>
bool read_ends(JsonField& field, End* a, End* b, bool (*parse)(std::string_view, End*),
               const char* example) {
  const std::vector<std::string> ends = field.texts("between");
  if (ends.size() == 2 && parse(ends[0], a) && parse(ends[1], b)) return true;
  field.fail(fmt::format("\"between\" must be two ends, as {}", example));
  return false;
}

/// Calls read(field) for each item of a list, and keeps "repeat" copies of what it gives.
template <class Item, class Read>
void read_items(JsonReading& reading, JsonField& parent, const char* name, std::vector<Item>* items,
                Read read) {
  if (parent.has(name)) items->clear();
  for (JsonField& field : parent.list(name)) {
    if (reading.failed() || !field.expect_object()) return;
    const std::int32_t repeat = field.integer("repeat", 1);
    const std::size_t first_note = reading.notes().size();
    const Item item = read(field);
    field.finish();
    // Notes are of the items as they will be, with all copies.
    for (std::size_t i = first_note; i < reading.notes().size(); ++i) {
      std::string& at = reading.notes()[i].field;
      at = fmt::format("{}.{}[{}]{}", parent.path(), name, items->size(), at.substr(field.path().size()));
    }
    if (repeat < 1 || repeat > kMostRepeats ||
        items->size() + static_cast<std::size_t>(repeat) > 8 * kMostParts)
      return field.fail(fmt::format("repeat {}: there may be 1..{}", repeat, kMostRepeats));
    items->insert(items->end(), static_cast<std::size_t>(repeat), item);
  }
}

void read_parts(JsonReading& r, JsonField& f, HostKind* kind) {
  read_items(r, f, "sockets", &kind->sockets, [](JsonField& s) { return CpuSocket{s.text("model", "")}; });
  read_items(r, f, "numa", &kind->numa, [](JsonField& n) {
    return NumaDomain{n.integer("socket", 0), n.integer("cores", 1), n.bytes("memory_bytes", 0),
                      n.rate("memory_bandwidth", 0)};
  });
  read_items(r, f, "gpus", &kind->gpus, [](JsonField& g) {
    return Gpu{
        g.text("model", ""),        g.integer("numa", -1),         g.text("pci", ""),
        g.bytes("memory_bytes", 0), g.rate("memory_bandwidth", 0), g.integer("compute_capability", 0)};
  });
  read_items(r, f, "nics", &kind->nics, [](JsonField& n) {
    return Nic{n.text("name", ""),     n.integer("numa", -1),     n.text("pci", ""),
               n.rate("bandwidth", 0), n.seconds("latency_s", 0), n.integer("rail", -1),
               n.integer("gpu", -1)};
  });
  read_items(r, f, "hubs", &kind->hubs, [](JsonField& h) {
    return Hub{
        named(h, "kind", Hub::Kind::pcie, {{"pcie", Hub::Kind::pcie}, {"nvswitch", Hub::Kind::nvswitch}}),
        h.text("pci", "")};
  });
  read_items(r, f, "links", &kind->links, [](JsonField& l) {
    PartLink link;
    read_ends(l, &link.a, &link.b, parse_part, R"(["gpu:0", "hub:1"])");
    link.bandwidth = l.rate("bandwidth", 0);
    link.latency_s = l.seconds("latency_s", 0);
    using Kind = PartLink::Kind;
    link.kind = named(l, "kind", Kind::other,
                      {{"memory", Kind::memory},
                       {"pcie", Kind::pcie},
                       {"nvlink", Kind::nvlink},
                       {"processor", Kind::processor},
                       {"other", Kind::other}});
    return link;
  });
}

/// Reads `like` (a name of the catalogue, or a path) and takes its first host kind.
void read_like(JsonReading& r, JsonField& field, const std::string& like, std::vector<std::string>* chain,
               HostKind* kind) {
  if (std::find(chain->begin(), chain->end(), like) != chain->end())
    return field.fail(fmt::format("\"like\" goes in a circle: {} -> {}", fmt::join(*chain, " -> "), like));
  Result<std::optional<FoundDescription>> found = find_description(like);
  if (!found) return field.fail(found.error().message);
  if (!*found)
    return field.fail(fmt::format("\"like\": there is no description \"{}\"; there are {}", like,
                                  fmt::join(description_names(), ", ")));
  chain->push_back(like);
  Result<Machine> other = read_description((*found)->text, (*found)->file, {}, chain);
  chain->pop_back();
  if (!other) return field.fail(other.error().message);
  *kind = other->kinds[0];
  const std::string from = other->kinds.size() == 1 ? "host" : "kinds[0]";
  for (const Note& note : other->notes.list) {
    if (!note.field.starts_with(from)) continue;
    const std::string part = note.field.size() > from.size() ? note.field.substr(from.size() + 1) : "";
    if (!field.has(part.substr(0, part.find('['))))  // that list is given here
      r.notes().push_back({field.path() + note.field.substr(from.size()), note.kind, note.text});
  }
}

HostKind read_kind(JsonReading& r, JsonField& f, std::vector<std::string>* chain) {
  HostKind kind;
  if (f.has("like")) read_like(r, f, f.text("like"), chain, &kind);
  kind.name = f.text("name", kind.name);
  kind.slots = f.integer("slots", kind.slots);
  read_parts(r, f, &kind);
  f.finish();
  return kind;
}

std::string sizes_text(std::span<const std::int32_t> sizes) {
  return fmt::format("{}", fmt::join(sizes, "x"));
}

/// "24x23x24" -> sizes; empty where it is none.
std::vector<std::int32_t> parse_sizes(std::string_view text) {
  std::vector<std::int32_t> sizes;
  while (true) {
    std::int32_t size = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), size);
    if (error != std::errc() || size < 1) return {};
    sizes.push_back(size);
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    if (text.empty()) return sizes;
    if (text.front() != 'x') return {};
    text.remove_prefix(1);
  }
}

std::int32_t axis_named(const Torus& torus, const std::string& name) {
  for (std::size_t d = 0; d < torus.axes.size(); ++d)
    if (torus.axes[d].name == name) return static_cast<std::int32_t>(d);
  return -1;
}

void read_axes(JsonReading& r, JsonField& f, std::span<const std::int32_t> shape, Torus* torus) {
  for (JsonField& item : f.list("axes")) {
    if (r.failed() || !item.expect_object()) return;
    torus->axes.push_back({item.text("name", ""), item.integer("size"), item.boolean("wraps", true)});
    item.finish();
  }
  if (torus->axes.empty()) return f.fail("a torus needs \"axes\"");
  for (JsonField& item : f.list("logical")) {
    if (r.failed() || !item.expect_object()) return;
    LogicalAxis axis;
    for (const std::string& name : item.texts("axes")) {
      axis.axes.push_back(axis_named(*torus, name));
      if (axis.axes.back() < 0) item.fail(fmt::format("there is no axis {}", json_quote(name)));
    }
    for (const JsonField& point : item.list("points")) axis.points.push_back(point.as_integers());
    axis.wraps = item.boolean("wraps", true);
    item.finish();
    torus->logical.push_back(std::move(axis));
  }
  if (shape.empty()) return;
  if (!torus->logical.empty()) return f.fail("this torus has an embedding and takes no other shape");
  if (shape.size() != torus->axes.size())
    return f.fail(fmt::format("the shape {} has {} dimensions, the torus {}", sizes_text(shape),
                              shape.size(), torus->axes.size()));
  for (std::size_t d = 0; d < shape.size(); ++d) torus->axes[d].size = shape[d];
}

void read_torus(JsonReading& r, JsonField& f, bool tofu, std::span<const std::int32_t> shape,
                Torus* torus) {
  if (tofu) {
    const std::vector<std::int32_t> machine = parse_sizes(f.text("machine"));
    const std::vector<std::int32_t> own = parse_sizes(f.text("shape"));
    if (machine.size() != 3 || own.empty())
      return f.fail("\"machine\" and \"shape\" must be sizes, as \"24x23x24\"");
    Result<Torus> made = tofu_torus(shape.empty() ? std::span<const std::int32_t>(own) : shape, machine);
    if (!made) return f.fail(made.error().message);
    *torus = std::move(*made);
  } else {
    read_axes(r, f, shape, torus);
    torus->routing =
        named(f, "routing", Torus::Routing::dimension_order,
              {{"dimension_order", Torus::Routing::dimension_order}, {"tofu", Torus::Routing::tofu}});
  }
  torus->link_bandwidth = f.rate("link_bandwidth", torus->link_bandwidth);
  torus->engines = f.integer("engines", torus->engines);
  torus->engine_bandwidth = f.rate("engine_bandwidth", 0);
  torus->injection_bandwidth = f.rate("injection_bandwidth", 0);
  torus->hop_latency_s = f.seconds("hop_latency_s", 0);
}

void read_leaf_spine(JsonReading& r, JsonField& f, LeafSpine* fabric) {
  fabric->nics_per_host = f.integer("nics_per_host");
  fabric->rail_optimized = f.boolean("rail_optimized", true);
  fabric->hosts_per_pod = f.integer("hosts_per_pod");
  fabric->spines = f.integer("spines");
  fabric->nic_bandwidth = f.rate("nic_bandwidth", fabric->nic_bandwidth);
  if (f.has("uplink_bandwidth") == f.has("oversubscription"))
    return f.fail("one of \"uplink_bandwidth\" and \"oversubscription\" must be there");
  if (f.has("oversubscription")) {
    const double over = f.share("oversubscription", 1);
    if (!(over > 0 && over <= 1e6))
      return f.fail(fmt::format("oversubscription {} is not in (0, 1000000]", over));
    fabric->uplink_bandwidth = 1;
    fabric->uplink_bandwidth = fabric->oversubscription() / over;
    for (Note& note : r.notes())
      if (note.field == f.path() + ".oversubscription") note.field = f.path() + ".uplink_bandwidth";
  } else {
    f.share("oversubscription", 1);
    fabric->uplink_bandwidth = f.rate("uplink_bandwidth", 0);
  }
  fabric->nic_latency_s = f.seconds("nic_latency_s", 0);
  fabric->uplink_latency_s = f.seconds("uplink_latency_s", 0);
}

void read_graph(JsonReading& r, JsonField& f, Graph* graph) {
  graph->switches = f.integer("switches");
  for (JsonField& item : f.list("cables")) {
    if (r.failed() || !item.expect_object()) return;
    Graph::Cable cable;
    read_ends(item, &cable.a, &cable.b, parse_end,
              R"(["host:0", "switch:1"] or ["host:0:1", ...] for NIC 1)");
    cable.bandwidth = item.rate("bandwidth", 0);
    cable.latency_s = item.seconds("latency_s", 0);
    item.finish();
    graph->cables.push_back(cable);
  }
}

enum class FabricKind { none, crossbar, torus, tofu, leaf_spine, graph };

void read_fabric(JsonReading& r, JsonField& f, std::span<const std::int32_t> shape, Machine* m) {
  const auto kind = named(f, "kind", FabricKind::none,
                          {{"switch", FabricKind::crossbar},
                           {"torus", FabricKind::torus},
                           {"tofu", FabricKind::tofu},
                           {"leaf_spine", FabricKind::leaf_spine},
                           {"graph", FabricKind::graph}});
  if (r.failed()) return;
  switch (kind) {
    case FabricKind::none:
      return f.fail("field \"kind\" is missing");
    case FabricKind::crossbar: {
      Crossbar fabric;
      fabric.link_bandwidth = f.rate("link_bandwidth", fabric.link_bandwidth);
      fabric.link_latency_s = f.seconds("link_latency_s", 0);
      m->fabric = fabric;
      break;
    }
    case FabricKind::torus:
    case FabricKind::tofu: {
      Torus fabric;
      read_torus(r, f, kind == FabricKind::tofu, shape, &fabric);
      m->fabric = std::move(fabric);
      break;
    }
    case FabricKind::leaf_spine: {
      LeafSpine fabric;
      read_leaf_spine(r, f, &fabric);
      m->fabric = fabric;
      break;
    }
    case FabricKind::graph: {
      Graph fabric;
      read_graph(r, f, &fabric);
      m->fabric = std::move(fabric);
      break;
    }
  }
  f.finish();
}

NetworkModel read_model(JsonField& f) {
  NetworkModel m;
  m.startup_s = f.seconds("startup_s", m.startup_s);
  m.send_overhead_s = f.seconds("send_overhead_s", m.send_overhead_s);
  m.receive_overhead_s = f.seconds("receive_overhead_s", m.receive_overhead_s);
  m.eager_bytes = f.bytes("eager_bytes", m.eager_bytes);
  m.eager_bytes_per_hop = f.bytes("eager_bytes_per_hop", m.eager_bytes_per_hop);
  m.eager_bandwidth = f.rate("eager_bandwidth", m.eager_bandwidth);
  m.rendezvous_s = f.seconds("rendezvous_s", m.rendezvous_s);
  m.link_efficiency = f.share("link_efficiency", m.link_efficiency);
  m.injection_efficiency = f.share("injection_efficiency", m.injection_efficiency);
  m.reduce_bandwidth = f.rate("reduce_bandwidth", m.reduce_bandwidth);
  m.copy_bandwidth = f.rate("copy_bandwidth", m.copy_bandwidth);
  m.step_s = f.seconds("step_s", m.step_s);
  m.inside_startup_s = f.seconds("inside_startup_s", m.inside_startup_s);
  m.inside_bandwidth = f.rate("inside_bandwidth", m.inside_bandwidth);
  m.inside_copy_bandwidth = f.rate("inside_copy_bandwidth", m.inside_copy_bandwidth);
  f.finish();
  return m;
}

void read_hosts(JsonReading& r, JsonField& f, std::span<const std::int32_t> shape,
                std::vector<std::string>* chain, Machine* m) {
  m->hosts = f.integer("hosts", 1);
  const bool torus = m->torus() != nullptr;
  if (torus && m->torus()->hosts() <= kMostHosts && (!f.has("hosts") || !shape.empty()))
    m->hosts = static_cast<std::int32_t>(m->torus()->hosts());
  if (!torus && !shape.empty()) {
    if (shape.size() != 1)
      return f.fail(fmt::format("the shape {} has {} sizes; this machine takes one, its hosts",
                                sizes_text(shape), shape.size()));
    m->hosts = shape[0];
  }
  if (f.has("host") && f.has("kinds")) return f.fail("one of \"host\" and \"kinds\" can be there");
  JsonField host = f.object("host");
  if (f.has("host") && !r.failed()) m->kinds = {read_kind(r, host, chain)};
  if (f.has("kinds")) m->kinds.clear();
  for (JsonField& kind : f.list("kinds")) {
    if (r.failed() || !kind.expect_object()) return;
    m->kinds.push_back(read_kind(r, kind, chain));
  }
  m->kind_of_host = f.integers("kind_of_host");
  m->host_names = f.texts("host_names");
}

}  // namespace

std::string_view name_of(Part::Kind kind) {
  constexpr std::string_view kNames[] = {"numa", "gpu", "nic", "hub"};
  return kNames[static_cast<int>(kind)];
}

Result<Machine> read_description(std::string_view text, std::string_view file,
                                 std::span<const std::int32_t> shape, std::vector<std::string>* chain) {
  Result<JsonValue> root = parse_json(text, file);
  if (!root) return pass(std::move(root));
  if (root->type != JsonValue::Type::object)
    return fail(Code::invalid_argument,
                fmt::format("{}:{}: a description must be an object", file, root->line));
  JsonReading reading(file);
  JsonField f(&reading, &*root, "");
  Machine m;
  if (const std::string format = f.text("format"); !reading.failed() && format != kFormat)
    reading.fail_at(root->member("format")->line, "format",
                    fmt::format("{} is not \"{}\"", json_quote(format), kFormat));
  m.name = f.text("name");
  if (!shape.empty()) m.name += ":" + sizes_text(shape);
  f.text("description", "");
  JsonField fabric = f.object("fabric");
  if (f.has("fabric") && !reading.failed()) read_fabric(reading, fabric, shape, &m);
  if (!reading.failed()) read_hosts(reading, f, shape, chain, &m);
  JsonField model = f.object("model");
  m.model = read_model(model);
  f.finish();
  if (reading.failed()) return tl::unexpected<Error>(reading.error());
  m.notes.list = std::move(reading.notes());
  if (Status good = check(m); !good) {
    const std::string& message = good.error().message;
    return fail(Code::invalid_argument,
                fmt::format("{}:{}: {}", file, line_of_field(*root, message.substr(0, message.find(": "))),
                            message));
  }
  return m;
}

Result<Machine> machine_from_json(std::string_view text, std::string_view file,
                                  std::span<const std::int32_t> shape) {
  std::vector<std::string> chain = {std::string(file)};
  return read_description(text, file, shape, &chain);
}

}  // namespace tamaki
