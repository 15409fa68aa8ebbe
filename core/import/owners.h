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

// What a scheduler's accounting says of jobs: the one thing about an imported job that its owner
// could not write.
//
// Text with a line of column names, then a line a job, columns divided by '|', as `sacct -P` prints
// it. Needed: JobIDRaw (or JobID), User, Submit (YYYY-MM-DDTHH:MM:SS in UTC). Used where they are
// there: UID, Group, GID, Account, Partition, QOS.
//
// Owns:   all of it; about 250 bytes a job.
class OwnerList {
 public:
  // Of a text; `name` stands in the messages. kInvalidConfig if it has not these columns. A line
  // that does not fit is counted.
  static Result<OwnerList> parse(std::string_view text, const std::string& name);
  // Of a file that belongs to `trusted_uid` or root and that nobody else may write: who can write
  // it decides who may read what.
  static Result<OwnerList> read(const std::string& file, std::uint32_t trusted_uid);

  // Fills user, account, partition, qos and submitted_at of an event, and verifies its user, if
  // accounting knows exactly one owner of that id who submitted it within the hour before
  // `event.time` (five minutes after, as clocks differ). An id that was used again at about that
  // time by somebody else, or a time that is only a folder's, verifies nobody.
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
