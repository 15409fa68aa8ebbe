#include "core/api/kit/text_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

namespace scriptorium {
namespace {

using testing::HasSubstr;

constexpr std::array<std::string_view, 3> kFields = {"cluster", "job_id", "user"};

std::string expanded(std::string_view text) {
  const auto parsed = TextTemplate::parse(text, kFields);
  if (!parsed) return parsed.error().message();
  return parsed->expand([](std::string_view field) { return "<" + std::string(field) + ">"; });
}

TEST(TextTemplateTest, FieldsAreReplacedAndTextStays) {
  EXPECT_EQ(expanded("a/{cluster}-{job_id}.sh"), "a/<cluster>-<job_id>.sh");
  EXPECT_EQ(expanded("{user}{user}"), "<user><user>");
  EXPECT_EQ(expanded(""), "");
}

TEST(TextTemplateTest, DoubledBracesAreTheBracesThemselves) {
  EXPECT_EQ(expanded("{{{user}}}"), "{<user>}");
  EXPECT_EQ(expanded("{{user}}"), "{user}");
}

TEST(TextTemplateTest, ABraceWithoutItsPartnerIsAnError) {
  EXPECT_THAT(expanded("a{user"), HasSubstr("'{' without '}'"));
  EXPECT_THAT(expanded("user}"), HasSubstr("'}' without '{'"));
  EXPECT_EQ(TextTemplate::parse("{", kFields).error().kind(), ErrorKind::kInvalidConfig);
}

TEST(TextTemplateTest, EveryUnknownFieldIsNamedWithTheNearestOne) {
  EXPECT_EQ(expanded("{usr}/{x_y_z_1}/{jobid}"),
            "unknown field {usr}; did you mean {user}? unknown field {x_y_z_1}; unknown field "
            "{jobid}; did you mean {job_id}? the fields are {cluster} {job_id} {user}");
}

TEST(TextTemplateTest, KnowsItsFieldsAndItsFixedText) {
  const auto parsed = TextTemplate::parse("a-{user}-{{{user}", kFields);
  ASSERT_TRUE(parsed) << parsed.error().message();
  EXPECT_EQ(parsed->count("user"), 2U);
  EXPECT_FALSE(parsed->uses("cluster"));
  EXPECT_EQ(parsed->fixed_text(), "a--{");
}

}  // namespace
}  // namespace scriptorium
