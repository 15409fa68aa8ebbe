#include "tests/contract/source_contract.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <random>

#include "core/capture/capture.h"
#include "tests/support/patience.h"
#include "tests/support/recording_logger.h"
#include "tests/support/temp_dir.h"

// What every spool adapter promises, whatever its scheduler: one event a job, the script's exact
// bytes, the same event again at every look, and no input that makes it throw.
namespace scriptorium {
namespace {

using test::kPatience;

class SourceContractTest : public testing::TestWithParam<test::SourceCase> {
 protected:
  SourceContractTest()
      : root_(dir_.make_directory(GetParam().folder)), adapter_(GetParam().make(root_, context_)) {
    open_journal();
  }

  void open_journal() {
    auto journal = Journal::open({.directory = dir_.path_to("state")}, log_, system_clock());
    EXPECT_TRUE(journal) << journal.error().message();
    journal_ = *std::move(journal);
    sink_ = *journal_->register_sink("test", {"*"});
  }

  std::unique_ptr<SpoolCapture> make_capture(const std::string& way) {
    SourceConfig common;
    common.capture = way;
    auto opened = open_direct_access(adapter_->spool_root(), SpoolCapture::wanted(common));
    EXPECT_TRUE(opened) << opened.error().message();
    SpoolCapture::Options options{
        "source", common, {"lab", adapter_->scheduler(), "ctl1"}, false, false};
    return std::make_unique<SpoolCapture>(options, *adapter_, *std::move(opened), *journal_, log_,
                                          system_clock());
  }

  void submit(int number) const {
    for (const auto& [path, bytes] : GetParam().files(number, script(number)))
      dir_.write(GetParam().folder + "/" + path, bytes);
  }
  static std::string script(int number) {
    return "#!/bin/sh\necho \xff " + std::to_string(number) + "\n# end";
  }

  // All events that the journal has after the last call.
  std::vector<std::shared_ptr<const Event>> collect(std::size_t count) {
    std::vector<std::shared_ptr<const Event>> events;
    const SteadyTime deadline = std::chrono::steady_clock::now() + kPatience;
    while (events.size() < count &&
           journal_->wait(sink_, after_, journal_->parked_generation(sink_), {}, deadline)) {
      auto items = journal_->read(sink_, after_, 1000, 64U << 20);
      EXPECT_TRUE(items) << items.error().message();
      for (const Journal::Item& item : *items) {
        events.push_back(item.event);
        after_ = item.sequence;
      }
    }
    return events;
  }

  static void expect_each_once(const std::vector<std::shared_ptr<const Event>>& events, int first,
                               int last) {
    std::map<std::string, int> seen;
    for (const auto& event : events) ++seen[*event->file("script")->bytes];
    for (int number = first; number <= last; ++number) EXPECT_EQ(seen[script(number)], 1) << number;
    EXPECT_EQ(events.size(), static_cast<std::size_t>(last - first + 1));
  }

  // The entry of job 7, with the first `sizes[i]` bytes of its i-th file.
  SpoolEntry entry(const std::vector<std::pair<std::string, std::string>>& files,
                   const std::vector<std::size_t>& sizes) const {
    SpoolEntry made;
    for (std::size_t i = 0; i < files.size(); ++i) {
      const SpoolPath place = adapter_->classify(files[i].first);
      made.key = place.entry;
      SpoolFile file;
      file.name = place.file;
      file.stat.links = 1;
      file.stat.size = sizes[i];
      file.bytes = make_bytes(files[i].second.substr(0, sizes[i]));
      made.files.push_back(std::move(file));
    }
    return made;
  }

