#include "core/daemon/status_json.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

namespace scriptorium {
namespace {

using Json = nlohmann::json;

class StatusJsonTest : public testing::Test {
 protected:
  StatusJsonTest() {
    status_.now = Timestamp{100'000'000'000};
    status_.privileges_json = R"({"separated":false})";
  }
  Json json() const { return Json::parse(status_json(status_)); }
  Json source() const { return json().at("sources").at("slurm"); }
  Json sink() const { return json().at("sinks").at("archive"); }
  void add_sink(SinkStatus sink, Journal::SinkState state) {
    sink.name = state.name = "archive";
    status_.sinks.push_back(std::move(sink));
    status_.journal.sinks.push_back(std::move(state));
  }

  DaemonStatus status_;
};

TEST_F(StatusJsonTest, SaysHowTheLastReloadEnded) {
  EXPECT_TRUE(json().at("last_reload").is_null());
  status_.last_reload = {"2026-11-22T10:00:00Z", ""};
  EXPECT_EQ(json().at("last_reload"), "2026-11-22T10:00:00Z ok");
  EXPECT_TRUE(json().at("reload_refused").is_null());
  status_.last_reload.refused = "no such plugin";
  EXPECT_EQ(json().at("last_reload"), "2026-11-22T10:00:00Z refused: no such plugin");
  EXPECT_EQ(json().at("reload_refused"), "no such plugin");
}

TEST_F(StatusJsonTest, HasWhatTheMailsFileSaysIfThatIsAnObject) {
  EXPECT_TRUE(json().at("mail").is_null());
  status_.mail_json = R"({"sent":3})";
  EXPECT_EQ(json().at("mail").at("sent"), 3);
  for (const char* damaged : {"[]", R"({"sent":)", "3"}) {
    status_.mail_json = damaged;
    EXPECT_TRUE(json().at("mail").is_null()) << damaged;
  }
}

TEST_F(StatusJsonTest, RoundsSecondsToThousandths) {
  status_.uptime_seconds = 1.23456;
  EXPECT_EQ(json().at("uptime_seconds"), 1.235);
}

TEST_F(StatusJsonTest, ASpoolSourceAlwaysCountsVanishedEntriesAndLeavesOutWhatItLacks) {
  status_.sources.push_back({"slurm", "slurm", SpoolSourceStatus{}});
  EXPECT_EQ(source().at("missed"), Json({{"vanished", 0}}));
  EXPECT_EQ(source().at("redactions"), Json::object());
  EXPECT_TRUE(source().at("lag_seconds").is_null());
  EXPECT_TRUE(source().at("gaps").is_null());
  EXPECT_FALSE(source().contains("owners"));
}

TEST_F(StatusJsonTest, ShowsTheSchedulersLoadOnlyIfItWasAsked) {
  SpoolSourceStatus spool;
  spool.owners.emplace();
  spool.owners->waiting = 3;
  spool.owners->status.unverified = {{"the scheduler knows no such job", 2}};
  status_.sources.push_back({"slurm", "slurm", spool});
  EXPECT_EQ(source().at("owners").at("waiting"), 3);
  EXPECT_EQ(source().at("owners").at("unverified").at("the scheduler knows no such job"), 2);
  EXPECT_FALSE(source().at("owners").contains("scheduler_load"));
  EXPECT_FALSE(source().at("owners").contains("later"));
  spool.owners->status.load.questions = {{"squeue", 5}};
  spool.owners->status.load.share = 0.0123456;
  spool.owners->later.emplace();
  status_.sources.back().kind = spool;
  EXPECT_EQ(source().at("owners").at("scheduler_load").at("share"), 0.01235);
  EXPECT_TRUE(source().at("owners").at("later").at("last_error").is_null());
}

TEST_F(StatusJsonTest, AFreeSourceShowsWhatItsPluginSays) {
  FreeSourceStatus free{
      .captured = 7, .redactions = {{"jwt", 2}}, .last_error = "no cgroup", .own = {}};
  status_.sources.push_back({"slurm", "usage", free});
  EXPECT_EQ(source(), Json({{"plugin", "usage"},
                            {"captured", 7},
                            {"redactions", {{"jwt", 2}}},
                            {"last_error", "no cgroup"}}));
  free.own.json = R"({"jobs": 4})";
  status_.sources.back().kind = free;
  EXPECT_EQ(source().at("plugin_status"), Json({{"jobs", 4}}));
  free.own.thrown = "oops";
  status_.sources.back().kind = free;
  EXPECT_EQ(source().at("plugin_status"), Json({{"error", "oops"}}));
}

TEST_F(StatusJsonTest, HistogramBucketsCountEverythingBelowTheirBounds) {
  SinkStatus sink;
  for (const double seconds : {0.0005, 0.02, 9999.0}) sink.dispatcher.latency.add(seconds);
  add_sink(std::move(sink), {});
  const Json histogram = this->sink().at("captured_to_acknowledged_seconds");
  EXPECT_EQ(histogram.at("count"), 3);
  EXPECT_EQ(histogram.at("buckets").front(), Json({{"le", 0.001}, {"count", 1}}));
  EXPECT_EQ(histogram.at("buckets").back(), Json({{"le", 3600.0}, {"count", 2}}));
}

TEST_F(StatusJsonTest, TheLastSuccessOfASinkMayBeOfAnEarlierRun) {
  add_sink({}, {.oldest_waiting = Timestamp{98'500'000'000}, .last_success = Timestamp{0}});
  EXPECT_EQ(sink().at("oldest_waiting_seconds"), 1.5);
  EXPECT_EQ(sink().at("last_success"), "1970-01-01T00:00:00.000Z");
  status_.sinks.front().dispatcher.last_success = Timestamp{1'000'000'000};
  EXPECT_EQ(sink().at("last_success"), "1970-01-01T00:00:01.000Z");
}

TEST_F(StatusJsonTest, ASinkSaysWhetherItIsReadyAndInWhichCallItIs) {
  SinkStatus waiting;
  waiting.dispatcher.not_ready = "no such group";
  add_sink(std::move(waiting), {});
  EXPECT_EQ(sink().at("ready"), false);
  EXPECT_EQ(sink().at("not_ready"), "no such group");
  EXPECT_TRUE(sink().at("call_under_way").is_null());
  status_.steady_now = SteadyTime{std::chrono::milliseconds(12'500)};
  status_.sinks.front().dispatcher = {};
  status_.sinks.front().dispatcher.ready = true;
  status_.sinks.front().call_under_way = {"deliver", SteadyTime{std::chrono::seconds(10)}};
  EXPECT_EQ(sink().at("ready"), true);
  EXPECT_TRUE(sink().at("not_ready").is_null());
  EXPECT_EQ(sink().at("call_under_way"), Json({{"name", "deliver"}, {"seconds", 2.5}}));
}

TEST_F(StatusJsonTest, ASinkThatOnlyTheJournalKnowsIsNotConfigured) {
  status_.journal.sinks.push_back({.name = "archive", .waiting = 5, .dead = 1});
  EXPECT_EQ(sink().at("configured"), false);
  EXPECT_TRUE(sink().at("plugin").is_null());
  EXPECT_EQ(sink().at("waiting"), 5);
}

TEST_F(StatusJsonTest, AFillIsShownAtItsSink) {
  Journal::Fill fill;
  fill.sink = "archive";
  fill.state = Journal::Fill::State::kFilling;
  fill.sent = 12;
  status_.fills = {fill};
  EXPECT_TRUE(json().at("sinks").empty()) << "its sink is not in the journal";
  add_sink({}, {});
  EXPECT_EQ(sink().at("fill").at("state"), "filling");
  EXPECT_EQ(sink().at("fill").at("sent"), 12);
  EXPECT_TRUE(sink().at("fill").at("since").is_null());
}

TEST_F(StatusJsonTest, SumsUpTheEntriesOfUsersOverTheirShare) {
  status_.journal.over_share = {
      {.user_id = "1000", .user = "alice", .bytes = 10, .waiting = 2, .waiting_bytes = 20},
      {.waiting = 3}};
  const Json journal = json().at("journal");
  EXPECT_EQ(journal.at("over_share_waiting"), 5);
  EXPECT_EQ(journal.at("over_share").at(0).at("user"), "alice");
  EXPECT_TRUE(journal.at("over_share").at(1).at("user_id").is_null());
}

}  // namespace
}  // namespace scriptorium
