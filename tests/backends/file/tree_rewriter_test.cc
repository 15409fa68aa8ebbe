#include "backends/file/tree_rewriter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backends/file/job_files.h"
#include "backends/file/marker.h"
#include "core/base/sha256.h"
#include "tests/backends/file/sink_fixture.h"
#include "tests/support/event_factory.h"

namespace scriptorium::file {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::Pair;

constexpr std::string_view kSecret = "hunter2xyz";
constexpr std::string_view kMark = "[gone]";

std::string without_secret(std::string text) {
  for (std::size_t at = text.find(kSecret); at != std::string::npos; at = text.find(kSecret))
    text.replace(at, kSecret.size(), kMark);
  return text;
}

// Removes one word wherever it stands, as the rules would; writes down what it was told.
class WordEditor final : public RewritableSink::Editor {
 public:
  Result<std::shared_ptr<const Event>> edit(const std::string& path, const Event& stored) override {
    edited.push_back(path);
    if (refuse) return Error{ErrorKind::kPermanent, "no"};
    auto after = std::make_shared<Event>(stored);
    bool changed = false;
    for (EventFile& file : after->files) {
      if (file.bytes == nullptr || file.bytes->find(kSecret) == std::string::npos) continue;
      file = test::make_file(file.name, without_secret(*file.bytes));
      changed = true;
    }
    if (after->job.name && after->job.name->find(kSecret) != std::string::npos) {
      after->job.name = without_secret(*after->job.name);
      changed = true;
    }
    if (drop_environment && after->file("environment") != nullptr) {
      std::erase_if(after->files, [](const EventFile& f) { return f.name == "environment"; });
      after->environment_format = EnvironmentFormat::kNone;
      changed = true;
    }
    if (!changed) return std::shared_ptr<const Event>{};
    return std::shared_ptr<const Event>(after);
  }
  Result<void> replacing(const std::string& path, const Event& before, const Event& after,
                         bool resumed) override {
    replaced.push_back(path + (resumed ? " again" : ""));
    EXPECT_NE(event_json(before), event_json(after));
    if (stop_here) return Error{ErrorKind::kTransient, "stopped by the test"};
    return {};
  }
  void left(const std::string& path, std::string_view reason) override {
    reasons[fs::path(path).filename()] = reason;
  }

