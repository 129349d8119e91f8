#pragma once
// Tuning tables: curves of candidates that were measured (tamaki perf --tune) or simulated ahead of time
// (tamaki explain
// --save), in a file that jobs read at start and several jobs may write at the same time.
//
// A row is for one machine with ranks at given places (Costs::key()) and one version of the library; others
// do not see it.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "select/costs.hpp"

namespace tamaki {

struct TuningRow {
  std::uint64_t key = 0;     // Costs::key()
  std::string machine = {};  // for people
  std::int32_t ranks = 0;
  std::string version = {};                              // of the library, library_version()
  Estimate::Origin origin = Estimate::Origin::measured;  // measured or simulated
  Collective collective = Collective::allreduce;
  std::string algorithm = {};
  std::int32_t lanes = 1, pieces = 1, radix = 2;
  std::vector<Curve::Point> points = {};  // ascending
};

struct TuningTable {
  std::vector<TuningRow> rows = {};
};

/// "0.1.0".
std::string library_version();

/// Errors (Code::invalid_argument) name file, line and field. Rows of algorithms that this version does not
/// have are kept.
Result<TuningTable> parse_tuning(std::string_view text, std::string_view file);
/// The text of a table; none where there is no file. Errors: Code::system where it cannot be read.
Result<std::optional<std::string>> read_tuning_text(const std::string& path);
/// A file that is not there is an empty table. Errors: as parse_tuning(); Code::system where it cannot be
/// read.
Result<TuningTable> read_tuning(const std::string& path);
std::string tuning_json(const TuningTable& table);

/// Adds rows to the file, which it makes (with its folders) where there is none. A row that is there
/// already gets the new points, which replace those of the same size. Other writers are waited for (a lock
/// on PATH.lock), and readers see the file as it was before or after. Errors: Code::system; a file that
/// holds no table is left alone.
Status merge_tuning(const std::string& path, const TuningTable& add);

/// TAMAKI_TUNING: where it is "auto" tamaki/tuning.json in XDG_CACHE_HOME or HOME/.cache; "" where it is
/// "off" or there is no such place.
std::string tuning_path(std::string_view option);

/// Gives `costs` the rows that are for it.
void apply_tuning(const TuningTable& table, Costs* costs);
/// The row of a curve of `costs`.
TuningRow tuning_row(const Costs& costs, const Curve& curve, Estimate::Origin origin);

}  // namespace tamaki
