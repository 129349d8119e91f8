#include "topology/parse/document.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "topology/parse/description.hpp"

namespace tamaki {
namespace {

constexpr std::size_t kMostLevels = 32;
constexpr std::size_t kMostValues = 4'000'000;

/// Walks the text and counts lines. The lexer reads one character past a number, so the line of a value is
/// that of the character before the newest one.
struct Lines {
  std::int32_t before = 1, newest = 1;
};
class CountingIterator {
 public:
  using difference_type = std::ptrdiff_t;
  using value_type = char;
  using pointer = const char*;
  using reference = const char&;
  using iterator_category = std::input_iterator_tag;
  CountingIterator(const char* at, Lines* lines) : at_(at), lines_(lines) {}
  reference operator*() const { return *at_; }
  CountingIterator& operator++() {
    lines_->before = lines_->newest;
    if (*at_ == '\n') ++lines_->newest;
    ++at_;
    return *this;
  }
  bool operator==(const CountingIterator& o) const { return at_ == o.at_; }
  bool operator!=(const CountingIterator& o) const { return at_ != o.at_; }

 private:
  const char* at_;
  Lines* lines_;
};

/// Builds the tree; returns false (which ends the parse) with `error` set where a limit is crossed.
class TreeBuilder : public nlohmann::json_sax<nlohmann::json> {
 public:
  TreeBuilder(std::string_view file, Lines* lines) : file_(file), lines_(lines) {}
  std::string error;
  JsonValue root;

  bool null() override { return put({}); }
  bool boolean(bool value) override {
    JsonValue v;
    v.type = JsonValue::Type::boolean;
    v.boolean = value;
    return put(std::move(v));
  }
  bool number_integer(number_integer_t value) override { return put_whole(value); }
  bool number_unsigned(number_unsigned_t value) override {
    if (value > static_cast<number_unsigned_t>(std::numeric_limits<std::int64_t>::max()))
      return number_float(static_cast<double>(value), {});
    return put_whole(static_cast<std::int64_t>(value));
  }
  bool number_float(number_float_t value, const string_t&) override {
    JsonValue v;
    v.type = JsonValue::Type::number;
    v.number = value;
    return put(std::move(v));
  }
  bool string(string_t& value) override {
    JsonValue v;
    v.type = JsonValue::Type::text;
    v.text = std::move(value);
    return put(std::move(v));
  }
  bool binary(binary_t&) override { return stop("binary values have no place here"); }
  bool start_object(std::size_t) override { return open(JsonValue::Type::object); }
  bool start_array(std::size_t) override { return open(JsonValue::Type::list); }
  bool key(string_t& name) override {
    if (const JsonValue* twice = open_.back()->member(name); twice != nullptr)
      return stop(fmt::format("field \"{}\" is there twice; first in line {}", name, twice->line));
    key_ = std::move(name);
    return true;
  }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool parse_error(std::size_t, const std::string&, const nlohmann::json::exception& e) override {
    // "[json.exception.parse_error.101] parse error at line 3, column 1: syntax error while ...": without
    // the prefix
    std::string text = e.what();
    if (const auto at = text.find(": "); at != std::string::npos) text.erase(0, at + 2);
    if (text.find("unexpected end of input") != std::string::npos) lines_->before = lines_->newest;
    return stop(text);
  }

