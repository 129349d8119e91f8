#include "select/tuning.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <tuple>

#include "base/socket.hpp"
#include "tamaki/tamaki.h"
#include "topology/parse/document.hpp"

namespace tamaki {
namespace {

constexpr std::string_view kFormat = "tamaki-tuning-1";
constexpr std::size_t kMostPoints = 1000;  // of a row

/// What two rows of one curve have in common.
auto curve_of(const TuningRow& row) {
  return std::tuple(row.key, std::string_view(row.version), row.origin, row.collective,
                    std::string_view(row.algorithm), row.lanes, row.pieces, row.radix);
}

void add_points(const std::vector<Curve::Point>& points, std::vector<Curve::Point>* to) {
  std::map<double, double> all;
  for (const Curve::Point& point : *to) all[point.bytes] = point.seconds;
  for (const Curve::Point& point : points) all[point.bytes] = point.seconds;
  to->clear();
  for (const auto& [bytes, seconds] : all) to->push_back({bytes, seconds});
}

TuningRow read_row(JsonField* field) {
  TuningRow row;
  const std::string key = field->text("key");
  const auto read = std::from_chars(key.data(), key.data() + key.size(), row.key, 16);
  if (read.ec != std::errc() || read.ptr != key.data() + key.size())
    field->fail(fmt::format("key \"{}\" is no hexadecimal number of 64 bits", key));
  row.machine = field->text("machine", "");
  row.ranks = field->integer("ranks");
  row.version = field->text("version");
  const std::string origin = field->text("origin");
  if (origin == name_of(Estimate::Origin::simulated))
    row.origin = Estimate::Origin::simulated;
  else if (origin != name_of(Estimate::Origin::measured))
    field->fail(fmt::format("origin \"{}\" must be measured or simulated", origin));
  const std::string name = field->text("collective");
  bool found = false;
  for (int c = 0; c < kCollectives; ++c)
    if (name_of(static_cast<Collective>(c)) == name) {
      row.collective = static_cast<Collective>(c);
      found = true;
    }
  if (!found) field->fail(fmt::format("collective \"{}\" does not exist", name));
  row.algorithm = field->text("algorithm");
  row.lanes = field->integer("lanes", 1);
  row.pieces = field->integer("pieces", 1);
  row.radix = field->integer("radix", 2);
  if (row.lanes < 1 || row.pieces < 1 || row.radix < 2)
    field->fail("lanes and pieces must be 1 or more, radix 2 or more");
  const std::vector<double> bytes = field->numbers("bytes"), seconds = field->numbers("seconds");
  if (bytes.size() != seconds.size() || bytes.empty() || bytes.size() > kMostPoints) {
    field->fail(fmt::format("{} bytes and {} seconds; there must be as many of both, 1 to {}", bytes.size(),
                            seconds.size(), kMostPoints));
    return row;
  }
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (!(bytes[i] >= 0) || !(seconds[i] > 0) || !(seconds[i] < 1e9) ||
        (i > 0 && bytes[i] <= bytes[i - 1])) {
      field->fail(fmt::format("{} bytes in {} s: bytes must ascend from 0, times be positive", bytes[i],
                              seconds[i]));
      return row;
    }
    row.points.push_back({bytes[i], seconds[i]});
  }
  return row;
}

Result<std::optional<std::string>> read_whole(int fd, const std::string& path) {
  std::string text;
  std::array<char, 1 << 16> part;
  for (;;) {
    const ssize_t got = ::read(fd, part.data(), part.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return fail_errno("tuning table " + path);
    if (got == 0) return text;
    text.append(part.data(), static_cast<std::size_t>(got));
  }
}

Status write_whole(int fd, std::string_view text, const std::string& path) {
  while (!text.empty()) {
    const ssize_t put = ::write(fd, text.data(), text.size());
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return fail_errno("writing tuning table " + path);
    text.remove_prefix(static_cast<std::size_t>(put));
  }
  return {};
}

}  // namespace

std::string library_version() { return fmt::format("{}.{}.{}", TMK_MAJOR, TMK_MINOR, TMK_PATCH); }

Result<TuningTable> parse_tuning(std::string_view text, std::string_view file) {
  const Result<JsonValue> parsed = parse_json(text, file);
  if (!parsed) return tl::unexpected<Error>(parsed.error());
  JsonReading reading(file);
  JsonField root(&reading, &*parsed, "");
  TuningTable table;
  if (root.expect_object()) {
    if (const std::string format = root.text("format"); format != kFormat)
      root.fail(fmt::format("format is \"{}\", must be \"{}\"", format, kFormat));
    for (JsonField& field : root.list("rows")) {
      if (reading.failed() || !field.expect_object()) break;
      table.rows.push_back(read_row(&field));
      field.finish();
    }
    root.finish();
  }
  if (reading.failed()) return tl::unexpected<Error>(reading.error());
  return table;
}

Result<std::optional<std::string>> read_tuning_text(const std::string& path) {
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file) return read_whole(file.get(), path);
  if (errno == ENOENT || errno == ENOTDIR) return std::optional<std::string>();
  return fail_errno("tuning table " + path);
}

