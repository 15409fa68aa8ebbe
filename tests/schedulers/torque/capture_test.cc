// The adapter together with core's capture, on a spool that is written with pbs_server's own system
// calls.
#include "core/capture/capture.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <set>

#include "schedulers/torque/parse.h"
#include "schedulers/torque/source.h"
#include "tests/schedulers/torque/fixtures.h"
#include "tests/support/capture_fixture.h"

namespace scriptorium::torque {
namespace {

using namespace std::literals;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// server_priv/jobs, as 6.1 writes it.
class TorqueSpool {
 public:
  TorqueSpool() : home_(dir_.make_directory("home")) {
    ::mkdir((home_ + "/server_priv").c_str(), 0755);
    ::mkdir(jobs().c_str(), 0755);
  }

  const std::string& home() const { return home_; }
  std::string jobs() const { return home_ + "/server_priv/jobs"; }
  std::string path(const std::string& stem, const char* suffix) const {
    return jobs() + "/" + stem + "." + suffix;
  }
  static std::string script(const std::string& stem) {
    return "#!/bin/sh\n#PBS -N x\necho " + stem.substr(stem.rfind('/') + 1) + "\n";
  }

  void reserve(const std::string& stem) const { write(path(stem, "JB"), "", O_EXCL); }
  void chunk(const std::string& stem, const std::string& bytes) const {
    write(path(stem, "SC"), bytes, O_APPEND);
  }
  // Write .JC, unlink the old record, link, unlink .JC.
  void save(const std::string& stem, const char* suffix = "JB", std::string_view more = {}) const {
    write(path(stem, "JC"), record(stem, suffix == "TA"sv, more), O_TRUNC);
    ::unlink(path(stem, suffix).c_str());
    if (::link(path(stem, "JC").c_str(), path(stem, suffix).c_str()) != 0)
      throw std::runtime_error("link " + stem);
    ::unlink(path(stem, "JC").c_str());
  }
  void submit(const std::string& stem) const {
    reserve(stem);
    chunk(stem, script(stem));
    save(stem);
    save(stem);
  }
  void purge(const std::string& stem) const {
    for (const char* suffix : {"SC", "JB", "TA"}) ::unlink(path(stem, suffix).c_str());
  }

  static std::string record(const std::string& stem, bool array, std::string_view more) {
    std::string text = fixtures::recorded("torque-6.1.3.h5/flat/jobs/65", "JB");
    const std::string name = stem.substr(stem.rfind('/') + 1);
    std::string id = name;
    if (array) id.insert(id.find('.'), "[]");
    replace(text, "<jobid>65.pbshead.cluster.test", "<jobid>" + id);
    replace(text, "<fileprefix>65.pbshead.cluster.test", "<fileprefix>" + name);
    replace(text, "</attributes>", std::string(more) + "</attributes>");
    return text;
  }

 private:
  static void replace(std::string& text, const std::string& from, const std::string& to) {
    text.replace(text.find(from), from.size(), to);
  }
  static void write(const std::string& path, std::string_view bytes, int flags) {
    const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | flags, 0600);
    if (fd < 0 || ::write(fd, bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size()))
      throw std::runtime_error("write " + path);
    ::close(fd);
  }

  test::TempDir dir_;
  const std::string home_;
};

class TorqueCaptureTest : public test::CaptureFixture {
 protected:
  void SetUp() override {
    common_.capture = GetParam();
    CaptureFixture::SetUp();
  }

  // False if this machine cannot give the wanted way; the test is then skipped.
  bool start() {
    adapter_ = std::make_unique<TorqueSource>(TorqueConfig{spool_.home()}, context_);
    auto opened = open_spool(adapter_->spool_root(), common_);
    if (!opened) return false;
    SpoolCapture::Options options{"torque", common_, {"lab", "torque", "ctl1"}, false, false};
    options.redactor =
        std::make_shared<const redact::Redactor>(nullptr, redact::Mode::kOff, common_.environment);
    capture_ = std::make_unique<SpoolCapture>(options, *adapter_, *std::move(opened), *journal_,
                                              log_, system_clock());
    capture_->start();
    EXPECT_TRUE(eventually([](const CaptureStatus& s) { return s.scans >= 1 && s.pending == 0; }));
    return true;
  }

  // What was done to the spool until now was seen: a job that comes after it has come out.
  void fence() {
    const std::string stem = std::to_string(900 + fences_++) + ".fence";
    spool_.submit(stem);
    const auto events = collect_events(1);
    ASSERT_FALSE(events.empty());
    EXPECT_EQ(events[0]->job.id, stem) << "another event came before it";
  }

  // Without what fanotify reports of other processes, such as other tests, on the same file system.
  auto ignored_in_spool() const {
    auto ignored = capture_->status().ignored;
    ignored.erase("another path");
    ignored.erase("another owner");
    return ignored;
  }

