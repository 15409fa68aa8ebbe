#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "core/base/file.h"
#include "core/base/result.h"

// The steps on the file system from which the sink is made, none of which follows a symbolic link
// below the root or replaces an existing name. Errors are those of file_error().
namespace scriptorium::file {

// The directory `path` below the open directory `root`; "" is the root itself. kVanished if it is
// not there.
Result<UniqueFd> open_directory(int root, const std::string& path);

enum class Renamed { kDone, kTaken };

// Makes temporary names, ".NAME.tmp-<8 digits>-<8 digits>.N", that no other process or thread
// makes, and knows those of others again. Threads: any.
class TemporaryNames {
 public:
  static Result<TemporaryNames> create();
  TemporaryNames(TemporaryNames&& other) noexcept : token_(std::move(other.token_)) {}

  // `id` is an event's; only its first eight digits are used.
  std::string make(std::string_view name, std::string_view id);
  bool is_ours(std::string_view name) const;
  static bool is_temporary(std::string_view name);

 private:
  explicit TemporaryNames(std::string token) : token_(std::move(token)) {}

  std::string token_;
  std::atomic<std::uint64_t> next_{1};
};

// A new empty file that nobody else can open (mode 0600).
Result<UniqueFd> create_file(int directory, const std::string& name);

// Gives a temporary its name, atomically, never in place of something. For files and directories.
Result<Renamed> rename_into_place(int directory, const std::string& from, const std::string& to);

// What is at a name.
struct Found {
  // kOther: not a regular file, or another owner's.
  enum class Kind { kNothing, kFile, kOther } kind = Kind::kNothing;
  std::uint64_t size = 0;
};
Result<Found> inspect(int directory, const std::string& name, uid_t owner);

// At most `limit` bytes of a regular file. kVanished if it is gone or not a regular file any more.
Result<std::string> read_beneath(int directory, const std::string& name, std::uint64_t limit);

Result<void> sync_descriptor(int fd);
// Everything of the file system on which `fd` lies. Only where sync_reports_errors().
Result<void> sync_file_system(int fd);
// Since Linux 5.8 syncfs() reports lost writes; before, it reported success.
bool sync_reports_errors();
// A file system of this machine alone, whose unwritten data is ours for the most part.
bool is_local(int fd);

// Calls each(name, d_type) for every name in an open directory, until it returns false.
Result<void> list_names(int directory,
                        const std::function<bool(const char* name, unsigned char type)>& each);

// Removes what another, dead process left: temporaries that are not of `names`. Returns how many.
std::uint64_t remove_stale(int directory, const TemporaryNames& names);

}  // namespace scriptorium::file
