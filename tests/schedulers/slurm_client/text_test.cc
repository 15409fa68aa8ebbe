#include "schedulers/slurm_client/text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace scriptorium::slurm_client {
namespace {

using namespace std::literals;

TEST(SlurmTextTest, DurationsAreReadInEveryShapeThatSlurmPrints) {
  EXPECT_EQ(read_duration("0:05"), 5);
  EXPECT_EQ(read_duration("5:00"), 300);
  EXPECT_EQ(read_duration("1:00:00"), 3600);
  EXPECT_EQ(read_duration("1-02:00:00"), 93600);
  EXPECT_DOUBLE_EQ(*read_duration("00:02.992"), 2.992);
  for (const char* word :
       {"UNLIMITED", "Partition_Limit", "", "5", "1:2:3:4", "1-", ":", "x:1", "1:.5x", "-1:00"}) {
    EXPECT_EQ(read_duration(word), std::nullopt) << word;
  }
}

TEST(SlurmTextTest, SizesAreReadWithTheirUnits) {
  EXPECT_EQ(read_size("200M"), 200U << 20U);
  EXPECT_EQ(read_size("1.50G"), 1536U << 20U);
  EXPECT_EQ(read_size("76853248"), 76853248U);
  for (const char* word : {"", "M", "12X", "12MB", "-1", "1e99", "nan", "inf"})
    EXPECT_EQ(read_size(word), std::nullopt) << word;
}

TEST(SlurmTextTest, AMemberOfAListIsFoundByItsWholeName) {
  const auto list = "billing=2,cpu=2,mem=200M,gres/gpu=3,gres/gpu:a100=3,node=1"sv;
  EXPECT_EQ(tres(list, "cpu"), "2");
  EXPECT_EQ(tres(list, "gres/gpu"), "3");
  EXPECT_EQ(tres(list, "bill"), std::nullopt);
  EXPECT_EQ(tres("", "cpu"), std::nullopt);
}

TEST(SlurmTextTest, NumbersThatSlurmDoesNotMeanAreAbsent) {
  EXPECT_EQ(read_count("4294967292"), 4294967292U);
  for (const char* text :
       {"4294967293", "4294967294", "4294967295", "18446744073709551614", "", "x"})
    EXPECT_EQ(read_count(text), std::nullopt) << text;
  EXPECT_EQ(read_size("18446744073709551614"), std::nullopt) << "NO_VAL64";
}

TEST(SlurmTextTest, ListsOfHostsAreReadAsSlurmShortensThem) {
  using ::testing::ElementsAre;
  EXPECT_THAT(read_hosts("n1"), ElementsAre("n1"));
  EXPECT_THAT(read_hosts("n[08-10,1],login"), ElementsAre("n08", "n09", "n10", "n1", "login"));
  EXPECT_THAT(read_hosts("r[1-2]n[3,5]-ib"),
              ElementsAre("r1n3-ib", "r1n5-ib", "r2n3-ib", "r2n5-ib"));
  EXPECT_EQ(read_hosts("n[1-65536]").size(), 65536U);
  for (const char* text :
       {"", ",", "n[1-", "n[2-1]", "n[a-b]", "n[1-4294967295]", "n[1-300]x[1-300]"})
    EXPECT_TRUE(read_hosts(text).empty()) << text;
}

TEST(SlurmTextTest, RowsThatAreCutOrTooLongAreRefused) {
  EXPECT_EQ(split_rows<2>("a@b@\nc@d@\n", "@", "x").value().size(), 2U);
  EXPECT_EQ(split_rows<2>("a@b\nc@\n", "@", "x").value().front()[1], "b\nc");
  for (const char* text : {"a@b@", "a@", "a@b@c@\n", "\n"})
    EXPECT_FALSE(split_rows<2>(text, "@", "x")) << text;
  const auto unguarded = split_rows<1>("\n", "", "x");
  ASSERT_FALSE(unguarded);
  EXPECT_EQ(unguarded.error().kind(), ErrorKind::kTransient);
  EXPECT_EQ(unguarded.error().message(),
            "x: a row is not as Slurm writes it; the whole answer is refused");
  EXPECT_TRUE(split_rows<2>("", "@", "x").value().empty());
}

TEST(SlurmTextTest, TextsAndTimesThatSlurmDoesNotMeanAreAbsent) {
  EXPECT_EQ(optional_text("a"), "a");
  for (const char* text : {"", "(null)"}) EXPECT_EQ(optional_text(text), std::nullopt) << text;
  EXPECT_EQ(read_epoch("1795292017"), Timestamp{1795292017 * kSecond});
  for (const char* text : {"", "0", "N/A", "-1", "9223372037", "18446744073709551615"})
    EXPECT_EQ(read_epoch(text), std::nullopt) << text;
}

}  // namespace
}  // namespace scriptorium::slurm_client
