#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/api/event.h"
#include "core/base/result.h"
#include "core/base/time.h"

namespace scriptorium::checkpoint_records {

// A longer file is not a record.
inline constexpr std::size_t kMostRecordBytes = 8192;

// Pure: the event of a record of scriptorium-checkpointd (docs/checkpoint.md, "The record"). Its id
// is the same each time that the record is read. kPermanent says what is wrong. Members that are
// not known are left out.
Result<Event> parse_record(std::string_view text, const std::string& cluster);

// What the kernel knows of a file that a program of a job has written.
struct FileFacts {
  std::string user;  // the owner's name
  std::uint32_t uid = 0;
  Timestamp changed;
};
// Pure: the event of a record that scriptorium-run or another program of a user has written. User
// and time are those of the file, whatever the text says; the host is left to core. Its owner is
// not verified, as nobody has confirmed that the job is that user's. The id is never that of a
// record of the service or of another user.
Result<Event> parse_user_record(std::string_view text, const std::string& cluster,
                                const FileFacts& file);

}  // namespace scriptorium::checkpoint_records
