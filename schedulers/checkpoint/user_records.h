#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <stop_token>
#include <string>
#include <vector>

#include "core/api/free_source.h"
#include "core/api/kit/repeat_limit.h"
#include "core/api/plugin_context.h"
#include "core/base/guarded.h"

namespace scriptorium::checkpoint_records {

// Records that programs of jobs write as their users, into a folder in which each user can make
// files, and can neither list nor change those of others (docs/checkpoint.md, "Records of users").
//
// Nothing in it is trusted: a regular file with one name becomes an event of its owner, not
// verified; everything else is removed and counted. Number and rate of each user are bounded, and
// what exceeds them delays no other user.
// Threads: collect() from one; status() from any.
class UserRecords {
 public:
  // Files of one user that wait; further ones are removed and counted.
  static constexpr std::size_t kMostWaiting = 1024;
  // Records of one user that are taken in a minute; further ones wait.
  static constexpr std::size_t kMostAMinute = 60;
  // So long a file that does not end with a line break may be unfinished.
  static constexpr std::int64_t kUnfinishedSeconds = 60;

  struct Status {
    std::uint64_t records = 0;
    std::uint64_t refused = 0;      // not records
    std::uint64_t dropped = 0;      // beyond kMostWaiting
    std::uint64_t not_removed = 0;  // now
  };

  // `folder` "": nothing is collected.
  UserRecords(std::string folder, const PluginContext& context)
      : folder_(std::move(folder)), context_(context) {}

  // Gives what is there now to the journal, and removes it. A folder that does not exist is empty.
  Result<void> collect(EventWriter& writer, const std::stop_token& stop);
  Status status() const {
    return status_.with([](const Status& status) { return status; });
  }

 private:
  struct WaitingFile {
    std::int64_t changed_ns = 0;
    std::string name;
    auto operator<=>(const WaitingFile&) const = default;
  };
  // What a pass finds of one user.
  struct Found {
    std::vector<WaitingFile> files;
    std::uint64_t refused = 0;
    std::uint64_t dropped = 0;
    std::string reason;  // of the last refusal
  };
  // How many records of a user may be taken.
  struct Allowance {
    double left = kMostAMinute;
    SteadyTime since;
  };
  class Batch;

  Result<std::map<uid_t, Found>> find(int directory, const std::stop_token& stop);
  Result<void> take(uid_t uid, Found& found, Batch& batch);
  bool may_take(uid_t uid);
  void report(uid_t uid, const Found& found);

  const std::string folder_;
  const PluginContext context_;
  RepeatLimit repeats_;
  std::map<uid_t, Allowance> allowances_;  // of users that have taken some of theirs
  std::uint64_t not_removed_ = 0;          // in this pass
  Guarded<Status> status_;
};

}  // namespace scriptorium::checkpoint_records
