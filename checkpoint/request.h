#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/base/result.h"

// What job scripts write into the request spool. Pure: no file is read here.
//
//   4711.checkpoint   "PID\nDIRECTORY\n"   save the tree of process PID into DIRECTORY/checkpoint
//   4711.resume       "DIRECTORY\n"        start it again from there, in job 4711
//
// Lines before the directory may be options, which scriptorium-run writes. Others are ignored.
//
//   runs_on           the program is saved and runs on
//   keep N            of the images, the newest included; not more than `generations`
//   keep_job          the job is not ended when nothing is left to run: its script knows what to do
namespace scriptorium::checkpoint {

enum class Action : std::uint8_t { kCheckpoint, kResume };

// A request is a small text; a longer file is not one.
inline constexpr std::size_t kMostRequestBytes = 4096;

struct RequestName {
  std::string job;  // [0-9]+(_[0-9]+)?
  Action action = Action::kCheckpoint;
};
// Nothing for a file that is not a request by its name: another ending. An ending with a bad id is
// a request whose `job` is "".
std::optional<RequestName> parse_request_name(std::string_view file);

struct RequestBody {
  pid_t pid = 0;  // of kCheckpoint
  std::string directory;
  bool runs_on = false;
  bool keeps_job = false;
  std::int64_t keep = 0;  // 0 = as many as the configuration allows
};
// As the scripts' authors expect: the first line is the pid, the last one the directory, which is
// absolute. kPermanent says what is wrong.
Result<RequestBody> parse_request_body(Action action, std::string_view text);

// The text ends in a newline and can be parsed. A script that opens the file twice has written only
// one line of two when it closes it first.
bool looks_complete(Action action, std::string_view text);

}  // namespace scriptorium::checkpoint
