#include "checkpoint/migrate/report.h"

#include <nlohmann/json.hpp>

#include "core/base/text.h"

namespace scriptorium::checkpoint {

std::string report_line(const MoveReport& report) {
  std::string text = "job " + report.job + "  " + to_string(report.outcome);
  if (!report.from.empty() && !report.to.empty())
    text += " from " + report.from + " to " + report.to;
  if (report.downtime_seconds > 0) text += " in " + format_seconds(report.downtime_seconds);
  if (!report.reason.empty()) text += ": " + printable(report.reason, 500);
  return text;
}

std::string report_json(const std::vector<MoveReport>& reports, const std::string& drained_node) {
  nlohmann::ordered_json jobs = nlohmann::ordered_json::array();
  for (const MoveReport& report : reports) {
    nlohmann::ordered_json job{{"job", report.job},
                               {"uid", report.uid},
                               {"outcome", to_string(report.outcome)},
                               {"as_asked", report.is_as_asked}};
    const auto put = [&](const char* name, const std::string& value) {
      if (!value.empty()) job[name] = to_utf8_lossy(value);
    };
    put("method", report.method);
    put("from", report.from);
    put("to", report.to);
    put("reason", report.reason);
    if (report.downtime_seconds > 0) job["downtime_seconds"] = report.downtime_seconds;
    if (report.outcome == MoveOutcome::kRequeued) job["lost_seconds"] = report.lost_seconds;
    jobs.push_back(std::move(job));
  }
  nlohmann::ordered_json all{{"format", 1}};
  if (!drained_node.empty()) all["node"] = drained_node;
  all["jobs"] = std::move(jobs);
  return all.dump(2) + "\n";
}

}  // namespace scriptorium::checkpoint
