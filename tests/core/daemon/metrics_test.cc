#include "core/daemon/metrics.h"

#include <gmock/gmock.h>

#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace scriptorium::test {
namespace {

using ::testing::Contains;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// As `status --json` says it, with what is hard to get right: a reason with quotes, an absent
// number, a sink that only the journal knows.
constexpr const char* kStatus = R"({"version":"0.1.0","uptime_seconds":812.4,
 "sources":{"slurm":{"plugin":"slurm","capture":"fanotify","spool_there":true,"captured":10000,"captured_by":{"fanotify":9990,"scan":10},
   "redactions":{"jwt":3,"variable-name":12},
   "incomplete":1,"malformed":2,"superseding":0,"missed":{"vanished":3},"ignored":{"another \"owner\"\nor\\so":4},"duplicates":5,
   "overflows":0,"scans":7,"pending":0,"lag_seconds":0.004,"gaps":{"suspected":2,"confirmed":1},
   "owners":{"verified":9000,"unverified":{"hidden":7},"waiting":1,"failed_queries":2,"last_hour":{"decided":100,"unverified":6},
     "scheduler_load":{"share":0.0021,"questions":{"all jobs":3,"one job":51}}},
   "close_to_durable_seconds":{"count":9990,"sum":40.5,"buckets":[{"le":0.005,"count":9000},{"le":1,"count":9990}]}}},
 "journal":{"events":412,"bytes":1048576,"limit_bytes":1073741824,"full":false,"last_error":null},
 "sinks":{"archive":{"plugin":"file","acknowledged":9588,"attempts":9600,"in_flight":12,"retries":{"no space left on device":3},
   "dead":0,"waiting":412,"waiting_bytes":903211,"parked":0,"oldest_waiting_seconds":null,"last_success":"2026-11-21T01:26:22.364Z",
   "captured_to_acknowledged_seconds":{"count":0,"sum":0.0,"buckets":[]}},
  "gone":{"plugin":null,"configured":false,"waiting":1,"waiting_bytes":2,"dead":0}}})";

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

TEST(MetricsTest, SaysWhatTheStatusSays) {
  const auto lines = lines_of(render_metrics(kStatus, MetricsFormat::kPrometheus));
  for (const char* wanted : {
           R"(scriptorium_build_info{version="0.1.0"} 1)",
           R"(scriptorium_uptime_seconds 812.4)",
           R"(scriptorium_journal_events 412)",
           R"(scriptorium_journal_limit_bytes 1073741824)",
           R"(scriptorium_journal_full 0)",
           R"(scriptorium_source_captured_total{source="slurm"} 10000)",
           R"(scriptorium_source_captured_by_way_total{source="slurm",way="scan"} 10)",
           R"(scriptorium_redactions_total{source="slurm",rule="jwt"} 3)",
           R"(scriptorium_redactions_total{source="slurm",rule="variable-name"} 12)",
           R"(scriptorium_source_missed_total{source="slurm",reason="vanished"} 3)",
           R"(scriptorium_source_gap_jobs{source="slurm",state="confirmed"} 1)",
           R"(scriptorium_source_owners_verified_total{source="slurm"} 9000)",
           R"(scriptorium_source_owners_unverified_total{source="slurm",reason="hidden"} 7)",
           R"(scriptorium_source_owners_waiting{source="slurm"} 1)",
           R"(scriptorium_source_owners_decided_last_hour{source="slurm"} 100)",
           R"(scriptorium_source_owners_unverified_last_hour{source="slurm"} 6)",
           R"(scriptorium_source_scheduler_share_ratio{source="slurm"} 0.0021)",
           R"(scriptorium_source_scheduler_questions_total{source="slurm",kind="one job"} 51)",
           R"(scriptorium_source_info{source="slurm",plugin="slurm",way="fanotify"} 1)",
           R"(scriptorium_source_close_to_durable_seconds_bucket{source="slurm",le="0.005"} 9000)",
           R"(scriptorium_source_close_to_durable_seconds_bucket{source="slurm",le="+Inf"} 9990)",
           R"(scriptorium_source_close_to_durable_seconds_sum{source="slurm"} 40.5)",
           R"(scriptorium_sink_acknowledged_total{sink="archive"} 9588)",
           R"(scriptorium_sink_retries_total{sink="archive",reason="no space left on device"} 3)",
           R"(scriptorium_sink_waiting_events{sink="gone"} 1)",
           R"(scriptorium_sink_info{sink="gone",plugin="",configured="false"} 1)",
           R"(scriptorium_sink_last_success_timestamp_seconds{sink="archive"} 1795224382.364)",
       }) {
    EXPECT_THAT(lines, Contains(wanted));
  }
}

