// Writing a description.
#include <fmt/format.h>

#include "topology/parse/description.hpp"
#include "topology/parse/document.hpp"

namespace tamaki {
namespace {

constexpr const char* kNoteNames[] = {"source", "assumption", "fit"};

/// Text with the indentation and the commas of JSON. Objects in lists that hold no other object take one
/// line.
class Writer {
 public:
  Writer(const Machine& machine, NotesIn notes) {
    if (notes == NotesIn::yes)
      for (const Note& note : machine.notes.list) notes_.push_back(&note);
  }
  std::string text;

  void open(const std::string& field, char bracket) {
    begin(field);
    text += bracket;
    ++depth_;
    first_ = true;
    if (bracket == '{') write_notes(path_.back());
  }
  void close(char bracket) {
    --depth_;
    path_.pop_back();
    if (flat_ == 0) new_line();
    text += bracket;
    first_ = false;
  }
  /// One line from here to the end of the value that is opened next.
  void flat() { ++flat_; }
  void not_flat() { --flat_; }

  void put(const std::string& field, const std::string& value) {
    begin(field);
    if (const auto own = notes_of(path_.back()); !own.empty()) {
      text += fmt::format("{{\"is\": {}", value);
      for (const Note* note : own)
        text +=
            fmt::format(", \"{}\": {}", kNoteNames[static_cast<int>(note->kind)], json_quote(note->text));
      text += '}';
    } else {
      text += value;
    }
    path_.pop_back();
    first_ = false;
  }
  void text_field(const std::string& field, const std::string& value) { put(field, json_quote(value)); }
  void number(const std::string& field, double value) { put(field, fmt::format("{}", value)); }
  void integer(const std::string& field, std::int64_t value) { put(field, fmt::format("{}", value)); }
  void boolean(const std::string& field, bool value) { put(field, value ? "true" : "false"); }
  void number_unless(double usual, const std::string& field, double value) {
    if (value != usual || noted(field)) number(field, value);
  }
  void integer_unless(std::int64_t usual, const std::string& field, std::int64_t value) {
    if (value != usual || noted(field)) integer(field, value);
  }
  void text_unless_empty(const std::string& field, const std::string& value) {
    if (!value.empty() || noted(field)) text_field(field, value);
  }
  template <class List>
  void integers(const std::string& field, const List& list) {
    put(field, fmt::format("[{}]", fmt::join(list, ", ")));
  }
  /// A list of objects, one a line.
  template <class List, class Each>
  void list(const std::string& field, const List& items, Each each) {
    open(field, '[');
    for (std::size_t i = 0; i < items.size(); ++i) {
      open(fmt::format("[{}]", i), '{');
      flat();
      each(items[i]);
      close('}');
      not_flat();
    }
    close(']');
  }

 private:
  void new_line() { text += fmt::format("\n{:{}}", "", 2 * depth_); }
  void begin(const std::string& field) {
    const bool item = !field.empty() && field[0] == '[';
    if (!path_.empty()) {
      if (!first_) text += flat_ == 0 ? "," : ", ";
      if (flat_ == 0) new_line();
      if (!item) text += fmt::format("\"{}\": ", field);
    }
    path_.push_back(path_.empty() || path_.back().empty() || item
                        ? (path_.empty() ? "" : path_.back()) + field
                        : path_.back() + "." + field);
  }
  bool noted(const std::string& field) const {
    return !notes_.empty() && !notes_of(path_.back() + "." + field).empty();
  }
  std::vector<const Note*> notes_of(const std::string& field) const {
    std::vector<const Note*> found;
    for (const Note* note : notes_)
      if (note->field == field) found.push_back(note);
    return found;
  }
  void write_notes(const std::string& field) {
    for (const Note* note : notes_of(field)) {
      text += fmt::format("{}", first_ ? "" : ",");
      new_line();
      text += fmt::format("\"{}\": {}", kNoteNames[static_cast<int>(note->kind)], json_quote(note->text));
      first_ = false;
    }
  }

