#include <nlohmann/json.hpp>

#include "core/base/text.h"
#include "tests/backends/elasticsearch/sink_fixture.h"

// What the commands check, show and setup get.
namespace scriptorium::elasticsearch {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;
using namespace std::string_literals;

class AdminTest : public SinkFixture {
 protected:
  ElasticsearchSink& unstarted() {
    auto made = ElasticsearchSink::create(config_, context_);
    if (!made) throw std::runtime_error(made.error().message());
    unstarted_ = *std::move(made);
    return *unstarted_;
  }
  std::string check() {
    const auto checked = unstarted().check();
    return checked ? "good" : checked.error().message();
  }
  std::unique_ptr<ElasticsearchSink> unstarted_;
};

TEST_F(AdminTest, CheckIsGoodAndStoresNothing) {
  EXPECT_EQ(check(), "good");
  EXPECT_TRUE(server_.documents().empty());
}

TEST_F(AdminTest, CheckNamesTheServerThatDoesNotAnswer) {
  server_.go_down();
  EXPECT_THAT(check(), HasSubstr(server_.url() + ": cannot connect"));
}

TEST_F(AdminTest, OneServerOfSeveralIsEnough) {
  Fake second;
  config_.hosts.push_back(second.url());
  server_.go_down();
  EXPECT_EQ(check(), "good");
  EXPECT_THAT(log_.last("ES_HOST_DOWN")->field("reason"), HasSubstr(server_.url()));
}

TEST_F(AdminTest, CheckSaysThatTheCredentialsAreUnknown) {
  server_.answer("/", {.status = 401, .body = "Unauthorized", .content_type = "text/plain"});
  EXPECT_THAT(check(), HasSubstr("401: the server does not know our credentials"));
}

TEST_F(AdminTest, AUserWhoMayNotAskForTheVersionIsWelcome) {
  for (const int status : {403, 405, 400}) {
    server_.answer("/", {.status = status});
    server_.answer(
        "/_bulk", {.body = R"({"errors":true,"items":[{"create":{"_id":"check","status":404}}]})"});
    server_.answer("/_index_template/", {.body = "{}"});
    EXPECT_EQ(check(), "good") << status;
  }
}

TEST_F(AdminTest, CheckSaysThatTheServerHasMadeItsIndexReadOnly) {
  server_.answer("/scriptorium-job-", {.body = R"({"scriptorium-job-2026.11":{"settings":{}}})"});
  EXPECT_EQ(check(), "good");
  server_.answer("/scriptorium-job-", {.body = R"({"scriptorium-job-2026.11":{"settings":{
      "index.blocks.read_only_allow_delete":"true"}}})"});
  EXPECT_THAT(check(), HasSubstr("scriptorium-job-2026.11: index.blocks.read_only_allow_delete is "
                                 "set, as the server does itself when its disk is full"));
}

TEST_F(AdminTest, CheckSaysThatSomethingElseThanSuchAServerAnswers) {
  const std::string page = "<html>Please log in</html>";
  for (const int status : {200, 302, 404}) {
    for (const char* path : {"/", "/_bulk"})
      server_.answer(path, {.status = status, .body = page, .content_type = "text/html"});
    EXPECT_THAT(check(),
                HasSubstr(server_.url() + " takes no documents: " + std::to_string(status) +
                          ": this is no answer of Elasticsearch or OpenSearch"));
  }
}

TEST_F(AdminTest, CheckSaysThatTheIndexCannotTakeAnything) {
  const auto is = [&](const char* state, const char* health) {
    server_.answer("/_cat/indices/", {.body = Json::array({{{"index", "scriptorium-job-2026.11"},
                                                            {"status", state},
                                                            {"health", health}}})
                                                  .dump()});
  };
  is("open", "yellow");
  EXPECT_EQ(check(), "good");
  is("close", "green");
  EXPECT_THAT(check(), HasSubstr("is closed; open it"));
  is("open", "red");
  EXPECT_THAT(check(), HasSubstr("a shard without any copy that is active"));
}

