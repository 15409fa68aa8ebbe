#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/api/kit/repeat_limit.h"
#include "core/api/logger.h"
#include "core/base/file.h"
#include "core/base/time.h"
#include "schedulers/usage/files.h"
#include "schedulers/usage/records.h"
#include "schedulers/usage/step_table.h"
#include "schedulers/usage/tree.h"

// The counter files of control groups, read again and again. Threads: one.
namespace scriptorium::usage {

// What one reading of a job is to read.
struct ReadScope {
  const ControlGroups& groups;
  JobSeen& job;      // takes what the reading says of it: its owner
  StepTable& steps;  // takes those that are seen
  Moment now;
  bool at_end = false;  // its tasks are being removed: the counters vanish in milliseconds
  bool rare = false;    // also what seldom changes
  bool retry = false;   // also what was absent or empty before
};

// What the files of all jobs share: the buffer, and how many of them may stay open.
class CounterFiles {
 public:
  // `most_kept` is reduced to half of RLIMIT_NOFILE, as the process needs descriptors for more.
  CounterFiles(Files& files, std::size_t most_kept, Logger& log, const Clock& clock);

  Files& files() const noexcept { return files_; }
  std::size_t kept() const noexcept { return kept_; }
  std::uint64_t unreadable() const noexcept { return unreadable_; }  // opens without permission

 private:
  friend class JobFiles;
  void refused(const std::string& path, int code);

  Files& files_;
  std::size_t most_kept_;
  Logger& log_;
  const Clock& clock_;
  std::size_t kept_ = 0;
  std::uint64_t unreadable_ = 0;
  RepeatLimit logged_;
  std::vector<char> buffer_;
  std::string path_;  // of the file that is being opened; a member to keep its memory
};

// Of one job, by one reader.
constexpr std::size_t kMostCounterFiles = 16;

struct CounterFile {
  std::size_t slot;  // in JobFiles, below kMostCounterFiles
  Controller controller;
  const char* name;
  bool kept = true;  // stays open, while there are descriptors left for that
};

// The counter files of one job. Owns their descriptors, which count in `shared`; that must outlive
// this.
class JobFiles {
 public:
  explicit JobFiles(CounterFiles& shared) : shared_(shared) {}
  JobFiles(const JobFiles&) = delete;
  JobFiles& operator=(const JobFiles&) = delete;
  ~JobFiles();

  // The text of a file, valid until the next call for any job. Nothing if there is
  // no such group or file, or it may not be read.
  std::optional<std::string_view> text(const ReadScope& scope, const CounterFile& file);
  // Stores the number that the file holds; leaves `into` unchanged if there is no such file.
  void number(const ReadScope& scope, const CounterFile& file, std::optional<std::uint64_t>& into);
  // The job's group below this controller is removed.
  void close(Controller controller);

 private:
  struct Slot {
    UniqueFd fd;
    Controller controller{};
    bool missing = false;
  };
  void close(Slot& slot);

  CounterFiles& shared_;
  std::array<Slot, kMostCounterFiles> slots_;
};

}  // namespace scriptorium::usage
