#include "backends/elasticsearch/sink.h"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/backends/elasticsearch/sink_fixture.h"

namespace scriptorium::elasticsearch {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;
using Reply = Fake::Reply;
using Fault = Fake::Fault;
using Item = Fake::ItemReply;

class ElasticsearchSinkTest : public SinkFixture {
 protected:
  Json status() { return Json::parse(sink().status_json()); }
  static Reply error(int status, const std::string& type, const std::string& reason = "words") {
    return {
        .status = status,
        .body = Json{{"error", {{"type", type}, {"reason", reason}}}, {"status", status}}.dump()};
  }
  static Reply missing_template() {
    return error(404, "resource_not_found_exception",
                 "index template matching [scriptorium-job] not found");
  }
  // The document of this job gets the answer, others are stored.
  void judge_job(const std::string& job, const Item& item) {
    server_.judge_documents([job, item](const Fake::Document& document) -> std::optional<Item> {
      if (Json::parse(document.source)["job"]["id"] == job) return item;
      return std::nullopt;
    });
  }
  std::chrono::milliseconds hint(const std::string& job) {
    return outbox_.settlement(job)->hint.value_or(std::chrono::milliseconds(0));
  }
};

// ---- what goes over the wire

TEST_F(ElasticsearchSinkTest, StoresEachEventUnderItsId) {
  const auto events = make_events(3);
  deliver(events);
  expect_all(Outcome::kAcknowledged, events);
  ASSERT_EQ(server_.documents().size(), 3U);
  for (const auto& event : events) {
    const auto document = server_.document(event->id);
    ASSERT_TRUE(document);
    EXPECT_EQ(document->index, "scriptorium-job-2026.11");
    EXPECT_EQ(Json::parse(document->source)["job"]["id"], event->job.id);
  }
  const Fake::Request request = server_.requests().front();
  EXPECT_EQ(request.header("content-type"), "application/x-ndjson");
  EXPECT_EQ(request.header("content-encoding"), "gzip");
  EXPECT_LT(request.body_bytes, request.body.size());
  EXPECT_THAT(request.target, HasSubstr("filter_path="));
  EXPECT_EQ(status()["created"], 3);
}

TEST_F(ElasticsearchSinkTest, SendsPlainBodiesIfTold) {
  config_.compression = Compression::kNone;
  deliver(make_events(1));
  EXPECT_EQ(server_.requests().front().header("content-encoding"), "");
  EXPECT_EQ(server_.documents().size(), 1U);
}

TEST_F(ElasticsearchSinkTest, KeepsItsConnection) {
  for (int i = 0; i < 5; ++i) deliver(make_events(2));
  const auto requests = server_.requests();
  ASSERT_EQ(requests.size(), 5U);
  for (const Fake::Request& request : requests) EXPECT_LE(request.connection, 2U);
}

TEST_F(ElasticsearchSinkTest, ADocumentThatIsThereAlreadyIsAcknowledgedAndCounted) {
  const auto events = make_events(2);
  deliver(events);
  deliver(events, 2);
  expect_all(Outcome::kAcknowledged, events);
  EXPECT_EQ(server_.documents().size(), 2U);
  EXPECT_EQ(status()["duplicates"], 2);
}

// ---- an event whose owner was found later

class LateOwnerTest : public ElasticsearchSinkTest {
 protected:
  LateOwnerTest() {
    first_ = std::make_shared<const Event>(test::make_unverified_event("1"));
    owned_ = std::make_shared<const Event>(test::make_owned_event(*first_));
    bare_ = std::make_shared<const Event>(test::without_bytes(*owned_));
  }
  // One document, alice's, with all its texts.
  void expect_one_whole_document() {
    ASSERT_EQ(server_.documents().size(), 1U);
    const auto document = server_.document(first_->id);
    ASSERT_TRUE(document);
    const Json json = Json::parse(document->source);
    EXPECT_EQ(json["id"], owned_->id);
    EXPECT_EQ(json["replaces"], first_->id);
    EXPECT_EQ(json["user"]["name"], "alice");
    EXPECT_EQ(json["user"]["group"]["name"], "chem");
    EXPECT_EQ(json["user"]["verified"], true);
    EXPECT_TRUE(json["user"].value("unverified_reason", Json()).is_null());
    EXPECT_EQ(json["script"].value("text", "none"), test::kScript);
    EXPECT_EQ(json.value("environment", Json::object()).value("USER", "none"), "mallory");
  }
  // What a server says to one who may create documents and nothing else: Elasticsearch of each
  // document by itself, OpenSearch of all that one request has for the same shard.
  void refuse_changes(bool the_whole_shard) {
    server_.every_bulk([the_whole_shard](Fake& server, const Fake::Request& request) {
      const bool changes = request.body.find(R"({"index":)") != std::string::npos;
      server.judge_documents([=](const Fake::Document& document) -> std::optional<Item> {
        if (!changes || (!the_whole_shard && document.action == "create")) return std::nullopt;
        return Item{403, "security_exception", "no permissions"};
      });
      return server.apply(request);
    });
  }

