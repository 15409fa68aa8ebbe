#include <grp.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <memory>
#include <string>

#include "backends/catalog/sink.h"
#include "tests/backends/catalog/catalog_events.h"
#include "tests/support/fake_clock.h"
#include "tests/support/recording_logger.h"
#include "tests/support/scripted_sink.h"
#include "tests/support/temp_dir.h"

namespace scriptorium::catalog {
namespace {

constexpr gid_t kReaders = 42'421;
constexpr uid_t kNobody = 65'534;

// Processes of another user, who may read by their group alone.
class CatalogReadersTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
    ASSERT_EQ(::chmod(directory_.path().c_str(), 0755), 0);
    config_.root = directory_.path_to("catalog");
    config_.reader_group = std::to_string(kReaders);
  }

  std::unique_ptr<CatalogSink> start() {
    auto sink =
        std::make_unique<CatalogSink>(config_, PluginContext{"catalog", "lab", log_, clock_});
    const auto started = sink->start();
    EXPECT_TRUE(started) << started.error().message();
    return sink;
  }
  static void deliver(CatalogSink& sink, const std::string& job) {
    test::Outbox outbox;
    sink.deliver(outbox.batch({test::make_event(job)}));
    ASSERT_EQ(outbox.outcome(job), Outcome::kAcknowledged) << outbox.reason(job);
  }
  // How many of the jobs a process with this group reads; 99: it cannot read at all.
  int jobs_read_with(gid_t group, int jobs) const {
    const pid_t pid = ::fork();
    if (pid == 0) {
      if (::setgroups(1, &group) != 0 || ::setgid(kNobody) != 0 || ::setuid(kNobody) != 0)
        ::_exit(98);
      Archive archive(config_.root);
      int read = 0;
      for (int job = 1; job <= jobs; ++job) {
        const Event locator = test::without_bytes(test::make_event_value(std::to_string(job)));
        const auto event = archive.fetch(locator);
        if (event) ++read;
        if (!event && event.error().kind() != ErrorKind::kVanished) ::_exit(99);
      }
      ::_exit(read);
    }
    int status = 0;
    EXPECT_EQ(::waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  test::TempDir directory_;
  test::RecordingLogger log_;
  test::FakeClock clock_;
  CatalogConfig config_;
};

TEST_F(CatalogReadersTest, TheGroupReadsBesideTheWriterAndAfterItAndOthersNever) {
  auto sink = start();
  ASSERT_NO_FATAL_FAILURE(deliver(*sink, "1"));
  EXPECT_EQ(jobs_read_with(kReaders, 1), 1);
  EXPECT_EQ(jobs_read_with(kNobody, 1), 99);
  ASSERT_NO_FATAL_FAILURE(deliver(*sink, "2"));
  EXPECT_EQ(jobs_read_with(kReaders, 2), 2);
  sink->stop(SteadyTime::max());
  sink.reset();
  EXPECT_EQ(jobs_read_with(kReaders, 2), 2);
  EXPECT_EQ(jobs_read_with(kNobody, 2), 99);
}

TEST_F(CatalogReadersTest, TheGroupReadsWhatAKilledWriterLeft) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    auto sink = start();
    deliver(*sink, "1");
    ::raise(SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(pid, &status, 0), pid);
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(jobs_read_with(kReaders, 1), 1);
}

TEST_F(CatalogReadersTest, ANewGroupGetsAnExistingRoot) {
  config_.reader_group.reset();
  {
    ASSERT_NO_FATAL_FAILURE(deliver(*start(), "1"));
  }
  EXPECT_EQ(jobs_read_with(kReaders, 1), 99);
  config_.reader_group = std::to_string(kReaders);
  const auto sink = start();
  ASSERT_NO_FATAL_FAILURE(deliver(*sink, "2"));
  EXPECT_EQ(jobs_read_with(kReaders, 2), 2);
}

}  // namespace
}  // namespace scriptorium::catalog
