#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "backends/file/marker.h"
#include "backends/file/sink.h"
#include "tests/support/event_factory.h"
#include "tests/support/power_cut/power_cut.h"
#include "tests/support/recording_logger.h"
#include "tests/support/scripted_sink.h"
#include "tests/support/temp_dir.h"

namespace scriptorium::file {
namespace {

using test::make_event;
using test::PowerCut;
using test::PowerCutCase;
namespace fs = std::filesystem;

constexpr std::size_t kMostStates = 4000;

bool is_temporary(const std::string& path) {
  return path.find("/.") != std::string::npos && !path.ends_with(kMarkerName);
}

class FilePowerCutTest : public ::testing::TestWithParam<SyncMode> {
 protected:
  FilePowerCutTest() {
    config_.root = disk_ + "/archive";
    config_.acl = AclMode::kNone;
    config_.sync = GetParam();
    config_.kinds.assign(kFileKinds.begin(), kFileKinds.end());
  }

  std::unique_ptr<FileSink> start(const std::string& root) {
    FileConfig config = config_;
    config.root = root;
    auto sink = FileSink::create(config, context_);
    EXPECT_TRUE(sink) << sink.error().message();
    const auto started = (*sink)->start();
    EXPECT_TRUE(started) << started.error().message();
    return *std::move(sink);
  }

  static std::shared_ptr<const Event> job(int number) {
    Event event = test::make_event_value(
        std::to_string(number), "#!/bin/sh\n" + std::string(300 + number * 97 % 2000, '#') + "\n");
    event.user.name = number % 3 == 0 ? "bob" : "alice";
    if (number % 5 == 0) event.user.verified = false;
    return std::make_shared<const Event>(std::move(event));
  }
  std::vector<std::shared_ptr<const Event>> batch(int from, int to) const {
    std::vector<std::shared_ptr<const Event>> events;
    for (int i = from; i <= to; ++i) events.push_back(job(i));
    return events;
  }
  void deliver(FileSink& sink, std::vector<std::shared_ptr<const Event>> events, PowerCut* disk) {
    test::Outbox outbox;
    const auto sent = events;
    sink.deliver(outbox.batch(std::move(events)));
    for (const auto& event : sent) {
      ASSERT_EQ(outbox.outcome(event->job.id), Outcome::kAcknowledged)
          << outbox.reason(event->job.id);
      if (disk != nullptr) disk->mark(event->job.id);
    }
  }

  // The files of one job without its number's suffix, by what each must hold.
  std::map<std::string, std::string> files_of(const Event& event,
                                              const PowerCut::Disk& whole) const {
    std::map<std::string, std::string> files;
    for (const auto& [path, bytes] : whole.files) {
      if (path.find("/" + event.job.id + "-md.") != std::string::npos) files.emplace(path, bytes);
    }
    return files;
  }

  static std::string difference(const std::map<std::string, std::string>& files,
                                const std::map<std::string, std::string>& wanted) {
    for (const auto& [path, bytes] : wanted) {
      if (!files.contains(path)) return path + " is missing";
      if (files.at(path) != bytes) return path + " differs";
    }
    for (const auto& [path, bytes] : files) {
      if (!wanted.contains(path)) return path + " is too many";
    }
    return "none";
  }