TEST(MetricsTest, SaysWhatMailsDidButNamesNobody) {
  const std::string text = render_metrics(
      R"({"mail":{"time":"2026-11-16T07:15:03Z","sent":12,"refused":1,"waiting":2,)"
      R"("waiting_for_a_day":0,"skipped":{"opted out":3},"may_be_lost":["alice on lab"]}})",
      MetricsFormat::kPrometheus);
  for (const char* line :
       {"scriptorium_mail_sent 12\n", "scriptorium_mail_refused 1\n",
        "scriptorium_mail_waiting 2\n", "scriptorium_mail_skipped{reason=\"opted out\"} 3\n",
        "scriptorium_mail_may_be_lost 1\n",
        "scriptorium_mail_last_run_timestamp_seconds 1794813303"}) {
    EXPECT_NE(text.find(line), std::string::npos) << line << text;
  }
  EXPECT_EQ(text.find("alice"), std::string::npos);
  EXPECT_EQ(render_metrics("{}", MetricsFormat::kPrometheus).find("mail"), std::string::npos);
}

TEST(MetricsTest, EscapesWhatALabelMayHold) {
  EXPECT_THAT(
      render_metrics(kStatus, MetricsFormat::kPrometheus),
      HasSubstr(
          R"(scriptorium_source_ignored_total{source="slurm",reason="another \"owner\"\nor\\so"} 4)"));
}

TEST(MetricsTest, WhatIsAbsentIsNotZero) {
  const std::string text = render_metrics(kStatus, MetricsFormat::kPrometheus);
  EXPECT_THAT(text, Not(HasSubstr("scriptorium_sink_oldest_waiting_seconds{")));
  EXPECT_THAT(text, Not(HasSubstr(R"(scriptorium_sink_acknowledged_total{sink="gone"})")));
}

TEST(MetricsTest, OpenMetricsNamesFamiliesWithoutTheSuffixAndEndsWithEof) {
  const std::string text = render_metrics(kStatus, MetricsFormat::kOpenMetrics);
  EXPECT_THAT(
      text,
      HasSubstr("# TYPE scriptorium_source_captured counter\nscriptorium_source_captured_total{"));
  EXPECT_THAT(text, HasSubstr("# TYPE scriptorium_build info\nscriptorium_build_info{"));
  EXPECT_THAT(text, HasSubstr(R"(le="1.0")"));
  EXPECT_THAT(text, EndsWith("\n# EOF\n"));
}

// What `promtool check metrics` complains of: a family that comes twice, one without HELP, samples
// of another name.
TEST(MetricsTest, EachFamilyComesOnceWithHelpTypeAndItsOwnSamples) {
  for (const MetricsFormat format : {MetricsFormat::kPrometheus, MetricsFormat::kOpenMetrics}) {
    std::set<std::string> families;
    std::string family;
    std::string help;
    for (const std::string& line : lines_of(render_metrics(kStatus, format))) {
      if (line == "# EOF") continue;
      std::istringstream words(line);
      std::string first;
      std::string second;
      std::string name;
      words >> first >> second >> name;
      if (line.starts_with("# HELP ")) {
        help = name;
        EXPECT_TRUE(families.insert(name).second) << name << " comes twice";
      } else if (line.starts_with("# TYPE ")) {
        EXPECT_EQ(name, help);
        family = name;
      } else {
        EXPECT_THAT(line, StartsWith(family));
        EXPECT_EQ(family.rfind("scriptorium_", 0), 0U);
      }
    }
    EXPECT_GT(families.size(), 30U);
  }
}

TEST(MetricsTest, AnAnswerThatIsNoStatusMakesNoFigures) {
  for (const char* text : {"", "[]", "null", R"({"sources":[1],"sinks":"x","journal":7})"}) {
    EXPECT_THAT(render_metrics(text, MetricsFormat::kOpenMetrics), EndsWith("# EOF\n")) << text;
  }
}

}  // namespace
}  // namespace scriptorium::test