TEST_F(AdminTest, CheckSaysThatTheNextIndexCannotBeMade) {
  const auto are = [&](const char* create, const char* most, int active) {
    server_.answer("/_cluster/settings",
                   {.body = Json{{"persistent", Json::object()},
                                 {"defaults",
                                  {{"action", {{"auto_create_index", create}}},
                                   {"cluster", {{"max_shards_per_node", most}}}}}}
                                .dump()});
    server_.answer("/_cluster/health", {.body = Json{{"active_shards", active},
                                                     {"unassigned_shards", 3},
                                                     {"number_of_data_nodes", 2}}
                                                    .dump()});
  };
  are("true", "1000", 1995);
  EXPECT_EQ(check(), "good");
  are("true", "1000", 1996);
  EXPECT_THAT(check(), HasSubstr("1999 of the 2000 shards that cluster.max_shards_per_node allows, "
                                 "so it makes no other index, and the next month's"));
  are("false", "1000", 1);
  EXPECT_EQ(check(), "good") << "the index may be there";
  server_.answer("/_cat/indices/", {.status = 404});
  EXPECT_THAT(check(), HasSubstr("action.auto_create_index is false"));
}

TEST_F(AdminTest, CheckSaysThatTheAliasHasNoIndexToWriteTo) {
  config_.require_alias = true;
  const auto are = [&](const Json& indices) {
    server_.answer("/_alias/", {.body = indices.dump()});
  };
  const Json plain{{"aliases", {{"scriptorium-job-2026.11", Json::object()}}}};
  Json writes = plain;
  writes["aliases"]["scriptorium-job-2026.11"]["is_write_index"] = true;
  are({{"a", plain}});
  EXPECT_EQ(check(), "good");
  are({{"a", plain}, {"b", writes}});
  EXPECT_EQ(check(), "good");
  are({{"a", plain}, {"b", plain}});
  EXPECT_THAT(check(), HasSubstr("none of the indices of the alias scriptorium-job-2026.11"));
  server_.answer("/_alias/", {.status = 404});
  EXPECT_THAT(check(), HasSubstr("there is no alias scriptorium-job-2026.11"));
}

TEST_F(AdminTest, CheckSaysThatAnotherTemplateGoesBeforeOurs) {
  server_.answer("/_index_template/_simulate_index/",
                 {.body = R"({"template":{},"overlapping":[{"name":"scriptorium-job"}]})"});
  EXPECT_THAT(check(), HasSubstr("another index template than scriptorium-job decides"));
}

TEST_F(AdminTest, CheckSaysWhichPrivilegeIsMissing) {
  const auto rights = [&](bool create, bool configure) {
    server_.answer("/_security/user/_has_privileges",
                   {.body = Json{{"has_all_requested", false},
                                 {"index",
                                  {{"scriptorium-job-2026.11",
                                    {{"create_doc", create},
                                     {"auto_configure", configure},
                                     {"create_index", false}}}}}}
                                .dump()});
  };
  rights(false, true);
  EXPECT_THAT(check(), HasSubstr("create_doc"));
  rights(true, false);
  EXPECT_THAT(check(), HasSubstr("auto_configure"));
  rights(true, true);
  EXPECT_EQ(check(), "good");
  EXPECT_EQ(log_.count("ES_CREATE_ONLY"), 0U);
}

TEST_F(AdminTest, CheckTellsThatDocumentsCannotBeChanged) {
  server_.answer(
      "/_security/user/_has_privileges",
      {.body =
           R"({"index":{"scriptorium-job-2026.11":{"create_doc":true,"auto_configure":true,"index":false}}})"});
  EXPECT_EQ(check(), "good");
  EXPECT_EQ(log_.count("ES_CREATE_ONLY"), 1U);
  config_.data_stream = true;  // there nothing can be changed anyway
  EXPECT_EQ(check(), "good");
  EXPECT_EQ(log_.count("ES_CREATE_ONLY"), 1U);
}

TEST_F(AdminTest, CheckAsksByARequestThatCannotStoreAnythingWhetherWeMayWrite) {
  server_.next_bulk(Fake::Reply{
      .status = 403,
      .body =
          R"({"error":{"type":"security_exception","reason":"no permissions for [indices:data/write/bulk] and User [name=u]"}})"});
  EXPECT_THAT(check(), HasSubstr("we may not write: 403 security_exception: no permissions for "
                                 "[indices:data/write/bulk]"));
  EXPECT_THAT(server_.requests().front().target, HasSubstr("require_alias=true"));
}

