#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "backends/catalog/maintenance.h"
#include "backends/catalog/move.h"
#include "backends/catalog/readable.h"
#include "backends/catalog/segments.h"
#include "core/api/event.h"
#include "tests/support/event_factory.h"

// Events for the catalog's tests, and what must hold of a catalog at any time.
namespace scriptorium::catalog::test_support {

inline std::shared_ptr<const Event> shared(Event event) {
  return std::make_shared<const Event>(std::move(event));
}

// A job.script event that was submitted so many seconds after the usual ones.
inline Event job_at(const std::string& id, std::int64_t seconds,
                    const std::string& script = test::kScript) {
  Event event = test::make_event_value(id, script);
  event.time.nanoseconds += seconds * kSecond;
  event.job.submitted_at = event.time;
  event.id = event_id(event.cluster, event.scheduler, event.kind, id, event.time.nanoseconds,
                      event.files[0].sha256);
  return event;
}

// A usage.job event of the job that `of` submitted; `number` tells several apart, the highest ends
// last.
inline Event usage_event(const Event& of, const std::string& state, int number = 1) {
  Event event;
  event.kind = "usage.job";
  event.time = of.time;
  event.captured_at = of.captured_at;
  event.capture = "accounting";
  event.cluster = of.cluster;
  event.scheduler = of.scheduler;
  event.host = "n1";
  event.job.id = of.job.id;
  event.job.name = of.job.name;
  event.user = of.user;
  const auto time = [&](std::int64_t seconds) {
    return format_rfc3339({of.time.nanoseconds + (seconds + number) * kSecond},
                          TimePrecision::kSeconds);
  };
  event.extra_json = R"({"job":{"state":")" + state +
                     R"(","exit_code":"1:0"},"usage":{"elapsed_seconds":3600,"started_at":")" +
                     time(60) + R"(","ended_at":")" + time(3660) +
                     R"(","quality":"exact","findings":[]}})";
  event.id = event_id(std::vector<std::string_view>{of.id, state, std::to_string(number)});
  return event;
}

inline std::vector<std::int64_t> segment_ids(const std::string& root) {
  std::vector<std::int64_t> ids;
  auto catalog = open_catalog_reader(root);
  if (!catalog) return ids;
  for (const SegmentInfo& info : list_segments(**catalog)) ids.insert(ids.begin(), info.id);
  return ids;
}

// What `scriptorium catalog check` finds.
inline std::vector<std::string> problems_of(const std::string& root) {
  CatalogConfig config;
  config.root = root;
  const auto report = Maintenance(config, system_clock()).check({});
  if (!report) return {report.error().message()};
  std::vector<std::string> problems;
  for (const auto& finding : report->findings)
    problems.push_back(finding.place + ": " + finding.problem);
  return problems;
}

// Both: "" or what went wrong.
inline std::string rebuild(const std::string& root) {
  CatalogConfig config;
  config.root = root;
  config.segment_jobs = 8;
  const auto report = Maintenance(config, system_clock())
                          .rewrite(MaintainedSink::Rewrite::kDamaged, MaintainedSink::Control{});
  if (!report) return report.error().message();
  return report->findings.empty() ? "" : report->findings[0].problem;
}
inline std::string move_all_segments(const std::string& root) {
  CatalogConfig config;
  config.root = root;
  config.segment_jobs = 8;
  for (const std::int64_t segment : segment_ids(root)) {
    const auto moved = move_segment(config, system_clock(), segment, {});
    if (!moved) return moved.error().message();
    if (!moved->lost.empty()) return moved->lost[0].problem;
  }
  return "";
}

// Batches that use every way of storing something: new jobs, scripts that repeat, blocks that fill,
// later events, owners that become known, longer captures, and segments that end (with
// segment_jobs = 8).
inline std::vector<std::vector<Event>> workload() {
  std::vector<std::vector<Event>> batches;
  const auto text = [](int number, std::size_t size) {
    std::string script = "#!/bin/sh\n#SBATCH --job-name=run" + std::to_string(number) + "\n";
    for (int line = 0; script.size() < size; ++line)
      script += "srun step_" + std::to_string(line * 31 + number) + " --seed " +
                std::to_string(number * line) + "\n";
    return script;
  };
  std::vector<Event> first;
  for (int i = 1; i <= 6; ++i) first.push_back(job_at(std::to_string(i), i, text(i, 15'000)));
  first.push_back(job_at("7", 7, text(1, 15'000)));
  batches.push_back(first);

  std::vector<Event> unverified;
  for (int i = 10; i <= 12; ++i) {
    Event event = test::make_unverified_event(std::to_string(i), text(i, i == 12 ? 70'000 : 900));
    unverified.push_back(event);
  }
  batches.push_back(unverified);
  batches.push_back({usage_event(first[0], "FAILED"), usage_event(first[1], "COMPLETED"),
                     usage_event(unverified[0], "COMPLETED"),
                     usage_event(job_at("40", 40), "COMPLETED")});
  std::vector<Event> owned;
  for (const Event& event : unverified) owned.push_back(test::make_owned_event(event));
  owned.push_back(job_at("20", 20, text(20, 500)));
  batches.push_back(owned);

  Event longer = job_at("20", 21, text(20, 1'500));
  longer.supersedes = owned.back().id;
  std::vector<Event> second{longer, job_at("40", 40, text(40, 800)),
                            usage_event(first[0], "COMPLETED", 2)};
  for (int i = 50; i < 58; ++i) second.push_back(job_at(std::to_string(i), i, text(i, 9'000)));
  batches.push_back(second);
  batches.push_back({job_at("60", 60, text(60, 300)), usage_event(second[4], "TIMEOUT")});
  batches.push_back({job_at("61", 61, text(60, 300))});
  return batches;
}

}  // namespace scriptorium::catalog::test_support
