#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/api/event.h"
#include "core/base/result.h"

namespace scriptorium::import {

// A scheduler's accounting records of jobs: the only data about an imported job that its owner
// could not have written.
//
// The text is what `sacct -P` prints: a line of column names, then one line per job, columns
// separated by '|'. Required: JobIDRaw (or JobID), User, Submit (YYYY-MM-DDTHH:MM:SS in UTC).
// Optional: UID, Group, GID, Account, Partition, QOS.
//
// Owns:   all of it; about 250 bytes a job.
class OwnerList {
 public:
  // Parses a text; `name` is for messages. kInvalidConfig if a required column is missing.
  // Malformed lines are counted.
  static Result<OwnerList> parse(std::string_view text, const std::string& name);
  // Reads a file that belongs to `trusted_uid` or root and that nobody else may write: anyone who
  // can write it controls who may read which job.
  static Result<OwnerList> read(const std::string& file, std::uint32_t trusted_uid);

  // Fills user, account, partition, qos and submitted_at of an event, and verifies its user, if
  // accounting knows exactly one owner of that id who submitted it within the hour before
  // `event.time` (five minutes after, as clocks differ). If another user's job had the same id at
  // about that time, or the time is only a folder's date, the owner is not verified.
  bool verify(Event& event) const;

  std::uint64_t jobs() const noexcept { return jobs_; }
  std::uint64_t odd_lines() const noexcept { return odd_lines_; }

 private:
  struct Record {
    std::int64_t submitted_ns = 0;
    std::string user, uid, group, gid, account, partition, qos;
  };
  std::unordered_map<std::string, std::vector<Record>> records_;
  std::uint64_t jobs_ = 0;
  std::uint64_t odd_lines_ = 0;
};

}  // namespace scriptorium::import
