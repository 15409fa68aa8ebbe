#include "core/page/job_plots.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "core/page/templates.h"
#include "tests/support/event_factory.h"
#include "tests/support/zone.h"

namespace scriptorium::page {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using Json = nlohmann::ordered_json;

constexpr double kGiB = 1073741824;

class JobPlots : public ::testing::Test {
 protected:
  // At so many seconds after the job's submission, as the usage source writes it.
  void add(const std::string& host, double second, Json usage) {
    Event event = test::make_event_value("1");
    event.kind = "usage.sample";
    event.host = host;
    event.time.nanoseconds += static_cast<std::int64_t>(second * 1e9);
    event.extra_json = Json{{"usage", std::move(usage)}}.dump();
    record_.later.push_back(std::make_shared<const Event>(std::move(event)));
  }
  void add_cpu(const std::string& host, double second, double elapsed, double ratio) {
    add(host, second, {{"elapsed_seconds", elapsed}, {"cpu", {{"utilization_ratio", ratio}}}});
  }
  // What a page shows of them.
  std::string page() const {
    Values values;
    set_list(values, "plots", job_plots(record_));
    return filled("job", std::move(values), "");
  }
  // The lines of the picture that comes first.
  std::string first_lines() const {
    const std::string text = page();
    const std::size_t begin = text.find("<svg class=\"lines\"");
    if (begin == std::string::npos) return {};
    std::string lines;
    const std::string picture = text.substr(begin, text.find("</svg>", begin) - begin);
    for (std::size_t at = 0; (at = picture.find(" d=\"", at)) != std::string::npos;) {
      at += 4;
      lines += (lines.empty() ? "" : " ; ") + picture.substr(at, picture.find('"', at) - at);
    }
    return lines;
  }

  test::Zone zone_{test::kBerlin};
  Searchable::Record record_;
};

TEST_F(JobPlots, AJobWithoutSamplesHasNone) {
  EXPECT_THAT(job_plots(record_), IsEmpty());
  EXPECT_THAT(page(), AllOf(Not(HasSubstr("Over time")), Not(HasSubstr("<figure"))));
}

TEST_F(JobPlots, ShowsCpuMemoryWithItsLimitAndGpus) {
  for (int i = 0; i < 3; ++i) {
    add("n1", 60 * i,
        {{"seq", i + 1},
         {"elapsed_seconds", 60 * i},
         {"cpu", {{"utilization_ratio", 0.5 * i}}},
         {"memory", {{"working_set_bytes", kGiB * (i + 1)}, {"limit_bytes", 4 * kGiB}}},
         {"gpus", {{{"utilization_ratio", 0.2}}, {{"utilization_ratio", 0.6}}, {{"id", "x"}}}}});
  }
  EXPECT_THAT(job_plots(record_), SizeIs(3));
  EXPECT_THAT(
      page(),
      AllOf(HasSubstr("<title>CPU over time, from 0 % to 100 %</title>"),
            HasSubstr("d=\"M0 100L300 50L600 0\""), HasSubstr("<title>Memory over time, from 1.0 "),
            HasSubstr("<path class=\"limit\" d=\"M0 0H600\""), HasSubstr("M0 75L300 50L600 25"),
            HasSubstr("<title>GPU over time, from 40 % to 40 %"), HasSubstr("M0 60L300 60L600 60"),
            HasSubstr("<span>4.0 GiB</span><span>2.0 GiB</span><span>0 B</span>"),
            HasSubstr("<span>2026-11-21 02:26:22</span><span>2026-11-21 02:28:22 CET</span>"),
            Not(HasSubstr("style="))));
}

TEST_F(JobPlots, WhatIsNotMeasuredHasNoPlot) {
  add("n1", 0, {{"memory", {{"working_set_bytes", kGiB}}}});
  EXPECT_THAT(page(), AllOf(HasSubstr("Memory over time"), Not(HasSubstr("CPU over time")),
                            Not(HasSubstr("GPU over time")), Not(HasSubstr("class=\"limit\""))));
}

TEST_F(JobPlots, NamesTheNodesOfSeveral) {
  add_cpu("n2", 0, 0, 1);
  add_cpu("<b>n1", 0, 0, 0);
  EXPECT_THAT(page(), AllOf(HasSubstr("<path class=\"line0\" d=\"M0 4H24\""),
                            HasSubstr("</svg> &lt;b&gt;n1</li>"), HasSubstr("</svg> n2</li>"),
                            Not(HasSubstr("<b>n1"))));
  EXPECT_EQ(first_lines(), "M300 100h0 ; M300 0h0");
}

TEST_F(JobPlots, ShowsTheNewestLifeOnly) {
  for (int i = 0; i <= 3; ++i) add_cpu("n1", 60 * i, 60 * i, 0);
  for (int i = 0; i <= 3; ++i) add_cpu("n2", 60 * i, 60 * i, 0);
  for (int i = 0; i <= 2; ++i) add_cpu("n1", 300 + 60 * i, 60 * i + 0.2, 1);
  EXPECT_EQ(first_lines(), "M0 0L300 0L600 0");
}

TEST_F(JobPlots, ANodeWhoseFirstStepBeganLaterBelongsToTheSameLife) {
  for (int i = 0; i <= 60; ++i) add_cpu("n1", 60 * i, 60 * i, 0.5);
  for (int i = 30; i <= 60; ++i) add_cpu("n2", 60 * i, 60 * (i - 30), 1);
  EXPECT_THAT(first_lines(), AllOf(HasSubstr("M0 50L"), HasSubstr(" ; M300 0L")));
}

TEST_F(JobPlots, AnArrayHasNone) {
  add_cpu("n1", 0, 0, 1);
  record_.job.array_task_spec = "0-9";
  EXPECT_THAT(job_plots(record_), IsEmpty());
  record_.job.array_task_spec.reset();
  EXPECT_THAT(job_plots(record_), SizeIs(1));
  record_.job.runs = 3;
  EXPECT_THAT(job_plots(record_), IsEmpty());
}

TEST_F(JobPlots, StrangeSamplesDoNoHarm) {
  add_cpu("n1", 60, 60, 0.5);
  add_cpu("n1", 60, 60, 0.7);  // the same time
  add_cpu("n1", 0, 0, 0);      // not in order
  add_cpu("n1", 120, 120, -1);
  add_cpu("n1", 180, 180, 1e30);
  add_cpu("n1", 240, -5, 1);
  add_cpu("n1", 300, 1e300, 1);
  for (const char* usage : {"3", "[]", R"({"cpu": [], "gpus": {"a": 1}})", R"({"seq": -1e300})"})
    add("n1", 360, Json::parse(usage));
  Event broken = *record_.later.back();
  for (const char* text : {"", "{", R"({"usage": {"cpu": {"utilization_ratio": 1e999}}})"}) {
    broken.extra_json = text;
    broken.time.nanoseconds += kSecond;
    record_.later.push_back(std::make_shared<const Event>(broken));
  }
  EXPECT_THAT(first_lines(), HasSubstr("M0 100L99.2 50M396.7 0L495.9 0"));
}

}  // namespace
}  // namespace scriptorium::page
