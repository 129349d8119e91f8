#include "schedule/json.hpp"

#include <fmt/format.h>

#include <limits>
#include <nlohmann/json.hpp>

namespace tamaki {
namespace {

using Json = nlohmann::ordered_json;
constexpr const char* kFormat = "tamaki-schedule-1";
constexpr const char* kBuffers[] = {"input", "output", "scratch", "none"};

// ---- writing
// ------------------------------------------------------------------------------------------------------

Json place_json(Buffer buffer, std::int32_t chunk, std::int32_t stride) {
  Json j = {{"at", kBuffers[static_cast<int>(buffer)]}, {"chunk", chunk}};
  if (stride != 0) j["stride"] = stride;
  return j;
}

Json operand_json(const Operand& o) {
  if (o.kind == Operand::Kind::local && o.peer == -1 && o.channel == 0)
    return place_json(o.buffer, o.chunk, o.stride);
  Json j;
  if (o.kind == Operand::Kind::local)
    j["local"] = true;  // with fields that mean nothing, kept all the same
  j["peer"] = o.peer;
  if (o.channel != 0) j["channel"] = o.channel;
  if (o.buffer != Buffer::none || o.chunk != 0 || o.stride != 0)
    j.update(place_json(o.buffer, o.chunk, o.stride));
  return j;
}

Json step_json(const Program& p, const Step& s) {
  Json j;
  const Operand* operands = p.operands.data() + s.first_operand;
  j["sources"] = Json::array();
  j["destinations"] = Json::array();
  for (int k = 0; k < s.sources + s.destinations; ++k)
    j[k < s.sources ? "sources" : "destinations"].push_back(operand_json(operands[k]));
  j["size"] = place_json(s.extent.buffer, s.extent.chunk, s.extent.stride);
  if (s.width != 1) j["width"] = s.width;
  if (s.finish) j["finish"] = true;
  for (int d = 0; d < s.dependencies; ++d) {
    const Dependency& dependency = p.dependencies[s.first_dependency + d];
    j["after"].push_back({dependency.lane, dependency.step});
  }
  return j;
}

Json program_json(const Program& p) {
  Json j = {{"algorithm", p.algorithm},
            {"collective", name_of(p.collective)},
            {"ranks", p.ranks},
            {"rank", p.rank},
            {"root", p.root},
            {"chunks", p.chunks},
            {"scratch_chunks", p.scratch_chunks},
            {"max_width", p.max_width}};
  j["lanes"] = Json::array();
  for (const Lane& lane : p.lanes) {
    Json blocks = Json::array();
    for (const Block& block : lane.blocks) {
      Json b = Json::object();
      if (block.times != 1) b["times"] = block.times;
      if (block.modulus != 0) b["modulus"] = block.modulus;
      b["steps"] = Json::array();
      for (std::int32_t i = block.begin; i < block.end; ++i) b["steps"].push_back(step_json(p, p.steps[i]));
      blocks.push_back(std::move(b));
    }
    j["lanes"].push_back(std::move(blocks));
  }
  return j;
}

// ---- reading
// ------------------------------------------------------------------------------------------------------

/// A reader of one program. After the first error everything returns at once.
class Reader {
 public:
  Result<Program> program(const Json& j, const std::string& path) {
    Program p;
    if (!object(j, path,
                {"algorithm", "collective", "ranks", "rank", "root", "chunks", "scratch_chunks",
                 "max_width", "lanes"}))
      return fail(Code::invalid_argument, error_);
    if (const Json* name = member(j, path, "algorithm")) {
      if (name->is_string())
        p.algorithm = name->get<std::string>();
      else
        wrong(path + ".algorithm", "must be a string");
    }
    if (const Json* name = member(j, path, "collective"))
      collective(*name, path + ".collective", &p.collective);
    number(j, path, "ranks", &p.ranks);
    number(j, path, "rank", &p.rank);
    number(j, path, "root", &p.root);
    number(j, path, "chunks", &p.chunks);
    number(j, path, "scratch_chunks", &p.scratch_chunks);
    number(j, path, "max_width", &p.max_width);
    if (const Json* lanes = array(j, path, "lanes"))
      for (std::size_t l = 0; l < lanes->size() && error_.empty(); ++l)
        lane((*lanes)[l], at(path + ".lanes", l), &p);
    if (!error_.empty()) return fail(Code::invalid_argument, error_);
    return p;
  }

 private:
  static std::string at(const std::string& path, std::size_t i) { return fmt::format("{}[{}]", path, i); }
  void wrong(const std::string& path, const std::string& what) {
    if (error_.empty()) error_ = path + ": " + what;
  }

