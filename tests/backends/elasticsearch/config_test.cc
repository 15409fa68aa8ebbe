#include "backends/elasticsearch/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "backends/elasticsearch/http.h"
#include "tests/support/temp_dir.h"

namespace scriptorium::elasticsearch {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class ElasticsearchConfigTest : public ::testing::Test {
 protected:
  void set(const std::string& key, decltype(Value::data) data) {
    table_.entries.push_back({key, Value{std::move(data), {"es.toml", ++line_}}});
  }
  void set_hosts(const std::vector<std::string>& hosts) {
    std::vector<Value> values;
    for (const std::string& host : hosts) values.push_back(Value{host, {"es.toml", line_ + 1}});
    set("hosts", std::move(values));
  }
  std::string problems() {
    Problems problems;
    config_ = parse_config(table_, problems);
    std::string text;
    for (const Problem& problem : problems.list()) text += problem.text() + '\n';
    return text;
  }

  Table table_{.entries = {}, .position = {"es.toml", 1}, .path = "sink.search"};
  std::uint32_t line_ = 1;
  ElasticsearchConfig config_;
};

TEST_F(ElasticsearchConfigTest, HostsAloneGiveTheDefaults) {
  set_hosts({"https://es1:9200/", "http://[::1]:9200/prefix"});
  EXPECT_EQ(problems(), "");
  EXPECT_EQ(config_.hosts,
            (std::vector<std::string>{"https://es1:9200", "http://[::1]:9200/prefix"}));
  EXPECT_EQ(config_.index, "scriptorium-{family}-{year}.{month}");
  EXPECT_TRUE(config_.verify_tls);
  EXPECT_EQ(config_.request_max_bytes, 5'000'000);
}

TEST_F(ElasticsearchConfigTest, HostsAreRequiredAndUrls) {
  EXPECT_THAT(problems(), HasSubstr("hosts: required key is missing"));
  for (const auto& [host, words] : {std::pair{"es1:9200", "not a URL"},
                                    {"ftp://es1:21", "not a URL"},
                                    {"https://es1", "without a port"},
                                    {"https://", "without a host"},
                                    {"https://:9200", "without a host"},
                                    {"https://es1:http", "not a number"},
                                    {"https://es1:9200?x", "'?' or '#'"},
                                    {"https://es 1:9200", "blank"},
                                    {"https://[::1:9200", "no ']'"}}) {
    table_.entries.clear();
    set_hosts({host});
    EXPECT_THAT(problems(), HasSubstr(words)) << host;
  }
  table_.entries.clear();
  set_hosts({});
  EXPECT_THAT(problems(), HasSubstr("empty"));
  table_.entries.clear();
  set_hosts({"http://a:1", "http://a:1"});
  EXPECT_THAT(problems(), HasSubstr("twice"));
}

TEST_F(ElasticsearchConfigTest, APasswordInAUrlIsRefusedAndNotRepeated) {
  set_hosts({"https://elastic:hunter2@es1:9200"});
  const std::string text = problems();
  EXPECT_THAT(text, HasSubstr("use user and password_file"));
  EXPECT_THAT(text, Not(HasSubstr("hunter2")));
}

TEST_F(ElasticsearchConfigTest, SaysEveryProblemAtOnceWithItsLine) {
  set_hosts({"https://es1:9200"});
  set("index", std::string("Jobs"));
  set("user", std::string("u"));
  set("api_key_file", std::string("relative/key"));
  set("certificate_file", std::string("/etc/cert.pem"));
  set("key_password_file", std::string("/etc/pw"));
  set("compression", std::string("zstd"));
  const std::string text = problems();
  EXPECT_THAT(text, HasSubstr("es.toml:3: sink.search.index: an index name cannot hold 'J'"));
  EXPECT_THAT(text, HasSubstr("es.toml:4: sink.search.user: set without password_file"));
  EXPECT_THAT(text, HasSubstr("es.toml:5: sink.search.api_key_file: neither an absolute path"));
  EXPECT_THAT(text, HasSubstr("another way to authenticate is set too"));
  EXPECT_THAT(text, HasSubstr("es.toml:6: sink.search.certificate_file: certificate_file and "
                              "key_file need each other"));
  EXPECT_THAT(text, HasSubstr("es.toml:7: sink.search.key_password_file: set without key_file"));
  EXPECT_THAT(text, HasSubstr("es.toml:8: sink.search.compression: unknown value"));
}

TEST_F(ElasticsearchConfigTest, ADataStreamHasNoDateInItsName) {
  set_hosts({"https://es1:9200"});
  set("data_stream", true);
  EXPECT_EQ(problems(), "");
  EXPECT_EQ(config_.index, "scriptorium-stream-{family}");
  set("index", std::string("s-{year}"));
  set("require_alias", true);
  const std::string text = problems();
  EXPECT_THAT(text, HasSubstr("rolls over by itself"));
  EXPECT_THAT(text, HasSubstr("is no alias"));
}

TEST_F(ElasticsearchConfigTest, NamesThatFallUnderTheServersOwnTemplatesAreRefused) {
  set_hosts({"https://es1:9200"});
  set("index", std::string("logs-jobs-{year}"));
  EXPECT_THAT(problems(), HasSubstr("templates that the server brings along"));
}

TEST_F(ElasticsearchConfigTest, LabelsAreTexts) {
  set_hosts({"https://es1:9200"});
  Table labels{.entries = {{"site", Value{std::string("north"), {"es.toml", 3}}},
                           {"a.b", Value{std::string("x"), {"es.toml", 4}}},
                           {"n", Value{std::int64_t{3}, {"es.toml", 5}}}},
               .position = {"es.toml", 3},
               .path = "sink.search.labels"};
  set("labels", labels);
  const std::string text = problems();
  EXPECT_EQ(config_.labels, (std::vector<std::pair<std::string, std::string>>{{"site", "north"}}));
  EXPECT_THAT(text, HasSubstr("es.toml:4: sink.search.labels.\"a.b\": not a name for a label"));
  EXPECT_THAT(text, HasSubstr("es.toml:5: sink.search.labels.n: not a label"));
}

class CredentialsTest : public ::testing::Test {
 protected:
  std::string secret(const std::string& text) {
    const std::string path = directory_.write("secret", text);
    ::chmod(path.c_str(), 0600);
    return path;
  }
  std::string authorization() {
    const auto made = read_credentials(config_);
    return made ? made->authorization.reveal() : "refused: " + made.error().message();
  }
  test::TempDir directory_;
  ElasticsearchConfig config_;
};

TEST_F(CredentialsTest, AnApiKeyIsTakenInBothForms) {
  config_.api_key_file = secret("id:key\n");
  EXPECT_EQ(authorization(), "ApiKey aWQ6a2V5");
  config_.api_key_file = secret("aWQ6a2V5\n");
  EXPECT_EQ(authorization(), "ApiKey aWQ6a2V5");
}

TEST_F(CredentialsTest, BasicAndBearer) {
  config_.user = "u";
  config_.password_file = secret("p\n");
  EXPECT_EQ(authorization(), "Basic dTpw");
  config_ = {};
  config_.bearer_token_file = secret("t");
  EXPECT_EQ(authorization(), "Bearer t");
}

TEST_F(CredentialsTest, ATokenOfSeveralLinesWouldBeAnotherHeader) {
  config_.bearer_token_file = secret("t\r\nX: y\n");
  EXPECT_THAT(authorization(), HasSubstr("several lines"));
}

TEST_F(CredentialsTest, AFileThatOthersMayReadIsRefused) {
  config_.bearer_token_file = secret("t");
  ::chmod(config_.bearer_token_file.c_str(), 0644);
  EXPECT_THAT(authorization(), HasSubstr("every user of this machine may read it"));
}

}  // namespace
}  // namespace scriptorium::elasticsearch
