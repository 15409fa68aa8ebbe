#include "backends/elasticsearch/outcome.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/event_factory.h"

namespace scriptorium::elasticsearch {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

struct ItemCase {
  Item item;
  ItemAction action;
};

class ItemTest : public ::testing::TestWithParam<ItemCase> {};

TEST_P(ItemTest, IsJudgedByItsOwnStatusAndType) {
  const auto& [item, action] = GetParam();
  EXPECT_EQ(judge_item(item), action) << item.status << ' ' << item.type << ' ' << item.reason;
}

Item item(int status, std::string type = {}, std::string reason = {}) {
  return {.status = status, .id = "1", .type = std::move(type), .reason = std::move(reason)};
}

Item change(int status, std::string type = {}, std::string reason = {}) {
  Item result = item(status, std::move(type), std::move(reason));
  result.changes = true;
  return result;
}

INSTANTIATE_TEST_SUITE_P(
    ChangesOfDocuments, ItemTest,
    ::testing::Values(
        ItemCase{change(200), ItemAction::kStored}, ItemCase{change(201), ItemAction::kStored},
        ItemCase{change(409, "version_conflict_engine_exception"), ItemAction::kRetry},
        ItemCase{change(403, "security_exception",
                        "action [indices:data/write/bulk[s]] is unauthorized"),
                 ItemAction::kNoChange},
        ItemCase{change(403, "cluster_block_exception",
                        "index [x] blocked by: [FORBIDDEN/8/index write (api)];"),
                 ItemAction::kHold},
        ItemCase{change(400, "illegal_argument_exception",
                        "only write ops with an op_type of create are allowed in data streams"),
                 ItemAction::kNoChange},
        ItemCase{change(400, "mapper_parsing_exception", "failed to parse"), ItemAction::kReject},
        ItemCase{change(404, "index_not_found_exception"), ItemAction::kHold},
        ItemCase{change(503, "unavailable_shards_exception"), ItemAction::kRetry}));

INSTANTIATE_TEST_SUITE_P(
    EveryRow, ItemTest,
    ::testing::Values(
        ItemCase{item(200), ItemAction::kStored}, ItemCase{item(201), ItemAction::kStored},
        ItemCase{item(409, "version_conflict_engine_exception"), ItemAction::kDuplicate},
        ItemCase{item(409), ItemAction::kDuplicate},
        ItemCase{item(409, "something_else_exception"), ItemAction::kSuspect},
        ItemCase{item(429, "es_rejected_execution_exception"), ItemAction::kRetry},
        ItemCase{item(429, "rejected_execution_exception"), ItemAction::kRetry},
        ItemCase{
            item(429, "cluster_block_exception",
                 "index [x] blocked by: [TOO_MANY_REQUESTS/12/disk usage exceeded flood-stage]"),
            ItemAction::kHold},
        ItemCase{item(503, "unavailable_shards_exception"), ItemAction::kRetry},
        ItemCase{item(502), ItemAction::kRetry}, ItemCase{item(504), ItemAction::kRetry},
        ItemCase{item(408), ItemAction::kRetry},
        ItemCase{item(403, "cluster_block_exception",
                      "index [x] blocked by: [FORBIDDEN/8/index write (api)];"),
                 ItemAction::kHold},
        ItemCase{item(403, "cluster_block_exception",
                      "index [x] blocked by: [FORBIDDEN/5/index read-only (api)];"),
                 ItemAction::kHold},
        ItemCase{
            item(403, "security_exception", "action [indices:admin/auto_create] is unauthorized"),
            ItemAction::kHold},
        ItemCase{item(401, "security_exception"), ItemAction::kHold},
        ItemCase{item(404, "index_not_found_exception"), ItemAction::kHold},
        ItemCase{item(405), ItemAction::kHold},
        ItemCase{item(400, "validation_exception",
                      "Validation Failed: 1: this action would add [2] shards, but this cluster "
                      "currently has [1000]/[1000] maximum "
                      "normal shards open;"),
                 ItemAction::kHold},
        ItemCase{item(400, "index_closed_exception", "closed"), ItemAction::kHold},
        ItemCase{item(400, "invalid_index_name_exception"), ItemAction::kHold},
        ItemCase{
            item(400, "illegal_argument_exception", "no write index is defined for alias [jobs]."),
            ItemAction::kHold},
        ItemCase{item(400, "illegal_argument_exception",
                      "only write ops with an op_type of create are allowed in data streams"),
                 ItemAction::kHold},
        ItemCase{item(400, "illegal_argument_exception", "pipeline with id [x] does not exist"),
                 ItemAction::kHold},
        ItemCase{item(400, "mapper_parsing_exception", "failed to parse"), ItemAction::kReject},
        ItemCase{item(400, "document_parsing_exception", "[1:53] failed to parse field [job.id]"),
                 ItemAction::kReject},
        ItemCase{item(400, "strict_dynamic_mapping_exception"), ItemAction::kReject},
        ItemCase{item(400, "illegal_argument_exception",
                      "Document contains at least one immense term in field=\"script.text\""),
                 ItemAction::kReject},
        ItemCase{item(400, "illegal_argument_exception",
                      "DocValuesField \"script.text.grep\" is too large, must be <= 32766"),
                 ItemAction::kReject},
        ItemCase{item(400, "illegal_argument_exception",
                      "Limit of total fields [500] has been exceeded"),
                 ItemAction::kReject},
        ItemCase{item(400, "illegal_argument_exception", "something new"), ItemAction::kSuspect},
        ItemCase{item(400, "brand_new_exception"), ItemAction::kSuspect},
        ItemCase{item(400), ItemAction::kSuspect},
        ItemCase{item(500, "not_x_content_exception"), ItemAction::kSuspect},
        ItemCase{item(418), ItemAction::kSuspect}, ItemCase{item(599), ItemAction::kSuspect}));

struct RequestCase {
  long status;
  ServerError error;
  RequestAction action;
};

class RequestTest : public ::testing::TestWithParam<RequestCase> {};

TEST_P(RequestTest, IsJudgedAsAWhole) {
  const auto& [status, error, action] = GetParam();
  EXPECT_EQ(judge_request(status, error), action) << status << ' ' << error.type;
}

INSTANTIATE_TEST_SUITE_P(
    EveryRow, RequestTest,
    ::testing::Values(
        RequestCase{200, {}, RequestAction::kItems}, RequestCase{201, {}, RequestAction::kRetry},
        RequestCase{204, {}, RequestAction::kRetry}, RequestCase{301, {}, RequestAction::kHold},
        RequestCase{401, {}, RequestAction::kHold},
        RequestCase{403, {"security_exception", ""}, RequestAction::kHold},
        RequestCase{403, {"cluster_block_exception", ""}, RequestAction::kHold},
        RequestCase{429, {"cluster_block_exception", ""}, RequestAction::kHold},
        RequestCase{404, {"index_not_found_exception", ""}, RequestAction::kHold},
        RequestCase{405, {}, RequestAction::kHold}, RequestCase{406, {}, RequestAction::kHold},
        RequestCase{408, {}, RequestAction::kRetry}, RequestCase{413, {}, RequestAction::kSplit},
        RequestCase{417, {}, RequestAction::kSplit}, RequestCase{429, {}, RequestAction::kRetry},
        RequestCase{500, {}, RequestAction::kRetry}, RequestCase{502, {}, RequestAction::kNextHost},
        RequestCase{503, {"cluster_block_exception", ""}, RequestAction::kNextHost},
        RequestCase{504, {}, RequestAction::kNextHost},
        RequestCase{400, {"illegal_argument_exception", ""}, RequestAction::kSuspect},
        RequestCase{400, {"action_request_validation_exception", ""}, RequestAction::kSuspect},
        RequestCase{400, {"validation_exception", ""}, RequestAction::kHold},
        RequestCase{507, {}, RequestAction::kRetry}));

TEST(BulkAnswerTest, GivesEachDocumentItsItem) {
  const auto items = parse_bulk_answer(
      R"({"took":3,"errors":true,"items":[{"create":{"_id":"a","status":201}},)"
      R"({"create":{"_id":"b","status":429,"error":{"type":"es_rejected_execution_exception","reason":"full"}}},)"
      R"({"create":{"_id":"c","status":201,"failure_store":"used"}}]})",
      {"a", "b", "c"});
  ASSERT_TRUE(items) << items.error().message();
  EXPECT_EQ((*items)[0].status, 201);
  EXPECT_EQ((*items)[1].type, "es_rejected_execution_exception");
  EXPECT_EQ((*items)[1].reason, "full");
  EXPECT_FALSE((*items)[0].failure_store);
  EXPECT_TRUE((*items)[2].failure_store);
}

TEST(BulkAnswerTest, TellsWhichDocumentsMayHaveBeenChanged) {
  const auto items = parse_bulk_answer(
      R"({"items":[{"create":{"_id":"a","status":201}},{"index":{"_id":"b","status":200}},)"
      R"({"update":{"_id":"c","status":200,"result":"noop"}}]})",
      {"a", "b", "c"});
  ASSERT_TRUE(items) << items.error().message();
  EXPECT_FALSE((*items)[0].changes);
  EXPECT_TRUE((*items)[1].changes);
  EXPECT_TRUE((*items)[2].changes);
}

TEST(BulkAnswerTest, ASuccessThatStoresNothingIsNone) {
  for (const auto& [action, judged] : {std::pair{"create", ItemAction::kReject},
                                       {"index", ItemAction::kReject},
                                       {"update", ItemAction::kStored}}) {
    const auto items = parse_bulk_answer(R"({"items":[{")" + std::string(action) +
                                             R"(":{"_id":"a","status":200,"result":"noop"}}]})",
                                         {"a"});
    ASSERT_TRUE(items);
    EXPECT_EQ(judge_item(items->front()), judged) << action;
  }
}

