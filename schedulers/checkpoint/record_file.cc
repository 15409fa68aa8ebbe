#include "schedulers/checkpoint/record_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "schedulers/checkpoint/parse.h"

namespace scriptorium::checkpoint_records {

std::string_view why_no_record(const struct stat& file) noexcept {
  if (!S_ISREG(file.st_mode)) return "it is not a regular file";
  if (file.st_nlink != 1) return "it has a second name";
  if (file.st_size > static_cast<off_t>(kMostRecordBytes)) return "it is too large";
  return "";
}

bool remove_entry(int directory, const std::string& name) noexcept {
  return ::unlinkat(directory, name.c_str(), 0) == 0 || errno == ENOENT ||
         (errno == EISDIR && ::unlinkat(directory, name.c_str(), AT_REMOVEDIR) == 0);
}

}  // namespace scriptorium::checkpoint_records
