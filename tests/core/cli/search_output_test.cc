#include "core/cli/search_output.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <ctime>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

namespace scriptorium::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class SearchOutputTest : public ::testing::Test {
 protected:
  SearchOutputTest() {
    ::setenv("TZ", "UTC", 1);
    ::tzset();
    Searchable::Hit hit;
    hit.job.cluster = "lab";
    hit.job.id = "4711";
    hit.job.time = Timestamp{1795224382'364'000'000};
    hit.job.user = "alice";
    hit.job.verified = true;
    hit.job.name = "md\033[2J";
    hit.job.state = "FAILED";
    hit.job.exit_code = 2;
    hit.lines.push_back({JobPart::kScript, 3, "srun\tgmx mdrun", {{5, 8}}});
    answer_.hits.push_back(hit);
  }
  std::string printed(const Arguments& arguments, bool colour = false) {
    const Console console{
        .in = in_, .out = out_, .err = out_, .colour = colour, .width = colour ? 80U : 0U};
    const auto output = make_search_output(arguments, "lab", console);
    const std::string page = output->page(answer_);
    return page + output->end(answer_, {"archive", nullptr}, Searchable::Count{41, true});
  }

  Searchable::Answer answer_;
  std::istringstream in_;
  std::ostringstream out_;
};

TEST_F(SearchOutputTest, PeopleGetATableWithTheLinesBelowEachJob) {
  EXPECT_EQ(printed({}),
            "SUBMITTED         JOB   USER   NAME       STATE\n"
            "2026-11-21 01:26  4711  alice  md\\x1b[2J  FAILED (2)\n"
            "       3: srun gmx mdrun\n");
}

TEST_F(SearchOutputTest, OnATerminalTheMatchIsHighlighted) {
  EXPECT_THAT(printed({}, true), HasSubstr("srun \033[1;31mgmx\033[0m mdrun"));
  EXPECT_THAT(printed({}, true), HasSubstr("\033[31mFAILED (2)\033[0m"));
}

TEST_F(SearchOutputTest, AnUnverifiedOwnerAndAnotherClusterAreSaid) {
  answer_.hits[0].job.verified = false;
  answer_.hits[0].job.cluster = "hpc";
  EXPECT_THAT(printed({}), HasSubstr("alice?"));
  EXPECT_THAT(printed({}), HasSubstr("hpc"));
}

TEST_F(SearchOutputTest, IdsAreWhatShowTakes) {
  answer_.hits.push_back(answer_.hits[0]);
  answer_.hits[1].job.cluster = "hpc";
  EXPECT_EQ(printed({.ids = true}), "4711\nhpc/4711\n");
  EXPECT_EQ(printed({.nul = true}), std::string("4711\0hpc/4711\0", 14));
}

TEST_F(SearchOutputTest, CsvHasAHeaderAndOneLineForEachJob) {
  const std::string text = printed({.csv = true});
  EXPECT_THAT(text, StartsWith("cluster,scheduler,id,submitted_at,name,user,"));
  EXPECT_THAT(text, HasSubstr("\r\nlab,,4711,2026-11-21T01:26:22.364Z,md\\x1b[2J,alice,"));
}

TEST_F(SearchOutputTest, JsonIsOneObjectWithHitsAndHowFarItGot) {
  Arguments arguments;
  arguments.json = true;
  arguments.query = {"gmx", "user:alice"};
  answer_.finished = false;
  answer_.next = "token";
  answer_.searched_back_to = Timestamp{1795224382'364'000'000};
  const auto json = nlohmann::json::parse(printed(arguments));
  EXPECT_EQ(json.at("query"), "gmx user:alice");
  EXPECT_EQ(json.at("sink"), "archive");
  EXPECT_EQ(json.at("complete"), false);
  EXPECT_EQ(json.at("end_unknown").at("jobs"), 41);
  EXPECT_EQ(json.at("end_unknown").at("at_least"), true);
  EXPECT_EQ(json.at("next"), "token");
  EXPECT_EQ(json.at("searched_back_to"), "2026-11-21T01:26:22.364Z");
  const auto& hit = json.at("hits").at(0);
  EXPECT_EQ(hit.at("job").at("id"), "4711");
  EXPECT_EQ(hit.at("lines").at(0).at("number"), 3);
  EXPECT_EQ(hit.at("lines").at(0).at("marks").at(0), nlohmann::json({5, 8}));
  answer_.hits.clear();
  EXPECT_TRUE(nlohmann::json::parse(printed(arguments)).at("hits").empty());
}

TEST_F(SearchOutputTest, FacetsSayWhatTheyCounted) {
  answer_.hits.clear();
  answer_.facets.push_back({QueryField::kUser, {{"alice", 12}, {"bob", 3}}, false, 10'000});
  const std::string text = printed({});
  EXPECT_EQ(text,
            "USER   JOBS\nalice    12\nbob       3\n"
            "  of the newest 10000 matches; --exact counts all\n");
  answer_.facets[0].exact = true;
  EXPECT_THAT(printed({}), Not(HasSubstr("newest")));
}

TEST_F(SearchOutputTest, ACountIsTheNumberAlone) {
  answer_.hits.clear();
  answer_.count = Searchable::Count{.jobs = 17};
  EXPECT_EQ(printed({.count = true}), "17\n");
  answer_.count->at_least = true;
  EXPECT_EQ(printed({.count = true}), "at least 17\n");
}

}  // namespace
}  // namespace scriptorium::cli