  static void expect_whole(const Event& event, const std::string& stem) {
    EXPECT_TRUE(event.complete);
    EXPECT_EQ(event.job.id, stem);
    EXPECT_EQ(*event.file("script")->bytes, TorqueSpool::script(stem));
    EXPECT_EQ(event.user.name, "carol");
    EXPECT_TRUE(event.user.verified);
    ASSERT_NE(event.file("record"), nullptr);
    ASSERT_NE(event.file("environment"), nullptr);
  }

  const PluginContext context_{"torque", "lab", log_, system_clock()};
  TorqueSpool spool_;
  SourceConfig common_;
  std::unique_ptr<TorqueSource> adapter_;
  int fences_ = 0;
};

#define START_OR_SKIP() \
  if (!start()) GTEST_SKIP() << "SKIPPED: " << skip_

TEST_P(TorqueCaptureTest, AJobIsOneEventHoweverOftenItsRecordIsSaved) {
  START_OR_SKIP();
  spool_.submit("1.host");
  expect_whole(*collect_events(1).at(0), "1.host");
  for (int i = 0; i < 8; ++i) spool_.save("1.host");
  fence();
  spool_.purge("1.host");
  fence();
  EXPECT_EQ(capture_->status().duplicates, 0U)
      << "a script was read again because its record was written";
  EXPECT_EQ(missed(), 0U);
}

TEST_P(TorqueCaptureTest, JobsThatStandAtTheStartAndASecondStart) {
  for (int i = 1; i <= 20; ++i) spool_.submit(std::to_string(i) + ".host");
  START_OR_SKIP();
  std::set<std::string> ids;
  for (const auto& event : collect_events(20)) ids.insert(event->job.id);
  EXPECT_EQ(ids.size(), 20U);
  capture_.reset();
  journal_.reset();
  open_journal();
  for (int i = 1; i <= 20; ++i)
    spool_.save(std::to_string(i) + ".host");  // as a restart of pbs_server does
  ASSERT_TRUE(start());
  fence();
}

TEST_P(TorqueCaptureTest, AFolderOfTheOtherLayoutMayAppearLater) {
  START_OR_SKIP();
  ::mkdir((spool_.jobs() + "/3").c_str(), 0755);
  spool_.submit("3/13.host");
  expect_whole(*collect_events(1).at(0), "13.host");
}

TEST_P(TorqueCaptureTest, AScriptThatCameInChunksIsOneEvent) {
  START_OR_SKIP();
  const std::string script = std::string(3 * kScriptChunk, 'x') + "\nexit\n";
  spool_.reserve("5.host");
  spool_.chunk("5.host", script.substr(0, kScriptChunk));
  spool_.save("5.host");
  for (std::size_t at = kScriptChunk; at < script.size(); at += kScriptChunk)
    spool_.chunk("5.host", script.substr(at, kScriptChunk));
  spool_.save("5.host");
  const auto event = collect_events(1).at(0);
  EXPECT_EQ(*event->file("script")->bytes, script);
  EXPECT_TRUE(event->complete);
  EXPECT_FALSE(event->supersedes);
}

TEST_P(TorqueCaptureTest, AKilledQsubLeavesAnIncompleteScriptThatALaterChunkSupersedes) {
  START_OR_SKIP();
  const std::string script = std::string(2 * kScriptChunk, 'x') + "\nexit\n";
  spool_.reserve("5.host");
  spool_.chunk("5.host", script.substr(0, kScriptChunk));
  spool_.save("5.host");
  const auto first = collect_events(1).at(0);
  EXPECT_FALSE(first->complete);
  EXPECT_EQ(first->file("script")->size, kScriptChunk);
  EXPECT_THAT(first->problems, ElementsAre(HasSubstr("whole chunks only")));
  spool_.chunk("5.host", script.substr(kScriptChunk, kScriptChunk));
  spool_.chunk("5.host", script.substr(2 * kScriptChunk));
  const auto second = collect_events(1).at(0);
  EXPECT_TRUE(second->complete);
  EXPECT_EQ(*second->file("script")->bytes, script);
  EXPECT_EQ(second->supersedes, first->id);
  EXPECT_TRUE(eventually([](const CaptureStatus& s) { return s.superseding == 1; }));
}

TEST_P(TorqueCaptureTest, AnArrayIsOneEventAndItsTasksAreNone) {
  START_OR_SKIP();
  spool_.reserve("7.host");
  spool_.chunk("7.host", TorqueSpool::script("7.host"));
  ::unlink(spool_.path("7.host", "JB").c_str());
  const std::string_view spec = "<job_array_request flags=\"1\">1-3</job_array_request>";
  spool_.save("7.host", "TA", spec);
  for (const char* task : {"7-1.host", "7-2.host", "7-3.host"}) {
    spool_.reserve(task);
    spool_.save(task);
  }
  spool_.save("7.host", "TA", spec);
  const auto event = collect_events(1).at(0);
  EXPECT_EQ(event->job.id, "7[].host");
  EXPECT_EQ(event->job.array->task_spec, "1-3");
  fence();
}

TEST_P(TorqueCaptureTest, AnInteractiveJobIsCountedOnceAndNoEvent) {
  START_OR_SKIP();
  spool_.reserve("8.host");
  for (int i = 0; i < 4; ++i)
    spool_.save("8.host", "JB", "<interactive flags=\"1\">40001</interactive>");
  EXPECT_TRUE(
      eventually([](const CaptureStatus& s) { return s.ignored.contains("interactive job"); }));
  for (int i = 0; i < 4; ++i)
    spool_.save("8.host", "JB", "<interactive flags=\"1\">40001</interactive>");
  fence();
  spool_.purge("8.host");
  fence();
  EXPECT_EQ(capture_->status().ignored["interactive job"], 1U);
  EXPECT_EQ(missed(), 0U);
}

TEST_P(TorqueCaptureTest, AReservationThatIsTakenBackIsNothing) {
  START_OR_SKIP();
  for (int i = 20; i < 40; ++i) {
    const std::string stem = std::to_string(i) + ".host";
    spool_.reserve(stem);
    spool_.purge(stem);
  }
  spool_.reserve("40.host");  // one that stays, as after a crash of the server
  fence();
  EXPECT_TRUE(eventually([](const CaptureStatus& s) { return s.pending == 0; }));
  EXPECT_EQ(missed(), 0U);
  EXPECT_THAT(ignored_in_spool(), IsEmpty());
}

TEST_P(TorqueCaptureTest, AStemThatIsUsedAgainIsAnotherJob) {
  START_OR_SKIP();
  spool_.submit("9.host");
  const auto first = collect_events(1).at(0);
  spool_.purge("9.host");
  spool_.reserve("9.host");
  spool_.chunk("9.host", "#!/bin/sh\necho second\n");
  spool_.save("9.host");
  const auto second = collect_events(1).at(0);
  EXPECT_NE(first->id, second->id);
  EXPECT_FALSE(second->supersedes);
  EXPECT_EQ(*second->file("script")->bytes, "#!/bin/sh\necho second\n");
}

TEST_P(TorqueCaptureTest, AScriptWhoseRecordNeverComesIsArchivedUnverified) {
  common_.incomplete_after_seconds = 1;
  START_OR_SKIP();
  spool_.reserve("10.host");
  spool_.chunk("10.host", TorqueSpool::script("10.host"));
  const auto event = collect_events(1).at(0);
  EXPECT_FALSE(event->complete);
  EXPECT_EQ(event->job.id, "10.host");
  EXPECT_FALSE(event->user.verified);
  EXPECT_THAT(event->problems, ElementsAre("record: missing"));
}

TEST_P(TorqueCaptureTest, WhereVariablesAreChosenTheRecordAndTheGuessedListAreLeftOut) {
  common_.environment.mode = EnvironmentRule::Mode::kPatterns;
  common_.environment.drop = {"PBS_O_PATH"};
  START_OR_SKIP();
  spool_.submit("11.host");
  const auto event = collect_events(1).at(0);
  EXPECT_EQ(event->file("record"), nullptr);
  EXPECT_EQ(event->file("environment"), nullptr);
  std::vector<std::string> where;
  for (const Redaction& r : event->redactions) where.push_back(r.where);
  EXPECT_THAT(where, ElementsAre("environment", "record"));
  EXPECT_EQ(event->job.name, "short");
  EXPECT_TRUE(event->user.verified);
  EXPECT_EQ(event_json(*event).find("PBS_O_"), std::string::npos);
}

TEST_P(TorqueCaptureTest, AProxyIsInTheEventAlsoAfterTheJournal) {
  START_OR_SKIP();
  spool_.reserve("12.host");
  spool_.chunk("12.host", TorqueSpool::script("12.host"));
  spool_.save("12.host", "JB", "<proxy_user flags=\"1\">boss</proxy_user>");
  const auto event = collect_events(1).at(0);
  EXPECT_THAT(event_json(*event), HasSubstr(R"("details":{"proxy_user":"boss"})"));
}

// Only fanotify holds the bytes of what is gone; inotify can do no more than count.
TEST_P(TorqueCaptureTest, JobsThatAreGoneAtOnceAreCapturedOrCounted) {
  START_OR_SKIP();
  constexpr int kJobs = 300;
  for (int i = 1; i <= kJobs; ++i) {
    const std::string stem = std::to_string(1000 + i) + ".host";
    spool_.submit(stem);
    spool_.purge(stem);
  }
  if (GetParam() == "fanotify") {
    std::set<std::string> ids;
    for (const auto& event : collect_events(kJobs)) {
      expect_whole(*event, event->job.id);
      ids.insert(event->job.id);
    }
    EXPECT_EQ(ids.size(), static_cast<std::size_t>(kJobs));
    EXPECT_EQ(missed(), 0U);
    return;
  }
  EXPECT_TRUE(eventually([this](const CaptureStatus& s) {
    return s.captured + missed() == kJobs && s.pending == 0;
  })) << capture_->status().captured
      << " captured, " << missed() << " missed";
  EXPECT_THAT(ignored_in_spool(), IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(Ways, TorqueCaptureTest, testing::Values("fanotify", "inotify"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace scriptorium::torque