  std::vector<const Note*> notes_;
  std::vector<std::string> path_;
  int depth_ = 0, flat_ = 0;
  bool first_ = true;
};

std::string part_text(const Part& part) { return fmt::format("\"{}:{}\"", name_of(part.kind), part.index); }

void write_kind(Writer& w, const std::string& field, const HostKind& kind) {
  w.open(field, '{');
  w.text_field("name", kind.name);
  w.integer("slots", kind.slots);
  w.list("sockets", kind.sockets, [&](const CpuSocket& s) { w.text_unless_empty("model", s.model); });
  w.list("numa", kind.numa, [&](const NumaDomain& n) {
    w.integer("socket", n.socket);
    w.integer("cores", n.cores);
    w.number_unless(0, "memory_bytes", n.memory_bytes);
    w.number_unless(0, "memory_bandwidth", n.memory_bandwidth);
  });
  if (!kind.gpus.empty())
    w.list("gpus", kind.gpus, [&](const Gpu& g) {
      w.text_unless_empty("model", g.model);
      w.integer("numa", g.numa);
      w.text_unless_empty("pci", g.pci);
      w.number_unless(0, "memory_bytes", g.memory_bytes);
      w.number_unless(0, "memory_bandwidth", g.memory_bandwidth);
      w.integer_unless(0, "compute_capability", g.compute_capability);
    });
  if (!kind.nics.empty())
    w.list("nics", kind.nics, [&](const Nic& n) {
      w.text_unless_empty("name", n.name);
      w.integer("numa", n.numa);
      w.text_unless_empty("pci", n.pci);
      w.number_unless(0, "bandwidth", n.bandwidth);
      w.number_unless(0, "latency_s", n.latency_s);
      w.integer_unless(-1, "rail", n.rail);
      w.integer_unless(-1, "gpu", n.gpu);
    });
  if (!kind.hubs.empty())
    w.list("hubs", kind.hubs, [&](const Hub& h) {
      w.text_field("kind", h.kind == Hub::Kind::nvswitch ? "nvswitch" : "pcie");
      w.text_unless_empty("pci", h.pci);
    });
  if (!kind.links.empty())
    w.list("links", kind.links, [&](const PartLink& l) {
      constexpr const char* kKinds[] = {"memory", "pcie", "nvlink", "processor", "other"};
      w.put("between", fmt::format("[{}, {}]", part_text(l.a), part_text(l.b)));
      w.number("bandwidth", l.bandwidth);
      w.number_unless(0, "latency_s", l.latency_s);
      w.text_field("kind", kKinds[static_cast<int>(l.kind)]);
    });
  w.close('}');
}

void write_torus(Writer& w, const Torus& t) {
  w.text_field("kind", "torus");
  w.list("axes", t.axes, [&](const TorusAxis& a) {
    w.text_unless_empty("name", a.name);
    w.integer("size", a.size);
    w.boolean("wraps", a.wraps);
  });
  if (!t.logical.empty())
    w.list("logical", t.logical, [&](const LogicalAxis& axis) {
      std::string names, points;
      for (const std::int32_t a : axis.axes)
        names += fmt::format("{}{}", names.empty() ? "" : ", ",
                             json_quote(t.axes[static_cast<std::size_t>(a)].name));
      for (const auto& point : axis.points)
        points += fmt::format("{}[{}]", points.empty() ? "" : ", ", fmt::join(point, ", "));
      w.put("axes", fmt::format("[{}]", names));
      w.put("points", fmt::format("[{}]", points));
      w.boolean("wraps", axis.wraps);
    });
  w.text_field("routing", t.routing == Torus::Routing::tofu ? "tofu" : "dimension_order");
  w.number("link_bandwidth", t.link_bandwidth);
  w.integer("engines", t.engines);
  w.number_unless(0, "engine_bandwidth", t.engine_bandwidth);
  w.number_unless(0, "injection_bandwidth", t.injection_bandwidth);
  w.number("hop_latency_s", t.hop_latency_s);
}

void write_leaf_spine(Writer& w, const LeafSpine& f) {
  w.text_field("kind", "leaf_spine");
  w.integer("nics_per_host", f.nics_per_host);
  w.boolean("rail_optimized", f.rail_optimized);
  w.integer("hosts_per_pod", f.hosts_per_pod);
  w.integer("spines", f.spines);
  w.number("nic_bandwidth", f.nic_bandwidth);
  w.number("uplink_bandwidth", f.uplink_bandwidth);
  w.number("nic_latency_s", f.nic_latency_s);
  w.number("uplink_latency_s", f.uplink_latency_s);
}

std::string end_text(const Graph::End& end) {
  if (end.is_switch) return fmt::format("\"switch:{}\"", end.index);
  return end.nic == 0 ? fmt::format("\"host:{}\"", end.index)
                      : fmt::format("\"host:{}:{}\"", end.index, end.nic);
}

void write_fabric(Writer& w, const Fabric& fabric) {
  w.open("fabric", '{');
  if (const auto* crossbar = std::get_if<Crossbar>(&fabric)) {
    w.text_field("kind", "switch");
    w.number("link_bandwidth", crossbar->link_bandwidth);
    w.number("link_latency_s", crossbar->link_latency_s);
  } else if (const auto* torus = std::get_if<Torus>(&fabric)) {
    write_torus(w, *torus);
  } else if (const auto* leaf_spine = std::get_if<LeafSpine>(&fabric)) {
    write_leaf_spine(w, *leaf_spine);
  } else {
    const auto& graph = std::get<Graph>(fabric);
    w.text_field("kind", "graph");
    w.integer("switches", graph.switches);
    w.list("cables", graph.cables, [&](const Graph::Cable& c) {
      w.put("between", fmt::format("[{}, {}]", end_text(c.a), end_text(c.b)));
      w.number("bandwidth", c.bandwidth);
      w.number_unless(0, "latency_s", c.latency_s);
    });
  }
  w.close('}');
}

void write_model(Writer& w, const NetworkModel& m) {
  w.open("model", '{');
  w.number("startup_s", m.startup_s);
  w.number("send_overhead_s", m.send_overhead_s);
  w.number("receive_overhead_s", m.receive_overhead_s);
  w.number("eager_bytes", m.eager_bytes);
  w.number("eager_bytes_per_hop", m.eager_bytes_per_hop);
  w.number("eager_bandwidth", m.eager_bandwidth);
  w.number("rendezvous_s", m.rendezvous_s);
  w.number("link_efficiency", m.link_efficiency);
  w.number("injection_efficiency", m.injection_efficiency);
  w.number("reduce_bandwidth", m.reduce_bandwidth);
  w.number("copy_bandwidth", m.copy_bandwidth);
  w.number("step_s", m.step_s);
  w.number("inside_startup_s", m.inside_startup_s);
  w.number("inside_bandwidth", m.inside_bandwidth);
  if (m.inside_copy_bandwidth > 0) w.number("inside_copy_bandwidth", m.inside_copy_bandwidth);
  w.close('}');
}

}  // namespace

std::string machine_to_json(const Machine& m, NotesIn notes) {
  Writer w(m, notes);
  w.open("", '{');
  w.text_field("format", "tamaki-machine-1");
  w.text_field("name", m.name);
  w.integer("hosts", m.hosts);
  if (m.kinds.size() == 1)
    write_kind(w, "host", m.kinds[0]);
  else {
    w.open("kinds", '[');
    for (std::size_t i = 0; i < m.kinds.size(); ++i) write_kind(w, fmt::format("[{}]", i), m.kinds[i]);
    w.close(']');
  }
  if (!m.kind_of_host.empty()) w.integers("kind_of_host", m.kind_of_host);
  if (!m.host_names.empty()) {
    std::vector<std::string> quoted;
    for (const std::string& name : m.host_names) quoted.push_back(json_quote(name));
    w.put("host_names", fmt::format("[{}]", fmt::join(quoted, ", ")));
  }
  write_fabric(w, m.fabric);
  write_model(w, m.model);
  w.close('}');
  return w.text + "\n";
}

}  // namespace tamaki
