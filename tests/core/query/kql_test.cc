#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/api/kit/search/query_matcher.h"
#include "core/query/parse.h"

// Kibana's queries, of which tests/fixtures/elasticsearch has the answers, in our words.
namespace scriptorium::query {
namespace {

using Json = nlohmann::json;

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
  return text;
}

// What Kibana calls otherwise. Text of a script needs no field here.
std::string in_our_words(std::string kql) {
  const std::vector<std::pair<std::string, std::string>> words{
      {"script.text: ", ""},    {"user.name:", "user:"},  {"jobid:", "job:"},
      {"environment.", "env."}, {"environment:", "env:"}, {" and ", " AND "},
      {" or ", " OR "},         {"not ", "NOT "},         {"@timestamp > ", "submitted:>"}};
  for (const auto& [from, to] : words) kql = replaced(std::move(kql), from, to);
  return kql;
}

struct Document {
  JobRow row;
  std::string script;
  std::string environment;
};

std::map<std::string, Document> documents() {
  std::ifstream file(SCRIPTORIUM_SOURCE_DIR "/tests/fixtures/elasticsearch/kql-docs.json");
  std::map<std::string, Document> all;
  const Json documents = Json::parse(file);
  for (const auto& [id, json] : documents.items()) {
    Document& document = all[id];
    document.script = json.at("script.text").get<std::string>();
    document.row.cluster = json.at("cluster").get<std::string>();
    document.row.id = json.at("job.id").get<std::string>();
    document.row.user = json.at("user.name").get<std::string>();
    document.row.time = parse_rfc3339(json.at("@timestamp").get<std::string>()).value();
    const Json environment = json.value("environment", Json::object());
    for (const auto& [name, value] : environment.items())
      document.environment += name + "=" + value.get<std::string>() + '\0';
  }
  return all;
}

TEST(QueryKqlTest, FindsWhatKibanaFinds) {
  const auto all = documents();
  std::ifstream file(SCRIPTORIUM_SOURCE_DIR "/tests/fixtures/elasticsearch/kql-vectors.ndjson");
  // Words inside of other words, which only an expression finds here; words of a phrase with other
  // characters between them; and a * before a word.
  const std::map<std::string, std::string> otherwise{
      {"script.text: \"mem 4G\"", "/mem\\W4G/"},
      {"script.text: \"n 64\"", "/\\bn\\W64/"},
      {"script.text: *submit_dir", "/submit_dir\\b/i"},
  };
  int seen = 0;
  for (std::string line; std::getline(file, line);) {
    const Json vector = Json::parse(line);
    const auto kql = vector.at("kql").get<std::string>();
    const auto other = otherwise.find(kql);
    const std::string text = other == otherwise.end() ? in_our_words(kql) : other->second;
    const Parsed result = parse(text, Timestamp{1'795'275'000 * kSecond});
    ASSERT_FALSE(result.error) << error_text(text, *result.error, kql);
    const auto matcher = QueryMatcher::create(result.query);
    ASSERT_TRUE(matcher) << text;
    std::vector<std::string> hits;
    for (const auto& [id, document] : all) {
      const JobTexts texts{[&document = document](JobPart part) {
        return std::string_view(part == JobPart::kScript ? document.script : document.environment);
      }};
      if (matcher->matches(document.row, texts)) hits.push_back(id);
    }
    EXPECT_EQ(Json(hits), vector.at("hits")) << kql << "\nas " << text;
    ++seen;
  }
  EXPECT_GE(seen, 34);
}

}  // namespace
}  // namespace scriptorium::query