TEST_F(AdminTest, CheckSaysThatTheTemplateIsMissing) {
  server_.answer(
      "/_index_template/scriptorium-job",
      {.status = 404,
       .body =
           R"({"error":{"type":"resource_not_found_exception","reason":"not found"},"status":404})"});
  EXPECT_THAT(
      check(),
      HasSubstr("the index template scriptorium-job is missing; run: scriptorium setup search"));
  config_.require_template = false;
  EXPECT_EQ(check(), "good");
}

TEST_F(AdminTest, CreateRefusesASecretThatIsNotThere) {
  config_.api_key_file = directory_.path_to("none");
  const auto made = ElasticsearchSink::create(config_, context_);
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().kind(), ErrorKind::kInvalidConfig);
  EXPECT_THAT(made.error().message(), HasSubstr("none"));
}

TEST_F(AdminTest, FindGivesBackScriptAndEnvironmentByteForByte) {
  const std::string script = "#!/bin/sh\n# caf\xe9 \0 end\n"s;
  const auto event = test::make_event("4711", script, {"A=b=c", "MULTI=1\n2"});
  deliver({event, test::make_event("47110")});
  const auto found = unstarted().find("4711");
  ASSERT_TRUE(found) << found.error().message();
  ASSERT_EQ(found->size(), 1U);
  const StoredJob& job = found->front();
  EXPECT_EQ(job.event_id, event->id);
  EXPECT_EQ(job.location, server_.url() + "/scriptorium-job-2026.11/_doc/" + event->id);
  std::map<std::string, std::string> files;
  for (const StoredFile& file : job.files) files[file.name] = *file.bytes;
  EXPECT_EQ(files["script"], script);
  EXPECT_EQ(files["environment"], "A=b=c\0MULTI=1\n2\0"s);
  EXPECT_EQ(Json::parse(files["metadata"])["job"]["name"], "md");
}

TEST_F(AdminTest, FindDoesNotPassACutScriptOffAsTheWhole) {
  config_.script_max_bytes = 1024;
  deliver({test::make_event("4711", std::string(5000, 'x'))});
  const auto found = unstarted().find("4711");
  ASSERT_TRUE(found);
  ASSERT_EQ(found->size(), 1U);
  for (const StoredFile& file : found->front().files) EXPECT_NE(file.name, "script");
}

TEST_F(AdminTest, FindNamesALateOwnersEventAndLeavesOutWhatAnUpdateNamesAsNull) {
  const Event first = test::make_unverified_event("4711");
  const auto bare =
      std::make_shared<const Event>(test::without_bytes(test::make_owned_event(first)));
  deliver({std::make_shared<const Event>(first)});
  deliver({bare});
  const auto found = unstarted().find("4711");
  ASSERT_TRUE(found) << found.error().message();
  ASSERT_EQ(found->size(), 1U);
  EXPECT_EQ(found->front().event_id, bare->id);
  EXPECT_THAT(found->front().location, ::testing::EndsWith("/_doc/" + first.id));
  std::map<std::string, std::string> files;
  for (const StoredFile& file : found->front().files) files[file.name] = *file.bytes;
  EXPECT_EQ(files["script"], test::kScript);
  EXPECT_FALSE(Json::parse(files["metadata"])["user"].contains("unverified_reason"));
}

TEST_F(AdminTest, FindMakesOneJobOfTheTwoDocumentsInADataStream) {
  config_.data_stream = true;
  const Event first = test::make_unverified_event("4711");
  const auto bare =
      std::make_shared<const Event>(test::without_bytes(test::make_owned_event(first)));
  deliver({std::make_shared<const Event>(first), bare,
           test::make_event("4711", "another job of that number")});
  const auto found = unstarted().find("4711");
  ASSERT_TRUE(found) << found.error().message();
  ASSERT_EQ(found->size(), 2U);
  const auto job = std::ranges::find(*found, bare->id, &StoredJob::event_id);
  ASSERT_NE(job, found->end());
  std::map<std::string, std::string> files;
  for (const StoredFile& file : job->files) files[file.name] = *file.bytes;
  EXPECT_EQ(files["script"], test::kScript);
  EXPECT_EQ(files["environment"], "HOME=/home/alice\0USER=mallory\0"s);
  EXPECT_EQ(Json::parse(files["metadata"])["user"]["name"], "alice");
}

