#include "core/page/use_values.h"

#include <cmath>
#include <optional>
#include <string>
#include <utility>

#include "core/base/text.h"
#include "core/query/job_text.h"

namespace scriptorium::page {
namespace {

using List = kainjow::mustache::list;

// What is at its limit is a warning, or what is hardly used.
enum class Good : std::uint8_t { kBelowLimit, kUsed };

// The values of meter.mustache.
Values share_of(const char* what, Good good, const std::optional<double>& ratio) {
  if (!ratio || !std::isfinite(*ratio)) return {false};
  Values values;
  values.set("what", words(what));
  values.set("limit", good == Good::kBelowLimit);
  values.set("percent", std::to_string(std::lround(*ratio * 100)));
  return values;
}

void add_row(List& rows, const char* what, Good good, const std::string& asked,
             const std::string& used, const std::optional<double>& ratio) {
  if (asked.empty() && used.empty() && !ratio) return;
  Values row;
  row.set("what", words(what));
  row.set("asked", asked);
  row.set("used", used);
  row.set("share", share_of(what, good, ratio));
  rows.push_back(std::move(row));
}

void add_cell(List& cells, const char* what, Good good, const std::string& text,
              const std::optional<double>& ratio) {
  Values cell;
  cell.set("text", text);
  cell.set("share", share_of(what, good, ratio));
  cells.push_back(std::move(cell));
}

template <typename Number>
std::optional<double> as_double(const std::optional<Number>& number) {
  return number ? std::optional(static_cast<double>(*number)) : std::nullopt;
}
std::optional<double> ratio_of(const std::optional<double>& part, const std::optional<double>& of) {
  return part && of && *of > 0 ? std::optional(*part / *of) : std::nullopt;
}
std::optional<double> memory_ratio(const JobRow& job) {
  return ratio_of(as_double(job.memory_peak_bytes), as_double(job.memory_limit_bytes));
}
std::optional<double> time_ratio(const JobRow& job) {
  return ratio_of(job.elapsed_seconds, as_double(job.time_limit_seconds));
}

}  // namespace

List use_rows(const JobRow& job) {
  List rows;
  if (job.runs > 0) return rows;
  const auto count = [](const auto& n) { return n ? std::to_string(*n) : std::string{}; };
  const auto bytes = [](const auto& n) { return n ? format_bytes(*n) : std::string{}; };
  const auto seconds = [](const auto& n) {
    return n ? format_seconds(static_cast<double>(*n)) : std::string{};
  };
  add_row(rows, "cpus", Good::kUsed, count(job.cpus),
          job.cpu_seconds ? words("cpu_time", {format_seconds(*job.cpu_seconds)}) : "",
          job.cpu_ratio);
  add_row(rows, "memory", Good::kBelowLimit, bytes(job.memory_limit_bytes),
          bytes(job.memory_peak_bytes), memory_ratio(job));
  add_row(rows, "time", Good::kBelowLimit, seconds(job.time_limit_seconds),
          seconds(job.elapsed_seconds), time_ratio(job));
  if (job.gpus.value_or(0) > 0)
    add_row(rows, "gpus", Good::kUsed, count(job.gpus), "", job.gpu_ratio);
  return rows;
}

List use_cells(const JobRow& job, bool with_gpus) {
  const JobRow none;
  const JobRow& of = job.runs > 0 ? none : job;
  List cells;
  add_cell(cells, "time", Good::kBelowLimit, query::time_use_text(of), time_ratio(of));
  add_cell(cells, "cpu", Good::kUsed, query::cpu_text(of), of.cpu_ratio);
  add_cell(cells, "memory", Good::kBelowLimit, query::memory_text(of), memory_ratio(of));
  if (with_gpus) add_cell(cells, "gpus", Good::kUsed, query::gpu_text(of), of.gpu_ratio);
  return cells;
}

}  // namespace scriptorium::page
