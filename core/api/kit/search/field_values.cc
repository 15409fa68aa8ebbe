#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "core/api/kit/search/field_glob.h"
#include "core/api/kit/search/job_facts.h"
#include "core/api/kit/search/query_matcher.h"
#include "core/base/ascii.h"

// What a job has in each field, and whether a query's value or range holds for it.
namespace scriptorium {
namespace {

using Texts = std::vector<std::string>;
using Number = std::optional<std::int64_t>;

void add_text(Texts& texts, const std::optional<std::string>& value) {
  if (value) texts.push_back(*value);
}

template <typename T>
void add_number(Texts& texts, const std::optional<T>& value) {
  if (value) texts.push_back(std::to_string(*value));
}

void add_day(Texts& texts, const std::optional<Timestamp>& time) {
  if (time) texts.push_back(format_rfc3339(*time, TimePrecision::kSeconds).substr(0, 10));
}

// Fractions do not count: 90.5 is within 80 to 90.
Number whole(std::optional<double> value) {
  constexpr double kMost = 9e18;
  if (!value || !std::isfinite(*value)) return std::nullopt;
  return static_cast<std::int64_t>(std::floor(std::clamp(*value, -kMost, kMost)));
}

Number whole(std::optional<std::uint64_t> value) {
  if (!value) return std::nullopt;
  constexpr auto kMost = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  return static_cast<std::int64_t>(std::min(*value, kMost));
}

// 0.29 * 100 is 28.999999999999996.
Number percent_of(std::optional<double> ratio) {
  if (!ratio) return std::nullopt;
  return whole(std::optional(*ratio * 100 + 1e-9));
}

Number memory_percent(const JobRow& job) {
  if (!job.memory_peak_bytes || job.memory_limit_bytes.value_or(0) == 0) return std::nullopt;
  return percent_of(static_cast<double>(*job.memory_peak_bytes) /
                    static_cast<double>(*job.memory_limit_bytes));
}

Number nanoseconds(const std::optional<Timestamp>& time) {
  return time ? Number(time->nanoseconds) : std::nullopt;
}

Number number_of(const Query& node, const JobRow& job) {
  switch (node.field) {
    case QueryField::kExit: return job.exit_code;
    case QueryField::kElapsed: return whole(job.elapsed_seconds);
    case QueryField::kMemory:
      return node.percent ? memory_percent(job) : whole(job.memory_peak_bytes);
    case QueryField::kCpu: return node.percent ? percent_of(job.cpu_ratio) : whole(job.cpus);
    case QueryField::kGpu: return node.percent ? percent_of(job.gpu_ratio) : whole(job.gpus);
    case QueryField::kSubmitted: return job.time.nanoseconds;
    case QueryField::kEnded: return nanoseconds(job.ended_at);
    case QueryField::kStarted: return nanoseconds(job.started_at);
    case QueryField::kRequestedMemory: return whole(job.memory_limit_bytes);
    case QueryField::kRequestedCpu: return whole(job.cpus);
    case QueryField::kRequestedGpu: return whole(job.gpus);
    case QueryField::kRequestedTime: return whole(job.time_limit_seconds);
    default: return std::nullopt;
  }
}

bool any_matches(const Texts& values, std::string_view pattern) {
  return std::any_of(values.begin(), values.end(),
                     [&](const std::string& value) { return glob_in_any_case(pattern, value); });
}

// Also without what follows the last or first of `marks`: a version, or a value.
bool shortened_matches(const Texts& values, std::string_view pattern, std::string_view marks,
                       bool last) {
  return std::any_of(values.begin(), values.end(), [&](std::string_view value) {
    if (glob_in_any_case(pattern, value)) return true;
    const std::size_t end = last ? value.find_last_of(marks) : value.find_first_of(marks);
    return end != std::string_view::npos && end > 0 &&
           glob_in_any_case(pattern, value.substr(0, end));
  });
}

// "KIND NAME", or one of them.
bool software_matches(const Texts& values, std::string_view pattern) {
  return std::any_of(values.begin(), values.end(), [&](std::string_view value) {
    const auto [kind, name] = software_parts(value);
    return glob_in_any_case(pattern, value) || glob_in_any_case(pattern, kind) ||
           glob_in_any_case(pattern, name);
  });
}

bool text_matches(const Query& node, const JobRow& job) {
  const std::string_view text = node.text;
  switch (node.field) {
    case QueryField::kUser:
      return any_matches(field_values(node.field, job), text) || (job.uid && *job.uid == text);
    case QueryField::kModule: return shortened_matches(job.modules, text, "/", true);
    case QueryField::kDirective: return shortened_matches(job.directives, text, "= \t", false);
    case QueryField::kSoftware: return software_matches(job.software, text);
    case QueryField::kArray:
      if (text == "true" || text == "false")
        return job.array_job_id.has_value() == (text == "true");
      break;
    case QueryField::kScript:
      if (text.find('*') == std::string_view::npos) {
        return job.script_sha256 && !text.empty() &&
               glob_in_any_case(text, job.script_sha256->substr(0, text.size()));
      }
      break;
    default: break;
  }
  return any_matches(field_values(node.field, job), text);
}

}  // namespace

bool field_matches(const Query& node, const JobRow& job) {
  switch (node.kind) {
    case Query::Kind::kAll: return true;
    case Query::Kind::kField: return text_matches(node, job);
    case Query::Kind::kRange: {
      const Number value = number_of(node, job);
      return value && (!node.from || *value >= *node.from) && (!node.to || *value <= *node.to);
    }
    default: return false;
  }
}

std::vector<std::string> field_values(QueryField field, const JobRow& job) {
  Texts texts;
  switch (field) {
    case QueryField::kJob: texts.push_back(job.id); break;
    case QueryField::kUser: add_text(texts, job.user); break;
    case QueryField::kAccount: add_text(texts, job.account); break;
    case QueryField::kPartition: add_text(texts, job.partition); break;
    case QueryField::kQos: add_text(texts, job.qos); break;
    case QueryField::kName: add_text(texts, job.name); break;
    case QueryField::kCluster: texts.push_back(job.cluster); break;
    case QueryField::kScheduler: texts.push_back(job.scheduler); break;
    case QueryField::kModule: return job.modules;
    case QueryField::kDirective: return job.directives;
    case QueryField::kSoftware: return job.software;
    case QueryField::kInterpreter: add_text(texts, job.interpreter); break;
    case QueryField::kState: add_text(texts, job.state); break;
    case QueryField::kExit:
      add_number(texts, job.exit_code);
      if (job.exit_signal.value_or(0) != 0)
        texts.push_back("signal:" + std::to_string(*job.exit_signal));
      break;
    case QueryField::kElapsed: add_number(texts, whole(job.elapsed_seconds)); break;
    case QueryField::kMemory: add_number(texts, job.memory_peak_bytes); break;
    case QueryField::kCpu: add_number(texts, job.cpus); break;
    case QueryField::kGpu: add_number(texts, job.gpus); break;
    case QueryField::kNode: return job.nodes;
    case QueryField::kSubmitted: add_day(texts, job.time); break;
    case QueryField::kStarted: add_day(texts, job.started_at); break;
    case QueryField::kEnded: add_day(texts, job.ended_at); break;
    case QueryField::kWorkDir: add_text(texts, job.work_dir); break;
    case QueryField::kFinding:
      texts = job.findings;
      if (job.redacted) texts.emplace_back("secret");
      break;
    case QueryField::kFamily: add_number(texts, job.family); break;
    case QueryField::kArray: add_text(texts, job.array_job_id); break;
    case QueryField::kComplete: texts.emplace_back(job.complete ? "true" : "false"); break;
    case QueryField::kVerified: texts.emplace_back(job.verified ? "true" : "false"); break;
    case QueryField::kScript: add_text(texts, job.script_sha256); break;
    case QueryField::kSecret: texts.emplace_back(job.redacted ? "true" : "false"); break;
    case QueryField::kRequestedMemory: add_number(texts, job.memory_limit_bytes); break;
    case QueryField::kRequestedCpu: add_number(texts, job.cpus); break;
    case QueryField::kRequestedGpu: add_number(texts, job.gpus); break;
    case QueryField::kRequestedTime: add_number(texts, job.time_limit_seconds); break;
  }
  return texts;
}

}  // namespace scriptorium