  bool object(const Json& j, const std::string& path, std::initializer_list<const char*> known) {
    if (!j.is_object()) return wrong(path, "must be an object"), false;
    for (const auto& [key, value] : j.items()) {
      bool found = false;
      for (const char* name : known) found = found || key == name;
      if (!found) return wrong(path, fmt::format("has an unknown member \"{}\"", key)), false;
    }
    return error_.empty();
  }
  const Json* member(const Json& j, const std::string& path, const char* name) {
    const auto found = j.find(name);
    if (found != j.end()) return &*found;
    wrong(path + "." + name, "is missing");
    return nullptr;
  }
  const Json* array(const Json& j, const std::string& path, const char* name) {
    const Json* value = member(j, path, name);
    if (value != nullptr && !value->is_array())
      return wrong(path + "." + name, "must be an array"), nullptr;
    return value;
  }
  template <class T>
  void read_number(const Json& j, const std::string& path, T* value) {
    using Limits = std::numeric_limits<T>;
    const std::string range = fmt::format("must be a whole number in {}..{}", Limits::min(), Limits::max());
    if (!j.is_number_integer()) return wrong(path, range);
    if (j.is_number_unsigned() && j.get<std::uint64_t>() > static_cast<std::uint64_t>(Limits::max()))
      return wrong(path, range);
    const std::int64_t n = j.get<std::int64_t>();
    if (n < Limits::min() || n > Limits::max()) return wrong(path, range);
    *value = static_cast<T>(n);
  }
  template <class T>
  void number(const Json& j, const std::string& path, const char* name, T* value) {
    if (const Json* found = member(j, path, name)) read_number(*found, path + "." + name, value);
  }
  template <class T>
  void optional_number(const Json& j, const std::string& path, const char* name, T* value) {
    if (const auto found = j.find(name); found != j.end()) read_number(*found, path + "." + name, value);
  }
  bool flag(const Json& j, const std::string& path, const char* name) {
    const auto found = j.find(name);
    if (found == j.end()) return false;
    if (!found->is_boolean()) return wrong(path + "." + name, "must be true or false"), false;
    return found->get<bool>();
  }

  void collective(const Json& j, const std::string& path, Collective* value) {
    const std::optional<Collective> parsed =
        j.is_string() ? parse_collective(j.get_ref<const std::string&>()) : std::nullopt;
    if (parsed && static_cast<int>(*parsed) < kCollectives)
      *value = *parsed;
    else
      wrong(path, "must be the name of a collective, as \"allreduce\"");
  }
  Buffer buffer(const Json& j, const std::string& path) {
    for (int b = 0; b < 4 && j.is_string(); ++b)
      if (j.get_ref<const std::string&>() == kBuffers[b]) return static_cast<Buffer>(b);
    wrong(path, "must be \"input\", \"output\", \"scratch\" or \"none\"");
    return Buffer::none;
  }

  void lane(const Json& j, const std::string& path, Program* p) {
    if (!j.is_array()) return wrong(path, "must be an array of blocks");
    Lane made;
    for (std::size_t b = 0; b < j.size() && error_.empty(); ++b) {
      const std::string place = at(path, b);
      if (!object(j[b], place, {"times", "modulus", "steps"})) return;
      Block block{.begin = static_cast<std::int32_t>(p->steps.size())};
      optional_number(j[b], place, "times", &block.times);
      optional_number(j[b], place, "modulus", &block.modulus);
      if (const Json* steps = array(j[b], place, "steps"))
        for (std::size_t s = 0; s < steps->size() && error_.empty(); ++s)
          step((*steps)[s], at(place + ".steps", s), p);
      block.end = static_cast<std::int32_t>(p->steps.size());
      made.blocks.push_back(block);
    }
    p->lanes.push_back(std::move(made));
  }

  void step(const Json& j, const std::string& path, Program* p) {
    if (!object(j, path, {"sources", "destinations", "size", "width", "finish", "after"})) return;
    Step s;
    s.first_operand = static_cast<std::int32_t>(p->operands.size());
    for (const char* side : {"sources", "destinations"}) {
      const Json* list = array(j, path, side);
      if (list == nullptr) return;
      if (list->size() > 0xffff) return wrong(path + "." + side, "has more than 65535 operands");
      (side[0] == 's' ? s.sources : s.destinations) = static_cast<std::uint16_t>(list->size());
      for (std::size_t k = 0; k < list->size() && error_.empty(); ++k)
        operand((*list)[k], at(path + "." + side, k), p);
    }
    if (const Json* size = member(j, path, "size");
        size != nullptr && object(*size, path + ".size", {"at", "chunk", "stride"})) {
      if (const Json* name = member(*size, path + ".size", "at"))
        s.extent.buffer = buffer(*name, path + ".size.at");
      number(*size, path + ".size", "chunk", &s.extent.chunk);
      optional_number(*size, path + ".size", "stride", &s.extent.stride);
    }
    optional_number(j, path, "width", &s.width);
    s.finish = flag(j, path, "finish");
    s.first_dependency = static_cast<std::int32_t>(p->dependencies.size());
    if (j.contains("after"))
      if (const Json* list = array(j, path, "after")) after(*list, path + ".after", p, &s);
    p->steps.push_back(s);
  }

