#pragma once

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "backends/catalog/field_lists.h"
#include "backends/catalog/names.h"
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

// What is wrong with one segment: every content that a row names can be read, everything else is
// counted as garbage, and no summary misses a job.
inline std::vector<std::string> problems_of(const std::string& root, std::int64_t id) {
  std::vector<std::string> problems;
  const auto wrong = [&](std::string what) {
    problems.push_back(segment_name(id) + ": " + std::move(what));
  };
  auto opened = EventReader::open(root, id);
  if (!opened) {
    wrong(opened.error().message());
    return problems;
  }
  EventReader& segment = **opened;
  if (segment.db().text("PRAGMA integrity_check") != "ok") wrong("integrity_check");
  std::set<std::int64_t> named;
  const auto read = segment.rows().read_range(0, 1'000'000, [&](JobEntry&& entry) {
    if (entry.record) {
      const auto event = segment.submission(entry);
      if (!event) {
        wrong("job " + entry.row.id + ": " + event.error().message());
      } else if (event->id != entry.row.event_id) {
        wrong("job " + entry.row.id + " has another event's record");
      }
    }
    for (const auto content : {entry.script, entry.environment, entry.record}) {
      if (content) named.insert(*content);
    }
    const auto later = segment.later_records(entry.id);
    if (!later) wrong(later.error().message());
    for (const std::int64_t record : later ? *later : std::vector<std::int64_t>{}) {
      if (!segment.record(record)) wrong("job " + entry.row.id + ": a later record");
      named.insert(record);
    }
    return true;
  });
  if (!read) wrong(read.error().message());
  const auto none = [&](const char* what, const char* count) {
    const auto number = segment.db().integer(count);
    if (const auto error = segment.db().take_error()) wrong(error->message());
    if (number != 0) wrong(std::to_string(number.value_or(-1)) + " " + what);
  };
  if (segment.db().number("SELECT count(*) FROM contents") != named.size())
    wrong("contents that no row names");
  none("contents in neither or both places",
       "SELECT count(*) FROM contents c LEFT JOIN pending p ON p.id = c.id LEFT JOIN blocks b ON "
       "b.id = c.block WHERE (c.block IS NULL) = (p.id IS NULL) OR b.owner <> c.owner OR b.kind <> "
       "c.kind");
  none("pending rows of no content",
       "SELECT count(*) FROM pending p LEFT JOIN contents c ON c.id = p.id WHERE c.id IS NULL");
  none("blocks whose garbage is wrong",
       "SELECT count(*) FROM blocks b WHERE count - garbage <> (SELECT count(*) FROM contents c "
       "WHERE c.block = b.id)");
  none("jobs that daily lacks",
       "SELECT (SELECT count(*) FROM jobs) - (SELECT coalesce(sum(jobs), 0) FROM daily)");
  none("jobs outside of their chunk's times",
       "SELECT count(*) FROM jobs j LEFT JOIN chunks c ON c.id = j.id / 256 WHERE c.id IS NULL OR "
       "j.time > c.newest OR j.time < c.oldest");
  none("jobs outside of their block's times",
       "SELECT count(*) FROM jobs j JOIN contents c ON c.id = j.script JOIN script_blocks b ON "
       "b.id = c.block WHERE j.time > b.newest OR j.time < b.oldest");
  none("jobs outside of their pending script's times",
       "SELECT count(*) FROM jobs j JOIN pending p ON p.id = j.script WHERE j.time > p.newest OR "
       "j.time < p.oldest");
  none("script blocks without words' owner or pairs",
       "SELECT count(*) FROM blocks b LEFT JOIN script_blocks s ON s.id = b.id LEFT JOIN pairs p "
       "ON p.id = b.id WHERE b.kind = 0 AND (s.id IS NULL OR p.id IS NULL OR s.owner <> b.owner)");
  FieldReader fields(segment.db());
  sqlite::Statement users(segment.db(), "SELECT id, user FROM jobs WHERE user NOT NULL");
  while (users.step()) {
    const auto list = fields.values(name_field(QueryField::kUser), users.integer(0) / kChunkJobs);
    if (!list || !std::binary_search(list->begin(), list->end(), users.integer(1)))
      wrong("a job whose user is not in fields");
  }
  return problems;
}

inline std::vector<std::int64_t> segment_ids(const std::string& root) {
  std::vector<std::int64_t> ids;
  auto catalog = open_catalog_reader(root);
  if (!catalog) return ids;
  for (const SegmentInfo& info : list_segments(**catalog)) ids.insert(ids.begin(), info.id);
  return ids;
}

inline std::vector<std::string> problems_of(const std::string& root) {
  std::vector<std::string> all;
  const std::vector<std::int64_t> segments = segment_ids(root);
  if (segments.empty()) all.emplace_back("there is no segment");
  std::set<std::int64_t> families;
  if (auto catalog = open_catalog_reader(root)) {
    sqlite::Statement select(**catalog, "SELECT id FROM families");
    while (select.step()) families.insert(select.integer(0));
  }
  for (const std::int64_t id : segments) {
    for (std::string& problem : problems_of(root, id)) all.push_back(std::move(problem));
    auto db = open_segment_reader(root, id);
    if (!db) continue;
    sqlite::Statement select(**db, "SELECT DISTINCT family FROM jobs WHERE family NOT NULL");
    while (select.step()) {
      if (!families.contains(select.integer(0)))
        all.push_back(segment_name(id) + ": a job of an unknown family");
    }
  }
  return all;
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