  std::shared_ptr<const Event> first_, owned_, bare_;
};

TEST_F(LateOwnerTest, TheOwnedEventTakesThePlaceOfTheFirstHoweverOftenEachComes) {
  for (const auto& event : {first_, owned_, owned_, first_}) {
    deliver({event});
    EXPECT_EQ(outbox_.outcome("1"), Outcome::kAcknowledged) << outbox_.reason("1");
  }
  expect_one_whole_document();
  EXPECT_EQ(status()["created"], 1);
  EXPECT_EQ(status()["replaced"], 2);
  EXPECT_EQ(status()["duplicates"], 1);
}

TEST_F(LateOwnerTest, WithoutItsBytesItLeavesTheTextsThatAreThere) {
  for (const auto& event : {first_, bare_, bare_, first_}) {
    deliver({event});
    EXPECT_EQ(outbox_.outcome("1"), Outcome::kAcknowledged) << outbox_.reason("1");
  }
  expect_one_whole_document();
  EXPECT_EQ(status()["replaced"], 2);
}

TEST_F(LateOwnerTest, BothInOneBatchAreOneDocument) {
  deliver({first_, owned_});
  expect_one_whole_document();
}

TEST_F(LateOwnerTest, ComingFirstItIsTheDocumentAndTheFirstEventChangesNothing) {
  deliver({owned_});
  deliver({first_});
  EXPECT_EQ(outbox_.outcome("1"), Outcome::kAcknowledged);
  expect_one_whole_document();
  EXPECT_EQ(status()["created"], 1);
  EXPECT_EQ(status()["replaced"], 0);
}

TEST_F(LateOwnerTest, WithoutBytesAndWithoutAFirstDocumentItIsWhatIsLeft) {
  deliver({bare_});
  const auto document = server_.document(first_->id);
  ASSERT_TRUE(document);
  EXPECT_EQ(Json::parse(document->source)["user"]["name"], "alice");
  EXPECT_EQ(Json::parse(document->source)["@timestamp"], "2026-11-21T01:26:22.364Z");
}

TEST_F(LateOwnerTest, ADataStreamGetsItAsADocumentOfItsOwn) {
  config_.data_stream = true;
  config_.index_name = *IndexName::parse(IndexName::kDefaultStream);
  for (const auto& event : {first_, owned_, owned_}) deliver({event});
  EXPECT_EQ(outbox_.outcome("1"), Outcome::kAcknowledged);
  EXPECT_EQ(server_.documents().size(), 2U);
  EXPECT_TRUE(server_.document(owned_->id));
  EXPECT_EQ(status()["duplicates"], 1);
  EXPECT_EQ(log_.count("ES_CREATE_ONLY"), 0U);
}

TEST_F(LateOwnerTest, WithoutTheRightToChangeDocumentsItIsCreatedBesideTheFirst) {
  for (const bool the_whole_shard : {false, true}) {
    server_.every_bulk(nullptr);
    server_.judge_documents(nullptr);
    sink_.reset();
    const auto first =
        std::make_shared<const Event>(test::make_unverified_event(the_whole_shard ? "4" : "3"));
    const auto owned = std::make_shared<const Event>(test::make_owned_event(*first));
    const auto other = test::make_event(the_whole_shard ? "40" : "30");
    deliver({first});
    refuse_changes(the_whole_shard);
    deliver({owned, other});
    EXPECT_EQ(outbox_.outcome(owned->job.id), Outcome::kRetry);
    EXPECT_EQ(outbox_.reason(owned->job.id), "403 security_exception");
    EXPECT_EQ(hint(owned->job.id), std::chrono::milliseconds(0)) << "it can go at once";
    if (the_whole_shard) {
      EXPECT_EQ(outbox_.outcome(other->job.id), Outcome::kRetry);
      EXPECT_EQ(hint(other->job.id), std::chrono::milliseconds(0))
          << "only its company was refused";
    }
    deliver({owned, other}, 2);
    EXPECT_EQ(outbox_.outcome(owned->job.id), Outcome::kAcknowledged)
        << outbox_.reason(owned->job.id);
    EXPECT_EQ(outbox_.outcome(other->job.id), Outcome::kAcknowledged)
        << outbox_.reason(other->job.id);
    EXPECT_TRUE(server_.document(first->id));
    EXPECT_TRUE(server_.document(owned->id));
    EXPECT_EQ(log_.count("ES_REFUSED"), 0U);
  }
  EXPECT_EQ(log_.count("ES_CREATE_ONLY"), 2U) << "once for each sink";
}

TEST_F(LateOwnerTest, TheRightToChangeDocumentsIsTriedAgainLater) {
  deliver({first_});
  refuse_changes(false);
  deliver({owned_});
  EXPECT_EQ(outbox_.outcome("1"), Outcome::kRetry);
  server_.every_bulk(nullptr);
  server_.judge_documents(nullptr);
  clock_.advance(std::chrono::minutes(11));
  deliver({owned_}, 2);
  expect_one_whole_document();
}

TEST_F(LateOwnerTest, AnIndexThatNobodyMayWriteToHoldsItAsAllOthers) {
  judge_job("1", {403, "security_exception", "not here"});
  deliver({owned_});
  EXPECT_EQ(hint("1"), std::chrono::milliseconds(0));
  deliver({owned_}, 2);
  EXPECT_EQ(outbox_.outcome("1"), Outcome::kRetry);
  EXPECT_EQ(hint("1"), std::chrono::seconds(60));
  EXPECT_EQ(log_.count("ES_REFUSED"), 1U);
}

// ---- bodies

TEST_F(ElasticsearchSinkTest, CutsALargeBatchIntoBodiesOfAtMostTheLimit) {
  config_.request_max_bytes = 200'000;
  const auto events = make_events(100, 10'000);
  deliver(events);
  expect_all(Outcome::kAcknowledged, events);
  const auto requests = server_.requests();
  EXPECT_GE(requests.size(), 6U);
  for (const Fake::Request& request : requests) EXPECT_LE(request.body.size(), 200'000U);
}

TEST_F(ElasticsearchSinkTest, ADocumentAboveTheLimitTravelsAlone) {
  config_.request_max_bytes = 65'536;
  std::vector<std::shared_ptr<const Event>> events = make_events(3);
  events.insert(events.begin() + 1, test::make_event("big", std::string(200'000, 'b')));
  deliver(events);
  expect_all(Outcome::kAcknowledged, events);
  EXPECT_EQ(server_.documents().size(), 4U);
}

TEST_F(ElasticsearchSinkTest, RequireAliasIsAskedOfTheServer) {
  config_.require_alias = true;
  deliver(make_events(1));
  EXPECT_THAT(server_.requests().front().target, HasSubstr("require_alias=true"));
  EXPECT_THAT(outbox_.reason("1000"), HasSubstr("404 index_not_found_exception: no such index"));
  EXPECT_EQ(hint("1000"), std::chrono::seconds(60));
}

TEST_F(ElasticsearchSinkTest, AsksOnceWhoTheServerIs) {
  deliver(make_events(1));
  ASSERT_TRUE(server_.wait_for_requests(1, "/"));
  deliver(make_events(2));
  while (status()["version"] == "")
    deliver(make_events(1));  // the answer comes beside the deliveries
  EXPECT_EQ(status()["product"], "elasticsearch");
  EXPECT_EQ(status()["version"], "8.19.0");
}

// ---- items

TEST_F(ElasticsearchSinkTest, JudgesEachItemByItself) {
  const auto events = make_events(5);
  server_.judge_documents([](const Fake::Document& document) -> std::optional<Item> {
    const std::string job = Json::parse(document.source)["job"]["id"];
    if (job == "1001") return Item{429, "es_rejected_execution_exception", "queue is full"};
    if (job == "1002") return Item{400, "mapper_parsing_exception", "failed to parse field [x]"};
    if (job == "1003") return Item{403, "security_exception", "not this index"};
    return std::nullopt;
  });
  deliver(events);
  EXPECT_EQ(outbox_.outcome("1000"), Outcome::kAcknowledged);
  EXPECT_EQ(outbox_.outcome("1001"), Outcome::kRetry);
  EXPECT_EQ(outbox_.reason("1001"), "429 es_rejected_execution_exception");
  EXPECT_EQ(hint("1001"), std::chrono::milliseconds(0));
  EXPECT_EQ(outbox_.outcome("1002"), Outcome::kRejected);
  EXPECT_EQ(outbox_.reason("1002"), "400 mapper_parsing_exception: failed to parse field [x]");
  EXPECT_EQ(outbox_.outcome("1003"), Outcome::kRetry);
  EXPECT_EQ(hint("1003"), std::chrono::seconds(60));
  EXPECT_EQ(outbox_.outcome("1004"), Outcome::kAcknowledged);
  EXPECT_EQ(server_.documents().size(), 2U);
  EXPECT_EQ(server_.requests().size(), 1U);
}

TEST_F(ElasticsearchSinkTest, ThingsThatSomebodyMustRepairAreSaidOnceAndHeldForEver) {
  for (const Item& item :
       {Item{401, "security_exception", "unable to authenticate"},
        Item{403, "cluster_block_exception", "blocked by: [FORBIDDEN/8/index write (api)]"},
        Item{429, "cluster_block_exception",
             "index [x] blocked by: [TOO_MANY_REQUESTS/12/disk usage exceeded flood-stage "
             "watermark, index has read-only-allow-delete block]"},
        Item{404, "index_not_found_exception", "no such index"},
        Item{400, "validation_exception",
             "this action would add [2] shards, but this cluster currently has [1000]/[1000] "
             "maximum shards open"},
        Item{400, "index_closed_exception", "closed"}}) {
    SCOPED_TRACE(item.type);
    log_.clear();
    judge_job("1000", item);
    for (std::uint32_t attempt = 1; attempt <= 20; ++attempt) {
      clock_.advance(std::chrono::seconds(20));
      deliver({test::make_event("1000")}, attempt);
      ASSERT_EQ(outbox_.outcome("1000"), Outcome::kRetry);
      EXPECT_EQ(hint("1000"), std::chrono::seconds(60));
    }
    EXPECT_EQ(log_.count("ES_REFUSED"), 1U) << log_.text();
    EXPECT_THAT(log_.last("ES_REFUSED")->field("reason"), HasSubstr(item.reason));
    EXPECT_THAT(outbox_.reason("1000"), HasSubstr(item.reason)) << "which status shows";
  }
}

TEST_F(ElasticsearchSinkTest,
       WhatNobodyCanJudgeIsRejectedOnlyAfterManyTriesAndTimeWhileOthersAreTaken) {
  judge_job("1000", {500, "not_x_content_exception", "no content"});
  const auto poison = test::make_event("1000");
  for (std::uint32_t attempt = 1; attempt <= 30; ++attempt) {
    clock_.advance(std::chrono::seconds(30));
    deliver({poison}, attempt);
    ASSERT_EQ(outbox_.outcome("1000"), Outcome::kRetry) << "nothing else was taken meanwhile";
  }
  deliver({test::make_event("1001")});
  deliver({poison}, 31);
  EXPECT_EQ(outbox_.outcome("1000"), Outcome::kRejected);
  EXPECT_EQ(outbox_.reason("1000"), "500 not_x_content_exception: no content");
}

TEST_F(ElasticsearchSinkTest, AMappingThatTakesNoDocumentAtAllIsTheServersFault) {
  server_.judge_documents([](const auto&) -> std::optional<Fake::ItemReply> {
    return Fake::ItemReply{400, "strict_dynamic_mapping_exception", "mapping set to strict"};
  });
  for (int attempt = 1; attempt <= 3; ++attempt)
    deliver({test::make_event("1000"), test::make_event("1001")});
  EXPECT_EQ(outbox_.outcome("1000"), Outcome::kRetry);
  EXPECT_EQ(outbox_.reason("1001"), "400 strict_dynamic_mapping_exception: mapping set to strict");
  EXPECT_EQ(hint("1001"), std::chrono::seconds(60));
  EXPECT_EQ(log_.count("ES_REFUSED"), 1U);
  // Once another is taken, it is the document's.
  server_.judge_documents([](const auto& document) -> std::optional<Fake::ItemReply> {
    if (document.source.find("1000") == std::string::npos) return std::nullopt;
    return Fake::ItemReply{400, "strict_dynamic_mapping_exception", "mapping set to strict"};
  });
  deliver({test::make_event("1001")});
  EXPECT_EQ(outbox_.outcome("1001"), Outcome::kAcknowledged);
  deliver({test::make_event("1000")});
  EXPECT_EQ(outbox_.outcome("1000"), Outcome::kRejected);
}

TEST_F(ElasticsearchSinkTest, ADocumentThatAPipelineDropsIsNotAcknowledged) {
  const auto drop = [&](const std::string& job) {
    server_.judge_documents([job](const auto& document) -> std::optional<Fake::ItemReply> {
      if (document.source.find(job) == std::string::npos) return std::nullopt;
      return Fake::ItemReply{200, "", "", R"("result":"noop")"};
    });
  };
  drop("");
  deliver({test::make_event("1000")});
  EXPECT_EQ(outbox_.outcome("1000"), Outcome::kRetry);
  EXPECT_EQ(log_.last("ES_REFUSED")->field("reason"),
            "200: an ingest pipeline of the server drops the document");
  drop("1000");
  deliver({test::make_event("1000"), test::make_event("1001")});
  EXPECT_EQ(outbox_.outcome("1000"), Outcome::kRejected);
  EXPECT_EQ(outbox_.outcome("1001"), Outcome::kAcknowledged);
}

TEST_F(ElasticsearchSinkTest, AFewRefusalsOfThatKindAreNoReasonToGiveUp) {
  judge_job("1000", {400, "brand_new_exception", "new"});
  for (std::uint32_t attempt = 1; attempt <= 30; ++attempt) {
    deliver({test::make_event("1000"), test::make_event("1001")}, attempt);
    ASSERT_EQ(outbox_.outcome("1000"), Outcome::kRetry) << "no time has passed";
  }
  server_.judge_documents(nullptr);
  deliver({test::make_event("1000")});
  EXPECT_EQ(outbox_.outcome("1000"), Outcome::kAcknowledged);
}

TEST_F(ElasticsearchSinkTest, AFailureStoreIsCountedApartAndSaid) {
  judge_job("1000", {201, "", "", R"("failure_store":"used")"});
  deliver(make_events(2));
  EXPECT_EQ(outbox_.outcome("1000"), Outcome::kAcknowledged);
  EXPECT_EQ(status()["failure_store"], 1);
  EXPECT_TRUE(log_.has("ES_FAILURE_STORE"));
}

// ---- the whole request

TEST_F(ElasticsearchSinkTest, AServerThatIsBusyIsTriedAgainWithItsOwnHint) {
  for (const int code : {408, 429, 500, 502, 503, 504}) {
    Reply reply = error(code, "busy_exception");
    reply.headers = {"Retry-After: 7"};
    server_.next_bulk(reply);
    deliver(make_events(2));
    EXPECT_EQ(outbox_.reason("1000"), "request: " + std::to_string(code) + " busy_exception");
    EXPECT_EQ(hint("1001"), std::chrono::seconds(7));
  }
  EXPECT_EQ(log_.count("ES_REFUSED"), 0U);
}

TEST_F(ElasticsearchSinkTest, AServerThatRefusesUsIsSaidAloudAndTriedSlowly) {
  for (const int code : {301, 401, 403, 404, 405, 406}) {
    log_.clear();
    server_.next_bulk(
        code == 401 ? Reply{.status = 401, .body = "Unauthorized", .content_type = "text/plain"}
                    : error(code, "refusal_" + std::to_string(code)),
        2);
    deliver(make_events(2));
    deliver(make_events(2));
    EXPECT_EQ(outbox_.outcome("1000"), Outcome::kRetry);
    EXPECT_EQ(hint("1000"), std::chrono::seconds(60));
    EXPECT_EQ(log_.count("ES_REFUSED"), 1U) << code << log_.text();
  }
}

TEST_F(ElasticsearchSinkTest, AnAnswerThatIsNotUnderstoodAcknowledgesNothing) {
  for (const char* body : {"", "<html>gateway</html>", "{}", R"({"errors":false,"items":[]})",
                           R"({"errors":false,"items":[{"create":{"status":201}}]})"}) {
    server_.next_bulk(Reply{.body = body});
    deliver(make_events(2));
    EXPECT_EQ(outbox_.outcome("1000"), Outcome::kRetry) << body;
    EXPECT_EQ(outbox_.outcome("1001"), Outcome::kRetry) << body;
  }
  deliver(make_events(2));
  EXPECT_EQ(outbox_.outcome("1000"), Outcome::kAcknowledged);
}

TEST_F(ElasticsearchSinkTest, AConnectionThatEndsBeforeOrAfterTheServerAppliedChangesNothing) {
  config_.require_template = false;  // its connection would be used again, and libcurl tries once
                                     // more on one that was kept
  const auto events = make_events(20);
  server_.next_bulk(Reply{.fault = Fault::kClose});
  server_.next_bulk([](Fake& server, const Fake::Request& request) {
    server.apply(request);
    return Reply{.fault = Fault::kClose};
  });
  server_.next_bulk([](Fake& server, const Fake::Request& request) {
    Reply reply = server.apply(request);
    reply.fault = Fault::kHalfAnswer;
    return reply;
  });
  deliver(events);
  EXPECT_EQ(outbox_.reason("1000"), "connection closed without an answer");
  EXPECT_EQ(server_.documents().size(), 0U);
  deliver(events, 2);
  expect_all(Outcome::kRetry, events);
  EXPECT_EQ(server_.documents().size(), 20U);
  deliver(events, 3);
  expect_all(Outcome::kRetry, events);
  EXPECT_EQ(outbox_.reason("1000"), "connection cut in the answer");
  deliver(events, 4);
  expect_all(Outcome::kAcknowledged, events);
  EXPECT_EQ(server_.documents().size(), 20U);
  EXPECT_EQ(status()["duplicates"], 20);
}

TEST_F(ElasticsearchSinkTest, AServerThatNeverAnswersIsLeftInTime) {
  config_.request_timeout_ms = 1000;
  server_.next_bulk(Reply{.fault = Fault::kHang});
  const auto events = make_events(3);
  deliver(events);
  expect_all(Outcome::kRetry, events);
  EXPECT_EQ(outbox_.reason("1000"), "no answer in time");
  deliver(events, 2);
  expect_all(Outcome::kAcknowledged, events);
}

TEST_F(ElasticsearchSinkTest, ThreeConnectionsWithoutAnAnswerAreSaidAloud) {
  config_.require_template = false;
  server_.next_bulk(Reply{.fault = Fault::kClose}, 3);
  for (int i = 0; i < 3; ++i) deliver(make_events(1));
  EXPECT_EQ(log_.count("ES_NO_ANSWER"), 1U) << log_.text();
}

TEST_F(ElasticsearchSinkTest, AServerThatIsDownIsTriedAgain) {
  deliver(make_events(1));
  server_.go_down();
  deliver(make_events(2));
  EXPECT_EQ(outbox_.outcome("1001"), Outcome::kRetry);
  EXPECT_EQ(status()["hosts"][0]["state"], "down");
  server_.come_back();
  deliver(make_events(2));
  EXPECT_EQ(outbox_.outcome("1001"), Outcome::kAcknowledged);
  EXPECT_EQ(status()["hosts"][0]["state"], "up");
}

// ---- size

TEST_F(ElasticsearchSinkTest, ABodyThatIsTooLargeIsSplitUntilItFits) {
  config_.compression = Compression::kNone;
  server_.refuse_bodies_above(100'000);
  const auto events = make_events(100, 10'000);
  deliver(events);
  expect_all(Outcome::kAcknowledged, events);
  EXPECT_EQ(server_.documents().size(), 100U);
  EXPECT_LE(status()["body_limit_bytes"].get<int>(), 150'000);
  // And it is remembered.
  const std::size_t before = status()["http"]["413"];
  deliver(make_events(100, 10'001));
  EXPECT_LE(status()["http"]["413"].get<std::size_t>(), before + 14);
}

TEST_F(ElasticsearchSinkTest, ADocumentThatIsTooLargeByItselfIsRejectedAndTheOthersAreNot) {
  config_.compression = Compression::kNone;
  server_.refuse_bodies_above(100'000);
  auto events = make_events(20);
  const auto big = test::make_event("big", std::string(150'000, 'b'));
  events.insert(events.begin() + 10, big);
  deliver(events);
  EXPECT_EQ(outbox_.outcome("big"), Outcome::kRejected);
  EXPECT_THAT(outbox_.reason("big"), HasSubstr("413: the document has 15"));
  EXPECT_EQ(server_.documents().size(), 20U);
  events.erase(events.begin() + 10);
  expect_all(Outcome::kAcknowledged, events);
}

TEST_F(ElasticsearchSinkTest, ALostAnswer413IsGuessedAfterTwoCutsAndTheBodyHalved) {
  config_.compression = Compression::kNone;
  server_.refuse_bodies_above(300'000, true);
  const auto events = make_events(60, 10'000);
  const auto all_stored = [&] {
    return std::ranges::all_of(events, [&](const auto& e) {
      return outbox_.outcome(e->job.id) == Outcome::kAcknowledged;
    });
  };
  for (std::uint32_t attempt = 1; attempt <= 10; ++attempt) {
    deliver(events, attempt);
    if (all_stored()) break;
  }
  expect_all(Outcome::kAcknowledged, events);
  EXPECT_EQ(server_.documents().size(), 60U);
  EXPECT_GE(status()["splits"], 1);
}

TEST_F(ElasticsearchSinkTest, AProxyThatKnowsNoExpectationGetsNone) {
  server_.next_bulk(Reply{.status = 417});
  const auto events = make_events(2);
  deliver(events);
  expect_all(Outcome::kAcknowledged, events);
  EXPECT_EQ(server_.requests().size(), 2U);
}

// ---- one that is poisoned

// A server that answers 400 for the whole request if these jobs are in it.
Fake::Handler choke_on(std::vector<std::string> jobs) {
  return [jobs = std::move(jobs)](Fake& server, const Fake::Request& request) {
    for (const std::string& job : jobs) {
      if (request.body.find("\"job\":{\"id\":\"" + job + "\"") == std::string::npos) continue;
      return Reply{
          .status = 400,
          .body =
              R"({"error":{"type":"illegal_argument_exception","reason":"Malformed action/metadata line [3]"},"status":400})"};
    }
    return server.apply(request);
  };
}

TEST_F(ElasticsearchSinkTest, OneDocumentThatARequestFailsByIsFoundAndTheOthersAreStored) {
  server_.every_bulk(choke_on({"1137"}));
  auto events = make_events(300);
  deliver(events);
  EXPECT_EQ(outbox_.outcome("1137"), Outcome::kRejected);
  EXPECT_EQ(outbox_.reason("1137"),
            "request: 400 illegal_argument_exception: Malformed action/metadata line [3]");
  EXPECT_EQ(server_.documents().size(), 299U);
  EXPECT_LE(server_.requests().size(), 24U);
  events.erase(events.begin() + 137);
  expect_all(Outcome::kAcknowledged, events);
}

TEST_F(ElasticsearchSinkTest, SeveralOfThemAreFoundToo) {
  server_.every_bulk(choke_on({"1000", "1001", "1063", "1099"}));
  const auto events = make_events(100);
  deliver(events);
  for (const char* job : {"1000", "1001", "1063", "1099"})
    EXPECT_EQ(outbox_.outcome(job), Outcome::kRejected) << job;
  EXPECT_EQ(server_.documents().size(), 96U);
}

TEST_F(ElasticsearchSinkTest, IfNotOneIsUnderstoodItIsTheConfiguration) {
  server_.every_bulk([](Fake&, const Fake::Request&) {
    return error(400, "illegal_argument_exception", "request contains unrecognized parameter: [x]");
  });
  const auto events = make_events(300);
  deliver(events);
  expect_all(Outcome::kRetry, events);
  EXPECT_EQ(hint("1000"), std::chrono::seconds(60));
  EXPECT_LE(server_.requests().size(), 100U);
  EXPECT_EQ(log_.count("ES_REFUSED"), 1U) << log_.text();
  EXPECT_THAT(log_.last("ES_REFUSED")->field("reason"), HasSubstr("unrecognized parameter"));
}

TEST_F(ElasticsearchSinkTest, APoisonedDocumentAloneIsGuiltyOnceAnotherWasTaken) {
  server_.every_bulk(choke_on({"1000"}));
  deliver({test::make_event("1000")});
  EXPECT_EQ(outbox_.outcome("1000"), Outcome::kRetry);
  deliver({test::make_event("1000")}, 2);
  EXPECT_EQ(outbox_.outcome("1000"), Outcome::kRetry);
  deliver({test::make_event("1001")});
  deliver({test::make_event("1000")}, 3);
  EXPECT_EQ(outbox_.outcome("1000"), Outcome::kRejected);
}

TEST_F(ElasticsearchSinkTest, AnIdThatNoServerTakesIsRejectedUnsent) {
  Event event = test::make_event_value("1000");
  event.id = std::string(513, 'i');
  deliver({std::make_shared<const Event>(event), test::make_event("1001")});
  EXPECT_EQ(outbox_.outcome("1000"), Outcome::kRejected);
  EXPECT_EQ(outbox_.outcome("1001"), Outcome::kAcknowledged);
}

// ---- several hosts

class TwoHostsTest : public ElasticsearchSinkTest {
 protected:
  TwoHostsTest() { config_.hosts = {server_.url(), second_.url()}; }
  std::size_t stored() { return server_.documents().size() + second_.documents().size(); }
  Fake second_;
};

TEST_F(TwoHostsTest, TakeTurns) {
  for (int i = 0; i < 6; ++i) deliver({test::make_event(std::to_string(i))});
  EXPECT_GE(server_.requests().size(), 2U);
  EXPECT_GE(second_.requests().size(), 2U);
  EXPECT_EQ(stored(), 6U);
}

TEST_F(TwoHostsTest, OneThatIsDownCostsNoRetry) {
  server_.go_down();
  for (int i = 0; i < 6; ++i) {
    deliver({test::make_event(std::to_string(i))});
    EXPECT_EQ(outbox_.outcome(std::to_string(i)), Outcome::kAcknowledged)
        << outbox_.reason(std::to_string(i));
  }
  EXPECT_EQ(second_.documents().size(), 6U);
}

TEST_F(TwoHostsTest, OneThatAnswersAsAGatewayWithoutServersCostsNoRetryEither) {
  for (const int code : {502, 503, 504}) server_.next_bulk(Reply{.status = code});
  for (int i = 0; i < 8; ++i) {
    deliver({test::make_event(std::to_string(i))});
    EXPECT_EQ(outbox_.outcome(std::to_string(i)), Outcome::kAcknowledged)
        << outbox_.reason(std::to_string(i));
    clock_.advance(std::chrono::seconds(61));
  }
  EXPECT_EQ(stored(), 8U);
}

TEST_F(TwoHostsTest, OneThatComesBackIsUsedAgain) {
  server_.go_down();
  for (int i = 0; i < 3; ++i) deliver({test::make_event(std::to_string(i))});
  server_.come_back();
  clock_.advance(std::chrono::seconds(61));
  for (int i = 3; i < 7; ++i) deliver({test::make_event(std::to_string(i))});
  EXPECT_GE(server_.documents().size(), 1U);
  EXPECT_EQ(stored(), 7U);
  EXPECT_EQ(log_.count("ES_HOST_DOWN"), 1U);
  EXPECT_EQ(log_.count("ES_HOST_BACK"), 1U);
}

TEST_F(TwoHostsTest, AllDownIsARetryAndTheFirstToComeBackIsFound) {
  server_.go_down();
  second_.go_down();
  deliver(make_events(3));
  expect_all(Outcome::kRetry, make_events(3));
  second_.come_back();
  deliver(make_events(3), 2);
  deliver(make_events(3), 3);
  expect_all(Outcome::kAcknowledged, make_events(3));
}

TEST_F(TwoHostsTest, AHangingHostIsLeftForTheOther) {
  config_.request_timeout_ms = 1000;
  config_.require_template = false;  // so that the first request goes to the first server
  server_.every_bulk([](Fake&, const Fake::Request&) { return Reply{.fault = Fault::kHang}; });
  const auto events = make_events(4);
  deliver(events);
  expect_all(Outcome::kAcknowledged, events);
  EXPECT_EQ(server_.requests().size(), 1U);
  EXPECT_EQ(second_.documents().size(), 4U);
}

// ---- the index template

TEST_F(ElasticsearchSinkTest, HoldsEventsWhileTheServerLacksTheTemplate) {
  server_.answer("/_index_template/scriptorium-job", missing_template());
  const auto events = make_events(2);
  deliver(events);
  expect_all(Outcome::kRetry, events);
  EXPECT_EQ(hint("1000"), std::chrono::seconds(60));
  EXPECT_EQ(log_.count("ES_TEMPLATE_MISSING"), 1U);
  EXPECT_EQ(server_.requests().size(), 0U);
  EXPECT_EQ(status()["missing_templates"], Json::array({"scriptorium-job"}));
  server_.answer("/_index_template/scriptorium-job", {.body = "{}"});
  clock_.advance(std::chrono::seconds(60));
  deliver(events, 2);
  expect_all(Outcome::kAcknowledged, events);
  EXPECT_EQ(status()["missing_templates"], Json::array());
  deliver(make_events(3));
  EXPECT_EQ(server_.requests("/_index_template/").size(), 2U);
}

TEST_F(ElasticsearchSinkTest, GoesOnWhereItMayNotAskForTheTemplate) {
  server_.answer("/_index_template/",
                 {.status = 403, .body = R"({"error":{"type":"security_exception"}})"});
  deliver(make_events(2));
  expect_all(Outcome::kAcknowledged, make_events(2));
}

TEST_F(ElasticsearchSinkTest, TheNotFoundOfAProxyIsNoMissingTemplate) {
  server_.answer("/_index_template/", {.status = 404, .body = "<html>not found</html>"});
  deliver(make_events(2));
  expect_all(Outcome::kAcknowledged, make_events(2));
}

TEST_F(ElasticsearchSinkTest, DoesNotAskForTheTemplateIfToldNotTo) {
  config_.require_template = false;
  server_.answer("/_index_template/", missing_template());
  deliver(make_events(2));
  expect_all(Outcome::kAcknowledged, make_events(2));
  EXPECT_EQ(server_.requests("/_index_template/").size(), 0U);
}

TEST_F(ElasticsearchSinkTest, EachFamilyHasATemplateOfItsOwn) {
  server_.answer("/_index_template/scriptorium-usage", missing_template());
  Event value = test::make_event_value("7");
  value.kind = "usage.job";
  const auto usage = std::make_shared<const Event>(value);
  deliver({usage});
  EXPECT_EQ(outbox_.outcome("7"), Outcome::kRetry);
  deliver({test::make_event("6"), usage, test::make_event("8")});
  EXPECT_EQ(outbox_.outcome("6"), Outcome::kAcknowledged);
  EXPECT_EQ(outbox_.outcome("7"), Outcome::kRetry);
  EXPECT_EQ(outbox_.outcome("8"), Outcome::kAcknowledged);
}

// ---- what must not be said

TEST_F(ElasticsearchSinkTest, NoWordOfTheScriptGetsIntoLogsOrReasons) {
  const std::string secret = "hunter2-in-the-script";
  const auto event = test::make_event("1000", "#!/bin/sh\nexport TOKEN=" + secret + "\n",
                                      {"PASSWORD=correct-horse-battery"});
  const std::string source =
      R"({"script":{"text":"#!/bin/sh\nexport TOKEN=hunter2-in-the-script\n"},"environment":{"PASSWORD":"correct-horse-battery"}})";
  const std::vector<std::string> words = {
      "primary shard is not active Timeout: [1m], request: [BulkShardRequest [[x][0]] containing "
      "[index {[x][1], source[" +
          source + "]}]]",
      "failed to parse field [script] Preview of field's value: '" + source + "'",
      "bad [Source: (byte[])\"" + source + "\"; line: 1]",
      "some new way: " + source,
      "a value correct-horse-battery was not liked",
      "export TOKEN=" + secret};
  for (const std::string& reason : words) {
    for (const auto& [code, type] : {std::pair{400, "mapper_parsing_exception"},
                                     {503, "unavailable_shards_exception"},
                                     {400, "validation_exception"},
                                     {403, "security_exception"},
                                     {500, "odd_exception"}}) {
      judge_job("1000", {code, type, reason});
      deliver({event});
      EXPECT_THAT(outbox_.reason("1000"), Not(HasSubstr("hunter2")));
      EXPECT_THAT(outbox_.reason("1000"), Not(HasSubstr("correct-horse")));
      clock_.advance(std::chrono::hours(1));
    }
    for (const int code : {400, 401, 403, 404, 413, 429, 500, 503}) {
      server_.next_bulk(error(code, "some_exception", reason));
      deliver({event});
      EXPECT_THAT(outbox_.reason("1000"), Not(HasSubstr("hunter2"))) << code;
      EXPECT_THAT(outbox_.reason("1000"), Not(HasSubstr("correct-horse"))) << code;
    }
    server_.next_bulk(Reply{.status = 400, .body = source});
    deliver({event});
  }
  EXPECT_THAT(log_.text(), Not(HasSubstr("hunter2")));
  EXPECT_THAT(log_.text(), Not(HasSubstr("correct-horse")));
  EXPECT_THAT(sink().status_json(), Not(HasSubstr("hunter2")));
}

TEST_F(ElasticsearchSinkTest, NoCredentialGetsIntoLogsReasonsOrStatus) {
  config_.api_key_file = directory_.write("key", "id:topsecretkey\n");
  ::chmod(config_.api_key_file.c_str(), 0600);
  server_.next_bulk(
      error(401, "security_exception", "unable to authenticate with provided credentials"));
  deliver(make_events(1));
  deliver(make_events(1), 2);
  EXPECT_EQ(server_.requests().front().header("authorization"), "ApiKey aWQ6dG9wc2VjcmV0a2V5");
  EXPECT_THAT(log_.text() + sink().status_json() + outbox_.reason("1000"),
              Not(::testing::AnyOf(HasSubstr("topsecret"), HasSubstr("aWQ6dG9wc"))));
}

TEST_F(ElasticsearchSinkTest, ASecretThatWasReplacedIsUsedFromTheNextBatchOn) {
  config_.api_key_file = directory_.write("key", "id:old\n");
  ::chmod(config_.api_key_file.c_str(), 0600);
  deliver(make_events(1));
  directory_.write("key.new", "id:another\n");
  ::chmod(directory_.path_to("key.new").c_str(), 0600);
  std::filesystem::rename(directory_.path_to("key.new"), config_.api_key_file);
  deliver(make_events(2));
  EXPECT_EQ(server_.requests().back().header("authorization"), "ApiKey aWQ6YW5vdGhlcg==");
  // One that cannot be used is said, and changes nothing.
  ::chmod(config_.api_key_file.c_str(), 0644);
  directory_.write("key", "id:third, readable by all\n");
  deliver(make_events(3));
  deliver(make_events(3));
  EXPECT_EQ(server_.requests().back().header("authorization"), "ApiKey aWQ6YW5vdGhlcg==");
  EXPECT_EQ(log_.count("ES_SECRET_UNREADABLE"), 1U) << log_.text();
}

// ---- start and stop

TEST_F(ElasticsearchSinkTest, StopEndsWhatHangsAndLeavesItARetry) {
  server_.every_bulk([](Fake&, const Fake::Request&) { return Reply{.fault = Fault::kHang}; });
  sink().deliver(outbox_.batch(make_events(3)));
  ASSERT_TRUE(server_.wait_for_hanging(1));
  sink().stop(clock_.steady());
  EXPECT_EQ(outbox_.unsettled(), 0U);
  expect_all(Outcome::kRetry, make_events(3));
  EXPECT_EQ(outbox_.reason("1000"), "shutting down");
  sink().deliver(outbox_.batch({test::make_event("late")}));
  EXPECT_EQ(outbox_.outcome("late"), Outcome::kRetry);
}

TEST_F(ElasticsearchSinkTest, StopLetsEndWhatEnds) {
  sink().deliver(outbox_.batch(make_events(500, 5000)));
  sink().stop(clock_.steady() + std::chrono::hours(1));
  EXPECT_EQ(outbox_.unsettled(), 0U);
  expect_all(Outcome::kAcknowledged, make_events(500, 5000));
}

TEST_F(ElasticsearchSinkTest, SeveralWorkersDeliverAtOnce) {
  sink();
  std::vector<std::jthread> workers;
  for (int w = 0; w < 4; ++w) {
    workers.emplace_back([this, w] {
      for (int i = 0; i < 10; ++i) {
        std::vector<std::shared_ptr<const Event>> events;
        for (int e = 0; e < 20; ++e)
          events.push_back(test::make_event(std::to_string((w * 1000) + (i * 20) + e)));
        sink_->deliver(outbox_.batch(events));
        static_cast<void>(sink_->status_json());
      }
    });
  }
  workers.clear();
  ASSERT_TRUE(outbox_.wait_all_settled(std::chrono::seconds(60)));
  EXPECT_EQ(server_.documents().size(), 800U);
}

TEST_F(ElasticsearchSinkTest, TwoRequestsAreUnderWayAtOnceAndNoMore) {
  server_.every_bulk([](Fake&, const Fake::Request&) { return Reply{.fault = Fault::kHang}; });
  config_.request_max_bytes = 65'536;
  sink().deliver(outbox_.batch(make_events(50, 10'000)));
  ASSERT_TRUE(server_.wait_for_hanging(2));
  EXPECT_EQ(status()["requests"], 2);
}

// ---- TLS

class TlsTest : public ElasticsearchSinkTest {
 protected:
  Fake::Tls write(const test::Certificate& made, const std::string& name = "server") {
    return {.certificate = directory_.write(name + ".crt", made.certificate),
            .key = directory_.write(name + ".key", made.key),
            .client_authorities = ""};
  }
  Outcome outcome_with(Fake& server) {
    config_.hosts = {server.url()};
    deliver(make_events(1));
    return outbox_.outcome("1000").value();
  }
};

TEST_F(TlsTest, AServerWithACertificateOfTheConfiguredAuthorityIsTrusted) {
  const Fake::Tls tls = write(test::make_certificate());
  Fake server(tls);
  config_.ca_file = tls.certificate;
  EXPECT_EQ(outcome_with(server), Outcome::kAcknowledged) << outbox_.reason("1000");
}

TEST_F(TlsTest, AServerOfAnotherAuthorityIsNot) {
  Fake server(write(test::make_certificate()));
  config_.ca_file = write(test::make_certificate(), "other").certificate;
  EXPECT_EQ(outcome_with(server), Outcome::kRetry);
  EXPECT_EQ(outbox_.reason("1000"), "TLS: the certificates do not fit");
  EXPECT_TRUE(log_.has("ES_TLS"));
  EXPECT_EQ(server.documents().size(), 0U);
}

TEST_F(TlsTest, NorOneWithoutAnyAuthorityThatWeKnow) {
  Fake server(write(test::make_certificate()));
  EXPECT_EQ(outcome_with(server), Outcome::kRetry);
}

TEST_F(TlsTest, NorOneWhoseCertificateHasExpired) {
  const Fake::Tls tls = write(test::make_certificate(true));
  Fake server(tls);
  config_.ca_file = tls.certificate;
  EXPECT_EQ(outcome_with(server), Outcome::kRetry);
  EXPECT_THAT(log_.last("ES_TLS")->field("reason"), HasSubstr("expired"));
}

TEST_F(TlsTest, NorOneWithACertificateForAnotherName) {
  const Fake::Tls tls = write(test::make_certificate(false, "127.0.0.9"));
  Fake server(tls);
  config_.ca_file = tls.certificate;
  EXPECT_EQ(outcome_with(server), Outcome::kRetry);
  EXPECT_EQ(outbox_.reason("1000"), "TLS: the certificates do not fit");
}

TEST_F(TlsTest, WithoutVerificationAnyServerIsTakenAndThatIsSaid) {
  Fake server(write(test::make_certificate(true)));
  config_.verify_tls = false;
  EXPECT_EQ(outcome_with(server), Outcome::kAcknowledged);
  EXPECT_TRUE(log_.has("ES_TLS_UNVERIFIED"));
}

TEST_F(TlsTest, AClientCertificateIsShownWhereOneIsAskedFor) {
  Fake::Tls tls = write(test::make_certificate());
  const Fake::Tls client = write(test::make_certificate(), "client");
  tls.client_authorities = client.certificate;
  Fake server(tls);
  config_.ca_file = tls.certificate;
  config_.certificate_file = client.certificate;
  config_.key_file = client.key;
  EXPECT_EQ(outcome_with(server), Outcome::kAcknowledged) << outbox_.reason("1000");
}

TEST_F(TlsTest, AMissingClientCertificateIsSaidAsSuch) {
  Fake::Tls tls = write(test::make_certificate());
  tls.client_authorities = write(test::make_certificate(), "client").certificate;
  Fake server(tls);
  config_.ca_file = tls.certificate;
  // Under TLS 1.3 the server says so after the handshake, and the connection may be cut before its
  // words are read.
  for (int i = 0; i < 3; ++i) EXPECT_EQ(outcome_with(server), Outcome::kRetry);
  EXPECT_TRUE(log_.has("ES_TLS") || log_.has("ES_NO_ANSWER")) << log_.text();
}

TEST_F(TlsTest, PlainHttpToAPortThatSpeaksTlsIsSaidAfterAWhile) {
  Fake server(write(test::make_certificate()));
  config_.hosts = {"http://" + server.url().substr(8)};
  for (int i = 0; i < 4; ++i) deliver(make_events(1));
  EXPECT_EQ(outbox_.outcome("1000"), Outcome::kRetry);
}

}  // namespace
}  // namespace scriptorium::elasticsearch
