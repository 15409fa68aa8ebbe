#include "core/daemon/reload.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "core/config/config.h"
#include "tests/support/temp_dir.h"

namespace scriptorium {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class FingerprintTest : public testing::Test {
 protected:
  // Of [sink.archive] with these lines.
  static std::string of(const std::string& lines, const std::string& plugin = "/p/file.so",
                        const std::string& cluster = "lab", const std::string& host = "ctl1") {
    Problems problems;
    const Config config = parse_config(
        "cluster = \"lab\"\n[source.slurm]\n[sink.archive]\n" + lines, "test.toml", problems);
    EXPECT_TRUE(problems.empty()) << problems.list().front().text();
    return fingerprint(config.sinks.at(0).table, plugin, cluster, host);
  }

  test::TempDir directory_;
};

TEST_F(FingerprintTest, IsTheSameForTheSameConfiguration) {
  EXPECT_EQ(of("a = 1\nb = [\"x\", true]\nc = { d = 2.5 }"),
            of("a = 1 # a comment\n\nb = [ \"x\", true ]\nc = { d = 2.5 }"));
}

TEST_F(FingerprintTest, DiffersForAnyValuePluginClusterOrHost) {
  const std::string before = of("a = 1\nb = [\"x\", \"y\"]");
  EXPECT_NE(before, of("a = 2\nb = [\"x\", \"y\"]"));
  EXPECT_NE(before, of("a = \"1\"\nb = [\"x\", \"y\"]"));
  EXPECT_NE(before, of("a = 1\nb = [\"x,y\"]"));
  EXPECT_NE(before, of("a = 1\nb = [\"x\", \"y\"]\nc = false"));
  EXPECT_NE(before, of("a = 1\nb = [\"x\", \"y\"]", "/q/file.so"));
  EXPECT_NE(before, of("a = 1\nb = [\"x\", \"y\"]", "/p/file.so", "other"));
  EXPECT_NE(before, of("a = 1\nb = [\"x\", \"y\"]", "/p/file.so", "lab", "ctl2"));
}

TEST_F(FingerprintTest, DiffersWhenAFileWasExchangedThatAnOptionNames) {
  const std::string file = directory_.path_to("password");
  const std::string lines = "password_file = \"" + file + "\"";
  const std::string absent = of(lines);
  std::ofstream(file) << "one";
  const std::string before = of(lines);
  EXPECT_NE(before, absent);
  std::ofstream(file) << "another";
  EXPECT_NE(of(lines), before);
}

class SharedDirectoriesTest : public testing::Test {
 protected:
  test::TempDir directory_;
};

TEST_F(SharedDirectoriesTest, SinksInDirectoriesOfTheirOwnAreApart) {
  EXPECT_THAT(shared_directories({{"a", {"/x/one", "/x/two"}}, {"b", {"/x/onetwo"}}}), IsEmpty());
  EXPECT_THAT(shared_directories({{"a", {"/x/one", "/x/one/in"}}}), IsEmpty()) << "one sink's own";
}

TEST_F(SharedDirectoriesTest, NamesBothSinksOfOneDirectory) {
  EXPECT_THAT(shared_directories({{"a", {"/x/one"}}, {"b", {"/x//one/"}}}),
              ElementsAre(HasSubstr("[sink.a] and [sink.b] both write into")));
}

TEST_F(SharedDirectoriesTest, SaysWhichSinkLiesWithinWhichInEitherOrder) {
  constexpr const char* kSays = "[sink.b] writes into a directory within that of [sink.a]: /x/in/";
  EXPECT_THAT(shared_directories({{"a", {"/x"}}, {"b", {"/x/in"}}}), ElementsAre(HasSubstr(kSays)));
  EXPECT_THAT(shared_directories({{"b", {"/x/in"}}, {"a", {"/x"}}}), ElementsAre(HasSubstr(kSays)));
}

TEST_F(SharedDirectoriesTest, AClaimFollowsALinkAboveADirectoryThatIsNotThereYet) {
  std::filesystem::create_directory(directory_.path_to("real"));
  ASSERT_EQ(::symlink(directory_.path_to("real").c_str(), directory_.path_to("link").c_str()), 0);
  const std::vector<std::string> real{directory_.path_to("real/new")};
  const std::vector<std::string> link{directory_.path_to("link/new")};
  EXPECT_THAT(shared_directories({{"a", real}, {"b", link}}), IsEmpty()) << "as they are written";
  DirectoryClaims claims;
  ASSERT_TRUE(claims.claim("a", real));
  EXPECT_TRUE(claims.claim("a", link)) << "its own, again";
  const auto refused = claims.claim("b", link);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind(), ErrorKind::kInvalidConfig);
  EXPECT_THAT(refused.error().message(), HasSubstr("[sink.a] and [sink.b] both write into"));
  claims.release("a");
  EXPECT_TRUE(claims.claim("b", link));
}

}  // namespace
}  // namespace scriptorium