  test::TempDir directory_;
  test::RecordingLogger log_;
  PluginContext context_{"archive", "lab", log_, system_clock()};
  const std::string disk_ = directory_.make_directory("disk");
  FileConfig config_;
};

TEST_P(FilePowerCutTest, WhatWasAcknowledgedIsWholeAndWhatHasItsNameIsWholeAtAnyStep) {
  PowerCut disk(disk_);
  {
    const auto sink = start(config_.root);
    ASSERT_NO_FATAL_FAILURE(deliver(*sink, batch(1, 8), &disk));
    ASSERT_NO_FATAL_FAILURE(deliver(*sink, batch(9, 9), &disk));
  }
  {
    const auto sink = start(config_.root);  // another life, which knows no directory yet
    ASSERT_NO_FATAL_FAILURE(deliver(*sink, batch(7, 14), &disk));
  }
  disk.stop();
  ASSERT_EQ(disk.missed([](const std::string&) { return false; }), "");
  const PowerCut::Disk whole = disk.build(disk.steps(), PowerCut::Loss::kNothing, 0);
  ASSERT_EQ(whole.files.size(), 14U * 3U + 1);

  std::set<std::uint64_t> seen;
  std::size_t broken = 0;
  std::size_t redelivered = 0;
  for (const PowerCutCase& c : test::power_cut_cases(disk, kMostStates)) {
    const PowerCut::Disk state = disk.build(c.step, c.loss, c.seed);
    const auto where = [&] {
      return "before step " + std::to_string(c.step) + " (" + disk.step_text(c.step) +
             "), losing " + PowerCut::name_of(c.loss);
    };
    std::set<std::string> acknowledged;
    for (const std::string& mark : disk.marks_until(c.step)) acknowledged.insert(mark);
    for (const std::string& id : acknowledged) {
      for (const auto& [path, bytes] : files_of(*job(std::stoi(id)), whole)) {
        const auto found = state.files.find(path);
        EXPECT_TRUE(found != state.files.end() && found->second == bytes)
            << path << " was acknowledged; " << where();
      }
    }
    for (const auto& [path, bytes] : state.files) {
      if (is_temporary(path)) continue;
      const auto found = whole.files.find(path);
      EXPECT_TRUE(found != whole.files.end() && found->second == bytes)
          << path << " is visible and not whole; " << where();
      // The metadata says that the event is whole.
      if (!path.ends_with(".json")) continue;
      const std::string stem = path.substr(0, path.size() - 4);
      EXPECT_TRUE(state.files.contains(stem + "sh") && state.files.contains(stem + "env"))
          << path << " is there, and its script or environment is not; " << where();
    }
    // The journal delivers again what had no acknowledgement, and then all is as it would have
    // been.
    if (seen.insert(state.fingerprint()).second && redelivered < 200) {
      ++redelivered;
      const std::string copy = directory_.path_to("copy");
      fs::remove_all(copy);
      state.write_to(copy);
      const auto sink = start(copy + "/archive");
      for (const auto& [from, to] : {std::pair{1, 8}, std::pair{9, 14}})
        ASSERT_NO_FATAL_FAILURE(deliver(*sink, batch(from, to), nullptr));
      std::map<std::string, std::string> files;
      for (const auto& entry : fs::recursive_directory_iterator(copy)) {
        const std::string path = fs::relative(entry.path(), copy);
        // Temporary names may stay, where a directory did not get its own and in the root: nobody
        // takes them for anything.
        if (entry.is_regular_file() && !is_temporary(path))
          files[path] = directory_.read("copy/" + path);
      }
      EXPECT_TRUE(files == whole.files)
          << "after a redelivery: " << difference(files, whole.files) << "; " << where();
    }
    if (HasFailure() && ++broken == 3) FAIL() << "and so on";
  }
  std::printf("%zu calls, %zu different states\n", disk.steps(), seen.size());
}

// An owner that becomes known later: at every step the job is whole at one place at least, and once
// that is acknowledged at one. Without the bytes, those that are there move.
TEST_P(FilePowerCutTest, AJobThatMovesToItsOwnerIsWholeAtAnyStep) {
  const std::string by_user = "{user}/{job_id}.{ext}";
  const std::string flat = "{job_id}.{ext}";
  for (const auto& [layout, with_bytes] :
       {std::pair{by_user, true}, std::pair{by_user, false}, std::pair{flat, true}}) {
    SCOPED_TRACE(layout + (with_bytes ? "" : " without bytes"));
    config_.layout = layout;
    const bool moves = layout.starts_with("{user}");
    config_.root = directory_.make_directory(!moves       ? "staying"
                                             : with_bytes ? "moving"
                                                          : "moving-itself") +
                   "/archive";
    const std::string above = fs::path(config_.root).parent_path();
    std::vector<std::shared_ptr<const Event>> before;
    std::vector<std::shared_ptr<const Event>> after;
    for (const char* job : {"1", "2", "3"}) {
      before.push_back(std::make_shared<const Event>(test::make_unverified_event(job)));
      const Event owned = test::make_owned_event(*before.back());
      after.push_back(
          std::make_shared<const Event>(with_bytes ? owned : test::without_bytes(owned)));
    }
    PowerCut disk(above);
    {
      const auto sink = start(config_.root);
      ASSERT_NO_FATAL_FAILURE(deliver(*sink, before, nullptr));
      disk.mark("before");
      ASSERT_NO_FATAL_FAILURE(deliver(*sink, after, nullptr));
      disk.mark("after");
    }
    disk.stop();
    ASSERT_EQ(disk.missed([](const std::string&) { return false; }), "");
    const PowerCut::Disk whole = disk.build(disk.steps(), PowerCut::Loss::kNothing, 0);
    ASSERT_EQ(whole.files.size(), 9U + 1);

    std::set<std::uint64_t> seen;
    for (const PowerCutCase& c : test::power_cut_cases(disk, kMostStates)) {
      const PowerCut::Disk state = disk.build(c.step, c.loss, c.seed);
      const auto where = [&] {
        return "before step " + std::to_string(c.step) + " (" + disk.step_text(c.step) +
               "), losing " + PowerCut::name_of(c.loss);
      };
      const auto marks = disk.marks_until(c.step);
      std::map<std::string, std::string> visible;
      for (const auto& [path, bytes] : state.files) {
        if (!is_temporary(path)) visible.emplace(path, bytes);
      }
      if (marks.size() == 2) {
        EXPECT_TRUE(visible == whole.files) << difference(visible, whole.files) << "; " << where();
      } else if (marks.size() == 1) {
        for (const auto& event : before) {
          const auto whole_at = [&](const std::string& folder) {
            const std::string stem = "archive/" + folder + event->job.id;
            const auto has = [&](const std::string& path, const EventFile* file) {
              const auto found = visible.find(path);
              return found != visible.end() &&
                     (file == nullptr || found->second.size() >= file->size);
            };
            return has(stem + ".json", nullptr) && has(stem + ".sh", event->file("script")) &&
                   has(stem + ".env", event->file("environment"));
          };
          EXPECT_TRUE(moves ? whole_at("unverified/") || whole_at("alice/") : whole_at(""))
              << event->job.id << "; " << where();
        }
      }
      if (seen.insert(state.fingerprint()).second) {
        const std::string copy = directory_.path_to("copy");
        fs::remove_all(copy);
        state.write_to(copy);
        const auto sink = start(copy + "/archive");
        if (marks.empty()) {
          ASSERT_NO_FATAL_FAILURE(deliver(*sink, before, nullptr));
        }
        ASSERT_NO_FATAL_FAILURE(deliver(*sink, after, nullptr));
        std::map<std::string, std::string> files;
        for (const auto& entry : fs::recursive_directory_iterator(copy)) {
          const std::string path = fs::relative(entry.path(), copy);
          if (entry.is_regular_file() && !is_temporary(path))
            files[path] = directory_.read("copy/" + path);
        }
        EXPECT_TRUE(files == whole.files)
            << "after a redelivery: " << difference(files, whole.files) << "; " << where();
      }
      if (HasFailure()) FAIL() << "and so on";
    }
    std::printf("%zu calls, %zu different states\n", disk.steps(), seen.size());
  }
}

INSTANTIATE_TEST_SUITE_P(Ways, FilePowerCutTest,
                         ::testing::Values(SyncMode::kFile, SyncMode::kBatch),
                         [](const auto& info) {
                           return info.param == SyncMode::kFile ? "File" : "Batch";
                         });

}  // namespace
}  // namespace scriptorium::file
