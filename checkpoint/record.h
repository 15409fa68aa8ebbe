#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "core/base/file.h"
#include "core/base/result.h"
#include "core/base/time.h"

// What the service notes of its work, for the archiving daemon's source "checkpoint"
// (docs/checkpoint.md, "The record"): one small file of JSON for each thing that happened, which
// the source removes once its journal has it.
namespace scriptorium::checkpoint {

struct Record {
  Timestamp time;
  std::string node;
  std::string scheduler;
  std::string job;
  std::string user;  // "": left out, with its id
  uid_t uid = 0;

  std::string action;  // as docs/schema/job-checkpoint-1.schema.json names it
  std::string engine;
  std::string engine_version;
  // From here on 0, "" or absent = not known, and left out of the file.
  pid_t root_pid = 0;
  std::uint64_t processes = 0;
  std::string image_path;
  std::uint64_t image_bytes = 0;
  std::string manifest_sha256;
  std::optional<std::int64_t> duration_ms;
  std::optional<std::int64_t> frozen_ms;
  std::optional<bool> runs_on;  // of "made": the program was not ended
  std::int64_t tries = 0;
  std::string reason;
  std::optional<int> exit_code;
};

// Pure. JSON in one line, at most kMostRecordBytes: a path that is too long is left out.
inline constexpr std::size_t kMostRecordBytes = 8192;
std::string record_text(const Record& record);

// Writes a record as the user of this process into a folder where all users may make files
// (docs/checkpoint.md, "Records of users"). The archiving daemon has the user from the file. After
// any error, which does not matter to a job, there is no record; kVanished: nothing collects them
// on this node.
Result<void> write_user_record(const std::string& folder, const Record& record);

// The folder of the records. Its owner is the service's user, and its group, which is the archiving
// daemon's, may remove them. It is bounded, in all and for each user, as nothing may collect them.
// Nothing is synced to the disk: a record may be lost by a power cut, and delays no job.
// Threads: one.
class RecordFolder {
 public:
  static constexpr std::size_t kMostRecords = 4096;
  static constexpr std::size_t kMostOfOneUser = 1024;

  // Makes the folder if it is missing, in one that exists. kInvalidConfig: another user but the
  // group could change it.
  static Result<RecordFolder> open(const std::string& path, gid_t group,
                                   std::size_t most = kMostRecords,
                                   std::size_t most_of_one_user = kMostOfOneUser);

  // kExhausted: there are too many already. After any error there is no record.
  Result<void> write(const Record& record);

 private:
  RecordFolder(UniqueFd directory, std::size_t most, std::size_t most_of_one_user)
      : directory_(std::move(directory)), most_(most), most_of_one_user_(most_of_one_user) {}

  UniqueFd directory_;
  std::size_t most_;
  std::size_t most_of_one_user_;
  std::int64_t last_name_ = 0;
};

}  // namespace scriptorium::checkpoint
