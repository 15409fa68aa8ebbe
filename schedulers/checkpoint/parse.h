#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "core/api/event.h"
#include "core/base/result.h"

namespace scriptorium::checkpoint_records {

// A longer file is not a record.
inline constexpr std::size_t kMostRecordBytes = 8192;

// Pure: the event of a record of scriptorium-checkpointd (docs/checkpoint.md, "The record"). Its id
// is the same each time that the record is read. kPermanent says what is wrong. Members that are
// not known are left out.
Result<Event> parse_record(std::string_view text, const std::string& cluster);

}  // namespace scriptorium::checkpoint_records
