#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "core/api/spool_adapter.h"
#include "core/base/result.h"

// What pbs_server's folder server_priv/jobs holds, as pure functions: no file, no clock, no
// process.
//
// An entry is all files of one stem, in the folder itself or in one of its folders 0 to 9
// (use_jobs_subdirs):
//   STEM.SC  the script, in chunks of 65,536 bytes, each of which is opened, appended and closed;
//   never renamed or rewritten STEM.JB  the job's record; STEM.TA instead of it for an array
//   STEM.JC  the record while it is written: closed, linked into the place of .JB or .TA, unlinked
// The stem is the job id without an array's brackets, cut at 61 characters, and with another last
// letter if the name was taken; so it ties files together and says nothing else. An array's tasks
// are N-i.HOST.JB and have no script of their own. (Read from and tried with 4.2 to 6.1, which one
// spool may mix.)
namespace scriptorium::torque {

inline constexpr std::uint64_t kScriptChunk = 65'536;
// How long a script may rest before what is there is taken for all there is. The gap between two
// chunks is bounded by the network and the client alone.
inline constexpr std::chrono::milliseconds kChunkGap{1500};
// A later chunk that is being written at this moment can make a script look as if its last, short
// one were in.
inline constexpr std::chrono::milliseconds kLongScriptRest{200};

SpoolPath classify_path(std::string_view path) noexcept;
std::string path_of_file(std::string_view entry, std::string_view file);
// The files that a look reads; .JC is read by whoever gets it together with its closing alone, as
// it may be half written.
std::span<const std::string_view> entry_files() noexcept;

Assessment assess_entry(const SpoolEntry& entry);

// The entry as a job. Owner, id and account come from the record, which pbs_server alone can write.
// kVanished if there is no script: then a name was reserved for a job that never came, or it was
// deleted.
Result<ParsedJob> parse_entry(const SpoolEntry& entry);

}  // namespace scriptorium::torque
