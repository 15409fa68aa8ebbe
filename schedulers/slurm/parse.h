#pragma once

#include <cstdint>
#include <string_view>

#include "core/api/spool_adapter.h"
#include "core/base/result.h"

// What slurmctld's spool holds, as pure functions: no file, no clock, no process.
//
// An entry is the directory hash.D/job.N of the StateSaveLocation, D being the last digit of the
// job id N, with
//   environment   u32 count in the host's byte order, then `count` strings, each ended by NUL, then
//                 the end
//   script        the submitted bytes, then one NUL, then the end
// slurmctld writes them in this order, without a temporary name, so both may be seen half written;
// and both tell exactly whether they are whole. (Read from Slurm 20.02 to 26.05, where neither
// names nor formats changed.)
namespace scriptorium::slurm {

// Longest texts that Slurm itself takes; what is longer in an environment is not believed even as a
// hint.
inline constexpr std::size_t kMaxPath = 4096;

SpoolPath classify_path(std::string_view path) noexcept;

// The state of a file "environment". Costs one memchr for each string.
struct EnvironmentShape {
  enum class State {
    kWhole,
    kShort,      // more bytes may come
    kMalformed,  // no further byte can make it whole: there is more than `count` strings
  };
  State state = State::kShort;
  std::uint32_t count = 0;    // as the header says; 0 while that is not whole
  std::uint32_t strings = 0;  // NUL-ended ones that are there, at most `count`
};
EnvironmentShape environment_shape(std::string_view bytes) noexcept;

Assessment assess_entry(const SpoolEntry& entry) noexcept;

// The entry as a job: exact bytes, and what the script's text says. The owner, account and
// partition stay unknown: nothing in the spool says them that the user did not write. kVanished if
// the entry has no file at all.
Result<ParsedJob> parse_entry(const SpoolEntry& entry);

}  // namespace scriptorium::slurm
