#include "backends/file/sink.h"

#include <acl/libacl.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <pwd.h>
#include <sys/acl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "backends/file/marker.h"
#include "backends/file/outcome.h"
#include "tests/backends/file/sink_fixture.h"
#include "tests/support/child_test.h"
#include "tests/support/event_factory.h"

namespace scriptorium::file {
namespace {

using test::make_event;
using test::make_event_value;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

class FileSinkTest : public FileSinkFixture {
 protected:
  std::unique_ptr<FileSink> make_started() {
    auto sink = make();
    const auto started = sink->start();
    EXPECT_TRUE(started) << started.error().message();
    return sink;
  }
  Outcome deliver(FileSink& sink, std::shared_ptr<const Event> event) {
    const std::string id = event->job.id;
    sink.deliver(outbox_.batch({std::move(event)}));
    return outbox_.outcome(id).value();
  }
  // Every path below the root but the marker, directories with a final '/'.
  std::vector<std::string> tree() const {
    std::vector<std::string> paths;
    for (const auto& entry : fs::recursive_directory_iterator(config_.root)) {
      if (entry.path().filename() == kMarkerName) continue;
      paths.push_back(fs::relative(entry.path(), config_.root).string() +
                      (entry.is_directory() && !entry.is_symlink() ? "/" : ""));
    }
    std::ranges::sort(paths);
    return paths;
  }
  std::string read(const std::string& path) const { return directory_.read("archive/" + path); }
};

TEST_F(FileSinkTest, WritesScriptAndEnvironmentByteForByteAndMetadataBesideThem) {
  auto sink = make_started();
  const std::string script("#!/bin/sh\n\xff\0tail", 16);
  const auto event = make_event("4711", script, {"A=1", "B=line\nline"});
  ASSERT_EQ(deliver(*sink, event), Outcome::kAcknowledged) << outbox_.reason("4711");
  EXPECT_EQ(tree(), (std::vector<std::string>{
                        "alice/", "alice/2026/", "alice/2026/11/", "alice/2026/11/4711-md.env",
                        "alice/2026/11/4711-md.json", "alice/2026/11/4711-md.sh"}));
  EXPECT_EQ(read("alice/2026/11/4711-md.sh"), script);
  EXPECT_EQ(read("alice/2026/11/4711-md.env"), std::string("A=1\0B=line\nline\0", 16));
  const std::string json = read("alice/2026/11/4711-md.json");
  EXPECT_THAT(json, HasSubstr("\"id\": \"" + event->id + '"'));
  EXPECT_THAT(json, HasSubstr(event->file("script")->sha256));
  EXPECT_EQ(json.find("\"text\""), std::string::npos);
  EXPECT_EQ(json.find("line\\nline"), std::string::npos);
}

TEST_F(FileSinkTest, AFlatLayoutPutsUnverifiedEventsDirectlyBelowTheRoot) {
  config_.layout = "{job_id}.{ext}";
  auto sink = make_started();
  Event event = make_event_value("4711");
  event.user.verified = false;
  ASSERT_EQ(deliver(*sink, share(event)), Outcome::kAcknowledged) << outbox_.reason("4711");
  EXPECT_EQ(tree(), (std::vector<std::string>{"4711.env", "4711.json", "4711.sh"}));
}

TEST_F(FileSinkTest, AnUnverifiedUserGoesUnderUnverifiedAndGetsNoRights) {
  auto sink = make_started();
  Event event = make_event_value("4711");
  event.user.name = "root";
  event.user.verified = false;
  ASSERT_EQ(deliver(*sink, share(event)), Outcome::kAcknowledged) << outbox_.reason("4711");
  EXPECT_TRUE(fs::exists(config_.root + "/unverified/2026/11/4711-md.sh"));
  EXPECT_FALSE(fs::exists(config_.root + "/root"));
  const UniqueFd fd(::open((config_.root + "/unverified").c_str(), O_RDONLY));
  EXPECT_NE(user_grant(fd.get(), 1001), Grant::kGranted);
}

TEST_F(FileSinkTest, AJobMovesToItsOwnerOnceThatIsKnown) {
  auto sink = make_started();
  const Event before = test::make_unverified_event("4711");
  const Event after = test::make_owned_event(before);
  const Event other = test::make_unverified_event("4711", "of another job with this number\n");
  const auto at_owner = [](const std::string& stem) { return "alice/2026/11/" + stem; };
  ASSERT_EQ(deliver(*sink, share(other)), Outcome::kAcknowledged);
  ASSERT_EQ(deliver(*sink, share(before)), Outcome::kAcknowledged);
  ASSERT_TRUE(fs::exists(config_.root + "/unverified/2026/11/4711-md.2.json"));
  for (int again = 0; again < 2; ++again) {
    ASSERT_EQ(deliver(*sink, share(after)), Outcome::kAcknowledged) << outbox_.reason("4711");
    EXPECT_EQ(tree(),
              (std::vector<std::string>{
                  "alice/", "alice/2026/", "alice/2026/11/", at_owner("4711-md.env"),
                  at_owner("4711-md.json"), at_owner("4711-md.sh"), "unverified/",
                  "unverified/2026/", "unverified/2026/11/", "unverified/2026/11/4711-md.env",
                  "unverified/2026/11/4711-md.json", "unverified/2026/11/4711-md.sh"}));
  }
  EXPECT_THAT(read("alice/2026/11/4711-md.json"), HasSubstr("\"replaces\": \"" + before.id + '"'));
  EXPECT_EQ(read("unverified/2026/11/4711-md.sh"), "of another job with this number\n");
  // The first one gone from its place, the other one still is found there.
  ASSERT_EQ(deliver(*sink, share(test::make_owned_event(other))), Outcome::kAcknowledged);
  EXPECT_EQ(read("alice/2026/11/4711-md.2.sh"), "of another job with this number\n");
  EXPECT_FALSE(fs::exists(config_.root + "/unverified/2026/11/4711-md.json"));
  EXPECT_THAT(sink->status_json(), HasSubstr("\"replaced\":3"));
}

TEST_F(FileSinkTest, WhereThePathNamesNoUserTheJobStaysAndItsRightsChange) {
  config_.layout = "{job_id}.{ext}";
  auto sink = make_started();
  const Event before = test::make_unverified_event("4711");
  const Event after = test::make_owned_event(before);
  ASSERT_EQ(deliver(*sink, share(before)), Outcome::kAcknowledged);
  const auto inode = [&] { return stat_path(config_.root + "/4711.sh")->inode; };
  const auto of_script = inode();
  for (int again = 0; again < 2; ++again) {
    ASSERT_EQ(deliver(*sink, share(after)), Outcome::kAcknowledged) << outbox_.reason("4711");
    EXPECT_EQ(tree(), (std::vector<std::string>{"4711.env", "4711.json", "4711.sh"}));
  }
  EXPECT_EQ(inode(), of_script);
  EXPECT_THAT(read("4711.json"), HasSubstr(after.id));
  // A sink that never had the first stores the second like any other. One that keeps no metadata
  // knows the first by its bytes, or their hash.
  config_.root = directory_.path_to("new");
  ASSERT_EQ(deliver(*make_started(), share(after)), Outcome::kAcknowledged);
  EXPECT_EQ(tree(), (std::vector<std::string>{"4711.env", "4711.json", "4711.sh"}));
  config_.root = directory_.path_to("scripts");
  config_.layout = "{user}/{job_id}.{ext}";
  config_.kinds = {FileKind::kScript};
  auto scripts = make_started();
  for (const Event& owned : {after, test::without_bytes(after)}) {
    ASSERT_EQ(deliver(*scripts, share(before)), Outcome::kAcknowledged);
    ASSERT_EQ(deliver(*scripts, share(owned)), Outcome::kAcknowledged);
    EXPECT_EQ(tree(), (std::vector<std::string>{"alice/", "alice/4711.sh", "unverified/"}));
    fs::remove(config_.root + "/alice/4711.sh");
    fs::remove(config_.root + "/alice");
  }
}

TEST_F(FileSinkTest, WhatThisTreeKeepsOfAJobMovesToItsOwnerWithoutTheBytes) {
  config_.environment_format = EnvironmentStyle::kLines;
  for (const FileKind part : {FileKind::kScript, FileKind::kEnvironment}) {
    const std::string name = to_string(part);
    config_.root = directory_.path_to(name);
    config_.kinds = {part, FileKind::kMetadata};
    const std::string at_owner = "alice/2026/11/4711-md.";
    const std::string ending = part == FileKind::kScript ? "sh" : "env";
    std::vector<std::string> moved{"alice/",           "alice/2026/",        "alice/2026/11/",
                                   at_owner + ending,  at_owner + "json",    "unverified/",
                                   "unverified/2026/", "unverified/2026/11/"};
    std::ranges::sort(moved);
    auto sink = make_started();
    const Event before = test::make_unverified_event("4711");
    ASSERT_EQ(deliver(*sink, share(before)), Outcome::kAcknowledged);
    const std::string kept = directory_.read(name + "/unverified/2026/11/4711-md." + ending);
    // As the journal remembers a long one.
    Event after = test::without_bytes(test::make_owned_event(before));
    after.script.reset();
    for (int again = 0; again < 2; ++again) {
      ASSERT_EQ(deliver(*sink, share(after)), Outcome::kAcknowledged) << outbox_.reason("4711");
      EXPECT_EQ(tree(), moved);
    }
    EXPECT_EQ(directory_.read(name + '/' + at_owner + ending), kept);
    const auto record = event_from_json(directory_.read(name + '/' + at_owner + "json"));
    ASSERT_TRUE(record);
    EXPECT_EQ(record->id, after.id);
    EXPECT_EQ(record->replaces, before.id);
    EXPECT_EQ(record->user.name, after.user.name);
    EXPECT_TRUE(record->script) << "what was read from the script stays";
  }
}

TEST_F(FileSinkTest, AJobWithDamagedMetadataStaysAndItsOwnerIsRejected) {
  auto sink = make_started();
  const Event before = test::make_unverified_event("4711");
  ASSERT_EQ(deliver(*sink, share(before)), Outcome::kAcknowledged);
  directory_.write("archive/unverified/2026/11/4711-md.json", "{\"id\": \"" + before.id + "\", ");
  const auto files = tree();
  const Event after = test::without_bytes(test::make_owned_event(before));
  EXPECT_EQ(deliver(*sink, share(after)), Outcome::kRejected);
  EXPECT_EQ(tree(), files);
}

TEST_F(FileSinkTest, AJobWhoseOwnerAnotherDaemonKnewAtOnceIsThereOnce) {
  auto sink = make_started();
  const Event unverified = test::make_unverified_event("4711");
  const Event late = test::make_owned_event(unverified);
  Event known = late;
  known.id = unverified.id;
  known.replaces.reset();
  const std::vector<std::string> once{"alice/",
                                      "alice/2026/",
                                      "alice/2026/11/",
                                      "alice/2026/11/4711-md.env",
                                      "alice/2026/11/4711-md.json",
                                      "alice/2026/11/4711-md.sh",
                                      "unverified/",
                                      "unverified/2026/",
                                      "unverified/2026/11/"};
  ASSERT_EQ(deliver(*sink, share(known)), Outcome::kAcknowledged);
  ASSERT_EQ(deliver(*sink, share(unverified)), Outcome::kAcknowledged);
  // In any order, and again.
  for (const Event& event : {late, known, late, test::without_bytes(late)}) {
    ASSERT_EQ(deliver(*sink, share(event)), Outcome::kAcknowledged) << outbox_.reason("4711");
    EXPECT_EQ(tree(), once);
  }
  for (const Event& event : {late, known}) EXPECT_TRUE(sink->readable()->fetch(event)) << event.id;
}

TEST_F(FileSinkTest, AnOwnerWhoseJobNobodyHoldsAnyMoreChangesNothing) {
  auto sink = make_started();
  const Event after =
      test::without_bytes(test::make_owned_event(test::make_unverified_event("4711")));
  ASSERT_EQ(deliver(*sink, share(after)), Outcome::kAcknowledged) << outbox_.reason("4711");
  EXPECT_EQ(tree(), std::vector<std::string>{});
}

TEST_F(FileSinkTest, LeavesMinFreeBytesOfTheDiskAndSaysSo) {
  // Others write to this disk and delete from it meanwhile, so what is free must not matter.
  struct statvfs disk{};
  ASSERT_EQ(::statvfs(directory_.path().c_str(), &disk), 0);
  config_.min_free_bytes = static_cast<std::int64_t>(disk.f_blocks * disk.f_frsize);
  auto sink = make_started();
  EXPECT_EQ(deliver(*sink, make_event("4711", std::string(1U << 20, 'x'))), Outcome::kRetry);
  EXPECT_THAT(outbox_.reason("4711"), HasSubstr("min_free_bytes"));
  EXPECT_EQ(tree(), std::vector<std::string>{});
  config_.min_free_bytes = static_cast<std::int64_t>(disk.f_bavail * disk.f_frsize / 2);
  EXPECT_EQ(deliver(*make_started(), make_event("4712")), Outcome::kAcknowledged)
      << outbox_.reason("4712");
}

TEST_F(FileSinkTest, AnotherEventOnTheSamePathGetsASuffixOnAllItsFilesAndKeepsIt) {
  auto sink = make_started();
  const auto first = make_event("4711", "first\n");
  const auto second = make_event("4711", "second\n");
  const auto third = make_event("4711", "third\n");
  for (const auto& event : {first, second, third, second, first, third})
    ASSERT_EQ(deliver(*sink, event), Outcome::kAcknowledged) << outbox_.reason("4711");
  EXPECT_EQ(read("alice/2026/11/4711-md.sh"), "first\n");
  EXPECT_EQ(read("alice/2026/11/4711-md.2.sh"), "second\n");
  EXPECT_EQ(read("alice/2026/11/4711-md.3.sh"), "third\n");
  EXPECT_THAT(read("alice/2026/11/4711-md.2.json"), HasSubstr(second->id));
  EXPECT_EQ(tree().size(), 3U + 9U);
  // And by another process, in one batch with other jobs of the same path.
  auto later = make_started();
  later->deliver(outbox_.batch(
      {third, first, second, make_event("4711", "fourth\n"), make_event("4711", "fifth\n")}));
  ASSERT_TRUE(outbox_.wait_all_settled());
  EXPECT_EQ(read("alice/2026/11/4711-md.4.sh"), "fourth\n");
  EXPECT_EQ(read("alice/2026/11/4711-md.5.sh"), "fifth\n");
  EXPECT_EQ(tree().size(), 3U + 15U);
}

TEST_F(FileSinkTest, UsageIsOneFileBesideTheScriptWhateverIsKeptOfScripts) {
  config_.kinds = {FileKind::kScript};
  auto sink = make_started();
  Event usage = make_event_value("4711");
  usage.id = std::string(64, 'b');
  usage.kind = "usage.job";
  usage.script.reset();
  usage.environment_format = EnvironmentFormat::kNone;
  usage.files.clear();
  usage.extra_json = R"({"usage":{"elapsed_seconds":3}})";
  const auto shared = share(usage);
  ASSERT_EQ(deliver(*sink, make_event("4711", "script\n")), Outcome::kAcknowledged);
  ASSERT_EQ(deliver(*sink, shared), Outcome::kAcknowledged) << outbox_.reason("4711");
  ASSERT_EQ(deliver(*sink, shared), Outcome::kAcknowledged) << "again, and nothing changes";
  usage.id = std::string(64, 'c');  // the same job in another life
  ASSERT_EQ(deliver(*sink, share(usage)), Outcome::kAcknowledged);
  EXPECT_EQ(tree(),
            (std::vector<std::string>{
                "alice/", "alice/2026/", "alice/2026/11/", "alice/2026/11/4711-md.2.usage.json",
                "alice/2026/11/4711-md.sh", "alice/2026/11/4711-md.usage.json"}));
  EXPECT_THAT(read("alice/2026/11/4711-md.usage.json"), HasSubstr("\"elapsed_seconds\": 3"));
  EXPECT_THAT(read("alice/2026/11/4711-md.2.usage.json"), HasSubstr(std::string(64, 'c')));

  const auto found = sink->find("4711");
  ASSERT_TRUE(found) << found.error().message();
  ASSERT_EQ(found->size(), 3U);
  std::vector<std::string> ids;
  for (const StoredJob& job : *found) {
    EXPECT_EQ(job.files.size(), 1U) << job.location;
    ids.push_back(job.event_id.substr(0, 1));
  }
  std::ranges::sort(ids);
  EXPECT_EQ(ids, (std::vector<std::string>{"", "b", "c"}));
}

TEST_F(FileSinkTest, EqualScriptsOfDifferentEventsAreKeptApartByTheirMetadata) {
  auto sink = make_started();
  Event first = make_event_value("4711");
  Event second = make_event_value("4711");
  second.id = std::string(64, 'b');
  ASSERT_EQ(deliver(*sink, share(first)), Outcome::kAcknowledged);
  ASSERT_EQ(deliver(*sink, share(second)), Outcome::kAcknowledged);
  EXPECT_THAT(read("alice/2026/11/4711-md.json"), HasSubstr(first.id));
  EXPECT_THAT(read("alice/2026/11/4711-md.2.json"), HasSubstr(second.id));
}

TEST_F(FileSinkTest, WithoutMetadataEqualBytesAreTheSameEventAndAnyDifferenceIsAnother) {
  config_.kinds = {FileKind::kScript, FileKind::kEnvironment};
  auto sink = make_started();
  ASSERT_EQ(deliver(*sink, make_event("4711", "s", {"A=1"})), Outcome::kAcknowledged);
  ASSERT_EQ(deliver(*sink, make_event("4711", "s", {"A=1"})), Outcome::kAcknowledged);
  EXPECT_EQ(tree().size(), 3U + 2U);
  ASSERT_EQ(deliver(*sink, make_event("4711", "s", {"A=2"})), Outcome::kAcknowledged);
  ASSERT_EQ(deliver(*sink, make_event("4711", "s", {"A=2"})), Outcome::kAcknowledged);
  EXPECT_EQ(read("alice/2026/11/4711-md.2.env"), std::string("A=2\0", 4));
  // No environment at all: the other's must not stand beside its script.
  ASSERT_EQ(deliver(*sink, make_event("4711", "s", {})), Outcome::kAcknowledged);
  EXPECT_TRUE(fs::exists(config_.root + "/alice/2026/11/4711-md.3.sh"));
  EXPECT_FALSE(fs::exists(config_.root + "/alice/2026/11/4711-md.3.env"));
}

// What may stand at a name that an event wants. None of it may be followed, written or replaced.
TEST_F(FileSinkTest, WhatIsPlantedAtAFilesNameIsLeftAloneAndTheEventGetsASuffix) {
  const std::string victim = directory_.write("victim", "precious");
  const struct {
    const char* what;
    std::function<void(const std::string&)> plant;
  } table[] = {
      {"link", [&](const std::string& at) { ASSERT_EQ(::symlink(victim.c_str(), at.c_str()), 0); }},
      {"dangling",
       [&](const std::string& at) {
         ASSERT_EQ(::symlink(directory_.path_to("made").c_str(), at.c_str()), 0);
       }},
      {"fifo", [&](const std::string& at) { ASSERT_EQ(::mkfifo(at.c_str(), 0666), 0); }},
      {"directory", [&](const std::string& at) { ASSERT_EQ(::mkdir(at.c_str(), 0777), 0); }},
      {"hardlink",
       [&](const std::string& at) { ASSERT_EQ(::link(victim.c_str(), at.c_str()), 0); }},
      {"file", [&](const std::string& at) { std::ofstream(at) << "foreign"; }},
  };
  config_.layout = "{job_id}.{ext}";
  auto sink = make_started();
  for (const auto& planted : table) {
    for (const char* ext : {"sh", "env", "json"}) {
      SCOPED_TRACE(std::string(planted.what) + ' ' + ext);
      const std::string id = std::string(planted.what) + ext;
      planted.plant(config_.root + '/' + id + '.' + ext);
      const auto event = make_event(id);
      ASSERT_EQ(deliver(*sink, event), Outcome::kAcknowledged) << outbox_.reason(id);
      EXPECT_EQ(read(id + ".2.sh"), *event->file("script")->bytes);
      EXPECT_TRUE(fs::exists(config_.root + '/' + id + ".2.json"));
      EXPECT_FALSE(std::string(ext) != "sh" && fs::exists(config_.root + '/' + id + ".sh"));
      EXPECT_EQ(directory_.read("victim"), "precious");
      EXPECT_FALSE(directory_.exists("made"));
    }
  }
}

TEST_F(FileSinkTest, ALinkInPlaceOfADirectoryIsNeverEntered) {
  const std::string outside = directory_.make_directory("outside");
  auto sink = make_started();
  for (const char* at : {"alice", "bob/2026", "carol/2026/11"}) {
    const std::string path = config_.root + '/' + at;
    fs::create_directories(fs::path(path).parent_path());
    ASSERT_EQ(::symlink(outside.c_str(), path.c_str()), 0);
    Event event = make_event_value(std::string("job-") + std::string(at).substr(0, 3));
    event.user.name = std::string(at).substr(0, std::string(at).find('/'));
    EXPECT_EQ(deliver(*sink, share(event)), Outcome::kRetry);
    EXPECT_EQ(outbox_.reason(event.job.id), "a directory of the path is a symbolic link");
  }
  EXPECT_TRUE(fs::is_empty(outside));
  EXPECT_TRUE(log_.has("FILE_DIRECTORY_BLOCKED"));
  // A link removed: the event goes in.
  fs::remove(config_.root + "/alice");
  EXPECT_EQ(deliver(*sink, make_event("4711")), Outcome::kAcknowledged) << outbox_.reason("4711");
}

TEST_F(FileSinkTest, AFileOrPipeInPlaceOfADirectoryIsARetryWithItsReason) {
  auto sink = make_started();
  ASSERT_EQ(::mkfifo((config_.root + "/alice").c_str(), 0666), 0);
  EXPECT_EQ(deliver(*sink, make_event("4711")), Outcome::kRetry);
  EXPECT_EQ(outbox_.reason("4711"), "a part of the path is not a directory");
}

TEST_F(FileSinkTest, OneBlockedUserDoesNotHoldTheOthersOfTheBatch) {
  auto sink = make_started();
  ASSERT_EQ(::symlink("/", (config_.root + "/mallory").c_str()), 0);
  Event blocked = make_event_value("1");
  blocked.user.name = "mallory";
  sink->deliver(outbox_.batch({make_event("2"), share(blocked), make_event("3")}));
  EXPECT_EQ(outbox_.outcome("1"), Outcome::kRetry);
  EXPECT_EQ(outbox_.outcome("2"), Outcome::kAcknowledged);
  EXPECT_EQ(outbox_.outcome("3"), Outcome::kAcknowledged);
}

TEST_F(FileSinkTest, HostileNamesStayBelowTheirDirectory) {
  auto sink = make_started();
  const std::string names[] = {
      "../../x",   "a/b",      "..",      ".",        std::string(4096, 'n'),
      "new\nline", "-rf",      ".hidden", "\xff\xfe", "\u202egpj",
      "",          "%2e%2e%2f"};
  int id = 100;
  for (const std::string& name : names) {
    Event event = make_event_value(std::to_string(id++));
    event.job.name = name;
    ASSERT_EQ(deliver(*sink, share(event)), Outcome::kAcknowledged) << outbox_.reason(event.job.id);
  }
  EXPECT_EQ(tree().size(), 3U + 3 * std::size(names));
  for (const std::string& path : tree())
    EXPECT_TRUE(path == "alice/" || path == "alice/2026/" || path.starts_with("alice/2026/11/"))
        << path;
  std::vector<std::string> top;
  for (const auto& entry : fs::directory_iterator(directory_.path()))
    top.push_back(entry.path().filename().string());
  EXPECT_EQ(top, std::vector<std::string>{"archive"});
}

TEST_F(FileSinkTest, RemovesTheTemporariesOfADeadProcessAndNothingElse) {
  fs::create_directories(config_.root + "/alice/2026/11");
  const std::string stale = config_.root + "/alice/2026/11/.4711-md.sh.tmp-0123abcd-89abcdef.7";
  const std::string mine = config_.root + "/alice/2026/11/.keep.tmp-notours";
  std::ofstream(stale) << "half";
  std::ofstream(mine) << "kept";
  auto sink = make_started();
  ASSERT_EQ(deliver(*sink, make_event("4711")), Outcome::kAcknowledged) << outbox_.reason("4711");
  EXPECT_FALSE(fs::exists(stale));
  EXPECT_TRUE(fs::exists(mine));
  EXPECT_THAT(sink->status_json(), HasSubstr("\"stale_temporaries_removed\":1"));
}

TEST_F(FileSinkTest, ADirectoryThatSomebodyRemovedIsMadeAgain) {
  auto sink = make_started();
  ASSERT_EQ(deliver(*sink, make_event("1")), Outcome::kAcknowledged);
  fs::remove_all(config_.root + "/alice");
  ASSERT_EQ(deliver(*sink, make_event("2")), Outcome::kAcknowledged) << outbox_.reason("2");
  EXPECT_TRUE(fs::exists(config_.root + "/alice/2026/11/2-md.json"));
}

TEST_F(FileSinkTest, ManyWorkersOnOnePathKeepEveryEventOnce) {
  auto sink = make_started();
  std::vector<std::shared_ptr<const Event>> events;
  for (int i = 0; i < 24; ++i)
    events.push_back(make_event("4711", "script " + std::to_string(i) + '\n'));
  std::vector<test::Outbox> outboxes(4);
  {
    std::vector<std::jthread> workers;
    for (std::size_t w = 0; w < outboxes.size(); ++w) {
      workers.emplace_back([&, w] {
        sink->deliver(outboxes[w].batch({events.begin() + static_cast<std::ptrdiff_t>(w * 6),
                                         events.begin() + static_cast<std::ptrdiff_t>(w * 6 + 6)}));
      });
    }
  }
  sink->deliver(
      outbox_.batch(events));  // whatever was refused in the crowd; the rest changes nothing
  ASSERT_TRUE(outbox_.wait_all_settled());
  std::map<std::string, int> scripts;
  for (const std::string& path : tree()) {
    if (path.ends_with(".sh")) ++scripts[read(path)];
    EXPECT_EQ(path.find(".tmp-"), std::string::npos) << path;
  }
  EXPECT_EQ(scripts.size(), events.size());
  std::size_t metadata = 0;
  for (const std::string& path : tree()) metadata += path.ends_with(".json") ? 1 : 0;
  EXPECT_EQ(metadata, events.size());
}

// ---- access

class FileSinkAccessTest : public FileSinkTest {
 protected:
  void SetUp() override {
    Readers readers;
    const UniqueFd probe(::open(directory_.path().c_str(), O_RDONLY | O_DIRECTORY));
    if (set_access(probe.get(), AclTarget::kDirectory, readers, 1001) != 0)
      GTEST_SKIP() << "this file system has no access lists";
    config_.acl = AclMode::kRequired;
    config_.acl_users = {"12345"};
    config_.acl_groups = {"23456"};
  }
  std::string access_of(const std::string& path, acl_type_t type) const {
    acl_t acl = ::acl_get_file((config_.root + '/' + path).c_str(), type);
    // acl_to_text() gives names, and on some machine 1001 has one.
    char* text = ::acl_to_any_text(acl, nullptr, ' ', TEXT_NUMERIC_IDS);
    std::string result = text != nullptr ? std::string(text) + ' ' : "";
    ::acl_free(text);
    ::acl_free(acl);
    return result;
  }
  unsigned mode_of(const std::string& path) const {
    struct stat st{};
    EXPECT_EQ(::lstat((config_.root + '/' + path).c_str(), &st), 0) << path;
    return st.st_mode & 07777U;
  }
};

TEST_F(FileSinkAccessTest, OwnerAndReadersMayReadAndNobodyElseWhateverTheUmask) {
  for (const mode_t mask : {0000U, 0022U, 0077U, 0777U}) {
    SCOPED_TRACE(mask);
    fs::remove_all(config_.root);
    const mode_t before = ::umask(mask);
    auto sink = make_started();
    const Outcome outcome = deliver(*sink, make_event("4711"));
    ::umask(before);
    ASSERT_EQ(outcome, Outcome::kAcknowledged) << outbox_.reason("4711");
    for (const char* file : {"4711-md.sh", "4711-md.env", "4711-md.json"}) {
      const std::string path = std::string("alice/2026/11/") + file;
      EXPECT_EQ(access_of(path, ACL_TYPE_ACCESS),
                "user::rw- user:1001:r-- user:12345:r-- group::r-- group:23456:r-- mask::r-- "
                "other::--- ");
      EXPECT_EQ(mode_of(path), 0640U);
    }
    for (const char* path : {"alice", "alice/2026", "alice/2026/11"}) {
      const std::string wanted =
          "user::rwx user:1001:r-x user:12345:r-x group::r-x group:23456:r-x mask::r-x other::--- ";
      EXPECT_EQ(access_of(path, ACL_TYPE_ACCESS), wanted);
      EXPECT_EQ(access_of(path, ACL_TYPE_DEFAULT), wanted);
    }
    EXPECT_EQ(access_of("", ACL_TYPE_ACCESS),
              "user::rwx user:12345:r-x group::r-x group:23456:r-x mask::r-x other::--- ");
  }
}

TEST_F(FileSinkAccessTest, OnlyAVerifiedOwnerIsNamed) {
  auto sink = make_started();
  Event event = make_event_value("4711");
  event.user.verified = false;
  ASSERT_EQ(deliver(*sink, share(event)), Outcome::kAcknowledged);
  EXPECT_EQ(access_of("unverified/2026/11/4711-md.sh", ACL_TYPE_ACCESS).find("1001"),
            std::string::npos);
  EXPECT_EQ(access_of("unverified", ACL_TYPE_ACCESS).find("1001"), std::string::npos);
}

TEST_F(FileSinkAccessTest, SharedDirectoriesDoNotNameOwners) {
  config_.layout = "{year}/{user}/{job_id}.{ext}";
  auto sink = make_started();
  ASSERT_EQ(deliver(*sink, make_event("4711")), Outcome::kAcknowledged);
  EXPECT_EQ(access_of("2026", ACL_TYPE_ACCESS).find("1001"), std::string::npos);
  EXPECT_NE(access_of("2026/alice", ACL_TYPE_ACCESS).find("1001"), std::string::npos);
}

TEST_F(FileSinkAccessTest, ADirectoryOfAnEarlierUserOfThatNameIsNotOpenedToTheNewOne) {
  auto sink = make_started();
  ASSERT_EQ(deliver(*sink, make_event("1")), Outcome::kAcknowledged);
  Event event = make_event_value("2");
  event.user.id = "2002";
  auto restarted = make_started();
  ASSERT_EQ(deliver(*restarted, share(event)), Outcome::kAcknowledged);
  EXPECT_EQ(access_of("alice", ACL_TYPE_ACCESS).find("2002"), std::string::npos);
  EXPECT_TRUE(log_.has("FILE_OWNER_CANNOT_ENTER"));
}

TEST_F(FileSinkAccessTest, AnAdministratorsBareDirectoryIsOpenedToItsOwner) {
  fs::create_directories(config_.root + "/alice");
  auto sink = make_started();
  ASSERT_EQ(deliver(*sink, make_event("1")), Outcome::kAcknowledged);
  EXPECT_NE(access_of("alice", ACL_TYPE_ACCESS).find("user:1001:r-x"), std::string::npos);
}

TEST_F(FileSinkAccessTest, AnUnknownNameRefusesToStart) {
  config_.acl_users = {"no-such-user-here"};
  config_.acl_groups = {"no-such-group-here"};
  const auto started = make()->start();
  ASSERT_FALSE(started);
  EXPECT_EQ(started.error().kind(), ErrorKind::kInvalidConfig);
  EXPECT_THAT(started.error().message(),
              HasSubstr("acl_users: no such name \"no-such-user-here\""));
  EXPECT_THAT(started.error().message(),
              HasSubstr("acl_groups: no such name \"no-such-group-here\""));
}

TEST_F(FileSinkTest, WithoutAccessListsModesAreExactWhateverTheUmask) {
  config_.acl = AclMode::kNone;
  const mode_t before = ::umask(0);
  auto sink = make_started();
  const Outcome outcome = deliver(*sink, make_event("4711"));
  ::umask(before);
  ASSERT_EQ(outcome, Outcome::kAcknowledged);
  struct stat st{};
  ASSERT_EQ(::stat((config_.root + "/alice/2026/11/4711-md.sh").c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 07777U, 0640U);
  ASSERT_EQ(::stat((config_.root + "/alice").c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 07777U, 0750U);
  ASSERT_EQ(::stat(config_.root.c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 07777U, 0750U);
}

// ---- start

TEST_F(FileSinkTest, AMissingParentOfTheRootRefusesToStart) {
  config_.root = directory_.path_to("no/archive");
  for (const auto& result : {make()->check(), make()->start()}) {
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().kind(), ErrorKind::kInvalidConfig);
    EXPECT_THAT(result.error().message(), HasSubstr("no such directory"));
  }
}

TEST_F(FileSinkTest, ARootThatIsAFileRefusesToStart) {
  directory_.write("archive", "x");
  const auto started = make()->start();
  ASSERT_FALSE(started);
  EXPECT_EQ(started.error().kind(), ErrorKind::kInvalidConfig);
}

TEST_F(FileSinkTest, ARootThatMayNotBeWrittenRefusesToStart) {
  if (::geteuid() == 0) GTEST_SKIP() << "root may write anywhere: run this as an ordinary user";
  fs::create_directories(config_.root);
  ::chmod(config_.root.c_str(), 0500);
  for (const auto& result : {make()->check(), make()->start()}) {
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().kind(), ErrorKind::kInvalidConfig);
    EXPECT_THAT(result.error().message(), HasSubstr("permission denied"));
  }
}

TEST_F(FileSinkTest, ARootThatVanishedIsARetryNotANewTree) {
  auto sink = make_started();
  fs::remove_all(config_.root);
  EXPECT_EQ(deliver(*sink, make_event("4711")), Outcome::kRetry);
  EXPECT_THAT(outbox_.reason("4711"), HasSubstr("no such directory"));
  EXPECT_FALSE(fs::exists(config_.root));
}

TEST(FileOutcomeTest, OnlyANameThatCanNeverBeIsPermanent) {
  for (const int code : {ENOSPC, EDQUOT, EROFS, ESTALE, EIO, EACCES, ELOOP, ENOTDIR, EMFILE, EFBIG,
                         ETIMEDOUT, EINVAL, ENOMEM}) {
    EXPECT_NE(file_error(code).kind(), ErrorKind::kPermanent) << code;
    EXPECT_FALSE(file_error(code).message().empty());
  }
  EXPECT_EQ(file_error(ENAMETOOLONG).kind(), ErrorKind::kPermanent);
  EXPECT_EQ(file_error(ENOSPC).message(), "no space left on device");
  EXPECT_EQ(file_error(EDQUOT).message(), "disk quota exceeded");
  EXPECT_EQ(file_error(EROFS).message(), "read-only file system");
  EXPECT_EQ(file_error(ESTALE).message(), "stale file handle");
}

TEST_F(FileSinkTest, AFullFileSystemIsARetryThatLeavesNothingTornAndGoesInWhenThereIsRoom) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can mount a small file system";
  // In a mount namespace of a child, so that a failed test leaves no mount behind.
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    fs::create_directories(config_.root);
    if (::unshare(CLONE_NEWNS) != 0 ||
        ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("tmpfs", config_.root.c_str(), "tmpfs", 0, "size=256k") != 0) {
      ::_exit(77);
    }
    auto sink = make_started();
    std::vector<std::shared_ptr<const Event>> events;
    for (int i = 0; i < 20; ++i)
      events.push_back(make_event(std::to_string(100 + i), std::string(30'000, 's')));
    sink->deliver(outbox_.batch(events));
    int stored = 0;
    int retried = 0;
    for (const auto& event : events) {
      if (outbox_.outcome(event->job.id) == Outcome::kAcknowledged) ++stored;
      if (outbox_.outcome(event->job.id) == Outcome::kRetry &&
          outbox_.reason(event->job.id) == "no space left on device")
        ++retried;
    }
    bool whole = stored > 0 && retried > 0 && stored + retried == 20;
    for (const std::string& path : tree()) whole = whole && path.find(".tmp-") == std::string::npos;
    for (const std::string& path : tree())
      whole = whole && (!path.ends_with(".sh") || read(path).size() == 30'000);
    if (::mount(nullptr, config_.root.c_str(), nullptr, MS_REMOUNT, "size=8m") != 0) ::_exit(77);
    sink->deliver(outbox_.batch(events, 2));
    for (const auto& event : events)
      whole = whole && outbox_.outcome(event->job.id) == Outcome::kAcknowledged;
    whole = whole && tree().size() == 3U + 60U;
    ::_exit(whole ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 77) GTEST_SKIP() << "no mounts are possible here";
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

// ---- faults
#ifdef SCRIPTORIUM_FAULTS

std::vector<std::shared_ptr<const Event>> fault_events() {
  return {make_event("1", "one\n"), make_event("2", "two\n"), make_event("2", "other two\n"),
          make_event("3", "")};
}

// Runs in a process of its own, because faults are armed by the environment at the first point that
// is reached.
TEST(FileSinkChild, DISABLED_Deliver) {
  const char* root = ::getenv("FILE_SINK_ROOT");
  ASSERT_NE(root, nullptr);
  test::RecordingLogger log;
  const PluginContext context{"archive", "lab", log, system_clock()};
  FileConfig config;
  config.root = root;
  config.acl = AclMode::kBestEffort;
  config.kinds.assign(kFileKinds.begin(), kFileKinds.end());
  config.sync =
      std::string(::getenv("FILE_SINK_SYNC")) == "batch" ? SyncMode::kBatch : SyncMode::kFile;
  auto sink = FileSink::create(config, context);
  ASSERT_TRUE(sink);
  static_cast<void>((*sink)->start());
  test::Outbox outbox;
  for (const auto& event : fault_events()) {
    auto delivery = outbox.batch({event});
    (*sink)->deliver(std::move(delivery));
    std::ofstream(::getenv("FILE_SINK_OUT"), std::ios::app)
        << event->id << ' ' << static_cast<int>(*outbox.outcome(event->job.id)) << ' '
        << outbox.reason(event->job.id) << '\n';
  }
  // The same again in one batch, so that both ways meet the fault.
  (*sink)->deliver(outbox.batch(fault_events()));
}

class FileSinkFaultTest : public ::testing::TestWithParam<const char*> {
 protected:
  // Wait status of the child.
  int run_child(const std::string& fault) {
    return test::run_child_test("FileSinkChild.DISABLED_Deliver",
                                {{"SCRIPTORIUM_FAULT", fault},
                                 {"SCRIPTORIUM_FAULT_LOG", directory_.path_to("reached")},
                                 {"FILE_SINK_ROOT", directory_.path_to("archive")},
                                 {"FILE_SINK_OUT", directory_.path_to("out")},
                                 {"FILE_SINK_SYNC", GetParam()}},
                                "/dev/null");
  }
  // What the tree must be, however often it was interrupted.
  void expect_each_event_once() {
    std::map<std::string, std::string> scripts;
    for (const auto& entry : fs::recursive_directory_iterator(directory_.path_to("archive"))) {
      const std::string name = entry.path().filename().string();
      EXPECT_EQ(name.find(".tmp-"), std::string::npos) << name;
      if (name.ends_with(".sh"))
        scripts[name] = directory_.read(fs::relative(entry.path(), directory_.path()).string());
    }
    EXPECT_EQ(scripts, (std::map<std::string, std::string>{{"1-md.sh", "one\n"},
                                                           {"2-md.2.sh", "other two\n"},
                                                           {"2-md.sh", "two\n"},
                                                           {"3-md.sh", ""}}));
    std::size_t files = 0;
    for (const auto& entry : fs::recursive_directory_iterator(directory_.path_to("archive")))
      files += entry.is_regular_file() ? 1 : 0;
    EXPECT_EQ(files, 12U + 1);  // and the marker
  }

  test::TempDir directory_;
};

TEST_P(FileSinkFaultTest, KilledBetweenAnyTwoStepsEveryEventStandsThereOnceAfterTheNextStart) {
  for (const char* point : {"file.temp_created", "file.written", "file.synced", "file.renamed",
                            "file.dir_synced", "file.before_ack"}) {
    for (int nth = 1; nth <= 9; ++nth) {
      SCOPED_TRACE(std::string(point) + ':' + std::to_string(nth));
      fs::remove_all(directory_.path_to("archive"));
      fs::remove(directory_.path_to("reached"));
      const int status = run_child(std::string(point) + ':' + std::to_string(nth));
      const bool killed = test::was_killed(status);
      if (nth <= 4) {
        ASSERT_TRUE(killed && directory_.exists("reached")) << "the point was not reached";
      }
      // Once more at the same place, then without.
      if (killed) run_child(std::string(point) + ":1");
      ASSERT_EQ(run_child(""), 0);
      expect_each_event_once();
    }
  }
}

TEST_P(FileSinkFaultTest, AFailedStepIsARetryWithItsReasonAndLeavesNothingTorn) {
  for (const std::string step : {"file.write", "file.fsync", "file.rename"}) {
    for (const auto& [name, words] : std::map<std::string, std::string>{
             {"ENOSPC", "no space left on device"},
             {"EIO", "input/output error"},
             {"EDQUOT", "disk quota exceeded"},
             {"EFBIG", "file too large for the file system or the file size limit"},
             {"ESTALE", "stale file handle"}}) {
      SCOPED_TRACE(step + ' ' + name);
      fs::remove_all(directory_.path_to("archive"));
      fs::create_directories(directory_.path_to("archive"));
      fs::remove(directory_.path_to("out"));
      ASSERT_EQ(run_child(step + ":error=" + name), 0);
      const std::string out = directory_.read("out");
      EXPECT_EQ(std::ranges::count(out, '\n'), 4);
      std::size_t retries = 0;
      for (std::size_t at = 0; (at = out.find(" 1 " + words + '\n', at)) != std::string::npos; ++at)
        ++retries;
      EXPECT_EQ(retries, 4U) << out;
      for (const auto& entry : fs::recursive_directory_iterator(directory_.path_to("archive"))) {
        EXPECT_EQ(entry.path().string().find(".tmp-"), std::string::npos);
      }
      ASSERT_EQ(run_child(""), 0);
      expect_each_event_once();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(BothSyncs, FileSinkFaultTest, ::testing::Values("file", "batch"),
                         [](const ::testing::TestParamInfo<const char*>& info) {
                           return std::string(info.param);
                         });

#endif  // SCRIPTORIUM_FAULTS

}  // namespace
}  // namespace scriptorium::file