 private:
  bool stop(const std::string& text) {
    if (error.empty()) error = fmt::format("{}:{}: {}", file_, lines_->before, text);
    return false;
  }
  bool put_whole(std::int64_t value) {
    JsonValue v;
    v.type = JsonValue::Type::number;
    v.whole = true;
    v.integer = value;
    v.number = static_cast<double>(value);
    return put(std::move(v));
  }
  JsonValue* add(JsonValue&& value) {
    value.line = lines_->before;
    if (open_.empty()) {
      root = std::move(value);
      return &root;
    }
    JsonValue* parent = open_.back();
    if (parent->type == JsonValue::Type::list) {
      parent->items.push_back(std::move(value));
      return &parent->items.back();
    }
    parent->members.emplace_back(std::move(key_), std::move(value));
    return &parent->members.back().second;
  }
  bool put(JsonValue&& value) {
    if (++values_ > kMostValues) return stop(fmt::format("more than {} values", kMostValues));
    add(std::move(value));
    return true;
  }
  bool open(JsonValue::Type type) {
    if (open_.size() >= kMostLevels)
      return stop(fmt::format("more than {} levels of brackets", kMostLevels));
    if (++values_ > kMostValues) return stop(fmt::format("more than {} values", kMostValues));
    JsonValue value;
    value.type = type;
    open_.push_back(add(std::move(value)));
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  std::string file_, key_;
  Lines* lines_;
  std::vector<JsonValue*> open_;  // a parent's vector grows only while its newest child is closed
  std::size_t values_ = 0;
};

struct Unit {
  const char* name;
  double factor;
};
constexpr Unit kByteUnits[] = {
    {"B", 1},     {"kB", 1e3},     {"KB", 1e3},        {"MB", 1e6},           {"GB", 1e9},
    {"TB", 1e12}, {"KiB", 1024.0}, {"MiB", 1048576.0}, {"GiB", 1073741824.0}, {"TiB", 1099511627776.0}};
constexpr Unit kRateUnits[] = {
    {"B/s", 1},     {"kB/s", 1e3},     {"KB/s", 1e3},        {"MB/s", 1e6},           {"GB/s", 1e9},
    {"TB/s", 1e12}, {"KiB/s", 1024.0}, {"MiB/s", 1048576.0}, {"GiB/s", 1073741824.0}, {"b/s", 0.125},
    {"kb/s", 125},  {"Mb/s", 125e3},   {"Gb/s", 125e6},      {"Tb/s", 125e9}};
constexpr Unit kTimeUnits[] = {{"s", 1}, {"ms", 1e-3}, {"us", 1e-6}, {"ns", 1e-9}};

/// Division where the factor has an exact inverse gives the nearest double: "0.49 us" is 4.9e-07.
double scaled(double number, double factor) {
  return factor < 0.1 ? number / std::round(1 / factor) : number * factor;
}

double with_unit(std::string_view text, std::span<const Unit> units, bool* good) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  *good = false;
  if (error != std::errc() || !std::isfinite(number)) return 0;
  std::string_view name = text.substr(static_cast<std::size_t>(end - text.data()));
  while (!name.empty() && name.front() == ' ') name.remove_prefix(1);
  for (const Unit& unit : units)
    if (name == unit.name) {
      *good = true;
      return scaled(number, unit.factor);
    }
  return 0;
}
double parse_rate(std::string_view text, bool* good) { return with_unit(text, kRateUnits, good); }
double parse_bytes(std::string_view text, bool* good) { return with_unit(text, kByteUnits, good); }
double parse_seconds(std::string_view text, bool* good) { return with_unit(text, kTimeUnits, good); }
double parse_nothing(std::string_view, bool* good) {
  *good = false;
  return 0;
}

const char* type_name(JsonValue::Type type) {
  constexpr const char* kNames[] = {"null", "true or false", "a number", "a text", "a list", "an object"};
  return kNames[static_cast<int>(type)];
}

constexpr std::pair<const char*, Note::Kind> kNoteFields[] = {
    {"source", Note::Kind::source}, {"assumption", Note::Kind::assumption}, {"fit", Note::Kind::fit}};

}  // namespace

const JsonValue* JsonValue::member(std::string_view name) const {
  for (const auto& [own, value] : members)
    if (own == name) return &value;
  return nullptr;
}

Result<JsonValue> parse_json(std::string_view text, std::string_view file) {
  if (text.size() > kMostDescriptionBytes)
    return fail(Code::invalid_argument, fmt::format("{}: {} bytes; a description has at most {}", file,
                                                    text.size(), kMostDescriptionBytes));
  Lines lines;
  TreeBuilder builder(file, &lines);
  const bool good = nlohmann::json::sax_parse(
      CountingIterator(text.data(), &lines), CountingIterator(text.data() + text.size(), &lines), &builder);
  if (!good) return fail(Code::invalid_argument, builder.error);
  return std::move(builder.root);
}

void JsonReading::fail_at(std::int32_t line, const std::string& field, const std::string& text) {
  if (failed_) return;
  failed_ = true;
  error_ = {Code::invalid_argument, Scope::request, fmt::format("{}:{}: {}: {}", file_, line, field, text)};
}

std::string JsonField::under(std::string_view name) const {
  return path_.empty() ? std::string(name) : fmt::format("{}.{}", path_, name);
}

void JsonField::wrong(const JsonValue& value, std::string_view name, const std::string& text) const {
  reading_->fail_at(value.line, under(name), text);
}

const JsonValue* JsonField::take(std::string_view name) {
  taken_.emplace_back(name);
  return value_ == nullptr ? nullptr : value_->member(name);
}

void JsonField::note_of(const JsonValue& object, const std::string& field) {
  for (const auto& [name, kind] : kNoteFields)
    if (const JsonValue* note = object.member(name)) {
      if (note->type != JsonValue::Type::text)
        return reading_->fail_at(note->line, field + "." + name,
                                 fmt::format("{}; it must be a text", type_name(note->type)));
      reading_->notes().push_back({field, kind, note->text});
    }
}

/// A member that may be wrapped as {"is": figure, "source": text}.
const JsonValue* JsonField::take_figure(std::string_view name) {
  const JsonValue* value = take(name);
  if (value == nullptr || value->type != JsonValue::Type::object) return value;
  const JsonValue* is = value->member("is");
  if (is == nullptr) {
    wrong(*value, name, "an object without \"is\"");
    return nullptr;
  }
  for (const auto& [own, inner] : value->members)
    if (own != "is" && own != "source" && own != "assumption" && own != "fit")
      reading_->fail_at(inner.line, under(name) + "." + own,
                        "unknown field; there are is, source, assumption and fit");
  note_of(*value, under(name));
  return is;
}

double JsonField::figure(std::string_view name, double otherwise, double (*parse)(std::string_view, bool*),
                         const char* example) {
  const JsonValue* value = take_figure(name);
  if (value == nullptr) return otherwise;
  if (value->type == JsonValue::Type::number) {
    if (!std::isfinite(value->number) || value->number < 0)
      wrong(*value, name, fmt::format("{} is negative or not finite", value->number));
    return value->number;
  }
  bool good = value->type == JsonValue::Type::text;
  const double number = good ? parse(value->text, &good) : 0;
  if (!good || number < 0)
    wrong(
        *value, name,
        fmt::format("{} is not {}",
                    value->type == JsonValue::Type::text ? json_quote(value->text) : type_name(value->type),
                    example));
  return number;
}

double JsonField::rate(std::string_view name, double otherwise) {
  return figure(name, otherwise, parse_rate, "a rate, as 6.8e9 (B/s), \"6.8 GB/s\" or \"400 Gb/s\"");
}
double JsonField::bytes(std::string_view name, double otherwise) {
  return figure(name, otherwise, parse_bytes, "a size, as 34359738368 or \"32 GiB\"");
}
double JsonField::seconds(std::string_view name, double otherwise) {
  return figure(name, otherwise, parse_seconds, "a time, as 4.9e-7 (s) or \"0.49 us\"");
}
double JsonField::share(std::string_view name, double otherwise) {
  return figure(name, otherwise, parse_nothing, "a number");
}

std::int32_t JsonField::integer(std::string_view name, std::int32_t otherwise) {
  const JsonValue* value = take_figure(name);
  if (value == nullptr) return otherwise;
  if (value->type != JsonValue::Type::number || !value->whole) {
    wrong(*value, name,
          fmt::format("{}; it must be a whole number", value->type == JsonValue::Type::number
                                                           ? fmt::format("{}", value->number)
                                                           : type_name(value->type)));
    return otherwise;
  }
  if (std::abs(value->integer) > std::numeric_limits<std::int32_t>::max()) {
    wrong(*value, name, fmt::format("{} is out of range", value->integer));
    return otherwise;
  }
  return static_cast<std::int32_t>(value->integer);
}

std::int32_t JsonField::integer(std::string_view name) {
  if (!has(name)) fail(fmt::format("field \"{}\" is missing", name));
  return integer(name, 0);
}

bool JsonField::boolean(std::string_view name, bool otherwise) {
  const JsonValue* value = take_figure(name);
  if (value == nullptr) return otherwise;
  if (value->type != JsonValue::Type::boolean)
    wrong(*value, name, fmt::format("{}; it must be true or false", type_name(value->type)));
  return value->boolean;
}

std::string JsonField::text(std::string_view name, std::string otherwise) {
  const JsonValue* value = take_figure(name);
  if (value == nullptr) return otherwise;
  if (value->type != JsonValue::Type::text)
    wrong(*value, name, fmt::format("{}; it must be a text", type_name(value->type)));
  return value->text;
}

std::string JsonField::text(std::string_view name) {
  if (!has(name)) fail(fmt::format("field \"{}\" is missing", name));
  return text(name, {});
}

JsonField JsonField::object(std::string_view name) {
  const JsonValue* value = take(name);
  if (value != nullptr && value->type != JsonValue::Type::object) {
    wrong(*value, name, fmt::format("{}; it must be an object", type_name(value->type)));
    value = nullptr;
  }
  return {reading_, value, under(name)};
}

std::vector<JsonField> JsonField::list(std::string_view name) {
  std::vector<JsonField> fields;
  const JsonValue* value = take(name);
  if (value == nullptr) return fields;
  if (value->type != JsonValue::Type::list) {
    wrong(*value, name, fmt::format("{}; it must be a list", type_name(value->type)));
    return fields;
  }
  fields.reserve(value->items.size());
  for (std::size_t i = 0; i < value->items.size(); ++i)
    fields.emplace_back(reading_, &value->items[i], fmt::format("{}[{}]", under(name), i));
  return fields;
}

std::vector<std::int32_t> JsonField::as_integers() const {
  std::vector<std::int32_t> numbers;
  if (value_ == nullptr) return numbers;
  if (value_->type != JsonValue::Type::list) {
    fail(fmt::format("{}; it must be a list of whole numbers", type_name(value_->type)));
    return numbers;
  }
  for (const JsonValue& item : value_->items) {
    if (item.type != JsonValue::Type::number || !item.whole ||
        std::abs(item.integer) > std::numeric_limits<std::int32_t>::max()) {
      reading_->fail_at(item.line, path_,
                        fmt::format("{} in a list of whole numbers", type_name(item.type)));
      return numbers;
    }
    numbers.push_back(static_cast<std::int32_t>(item.integer));
  }
  return numbers;
}

std::vector<std::int32_t> JsonField::integers(std::string_view name) {
  const JsonValue* value = take(name);
  return value == nullptr ? std::vector<std::int32_t>()
                          : JsonField(reading_, value, under(name)).as_integers();
}

std::vector<std::string> JsonField::texts(std::string_view name) {
  std::vector<std::string> found;
  for (const JsonField& item : list(name)) {
    if (!item.is_text()) {
      item.fail("it must be a text");
      break;
    }
    found.push_back(item.as_text());
  }
  return found;
}

std::vector<double> JsonField::numbers(std::string_view name) {
  std::vector<double> found;
  const JsonValue* value = take(name);
  if (value == nullptr) return found;
  if (value->type != JsonValue::Type::list) {
    wrong(*value, name, "it must be a list of numbers");
    return found;
  }
  for (const JsonValue& item : value->items) {
    if (item.type != JsonValue::Type::number) {
      wrong(item, name, "it must be a list of numbers");
      break;
    }
    found.push_back(item.whole ? static_cast<double>(item.integer) : item.number);
  }
  return found;
}

bool JsonField::expect_object() const {
  if (value_ != nullptr && value_->type == JsonValue::Type::object) return true;
  fail(fmt::format("{}; it must be an object", value_ == nullptr ? "nothing" : type_name(value_->type)));
  return false;
}

void JsonField::finish() {
  if (value_ == nullptr || value_->type != JsonValue::Type::object) return;
  note_of(*value_, path_);
  for (const auto& [name, value] : value_->members) {
    if (name == "source" || name == "assumption" || name == "fit") continue;
    if (std::find(taken_.begin(), taken_.end(), name) == taken_.end())
      wrong(value, name, fmt::format("unknown field; there are {}", fmt::join(taken_, ", ")));
  }
}

std::int32_t line_of_field(const JsonValue& root, std::string_view field) {
  const JsonValue* at = &root;
  while (!field.empty()) {
    const JsonValue* next = nullptr;
    if (field.front() == '.') field.remove_prefix(1);
    const std::size_t end = std::min(field.find_first_of(".["), field.size());
    if (end > 0) {
      next = at->member(field.substr(0, end));
      field.remove_prefix(end);
    } else {
      std::size_t index = 0;
      const auto [stop, error] = std::from_chars(field.data() + 1, field.data() + field.size(), index);
      if (error != std::errc() || index >= at->items.size()) break;
      next = &at->items[index];
      field.remove_prefix(static_cast<std::size_t>(stop - field.data()) + 1);
    }
    if (next == nullptr) break;
    at = next;
  }
  return at->line;
}

std::string json_quote(std::string_view text) {
  return nlohmann::json(std::string(text)).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace tamaki
