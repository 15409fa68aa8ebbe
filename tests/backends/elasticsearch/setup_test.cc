#include "backends/elasticsearch/setup.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace scriptorium::elasticsearch {
namespace {

using Json = nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

class SetupTest : public ::testing::Test {
 protected:
  std::vector<SetupStep> steps(Product product) {
    config_.index_name = *IndexName::parse(!config_.index.empty() ? std::string_view(config_.index)
                                           : config_.data_stream  ? IndexName::kDefaultStream
                                                                  : IndexName::kDefault);
    auto made = setup_steps(config_, product);
    EXPECT_TRUE(made) << made.error().message();
    return made ? *std::move(made) : std::vector<SetupStep>{};
  }
  std::vector<std::string> paths(Product product) {
    std::vector<std::string> result;
    for (const SetupStep& step : steps(product)) result.push_back(step.path);
    return result;
  }
  ElasticsearchConfig config_;
};

TEST_F(SetupTest, InstallsPoliciesBeforeTheTemplatesThatNameThem) {
  EXPECT_THAT(paths(Product::kElasticsearch),
              ::testing::ElementsAre(
                  "/_ilm/policy/scriptorium-job", "/_index_template/scriptorium-job",
                  "/_ilm/policy/scriptorium-usage", "/_index_template/scriptorium-usage"));
  EXPECT_THAT(paths(Product::kOpensearch),
              ::testing::ElementsAre("/_plugins/_ism/policies/scriptorium-job",
                                     "/_index_template/scriptorium-job",
                                     "/_plugins/_ism/policies/scriptorium-usage",
                                     "/_index_template/scriptorium-usage"));
}

TEST_F(SetupTest, KeepsAsLongAsTheConfigurationSays) {
  config_.retention_days = 90;
  for (const Product product : {Product::kElasticsearch, Product::kOpensearch}) {
    const auto made = steps(product);
    EXPECT_THAT(made[0].body, HasSubstr("\"90d\""));
    EXPECT_THAT(made[0].body, Not(HasSubstr("730d")));
    EXPECT_TRUE(made[0].deletes);
    EXPECT_THAT(setup_text(config_, product, made), HasSubstr("older than 90 days"));
  }
}

TEST_F(SetupTest, WithoutRetentionThereIsNoPolicy) {
  config_.retention_days = 0;
  EXPECT_THAT(paths(Product::kElasticsearch),
              ::testing::ElementsAre("/_index_template/scriptorium-job",
                                     "/_index_template/scriptorium-usage"));
  EXPECT_THAT(steps(Product::kElasticsearch)[0].body, Not(HasSubstr("lifecycle")));
  EXPECT_THAT(paths(Product::kOpensearch),
              ::testing::ElementsAre("/_index_template/scriptorium-job",
                                     "/_index_template/scriptorium-usage"));
}

TEST_F(SetupTest, ADataStreamStillRollsOverWhenItIsKeptForEver) {
  config_.data_stream = true;
  config_.retention_days = 0;
  for (const Product product : {Product::kElasticsearch, Product::kOpensearch}) {
    const auto made = steps(product);
    ASSERT_EQ(made.size(), 4U);
    EXPECT_THAT(made[0].body, HasSubstr("rollover"));
    EXPECT_THAT(made[0].body, Not(HasSubstr("\"delete\"")));
    EXPECT_FALSE(made[0].deletes);
    EXPECT_TRUE(Json::parse(made[1].body).contains("data_stream"));
    EXPECT_EQ(made[1].path, "/_index_template/scriptorium-stream-job");
  }
}

TEST_F(SetupTest, PatternsFollowTheConfiguredName) {
  config_.index = "hpc-{cluster}-{family}-{year}";
  const auto es = steps(Product::kElasticsearch);
  EXPECT_EQ(Json::parse(es[1].body)["index_patterns"], Json::array({"hpc-*-job-*"}));
  EXPECT_EQ(es[1].path, "/_index_template/hpc-job");
  EXPECT_EQ(Json::parse(es[1].body)["template"]["settings"]["index"]["lifecycle"]["name"],
            "hpc-job");
  const auto os = steps(Product::kOpensearch);
  EXPECT_EQ(Json::parse(os[0].body)["policy"]["ism_template"][0]["index_patterns"],
            Json::array({"hpc-*-job-*"}));
}

TEST_F(SetupTest, OneIndexForAllKindsHasOneTemplate) {
  config_.index = "hpc-{year}";
  EXPECT_THAT(paths(Product::kElasticsearch),
              ::testing::ElementsAre("/_ilm/policy/hpc", "/_index_template/hpc"));
}

TEST_F(SetupTest, ATemplateForAServerWithoutPoliciesNamesNone) {
  const auto made = steps(Product::kElasticsearch);
  EXPECT_THAT(made[1].body, HasSubstr("lifecycle"));
  EXPECT_THAT(made[1].without_policy, Not(HasSubstr("lifecycle")));
  EXPECT_THAT(made[1].without_policy, HasSubstr("shell_tokens"));
}

}  // namespace
}  // namespace scriptorium::elasticsearch
