#pragma once

#include <sys/stat.h>

#include <cstddef>
#include <string>
#include <string_view>

// What the folder of the service's records and that of users' records have in common. Threads: any.
namespace scriptorium::checkpoint_records {

inline constexpr std::size_t kMostEventsOfAWrite = 256;

// Why a file is no record, by what the kernel knows of it; "" = it may be one.
std::string_view why_no_record(const struct stat& file) noexcept;

// Removes a file, or a folder that is empty; true also if it is not there. False: see errno.
bool remove_entry(int directory, const std::string& name) noexcept;

}  // namespace scriptorium::checkpoint_records