Result<TuningTable> read_tuning(const std::string& path) {
  const Result<std::optional<std::string>> text = read_tuning_text(path);
  if (!text) return tl::unexpected<Error>(text.error());
  return *text ? parse_tuning(**text, path) : TuningTable();
}

std::string tuning_json(const TuningTable& table) {
  std::string text = fmt::format("{{\n  \"format\": \"{}\",\n  \"rows\": [", kFormat);
  const char* between = "\n";
  for (const TuningRow& row : table.rows) {
    text += fmt::format(
        "{}    {{\"key\": \"{:016x}\", \"machine\": {}, \"ranks\": {}, \"version\": {}, \"origin\": "
        "\"{}\", \"collective\": \"{}\",\n"
        "     \"algorithm\": {}, \"lanes\": {}, \"pieces\": {}, \"radix\": {},\n     \"bytes\": [",
        between, row.key, json_quote(row.machine), row.ranks, json_quote(row.version), name_of(row.origin),
        name_of(row.collective), json_quote(row.algorithm), row.lanes, row.pieces, row.radix);
    const char* comma = "";
    for (const Curve::Point& point : row.points) {
      text += fmt::format("{}{}", comma, point.bytes);
      comma = ", ";
    }
    text += "],\n     \"seconds\": [";
    comma = "";
    for (const Curve::Point& point : row.points) {
      text += fmt::format("{}{}", comma, point.seconds);
      comma = ", ";
    }
    text += "]}";
    between = ",\n";
  }
  return text + "\n  ]\n}\n";
}

Status merge_tuning(const std::string& path, const TuningTable& add) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  if (!folder.empty()) {
    std::error_code error;
    std::filesystem::create_directories(folder, error);
    if (error)
      return fail(Code::system, "tuning table " + path + ": making its folder: " + error.message());
  }
  // The lock is a file of its own: the table's is replaced, and a lock on what was replaced would hold
  // nobody off.
  const FileDescriptor lock(::open((path + ".lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
  if (lock.get() < 0) return fail_errno("tuning table " + path + ".lock");
  while (::flock(lock.get(), LOCK_EX) != 0)
    if (errno != EINTR) return fail_errno("locking tuning table " + path + ".lock");

  Result<TuningTable> table = read_tuning(path);
  if (!table) return pass(std::move(table));
  for (const TuningRow& row : add.rows) {
    const auto same = [&](const TuningRow& old) { return curve_of(old) == curve_of(row); };
    const auto found = std::find_if(table->rows.begin(), table->rows.end(), same);
    if (found == table->rows.end())
      table->rows.push_back(row);
    else
      add_points(row.points, &found->points);
  }
  const std::string fresh = fmt::format("{}.{}", path, ::getpid());
  {
    const FileDescriptor file(::open(fresh.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
    if (file.get() < 0) return fail_errno("tuning table " + fresh);
    Status written = write_whole(file.get(), tuning_json(*table), fresh);
    if (written && ::fsync(file.get()) != 0) written = fail_errno("writing tuning table " + fresh);
    if (!written) {
      ::unlink(fresh.c_str());
      return written;
    }
  }
  if (::rename(fresh.c_str(), path.c_str()) != 0) {
    const Status failed = fail_errno("tuning table " + path);
    ::unlink(fresh.c_str());
    return failed;
  }
  return {};
}

std::string tuning_path(std::string_view option) {
  if (option == "off") return {};
  if (option != "auto" && !option.empty()) return std::string(option);
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && *cache == '/')
    return std::string(cache) + "/tamaki/tuning.json";
  if (const char* home = std::getenv("HOME"); home != nullptr && *home == '/')
    return std::string(home) + "/.cache/tamaki/tuning.json";
  return {};
}

void apply_tuning(const TuningTable& table, Costs* costs) {
  for (int c = 0; c < kCollectives; ++c) {
    const auto collective = static_cast<Collective>(c);
    std::vector<Curve> simulated, measured;
    for (const TuningRow& row : table.rows) {
      if (row.key != costs->key() || row.version != library_version() || row.collective != collective)
        continue;
      const Algorithm* algorithm = find_algorithm(collective, row.algorithm);
      if (algorithm == nullptr) continue;
      std::string why;
      const std::vector<Candidate> found =
          candidates(costs->topology(), *algorithm, 0, {{row.lanes}, {row.pieces}, {row.radix}}, &why);
      if (found.empty()) continue;
      (row.origin == Estimate::Origin::simulated ? simulated : measured)
          .push_back({found.front(), row.points});
    }
    if (!simulated.empty()) costs->set_simulated(collective, std::move(simulated));
    costs->set_measured(collective, std::move(measured));
  }
}

TuningRow tuning_row(const Costs& costs, const Curve& curve, Estimate::Origin origin) {
  const Problem& problem = curve.candidate.problem;
  return {.key = costs.key(),
          .machine = costs.machine().name,
          .ranks = costs.topology().ranks(),
          .version = library_version(),
          .origin = origin,
          .collective = problem.collective,
          .algorithm = std::string(curve.candidate.algorithm->name),
          .lanes = problem.lanes,
          .pieces = problem.pieces,
          .radix = problem.radix,
          .points = curve.points};
}

}  // namespace tamaki
