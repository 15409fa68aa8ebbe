#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <fstream>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "core/delivery/dispatcher.h"
#include "tests/support/event_factory.h"
#include "tests/support/recording_logger.h"
#include "tests/support/scripted_sink.h"
#include "tests/support/temp_dir.h"

namespace scriptorium {
namespace {

constexpr int kJobs = 40;

// Kills a process between every two steps of a delivery, and once more at the same step while it
// recovers; then lets one run to its end. Everything that uses the journal runs in child processes,
// so that each has fault points of its own.
class DeliveryCrashTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
#ifndef SCRIPTORIUM_FAULTS
    GTEST_SKIP() << "this build has no fault points; configure with -DSCRIPTORIUM_FAULTS=ON";
#endif
  }

  // The exit status of a child that does this, as waitpid() gives it.
  static int in_child(const std::string& fault, const std::string& fault_log,
                      const std::function<bool()>& act) {
    const pid_t child = ::fork();
    if (child == 0) {
      if (!fault.empty()) {
        ::setenv("SCRIPTORIUM_FAULT", fault.c_str(), 1);
        ::setenv("SCRIPTORIUM_FAULT_LOG", fault_log.c_str(), 1);
      }
      ::_exit(act() ? 0 : 1);
    }
    int status = -1;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    return status;
  }

  Result<std::unique_ptr<Journal>> open_journal(Logger& log) const {
    return Journal::open({.directory = directory_.path_to("journal")}, log, system_clock());
  }

  bool fill() const {
    test::RecordingLogger log;
    auto journal = open_journal(log);
    if (!journal || !(*journal)->register_sink("archive", {"job.script"})) return false;
    for (int i = 1; i <= kJobs; ++i) {
      static_cast<void>((*journal)->append(
          {.source = "slurm", .event = test::make_event(std::to_string(i))}, std::stop_token{}));
    }
    return (*journal)->flush(std::chrono::steady_clock::now() + std::chrono::seconds(20));
  }

  // Delivers until nothing waits. The destination is a file of lines "job outcome": every third job
  // is refused at first, every tenth rejected.
  bool deliver() const {
    test::RecordingLogger log;
    auto journal = open_journal(log);
    if (!journal) return false;
    SinkConfig config{.batch_max_events = 8, .batch_max_ms = 1, .retry_max_ms = 5};
    auto id = (*journal)->register_sink("archive", config.kinds);
    if (!id) return false;
    test::ScriptedSink sink;
    const int destination = ::open(directory_.path_to("destination").c_str(),
                                   O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    sink.otherwise(test::ScriptedSink::for_each([&](Delivery& delivery) {
      const int job = std::stoi(delivery.event().job.id);
      const auto write = [&](const char* outcome) {
        const std::string line = std::to_string(job) + " " + outcome + "\n";
        if (::write(destination, line.data(), line.size()) != static_cast<ssize_t>(line.size()))
          ::_exit(2);
      };
      if (job % 10 == 0) {
        write("rejected");
        delivery.reject("400 bad job");
      } else if (job % 3 == 0 && delivery.attempt() == 1) {
        delivery.retry("429");
      } else {
        write("stored");
        delivery.acknowledge();
      }
    }));
    Dispatcher dispatcher("archive", config, sink, **journal, *id, log, system_clock(), 1);
    dispatcher.start();
    std::mutex mutex;
    std::condition_variable never;
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    std::unique_lock lock(mutex);
    while (!dispatcher.idle() && std::chrono::steady_clock::now() < deadline)
      never.wait_for(lock, std::chrono::milliseconds(2));
    const bool done = dispatcher.idle();
    const bool stopped = dispatcher.stop(deadline);
    // What the journal says, for the parent to compare.
    std::ofstream report(directory_.path_to("report"));
    for (const auto& state : (*journal)->usage().sinks) {
      report << state.name << " waiting " << state.waiting << " parked " << state.parked
             << " acknowledged " << state.acknowledged << " dead " << state.dead << "\n";
    }
    return done && stopped;
  }

  std::map<std::string, std::set<int>> destination() const {
    std::map<std::string, std::set<int>> outcomes;
    std::ifstream in(directory_.path_to("destination"));
    int job = 0;
    std::string outcome;
    while (in >> job >> outcome) outcomes[outcome].insert(job);
    return outcomes;
  }
  std::string report() const { return directory_.read("report"); }

  test::TempDir directory_;
};

TEST_P(DeliveryCrashTest, EveryEventIsSettledAfterTwoKillsAtTheSameStep) {
  ASSERT_EQ(in_child("", "", [&] { return fill(); }), 0);
  const std::string fault_log = directory_.path_to("faults");
  for (int crash = 0; crash < 2; ++crash) {
    const int status = in_child(GetParam(), fault_log, [&] { return deliver(); });
    ASSERT_TRUE(WIFSIGNALED(status))
        << "the point was not reached in run " << crash << ": status " << status;
    ASSERT_EQ(WTERMSIG(status), SIGKILL);
  }
  ASSERT_EQ(in_child("", "", [&] { return deliver(); }), 0) << report();

  std::set<int> stored;
  std::set<int> rejected;
  for (int job = 1; job <= kJobs; ++job) (job % 10 == 0 ? rejected : stored).insert(job);
  EXPECT_EQ(destination()["stored"], stored);
  EXPECT_EQ(destination()["rejected"], rejected);
  EXPECT_EQ(report(), "archive waiting 0 parked 0 acknowledged 36 dead 4\n");
}

INSTANTIATE_TEST_SUITE_P(Points, DeliveryCrashTest,
                         testing::Values("delivery.before_deliver", "delivery.before_deliver:2",
                                         "delivery.after_deliver", "delivery.after_deliver:2",
                                         "delivery.between_settles:3", "delivery.between_settles:9",
                                         "delivery.before_dead"),
                         [](const auto& info) {
                           std::string name = info.param;
                           for (char& c : name) {
                             if (c == '.' || c == ':' || c == '_') c = 'X';
                           }
                           return name;
                         });

}  // namespace
}  // namespace scriptorium
