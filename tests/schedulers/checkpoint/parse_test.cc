#include "schedulers/checkpoint/parse.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "checkpoint/record.h"

namespace scriptorium::checkpoint_records {
namespace {

using Json = nlohmann::json;

// As the service writes it.
checkpoint::Record written(const std::string& action) {
  checkpoint::Record record;
  record.time = {1'795'881'600'123'000'000};
  record.node = "n1";
  record.scheduler = "slurm";
  record.job = "4711";
  record.user = "alice";
  record.uid = 1001;
  record.action = action;
  record.engine = "criu";
  record.engine_version = "4.1.1";
  record.root_pid = 77;
  return record;
}

Json json_of(const std::string& action) {
  return Json::parse(checkpoint::record_text(written(action)));
}

std::string problem_of(const Json& json) {
  const auto event = parse_record(json.dump(), "lab");
  EXPECT_FALSE(event) << json;
  return event ? std::string{} : event.error().message();
}

TEST(ParseRecordTest, MakesAnEventOfWhatTheServiceWrites) {
  checkpoint::Record record = written("made");
  record.processes = 2;
  record.image_path = "/home/alice/checkpoint";
  record.image_bytes = 512;
  record.manifest_sha256 = std::string(64, 'a');
  record.duration_ms = 1500;
  record.frozen_ms = 250;
  record.runs_on = true;
  record.tries = 1;
  const std::string text = checkpoint::record_text(record);
  const auto event = parse_record(text, "lab");
  ASSERT_TRUE(event) << event.error().message();
  EXPECT_EQ(event->kind, "job.checkpoint");
  EXPECT_EQ(event->time.nanoseconds, 1'795'881'600'123'000'000);
  EXPECT_EQ(event->cluster, "lab");
  EXPECT_EQ(event->scheduler, "slurm");
  EXPECT_EQ(event->host, "n1");
  EXPECT_EQ(event->job.id, "4711");
  EXPECT_EQ(event->user.name, "alice");
  EXPECT_EQ(event->user.id, "1001");
  EXPECT_TRUE(event->user.verified);
  EXPECT_EQ(Json::parse(event->extra_json),
            Json({{"checkpoint", Json::parse(text).at("checkpoint")}}));
}

TEST(ParseRecordTest, EveryActionOfTheServiceIsKnown) {
  for (const char* action : {"made", "restarted"})
    EXPECT_TRUE(parse_record(json_of(action).dump(), "lab")) << action;
  for (const char* action : {"failed", "restart_failed"}) {
    checkpoint::Record record = written(action);
    record.reason = "pid_taken";
    EXPECT_TRUE(parse_record(checkpoint::record_text(record), "lab")) << action;
  }
  checkpoint::Record record = written("ended");
  record.exit_code = 0;
  EXPECT_TRUE(parse_record(checkpoint::record_text(record), "lab"));
}

TEST(ParseRecordTest, IdIsOfTheContentTheJobAndTheCluster) {
  const std::string text = json_of("made").dump();
  const auto event = parse_record(text, "lab");
  ASSERT_TRUE(event);
  EXPECT_EQ(parse_record(text, "lab")->id, event->id);
  EXPECT_NE(parse_record(text, "other")->id, event->id);
  EXPECT_NE(parse_record(json_of("restarted").dump(), "lab")->id, event->id);
  EXPECT_NE(parse_record(text + "\n", "lab")->id, event->id);
}

TEST(ParseRecordTest, LeavesOutWhatIsNotKnown) {
  Json json = json_of("made");
  json["later"] = 1;
  json["checkpoint"]["later"] = 1;
  const auto event = parse_record(json.dump(), "lab");
  ASSERT_TRUE(event);
  EXPECT_EQ(Json::parse(event->extra_json), Json({{"checkpoint", json_of("made")["checkpoint"]}}));
}

TEST(ParseRecordTest, RefusesWhatIsNotARecord) {
  for (const char* text : {"", "{", "[]", "null", "7", R"("made")", "{}", "\xff"})
    EXPECT_EQ(parse_record(text, "lab").error().kind(), ErrorKind::kPermanent) << text;
  // Deeper than any stack, and longer than any record.
  EXPECT_FALSE(parse_record(std::string(kMostRecordBytes, '['), "lab"));
  EXPECT_FALSE(parse_record(json_of("made").dump() + std::string(kMostRecordBytes, ' '), "lab"));
}

TEST(ParseRecordTest, RefusesMembersThatAreMissingOrOfAnotherKind) {
  for (const char* name : {"format", "time", "node", "scheduler", "job", "user", "checkpoint"}) {
    Json json = json_of("made");
    json.erase(name);
    EXPECT_NE(problem_of(json).find(name), std::string::npos) << name;
    for (const Json& other : {Json(-1), Json(""), Json(Json::array()), Json(nullptr)}) {
      json[name] = other;
      EXPECT_NE(problem_of(json).find(name), std::string::npos) << name << other;
    }
  }
  for (const char* name : {"action", "engine", "engine_version", "root_pid", "processes",
                           "image_path", "image_bytes", "manifest_sha256", "duration_seconds",
                           "frozen_seconds", "runs_on", "tries", "reason", "exit_code"}) {
    for (const Json& other : {Json(-1), Json(""), Json(Json::array()), Json(nullptr)}) {
      Json json = json_of("made");
      json["checkpoint"][name] = other;
      EXPECT_NE(problem_of(json).find(name), std::string::npos) << name << other;
    }
  }
}

TEST(ParseRecordTest, RefusesWordsThatAreNotTheServices) {
  const auto with = [](const char* name, const Json& value) {
    Json json = json_of("failed");
    json["checkpoint"]["reason"] = "tcp";
    EXPECT_TRUE(parse_record(json.dump(), "lab"));
    json["checkpoint"][name] = value;
    return problem_of(json);
  };
  EXPECT_NE(with("reason", "<b>"), "");
  EXPECT_NE(with("action", "migrated"), "");
  EXPECT_NE(with("exit_code", 3), "");   // of "ended" only
  EXPECT_NE(with("runs_on", true), "");  // of "made" only
  Json json = json_of("made");
  for (const std::string& job :
       {std::string("../4711"), std::string("4711_"), std::string("_1"), std::string("4711_5_6"),
        std::string("4711*"), std::string(41, '4')}) {
    json["job"] = job;
    EXPECT_NE(problem_of(json), "") << job;
  }
  json["job"] = "4711_5";
  EXPECT_TRUE(parse_record(json.dump(), "lab"));
}

}  // namespace
}  // namespace scriptorium::checkpoint_records