  void after(const Json& list, const std::string& path, Program* p, Step* s) {
    if (list.size() > 0xffff) return wrong(path, "has more than 65535 entries");
    s->dependencies = static_cast<std::uint16_t>(list.size());
    for (std::size_t d = 0; d < list.size() && error_.empty(); ++d) {
      if (!list[d].is_array() || list[d].size() != 2) return wrong(at(path, d), "must be [lane, step]");
      Dependency made;
      read_number(list[d][0], at(path, d) + "[0]", &made.lane);
      read_number(list[d][1], at(path, d) + "[1]", &made.step);
      p->dependencies.push_back(made);
    }
  }

  void operand(const Json& j, const std::string& path, Program* p) {
    if (!object(j, path, {"at", "chunk", "stride", "peer", "channel", "local"})) return;
    Operand o;
    const bool message = j.contains("peer") && !flag(j, path, "local");
    o.kind = message ? Operand::Kind::peer : Operand::Kind::local;
    optional_number(j, path, "peer", &o.peer);
    optional_number(j, path, "channel", &o.channel);
    if (const auto place = j.find("at"); place != j.end()) {
      o.buffer = buffer(*place, path + ".at");
      number(j, path, "chunk", &o.chunk);
      optional_number(j, path, "stride", &o.stride);
    } else if (!message) {
      wrong(path, "names neither a peer nor a place (\"at\")");
    }
    p->operands.push_back(o);
  }

  std::string error_;
};

Result<Json> parse(std::string_view text) {
  try {
    return Json::parse(text);
  } catch (const Json::exception& e) {
    return fail(Code::invalid_argument, std::string("not JSON: ") + e.what());
  }
}

}  // namespace

Program normalized(const Program& program) {
  Program made = program;
  made.operands.clear();
  made.steps.clear();
  made.dependencies.clear();
  for (Lane& lane : made.lanes)
    for (Block& block : lane.blocks) {
      const auto begin = static_cast<std::int32_t>(made.steps.size());
      for (std::int32_t i = block.begin; i < block.end; ++i) {
        Step s = program.steps[i];
        const auto operands = program.operands.begin() + s.first_operand;
        const auto dependencies =
            program.dependencies.begin() + (s.dependencies > 0 ? s.first_dependency : 0);
        s.first_operand = static_cast<std::int32_t>(made.operands.size());
        s.first_dependency = static_cast<std::int32_t>(made.dependencies.size());
        made.operands.insert(made.operands.end(), operands, operands + s.sources + s.destinations);
        made.dependencies.insert(made.dependencies.end(), dependencies, dependencies + s.dependencies);
        made.steps.push_back(s);
      }
      block.begin = begin;
      block.end = static_cast<std::int32_t>(made.steps.size());
    }
  return made;
}

std::string to_json(const Program& program, int indent) {
  return program_json(program).dump(indent, ' ', false, Json::error_handler_t::replace);
}

std::string schedule_to_json(std::span<const Program> programs, int indent) {
  Json j = {{"format", kFormat}, {"programs", Json::array()}};
  for (const Program& program : programs) j["programs"].push_back(program_json(program));
  return j.dump(indent, ' ', false, Json::error_handler_t::replace);
}

Result<Program> program_from_json(std::string_view text) {
  Result<Json> j = parse(text);
  if (!j) return pass(std::move(j));
  return Reader().program(*j, "program");
}

Result<std::vector<Program>> schedule_from_json(std::string_view text) {
  Result<Json> j = parse(text);
  if (!j) return pass(std::move(j));
  if (!j->is_object() || !j->contains("format") || (*j)["format"] != kFormat)
    return fail(Code::invalid_argument, fmt::format("format: must be \"{}\"", kFormat));
  if (!j->contains("programs") || !(*j)["programs"].is_array())
    return fail(Code::invalid_argument, "programs: must be an array");
  std::vector<Program> programs;
  for (std::size_t i = 0; i < (*j)["programs"].size(); ++i) {
    Result<Program> one = Reader().program((*j)["programs"][i], fmt::format("programs[{}]", i));
    if (!one) return pass(std::move(one));
    programs.push_back(std::move(*one));
  }
  return programs;
}

}  // namespace tamaki
