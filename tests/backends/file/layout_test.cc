#include "backends/file/layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "core/base/text.h"
#include "tests/support/event_factory.h"

namespace scriptorium::file {
namespace {

using ::testing::HasSubstr;

std::string path_of(const std::string& layout, const Event& event,
                    FileKind kind = FileKind::kScript, unsigned slot = 1) {
  const auto parsed = Layout::parse(layout);
  EXPECT_TRUE(parsed) << parsed.error().message();
  const Place place = parsed->place(event);
  return (place.directories.empty() ? "" : place.directory() + '/') + place.name(kind, slot);
}

TEST(SafeValueTest, KeepsWhatIsSafeAndEncodesTheRest) {
  const std::pair<std::string, std::string> table[] = {
      {"md-run_1.2", "md-run_1.2"},
      {"", "_none"},
      {".", "%2E"},
      {"..", "%2E."},
      {"../../etc/passwd", "%2E.%2F..%2Fetc%2Fpasswd"},
      {"a/b", "a%2Fb"},
      {"-rf", "%2Drf"},
      {"two words", "two_words"},
      {"line\nbreak", "line%0Abreak"},
      {"100%", "100%25"},
      {"quote'\"", "quote%27%22"},
      {"größe", "größe"},
      {"分子動力学", "分子動力学"},
      {"\xff\xfe", "%FF%FE"},
      {"\xed\xa0\x80", "%ED%A0%80"},  // a surrogate is no UTF-8
      {"a\u202e"
       "gpj",
       "a%E2%80%AEgpj"},  // would be shown backwards
      {"a\u200b"
       "b",
       "a%E2%80%8Bb"},  // zero width
      {"a\u00a0"
       "b",
       "a%C2%A0b"},  // a blank that is not one
      {std::string("a\0b", 3), "a%00b"},
  };
  for (const auto& [given, wanted] : table)
    EXPECT_EQ(safe_value(given), wanted) << printable(given);
}

TEST(SafeValueTest, CutsLongValuesAtAWholeCharacterAndTellsThemApart) {
  const std::string a = safe_value(std::string(4096, 'n'));
  const std::string b = safe_value(std::string(4096, 'n') + 'x');
  EXPECT_EQ(a.size(), kMaxValueBytes);
  EXPECT_NE(a, b);
  EXPECT_TRUE(a.starts_with("nnnnnnnn"));
  EXPECT_EQ(safe_value(std::string(64, 'n')), std::string(64, 'n'));
  for (std::size_t lead = 0; lead < 8; ++lead) {
    std::string value(lead, 'x');
    for (int i = 0; i < 60; ++i) value += "ü";
    const std::string cut = safe_value(value);
    EXPECT_LE(cut.size(), kMaxValueBytes);
    EXPECT_TRUE(is_utf8(cut)) << cut;
    const std::string escaped = safe_value(std::string(lead, 'x') + std::string(60, '/'));
    EXPECT_LE(escaped.size(), kMaxValueBytes);
    EXPECT_EQ((escaped.find('~') - lead) % 3, 0U) << escaped;  // no %2 without its F
  }
}

TEST(LayoutTest, DefaultIsUserYearMonth) {
  EXPECT_EQ(path_of("user-month", test::make_event_value("4711")), "alice/2026/11/4711-md.sh");
  EXPECT_EQ(path_of("user-month", test::make_event_value("4711"), FileKind::kEnvironment),
            "alice/2026/11/4711-md.env");
  EXPECT_EQ(path_of("user-month", test::make_event_value("4711"), FileKind::kMetadata, 3),
            "alice/2026/11/4711-md.3.json");
}

TEST(LayoutTest, PresetsGiveTheNamesOfTheProgramsThatTheyCopy) {
  const Event event = test::make_event_value("4711");
  EXPECT_EQ(path_of("sarchive-daily", event), "20261121/job.4711_script");
  EXPECT_EQ(path_of("sarchive-daily", event, FileKind::kEnvironment, 2),
            "20261121/job.4711.2_environment");
  EXPECT_EQ(path_of("xdmod", event), "20261121/4711.savescript");
  EXPECT_EQ(*Layout::parse("xdmod")->preset_files(), std::vector<FileKind>{FileKind::kScript});
}

TEST(LayoutTest, DatesAreUtcOfTheEventsTime) {
  Event event = test::make_event_value("1");
  event.time = *parse_rfc3339("2026-12-31T23:59:59.999Z");
  EXPECT_EQ(path_of("{year}/{month}/{day}/{job_id}.{ext}", event), "2026/12/31/1.sh");
}

TEST(LayoutTest, SlotStandsBeforeTheEnding) {
  const Event event = test::make_event_value("7");
  EXPECT_EQ(path_of("{job_id}.sh", event, FileKind::kScript, 2), "7.2.sh");
  EXPECT_EQ(path_of("{job_id}", event, FileKind::kScript, 2), "7.2");
  EXPECT_EQ(path_of("{job_id}/{ext}", event, FileKind::kScript, 1), "7/sh");
  EXPECT_EQ(path_of("{job_id}/{ext}", event, FileKind::kScript, 2), "7/2.sh");
}

TEST(LayoutTest, AnUnverifiedUserNeverGetsAPersonsFolder) {
  Event event = test::make_event_value("1");
  event.user.verified = false;
  EXPECT_EQ(path_of("user-month", event), "unverified/2026/11/1-md.sh");
  event.user.verified = true;
  event.user.name.reset();
  event.user.id.reset();
  EXPECT_EQ(path_of("user-month", event), "unverified/2026/11/1-md.sh");
  event.user.name = "unverified";
  EXPECT_EQ(path_of("user-month", event), "%75nverified/2026/11/1-md.sh");
}

TEST(LayoutTest, AConfirmedUserWithoutANameGetsAFolderByHisNumber) {
  Event event = test::make_event_value("1");
  event.user = {.name = std::nullopt,
                .id = "4242",
                .group_name = std::nullopt,
                .group_id = "4242",
                .verified = true};
  EXPECT_EQ(path_of("user-month", event), "uid-4242/2026/11/1-md.sh");
  event.user.id = "../4242";
  EXPECT_EQ(path_of("user-month", event), "unverified/2026/11/1-md.sh") << "not a number";
  event.user.name = "uid-4242";
  EXPECT_EQ(path_of("user-month", event), "%75id-4242/2026/11/1-md.sh")
      << "a person of that very name";
  event.user.verified = false;
  EXPECT_EQ(path_of("user-month", event), "unverified/2026/11/1-md.sh");
}

TEST(LayoutTest, OwnedDirectoriesBeginWithTheUsersOwn) {
  Event event = test::make_event_value("1");
  EXPECT_EQ(Layout::parse("user-month")->place(event).owned_from, 0U);
  EXPECT_EQ(Layout::parse("{year}/{user}/{month}/{job_id}.{ext}")->place(event).owned_from, 1U);
  EXPECT_EQ(Layout::parse("{year}/{job_id}-{user}.{ext}")->place(event).owned_from,
            1U);  // none of the one
  event.user.verified = false;
  EXPECT_EQ(Layout::parse("user-month")->place(event).owned_from, 3U);
}

TEST(LayoutTest, NoPartIsLongerThanTheLimitWhateverTheValues) {
  Event event = test::make_event_value(std::string(500, '7'));
  event.job.name = std::string(4096, '/');
  event.job.account = std::string(300, '\xff');
  event.user.name = std::string(300, 'u');
  const auto layout = Layout::parse(
      "{user}{account}{job_name}{job_id}{cluster}/{job_id}-{job_name}-{account}-{user}.{ext}");
  ASSERT_TRUE(layout);
  const Place place = layout->place(event);
  EXPECT_LE(place.directories[0].size(), kMaxComponentBytes);
  for (const FileKind kind : kFileKinds)
    EXPECT_LE(place.name(kind, 10'000).size(), kMaxComponentBytes);
}

TEST(LayoutTest, RefusesTemplatesWithWordsThatHelp) {
  const std::pair<const char*, const char*> table[] = {
      {"", "empty"},
      {"/abs/{job_id}", "begins with '/'"},
      {"{user}//{job_id}", "part between two '/' is empty"},
      {"{user}/{job_id}/", "part between two '/' is empty"},
      {"../{job_id}", "begins with '.' or '-'"},
      {"a/.{job_id}", "begins with '.' or '-'"},
      {"-{job_id}", "begins with '.' or '-'"},
      {"{usr}/{job_id}", "did you mean {user}?"},
      {"{user/{job_id}", "unknown field"},
      {"{job_id", "'{' without '}'"},
      {"job_id}{job_id}", "'}' without '{'"},
      {"{user}/{job_name}.{ext}", "needs {job_id}"},
      {"{ext}/{job_id}", "{ext} is allowed in the last part only"},
      {"{job_id}.{ext}.{ext}", "twice"},
      {"{job_id}.{ext}-{user}", "after {ext}"},
      {"user-mouth", "did you mean \"user-month\"?"},
      {"a\nb/{job_id}", "control character"},
  };
  for (const auto& [text, words] : table) {
    const auto parsed = Layout::parse(text);
    ASSERT_FALSE(parsed) << text;
    EXPECT_EQ(parsed.error().kind(), ErrorKind::kInvalidConfig);
    EXPECT_THAT(parsed.error().message(), HasSubstr(words)) << text;
  }
}

TEST(LayoutTest, SearchMatchesTheNamesThatPlaceMakes) {
  const std::vector<FileKind> all(kFileKinds.begin(), kFileKinds.end());
  for (const char* text : {"user-month", "sarchive-daily", "xdmod", "{job_id}.{ext}",
                           "{job_id}/{ext}", "x[{job_id}]*-{job_name}.{ext}"}) {
    const auto layout = Layout::parse(text);
    ASSERT_TRUE(layout) << text;
    const auto search = layout->search("4711");
    const Place place = layout->place(test::make_event_value("4711"));
    ASSERT_EQ(search.directories.size(), place.directories.size());
    for (std::size_t i = 0; i < place.directories.size(); ++i)
      EXPECT_TRUE(glob_match(search.directories[i].glob, place.directories[i])) << text;
    for (const FileKind kind : all) {
      for (const unsigned slot : {1U, 2U, 10U}) {
        const auto match = search.match(place.name(kind, slot), all);
        ASSERT_TRUE(match) << text << ' ' << place.name(kind, slot);
        EXPECT_EQ(match->kind, kind);
      }
    }
    const Place other = layout->place(test::make_event_value("14711"));
    if (other.directories == place.directories) {
      EXPECT_FALSE(search.match(other.name(FileKind::kScript, 1), all)) << text;
    }
  }
}

Event usage_event(const std::string& kind) {
  Event event = test::make_event_value("4711");
  event.kind = kind;
  event.host = "n1";
  event.time = parse_rfc3339("2026-11-21T01:26:22.364Z").value();
  return event;
}

TEST(LayoutTest, UsageLiesBesideTheScriptUnderAnEndingOfItsOwn) {
  const auto path = [](const char* text, const std::string& kind, unsigned slot = 1) {
    const Place place = Layout::parse(text)->place(usage_event(kind));
    return (place.directory().empty() ? "" : place.directory() + "/") +
           place.name(FileKind::kMetadata, slot);
  };
  EXPECT_EQ(path("user-month", "usage.job"), "alice/2026/11/4711-md.usage.json");
  EXPECT_EQ(path("user-month", "usage.job", 2), "alice/2026/11/4711-md.2.usage.json");
  EXPECT_EQ(path("user-month", "usage.node"), "alice/2026/11/4711-md.usage-node-n1.json");
  EXPECT_EQ(path("user-month", "usage.sample"),
            "alice/2026/11/4711-md.usage-sample-n1-20261121T012622.364Z.json");
  EXPECT_EQ(path("sarchive-daily", "usage.job"), "20261121/job.4711_usage.json");
  EXPECT_EQ(path("xdmod", "usage.job"), "20261121/4711.usage.json");
  EXPECT_EQ(path("{job_id}/{ext}", "usage.job"), "4711/usage.json");
  EXPECT_EQ(path("{job_id}.sh", "usage.job"), "4711.sh.usage.json") << "never the name of a script";
  EXPECT_EQ(path("user-month", "job.checkpoint"),
            "alice/2026/11/4711-md.job-checkpoint-n1-20261121T012622.364Z.json");
  EXPECT_EQ(path("user-month", "job.life"), "alice/2026/11/4711-md.job-life.json");
}

TEST(LayoutTest, ANodesNameCannotLeaveItsFolder) {
  Event event = usage_event("usage.node");
  event.host = "../../" + std::string(300, 'n');
  const Place place = Layout::parse("user-month")->place(event);
  const std::string name = place.name(FileKind::kMetadata, 10'000);
  EXPECT_EQ(name.find('/'), std::string::npos);
  EXPECT_LE(name.size(), kMaxComponentBytes);
  event.job.name = std::string(300, 'j');
  EXPECT_LE(Layout::parse("user-month")->place(event).name(FileKind::kMetadata, 10'000).size(),
            kMaxComponentBytes);
}

TEST(LayoutTest, SearchFindsUsageWhateverIsKeptOfScripts) {
  for (const char* text : {"user-month", "sarchive-daily", "xdmod", "{job_id}.{ext}",
                           "{job_id}/{ext}", "{job_id}.sh"}) {
    const auto layout = Layout::parse(text);
    ASSERT_TRUE(layout) << text;
    const auto search = layout->search("4711");
    for (const char* kind : {"usage.job", "usage.node", "usage.sample", "job.checkpoint"}) {
      for (const unsigned slot : {1U, 2U}) {
        const std::string name = layout->place(usage_event(kind)).name(FileKind::kMetadata, slot);
        const auto match = search.match(name, {FileKind::kScript});
        ASSERT_TRUE(match) << text << ' ' << name;
        EXPECT_EQ(match->kind, FileKind::kMetadata);
        EXPECT_EQ(match->stem, name) << "one capture for itself";
      }
    }
  }
}

}  // namespace
}  // namespace scriptorium::file
