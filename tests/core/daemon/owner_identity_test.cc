#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>

#include "core/capture/capture.h"
#include "core/daemon/owner_stage.h"
#include "tests/core/capture/toy_spool.h"
#include "tests/support/journal_fixture.h"
#include "tests/support/patience.h"

// Capture, journal and owner stage as the daemon ties them together: does the scheduler's answer
// still speak of the entry that was captured? Nothing here stubs that question.
namespace scriptorium {
namespace {

using std::chrono::seconds;
using test::kPatience;

// A scheduler that knows every job and would answer, but that has used the number again or requeued
// the job: only the entry itself can tell whose it is.
class RequeuedJobs final : public OwnerResolver {
 public:
  explicit RequeuedJobs(Guarded<bool>& answers) : answers_(answers) {}
  std::chrono::milliseconds min_interval() const override { return std::chrono::milliseconds{10}; }
  Result<std::vector<OwnerAnswer>> resolve(std::span<const OwnerQuery> queries,
                                           std::stop_token stop, SteadyTime) override {
    answers_.wait(stop, [](bool answers) { return answers; });
    std::vector<OwnerAnswer> answers;
    for (const OwnerQuery& query : queries) {
      OwnerAnswer& answer = answers.emplace_back();
      answer.state =
          query.entry_unchanged() ? OwnerAnswer::State::kFound : OwnerAnswer::State::kUnknown;
      if (answer.state == OwnerAnswer::State::kFound)
        answer.user = {.name = "bob", .id = "1002", .verified = true};
    }
    return answers;
  }

 private:
  Guarded<bool>& answers_;
};

class OwnerIdentityTest : public test::JournalFixture<testing::Test> {
 protected:
  void SetUp() override { open(); }
  void TearDown() override { close(); }

  void open() {
    open_journal();
    SourceConfig common;
    common.capture = "scan";
    common.rescan_seconds = 3600;
    auto opened = open_direct_access(spool_.root(), SpoolCapture::wanted(common));
    ASSERT_TRUE(opened) << opened.error().message();
    capture_ = std::make_unique<SpoolCapture>(
        SpoolCapture::Options{"toy", common, {"lab", "toy", "ctl1"}, true, false}, adapter_,
        *std::move(opened), *journal_, log_, system_clock());
    stage_ = std::make_unique<OwnerStage>(
        OwnerStage::Options{"toy", seconds{3600},
                            [this](const CaptureMark& mark) { return capture_->unchanged(mark); }},
        std::make_unique<RequeuedJobs>(answers_), *journal_, log_, system_clock());
    stage_->start();
    capture_->start();
  }
  void close() {
    if (stage_) stage_->stop();
    capture_.reset();
    stage_.reset();
    journal_.reset();
  }

  // Until the journal holds so many events without an owner.
  void captured(std::uint64_t count) {
    const SteadyTime deadline = std::chrono::steady_clock::now() + kPatience;
    while (journal_->unresolved_count("toy") < count && std::chrono::steady_clock::now() < deadline)
      journal_->wait_unresolved("toy", count - 1, {}, deadline);
    ASSERT_EQ(journal_->unresolved_count("toy"), count);
  }

  // Whether the one job went out under its owner.
  bool verified() {
    answers_.with_notify([](bool& answers) { answers = true; });
    const SteadyTime deadline = std::chrono::steady_clock::now() + kPatience;
    if (!journal_->wait(sink_, 0, journal_->parked_generation(sink_), {}, deadline))
      ADD_FAILURE() << "no event";
    auto items = journal_->read(sink_, 0, 10, 1U << 20);
    EXPECT_TRUE(items && items->size() == 1);
    return items && items->size() == 1 && items->front().event->user.verified;
  }

  CaptureMark mark() {
    auto marks = journal_->marks("toy");
    EXPECT_EQ(marks.size(), 1U);
    return marks.empty() ? CaptureMark{} : marks.front();
  }
  std::string script() const { return spool_.entry(1) + "/script"; }
  void set_time(const timespec& time) const {
    const std::array<timespec, 2> times{time, time};
    ASSERT_EQ(::utimensat(AT_FDCWD, script().c_str(), times.data(), 0), 0);
  }

  test::ToySpool spool_;
  test::ToyAdapter adapter_{spool_.root()};
  Guarded<bool> answers_{false};
  std::unique_ptr<SpoolCapture> capture_;
  std::unique_ptr<OwnerStage> stage_;
};

TEST_F(OwnerIdentityTest, AnEntryThatStandsAsItWasCapturedKeepsItsOwner) {
  spool_.submit(1);
  capture_->rescan();
  captured(1);
  const CaptureMark kept = mark();
  EXPECT_EQ(kept.identity, identity_of("script", *stat_path(script())));
  EXPECT_TRUE(verified());
}

TEST_F(OwnerIdentityTest, SoItDoesAfterARestart) {
  spool_.submit(1);
  capture_->rescan();
  captured(1);
  close();
  open();
  EXPECT_TRUE(verified());
}

TEST_F(OwnerIdentityTest, AnEntryThatIsGoneHasNoOwnerByIt) {
  spool_.submit(1);
  capture_->rescan();
  captured(1);
  spool_.remove(1);
  EXPECT_FALSE(verified());
}

TEST_F(OwnerIdentityTest, ALaterEntryOfTheSameNumberDoesNotLendItsOwner) {
  spool_.submit(1);
  capture_->rescan();
  captured(1);
  const auto before = stat_path(script());
  spool_.remove(1);
  spool_.submit(1);
  // As on a file system that gives the inode again within one tick of its clock, where one of the
  // three must differ.
  set_time({.tv_sec = before->mtime_ns / 1'000'000'000,
            .tv_nsec = (before->mtime_ns + 1) % 1'000'000'000});
  EXPECT_FALSE(verified());
}

TEST_F(OwnerIdentityTest, NorDoesAFileOfAnotherSizeWithTheSameTime) {
  spool_.submit(1);
  capture_->rescan();
  captured(1);
  const auto before = stat_path(script());
  ASSERT_EQ(::truncate(script().c_str(), static_cast<off_t>(before->size - 1)), 0);
  set_time(
      {.tv_sec = before->mtime_ns / 1'000'000'000, .tv_nsec = before->mtime_ns % 1'000'000'000});
  ASSERT_EQ(stat_path(script())->mtime_ns, before->mtime_ns);
  EXPECT_FALSE(verified());
}

TEST_F(OwnerIdentityTest, ADeviceNumberThatTheMountChangedIsNoOtherEntry) {
  spool_.submit(1);
  capture_->rescan();
  captured(1);
  CaptureMark before = mark();
  before.identity.device += 1;
  EXPECT_TRUE(capture_->unchanged(before));
}

}  // namespace
}  // namespace scriptorium