  test::TempDir dir_;
  test::RecordingLogger log_;
  const PluginContext context_{"source", "lab", log_, system_clock()};
  const std::string root_;
  std::unique_ptr<SpoolAdapter> adapter_;
  std::unique_ptr<Journal> journal_;
  Journal::SinkId sink_ = 0;
  std::uint64_t after_ = 0;
};

TEST_P(SourceContractTest, EachJobIsOneEventWithTheExactScript) {
  for (int number = 1; number <= 30; ++number) submit(number);
  auto capture = make_capture("scan");
  EXPECT_EQ(capture->run_once(std::chrono::seconds{10}, {}), 0U);
  const auto events = collect(30);
  expect_each_once(events, 1, 30);
  for (const auto& event : events) {
    EXPECT_TRUE(event->complete);
    EXPECT_EQ(event->kind, "job.script");
    EXPECT_EQ(event->scheduler, adapter_->scheduler());
    EXPECT_FALSE(event->job.id.empty());
    ASSERT_NE(event->file("environment"), nullptr);
    const auto variables = split_environment(*event->file("environment")->bytes);
    ASSERT_EQ(variables.size(), 2U);
    EXPECT_EQ(variables[1].value, "two words");
  }
}

TEST_P(SourceContractTest, JobsThatComeWhileWatchingAreOneEventEach) {
  auto capture = make_capture("inotify");
  capture->start();
  for (int number = 1; number <= 30; ++number) submit(number);
  expect_each_once(collect(30), 1, 30);
}

TEST_P(SourceContractTest, StartingAgainCapturesNothingTwice) {
  for (int number = 1; number <= 10; ++number) submit(number);
  make_capture("scan")->run_once(std::chrono::seconds{10}, {});
  expect_each_once(collect(10), 1, 10);
  make_capture("scan")->run_once(std::chrono::seconds{10}, {});
  journal_.reset();
  open_journal();
  submit(11);
  make_capture("scan")->run_once(std::chrono::seconds{10}, {});
  expect_each_once(collect(1), 11, 11);
}

TEST_P(SourceContractTest, StoppedInTheMiddleItLosesNothing) {
  for (int number = 1; number <= 200; ++number) submit(number);
  {
    auto capture = make_capture("inotify");
    capture->start();
    capture->stop();
  }
  make_capture("scan")->run_once(std::chrono::seconds{10}, {});
  expect_each_once(collect(200), 1, 200);
}

TEST_P(SourceContractTest, PathsOfAnEntryAreNamedTheSameBothWays) {
  for (const auto& [path, bytes] : GetParam().files(7, "x")) {
    const SpoolPath place = adapter_->classify(path);
    ASSERT_TRUE(place.is_file()) << path;
    EXPECT_EQ(adapter_->path_of(place.entry, place.file), path);
  }
}

TEST_P(SourceContractTest, NamesThatAreNotTheSchedulersAreForeign) {
  for (const char* path : {"", "/", "..", ".", ".hidden", "jwt_hs256.key/..", "a/b/c/d/e", "\xff\n",
                           "//", "job.1//script"}) {
    const SpoolPath place = adapter_->classify(path);
    if (place.is_file()) ADD_FAILURE() << "taken for a job's file: " << path;
  }
}

TEST_P(SourceContractTest, NoBytesMakeItThrowAndParsingIsRepeatable) {
  std::mt19937 random(7);  // NOLINT: the same bytes in every run
  const auto files = GetParam().files(7, script(7));
  for (int round = 0; round < 2000; ++round) {
    auto broken = files;
    for (auto& [path, bytes] : broken) {
      for (int flips = static_cast<int>(random() % 4); flips > 0 && !bytes.empty(); --flips)
        bytes[random() % bytes.size()] = static_cast<char>(random());
      if (random() % 3 == 0) bytes.resize(random() % (bytes.size() + 1));
    }
    std::vector<std::size_t> sizes;
    for (const auto& [path, bytes] : broken) sizes.push_back(bytes.size());
    const SpoolEntry made = entry(broken, sizes);
    ASSERT_NO_THROW({
      const Assessment first = adapter_->assess(made);
      EXPECT_EQ(adapter_->assess(made).state, first.state);
      auto job = adapter_->parse(made);
      auto again = adapter_->parse(made);
      ASSERT_EQ(static_cast<bool>(job), static_cast<bool>(again));
      if (job) {
        EXPECT_EQ(job->problems, again->problems);
        EXPECT_FALSE(job->job.id.empty());
        EXPECT_FALSE(job->user.verified && job->user.name == "root") << "a user wrote these bytes";
      }
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Sources, SourceContractTest, testing::ValuesIn(test::source_cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace scriptorium
