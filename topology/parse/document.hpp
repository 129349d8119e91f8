#pragma once
// A JSON text as a tree that knows the line of every value, and a strict reader of it: every type is
// checked, a field that nobody asked for is an error, and the first error names file, line and field.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "topology/machine.hpp"

namespace tamaki {

struct JsonValue {
  enum class Type : std::uint8_t { null, boolean, number, text, list, object };
  Type type = Type::null;
  bool boolean = false;
  bool whole = false;  // the number has no fraction and no exponent, and fits
  std::int64_t integer = 0;
  double number = 0;
  std::int32_t line = 0;
  std::string text = {};
  std::vector<JsonValue> items = {};
  std::vector<std::pair<std::string, JsonValue>> members = {};

  const JsonValue* member(std::string_view name) const;
};

/// Limits: kMostDescriptionBytes, 32 levels, 4 million values, no field twice. Errors: "FILE:LINE: ...".
Result<JsonValue> parse_json(std::string_view text, std::string_view file);

/// What a reading shares: the file, the first error, the notes found. Errors are sticky; what is read after
/// one is the default.
class JsonReading {
 public:
  explicit JsonReading(std::string_view file) : file_(file) {}
  void fail_at(std::int32_t line, const std::string& field, const std::string& text);
  bool failed() const { return failed_; }
  const Error& error() const { return error_; }
  std::vector<Note>& notes() { return notes_; }

 private:
  std::string file_;
  bool failed_ = false;
  Error error_;
  std::vector<Note> notes_;
};

/// A list or object of the text, with its path.
class JsonField {
 public:
  JsonField(JsonReading* reading, const JsonValue* value, std::string path)
      : reading_(reading), value_(value), path_(std::move(path)) {}

  bool has(std::string_view name) const { return value_ != nullptr && value_->member(name) != nullptr; }
  const std::string& path() const { return path_; }
  std::int32_t line() const { return value_ == nullptr ? 0 : value_->line; }
  void fail(const std::string& text) const { reading_->fail_at(line(), path_, text); }

  // Members of an object; where there is none, `otherwise` (or, without it, an error).
  double rate(std::string_view name, double otherwise);  // B/s
  double bytes(std::string_view name, double otherwise);
  double seconds(std::string_view name, double otherwise);
  double share(std::string_view name, double otherwise);  // a plain number
  std::int32_t integer(std::string_view name, std::int32_t otherwise);
  std::int32_t integer(std::string_view name);
  bool boolean(std::string_view name, bool otherwise);
  std::string text(std::string_view name, std::string otherwise);
  std::string text(std::string_view name);
  JsonField object(std::string_view name);                    // {} where there is none
  std::vector<JsonField> list(std::string_view name);         // any items; empty where there is none
  std::vector<std::int32_t> integers(std::string_view name);  // a list of integers
  std::vector<std::string> texts(std::string_view name);
  std::vector<double> numbers(std::string_view name);  // a list of plain numbers

  // This value itself, an item of a list.
  std::vector<std::int32_t> as_integers() const;
  bool is_text() const { return value_ != nullptr && value_->type == JsonValue::Type::text; }
  const std::string& as_text() const { return value_->text; }
  /// An item of a list that must be an object.
  bool expect_object() const;

  /// Takes "source", "assumption" or "fit" of this object as a note, and reports fields that nobody read.
  void finish();

 private:
  const JsonValue* take(std::string_view name);
  const JsonValue* take_figure(std::string_view name);
  double figure(std::string_view name, double otherwise, double (*parse)(std::string_view, bool*),
                const char* example);
  std::string under(std::string_view name) const;
  void wrong(const JsonValue& value, std::string_view name, const std::string& text) const;
  void note_of(const JsonValue& object, const std::string& field);

  JsonReading* reading_;
  const JsonValue* value_;
  std::string path_;
  std::vector<std::string> taken_;
};

/// The line of `field` ("fabric.axes[2].size") in a text, or of the nearest value that holds it.
std::int32_t line_of_field(const JsonValue& root, std::string_view field);

/// "x" as a JSON text with its quotes.
std::string json_quote(std::string_view text);

}  // namespace tamaki