TEST_F(AdminTest, FindIsEmptyWhereWeMayOnlyWrite) {
  server_.answer(
      "/scriptorium-job-*/_search",
      {.status = 403, .body = R"({"error":{"type":"security_exception","reason":"no"}})"});
  const auto found = unstarted().find("4711");
  ASSERT_TRUE(found) << found.error().message();
  EXPECT_TRUE(found->empty());
}

TEST_F(AdminTest, FindSaysWhatWentWrong) {
  server_.answer("/scriptorium-job-*/_search",
                 {.status = 500, .body = R"({"error":{"type":"odd_exception","reason":"no"}})"});
  const auto found = unstarted().find("4711");
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().message(), "search: 500 odd_exception: no");
}

TEST_F(AdminTest, SetupInstallsAllAndSaysWhatIsDeleted) {
  const auto done = unstarted().setup(false);
  ASSERT_TRUE(done) << done.error().message();
  EXPECT_THAT(
      *done,
      HasSubstr("installed /_ilm/policy/scriptorium-job: deletes what is older than 730 days"));
  EXPECT_THAT(*done, HasSubstr("installed /_index_template/scriptorium-usage"));
  const auto put = server_.requests("/_index_template/scriptorium-job");
  ASSERT_EQ(put.size(), 1U);
  EXPECT_EQ(put[0].method, "PUT");
  EXPECT_EQ(Json::parse(put[0].body)["template"]["settings"]["index"]["lifecycle"]["name"],
            "scriptorium-job");
}

TEST_F(AdminTest, SetupChoosesTheFormByTheServer) {
  server_.answer(
      "/",
      {.body =
           R"({"version":{"distribution":"opensearch","number":"2.19.1"},"tagline":"The OpenSearch Project"})"});
  server_.answer("/_index_template/", {.body = "{}"});
  server_.answer(
      "/_plugins/_ism/policies/",
      {.status = 409, .body = R"({"error":{"type":"version_conflict_engine_exception"}})"});
  const auto done = unstarted().setup(false);
  ASSERT_TRUE(done) << done.error().message();
  EXPECT_THAT(*done, HasSubstr("left /_plugins/_ism/policies/scriptorium-job as it is"));
  EXPECT_THAT(server_.requests("/_index_template/scriptorium-job")[0].body,
              HasSubstr("flat_object"));
}

TEST_F(AdminTest, SetupGoesOnWithoutPoliciesWhereThereAreNone) {
  server_.answer(
      "/_ilm/",
      {.status = 400,
       .body =
           R"({"error":"no handler found for uri [/_ilm/policy/x] and method [PUT]","status":400})"});
  const auto done = unstarted().setup(false);
  ASSERT_TRUE(done) << done.error().message();
  EXPECT_THAT(*done, HasSubstr("no policies on this server"));
  EXPECT_EQ(server_.requests("/_ilm/").size(), 1U);
  EXPECT_THAT(server_.requests("/_index_template/scriptorium-job")[0].body,
              Not(HasSubstr("lifecycle")));
}

TEST_F(AdminTest, SetupWithoutTheRightsNamesTheWayOut) {
  server_.answer(
      "/_index_template/",
      {.status = 403, .body = R"({"error":{"type":"security_exception","reason":"not you"}})"});
  const auto done = unstarted().setup(false);
  ASSERT_FALSE(done);
  EXPECT_THAT(done.error().message(), HasSubstr("403 security_exception: not you"));
  EXPECT_THAT(done.error().message(), HasSubstr("scriptorium setup search --print"));
}

TEST_F(AdminTest, PrintingNeedsNoServerAndChangesNothing) {
  const auto printed = unstarted().setup(true);
  ASSERT_TRUE(printed);
  EXPECT_THAT(*printed, HasSubstr("# For Elasticsearch\n"));
  EXPECT_THAT(*printed, HasSubstr("PUT /_index_template/scriptorium-job\n{"));
  EXPECT_THAT(*printed, Not(HasSubstr("# For OpenSearch")));
  EXPECT_TRUE(server_.requests("/_index_template").empty());
  server_.go_down();
  const auto both = unstarted().setup(true);
  ASSERT_TRUE(both);
  EXPECT_THAT(*both, HasSubstr("# For Elasticsearch\n"));
  EXPECT_THAT(*both, HasSubstr("# For OpenSearch\n"));
}

}  // namespace
}  // namespace scriptorium::elasticsearch