  bool refuse = false;
  bool drop_environment = false;
  bool stop_here = false;
  std::vector<std::string> edited, replaced;
  std::map<std::string, std::string> reasons;
};

class TreeRewriterTest : public FileSinkFixture {
 protected:
  void deliver(const std::vector<std::shared_ptr<const Event>>& events) {
    const auto sink = make();
    sink->deliver(outbox_.batch(events));
    for (const auto& event : events)
      ASSERT_EQ(outbox_.outcome(event->job.id), Outcome::kAcknowledged);
  }
  static std::shared_ptr<const Event> leaky(const std::string& job_id) {
    return share(test::make_event_value(job_id, "#!/bin/sh\nexport T=hunter2xyz\n",
                                        {"HOME=/home/alice", "T=hunter2xyz", "N=a\nb'c"}));
  }
  RewritableSink::Summary rewrite(WordEditor& editor, bool apply = true, bool exclusive = true) {
    const auto sink = make();
    auto summary = sink->rewritable()->rewrite(
        {.directory = config_.root, .apply = apply, .exclusive = exclusive, .stop = {}}, editor);
    EXPECT_TRUE(summary) << summary.error().message();
    return summary ? *std::move(summary) : RewritableSink::Summary{};
  }
  // Path below the root -> bytes, of every regular file.
  std::map<std::string, std::string> tree() const {
    std::map<std::string, std::string> files;
    for (const auto& entry : fs::recursive_directory_iterator(config_.root)) {
      if (!entry.is_regular_file() || entry.is_symlink()) continue;
      if (entry.path().filename() == kMarkerName) continue;
      std::ifstream in(entry.path(), std::ios::binary);
      files[fs::relative(entry.path(), config_.root)] = {std::istreambuf_iterator<char>(in), {}};
    }
    return files;
  }
  void expect_clean() const {
    for (const auto& [path, bytes] : tree()) {
      EXPECT_EQ(bytes.find(kSecret), std::string::npos) << path;
      EXPECT_EQ(path.find(kSecret), std::string::npos) << path;
      EXPECT_NE(fs::path(path).filename().string().front(), '.') << path;
    }
  }
  // As another sink would get it, with sizes and hashes checked.
  std::shared_ptr<const Event> read_back(const Event& locator) {
    const auto sink = make();
    auto event = sink->readable()->fetch(locator);
    EXPECT_TRUE(event) << event.error().message();
    return event ? *event : nullptr;
  }
};

TEST_F(TreeRewriterTest, ReplacesContentsAndMetadataInEveryFormatOfTheEnvironment) {
  for (const EnvironmentStyle style :
       {EnvironmentStyle::kNul, EnvironmentStyle::kLines, EnvironmentStyle::kShell}) {
    config_.root = directory_.path_to("archive-" + std::to_string(static_cast<int>(style)));
    config_.environment_format = style;
    deliver({leaky("1"), share(test::make_event_value("2"))});
    WordEditor editor;
    const auto summary = rewrite(editor);
    EXPECT_EQ(summary.events, 2U);
    EXPECT_EQ(summary.changed, 1U);
    EXPECT_THAT(summary.left, IsEmpty());
    expect_clean();
    const auto event = read_back(*leaky("1"));
    ASSERT_NE(event, nullptr);
    EXPECT_EQ(*event->file("script")->bytes, "#!/bin/sh\nexport T=[gone]\n");
    EXPECT_EQ(*event->file("environment")->bytes,
              std::string("HOME=/home/alice\0T=[gone]\0N=a\nb'c\0", 34));
  }
}

TEST_F(TreeRewriterTest, ASecondPassChangesNothing) {
  deliver({leaky("1"), leaky("2")});
  WordEditor editor;
  EXPECT_EQ(rewrite(editor).changed, 2U);
  const auto before = tree();
  EXPECT_EQ(rewrite(editor).changed, 0U);
  EXPECT_EQ(tree(), before);
}

TEST_F(TreeRewriterTest, WithoutADirectoryItIsTheSinksOwnTree) {
  deliver({leaky("1")});
  WordEditor editor;
  const auto sink = make();
  const auto summary =
      sink->rewritable()->rewrite({.directory = "", .apply = true, .stop = {}}, editor);
  ASSERT_TRUE(summary) << summary.error().message();
  EXPECT_EQ(summary->changed, 1U);
  expect_clean();
}

TEST_F(TreeRewriterTest, WithoutApplyNothingOnTheDiskChanges) {
  deliver({leaky("1")});
  directory_.write("archive/.x.sh.tmp-00000000-0123abcd.1", kSecret);
  const auto before = tree();
  WordEditor editor;
  const auto summary = rewrite(editor, false);
  EXPECT_EQ(summary.changed, 1U);
  EXPECT_THAT(editor.replaced, IsEmpty());
  EXPECT_EQ(tree(), before);
}

TEST_F(TreeRewriterTest, FindsTheFilesOfEveryLayoutWithoutKnowingIt) {
  for (const std::string layout :
       {"sarchive-daily", "{job_id}.{ext}", "{cluster}/{job_id}_{ext}.txt", "{job_id}-{ext}"}) {
    config_.root = directory_.path_to("archive-" + sha256_hex(layout).substr(0, 8));
    config_.layout = layout;
    deliver({leaky("1"), leaky("1")});
    config_.layout = "user-month";
    WordEditor editor;
    EXPECT_EQ(rewrite(editor).changed, 1U) << layout;
    expect_clean();
  }
}

TEST_F(TreeRewriterTest, KeepsModeAndTakesANewInode) {
  config_.layout = "{job_id}.{ext}";
  deliver({leaky("1")});
  const std::string script = config_.root + "/1.sh";
  ASSERT_EQ(::chmod(script.c_str(), 0604), 0);
  struct stat before{};
  ASSERT_EQ(::stat(script.c_str(), &before), 0);
  WordEditor editor;
  rewrite(editor);
  struct stat after{};
  ASSERT_EQ(::stat(script.c_str(), &after), 0);
  EXPECT_EQ(after.st_mode, before.st_mode);
  EXPECT_EQ(after.st_uid, before.st_uid);
  EXPECT_EQ(after.st_gid, before.st_gid);
  EXPECT_NE(after.st_ino, before.st_ino);
}

TEST_F(TreeRewriterTest, LeavesWhatIsNotAWholeEventAlone) {
  config_.layout = "{job_id}.{ext}";
  deliver({leaky("1"), leaky("2"), leaky("3")});
  const std::string outside = directory_.write("outside/1.json", kSecret);
  ASSERT_EQ(::truncate((config_.root + "/1.sh").c_str(), 5), 0);
  ASSERT_EQ(::unlink((config_.root + "/2.json").c_str()), 0);
  ASSERT_EQ(::link((config_.root + "/3.sh").c_str(), (config_.root + "/other.sh").c_str()), 0);
  directory_.write("archive/notes.json", "{\"hunter2xyz\":1}");
  fs::create_symlink(directory_.path_to("outside"), config_.root + "/linked");
  fs::create_symlink(outside, config_.root + "/9.json");
  const auto before = tree();
  WordEditor editor;
  const auto summary = rewrite(editor);
  EXPECT_EQ(summary.changed, 0U);
  EXPECT_THAT(
      editor.reasons,
      ElementsAre(Pair("1.json", "not what the metadata say"),
                  Pair("2.env", "no metadata beside it"), Pair("2.sh", "no metadata beside it"),
                  Pair("3.json", "hard link"), Pair("9.json", "a link or special file"),
                  Pair("linked", "a link or special file"),
                  Pair("notes.json", "not metadata of an event"),
                  Pair("other.sh", "no metadata beside it")));
  EXPECT_EQ(tree(), before);
  EXPECT_TRUE(fs::exists(outside));
}

TEST_F(TreeRewriterTest, AJobThatTheRulesCannotReadStays) {
  deliver({leaky("1")});
  const auto before = tree();
  WordEditor editor;
  editor.refuse = true;
  EXPECT_THAT(rewrite(editor).left, ElementsAre(Pair("the rules could not be applied", 1U)));
  EXPECT_EQ(tree(), before);
}

TEST_F(TreeRewriterTest, RemovesAFileThatTheEventNoLongerHas) {
  config_.layout = "{job_id}.{ext}";
  deliver({leaky("1")});
  WordEditor editor;
  editor.drop_environment = true;
  rewrite(editor);
  expect_clean();
  EXPECT_FALSE(fs::exists(config_.root + "/1.env"));
  EXPECT_TRUE(fs::exists(config_.root + "/1.json"));
}

TEST_F(TreeRewriterTest, AChangeThatWasPreparedIsCompletedByTheNextPass) {
  deliver({leaky("1"), leaky("2")});
  WordEditor editor;
  editor.stop_here = true;
  const auto sink = make();
  EXPECT_FALSE(
      sink->rewritable()->rewrite({.directory = config_.root, .apply = true, .stop = {}}, editor));
  editor.stop_here = false;
  const auto looked = rewrite(editor, false);
  EXPECT_THAT(looked.left, ElementsAre(Pair("an interrupted change", 1U)));
  const auto summary = rewrite(editor);
  EXPECT_EQ(summary.resumed, 1U);
  EXPECT_EQ(summary.changed, 1U);
  ASSERT_EQ(editor.replaced.size(), 3U);
  EXPECT_EQ(editor.replaced[1], editor.replaced[0] + " again");
  expect_clean();
  ASSERT_NE(read_back(*leaky("1")), nullptr);
  ASSERT_NE(read_back(*leaky("2")), nullptr);
}

TEST_F(TreeRewriterTest, AChangeThatWasCutOffBeforeItTookEffectIsMadeAgain) {
  config_.layout = "{job_id}.{ext}";
  deliver({leaky("1")});
  directory_.write("archive/.1.sh.redacted", "#!/bin/sh\nexpo");
  directory_.write("archive/.1.json.redacted", "{\"schema\": \"scriptorium.ev");
  WordEditor editor;
  const auto summary = rewrite(editor);
  EXPECT_EQ(summary.resumed, 0U);
  EXPECT_EQ(summary.changed, 1U);
  expect_clean();
  ASSERT_NE(read_back(*leaky("1")), nullptr);
}

TEST_F(TreeRewriterTest, ASecretInTheJobsNameLeavesTheNamesOfItsFilesToo) {
  Event named = *leaky("1");
  named.job.name = "run-hunter2xyz";
  deliver({share(named)});
  ASSERT_THAT(tree(), Not(IsEmpty()));
  WordEditor editor;
  const auto summary = rewrite(editor);
  EXPECT_EQ(summary.changed, 1U);
  expect_clean();
  named.job.name = "run-[gone]";
  ASSERT_NE(read_back(named), nullptr);
  EXPECT_EQ(tree().size(), 3U);
}

TEST_F(TreeRewriterTest, FilesThatMoveTakeAFreeName) {
  Event named = *leaky("1");
  named.job.name = "run-hunter2xyz";
  Event other = test::make_event_value("1", "#!/bin/sh\necho other\n");
  other.job.name = "run-[gone]";
  deliver({share(named)});
  deliver({share(other)});
  WordEditor editor;
  rewrite(editor);
  expect_clean();
  EXPECT_EQ(tree().size(), 6U);
  named.job.name = "run-[gone]";
  ASSERT_NE(read_back(named), nullptr);
  ASSERT_NE(read_back(other), nullptr);
}

TEST_F(TreeRewriterTest, AMoveThatWasInterruptedIsCompletedAtEachStep) {
  for (int step = 0; step < 4; ++step) {
    config_.root = directory_.path_to("archive-" + std::to_string(step));
    config_.layout = "{job_id}-{job_name}.{ext}";
    Event moved = test::make_event_value("1");
    moved.job.name = "run-[gone]";  // the metadata are replaced already
    deliver({share(moved)});
    const std::string to = "1-run-%5Bgone%5D";
    const std::string from = "1-run-hunter2xyz";
    const std::vector<std::string> endings{".sh", ".env", ".json"};
    for (int i = step; i < 3; ++i)
      fs::rename(config_.root + "/" + to + endings[i], config_.root + "/" + from + endings[i]);
    std::ofstream(config_.root + "/." + from + ".json.moved") << to << ".json";
    WordEditor editor;
    rewrite(editor);
    expect_clean();
    EXPECT_EQ(tree().size(), 3U) << step;
    ASSERT_NE(read_back(moved), nullptr) << step;
  }
}

TEST_F(TreeRewriterTest, RemainsOfADeadProcessGoOnlyIfNobodyElseCanBeWriting) {
  deliver({share(test::make_event_value("1"))});
  directory_.write("archive/.2.sh.tmp-00000000-0123abcd.1", kSecret);
  WordEditor editor;
  EXPECT_THAT(rewrite(editor, true, false).left, ElementsAre(Pair("an interrupted write", 1U)));
  EXPECT_EQ(rewrite(editor, true, true).removed, 1U);
  expect_clean();
}

TEST_F(TreeRewriterTest, StopsAfterTheEventInHand) {
  deliver({leaky("1"), leaky("2"), leaky("3")});
  class Stopping final : public RewritableSink::Editor {
   public:
    Result<std::shared_ptr<const Event>> edit(const std::string&, const Event&) override {
      source.request_stop();
      return std::shared_ptr<const Event>{};
    }
    Result<void> replacing(const std::string&, const Event&, const Event&, bool) override {
      return {};
    }
    void left(const std::string&, std::string_view) override {}
    std::stop_source source;
  } editor;
  const auto sink = make();
  const auto summary = sink->rewritable()->rewrite(
      {.directory = config_.root, .apply = true, .stop = editor.source.get_token()}, editor);
  ASSERT_TRUE(summary);
  EXPECT_EQ(summary->events, 1U);
}

TEST_F(TreeRewriterTest, ADirectoryThatIsNotThereIsAnError) {
  WordEditor editor;
  const auto sink = make();
  const auto summary =
      sink->rewritable()->rewrite({.directory = directory_.path_to("none"), .stop = {}}, editor);
  ASSERT_FALSE(summary);
  EXPECT_EQ(summary.error().kind(), ErrorKind::kInvalidConfig);
}

}  // namespace
}  // namespace scriptorium::file
