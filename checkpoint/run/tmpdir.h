#pragma once

#include <cstdint>
#include <string>

#include "core/base/result.h"

// The files of a job's own temporary folder, which another node does not have.
namespace scriptorium::checkpoint {

// Pure: the folder whose files go along with the images. `value` is $TMPDIR. "": there is none, or
// it is one that all jobs share, or the save directory is in it.
std::string job_tmpdir(const std::string& value, const std::string& save_dir);

// Copies this user's regular files, folders and links from one folder into another, which is made
// if it is missing; what has their names there is replaced. New folders have mode 0700.
// kPermanent: something cannot be copied, or the files are larger than `room` bytes; some of them
// may be there then.
Result<void> copy_own_files(const std::string& from, const std::string& to, std::uint64_t room);

}  // namespace scriptorium::checkpoint