TEST(BulkAnswerTest, IsUnknownUnlessItAnswersForExactlyTheseDocuments) {
  for (const char* body :
       {"", "<html>", "{", R"({"items":[)", "[]", "null", R"({"errors":false})", R"({"items":{}})",
        R"({"items":[]})",
        R"({"items":[{"create":{"_id":"a","status":201}},{"create":{"_id":"b","status":201}}]})",
        R"({"items":[{"create":{"_id":"a"}}]})", R"({"items":[{"create":201}]})",
        R"({"items":[201]})", R"({"items":[{}]})",
        R"({"items":[{"create":{"_id":"b","status":201}}]})",
        R"({"items":[{"create":{"_id":"a","status":"201"}}]})"}) {
    EXPECT_FALSE(parse_bulk_answer(body, {"a"})) << body;
  }
  EXPECT_TRUE(parse_bulk_answer(R"({"items":[{"create":{"status":201}}]})",
                                {"a"}));  // without _id the place counts
}

TEST(ErrorTest, IsReadFromEveryFormThatServersUse) {
  EXPECT_EQ(
      parse_error(R"({"error":{"type":"security_exception","reason":"no"},"status":403})").type,
      "security_exception");
  EXPECT_EQ(parse_error(R"({"error":"no handler found for uri","status":400})").reason,
            "no handler found for uri");
  EXPECT_EQ(parse_error("Unauthorized").type, "");
  EXPECT_EQ(parse_error("").reason, "");
  EXPECT_EQ(parse_error(R"({"error":{"type":"#!/bin/sh rm -rf","reason":1}})").type, "");
}

// What servers were seen to say, and what of it may be told.
TEST(SafeReasonTest, EndsWhereTheServerBeginsToQuote) {
  const auto expect = [](std::string_view reason, std::string_view told) {
    EXPECT_EQ(safe_reason(reason), told);
  };
  expect(
      "[scriptorium-job-2026.11][0] primary shard is not active Timeout: [1m], request: "
      "[BulkShardRequest [[x][0]] containing "
      "[index "
      "{[x][1], source[{\"script\":{\"text\":\"SECRET\"}}]}]]",
      "[scriptorium-job-2026.11][0] primary shard is not active Timeout: [1m]");
  expect(
      "failed to parse field [environment] of type [flattened] in document with id '1'. Preview of "
      "field's value: 'SECRET'",
      "failed to parse field [environment] of type [flattened]");
  expect(
      "[1:20] failed to parse: Unexpected character: expected a value at [Source: "
      "(byte[])\"{\"script\":\"SECRET\"}\"; line: 1]",
      "[1:20] failed to parse: Unexpected character: expected a value at");
  expect(
      "Document contains at least one immense term in field=\"script.text\" The prefix of the "
      "first immense term is: '[104, "
      "117]'",
      "Document contains at least one immense term in field=\"script.text\" The");
  expect("For input string: \"SECRET\"", "");
  expect("source[SECRET", "");
}

TEST(SafeReasonTest, EndsWhereItRepeatsTheJobItself) {
  const auto event = test::make_event("4711", "#!/bin/sh\nexport TOKEN=hunter2hunter2\n",
                                      {"PASSWORD=correct horse battery"});
  EXPECT_EQ(safe_reason("a new way to say TOKEN=hunter2hunter2 aloud", *event),
            "a new way to say...");
  EXPECT_EQ(safe_reason("value was correct horse battery staple", *event), "value was...");
  EXPECT_EQ(safe_reason("index [scriptorium-job-2026.11] is closed", *event),
            "index [scriptorium-job-2026.11] is closed");
}

TEST(SafeReasonTest, IsShortAndOnOneLine) {
  EXPECT_LE(safe_reason(std::string(5000, 'x')).size(), 203U);
  EXPECT_THAT(safe_reason("a\nb\x1b[31m"), Not(HasSubstr("\n")));
}

TEST(RetryAfterTest, IsSecondsOrADate) {
  constexpr std::int64_t kNow = 1'795'219'200;  // 2026-11-21T00:00:00Z
  EXPECT_EQ(parse_retry_after("7", kNow), std::chrono::seconds(7));
  EXPECT_EQ(parse_retry_after(" 120 ", kNow), std::chrono::seconds(120));
  EXPECT_EQ(parse_retry_after("999999", kNow), std::chrono::hours(1));
  EXPECT_EQ(parse_retry_after("-5", kNow), std::chrono::seconds(0));
  EXPECT_EQ(parse_retry_after("Sat, 21 Nov 2026 00:01:00 GMT", kNow), std::chrono::seconds(60));
  EXPECT_EQ(parse_retry_after("Fri, 20 Nov 2026 00:01:00 GMT", kNow), std::chrono::seconds(0));
  EXPECT_EQ(parse_retry_after("", kNow), std::nullopt);
  EXPECT_EQ(parse_retry_after("soon", kNow), std::nullopt);
}

}  // namespace
}  // namespace scriptorium::elasticsearch
