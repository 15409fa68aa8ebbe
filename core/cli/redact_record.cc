#include "core/cli/redact_record.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "core/base/accounts.h"
#include "core/base/path.h"
#include "core/base/time.h"

namespace scriptorium::cli {
namespace {

using Json = nlohmann::ordered_json;

}  // namespace

Result<RedactionRecord> RedactionRecord::open(const std::string& file, std::string by_whom) {
  UniqueFd fd(::open(file.c_str(),
                     O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600));
  if (!fd) return system_error("record " + file, errno);
  const auto made = stat_fd(fd.get());
  if (!made) return made.error();
  if (!made->is_regular())
    return Error{ErrorKind::kTransient, "record " + file + ": not a regular file"};
  // Root's record in a directory of the daemon's user belongs to that user, as all files there.
  struct stat folder{};
  const std::string above = parent_of(file);
  if (::geteuid() == 0 && made->size == 0 && !above.empty() &&
      ::stat(above.c_str(), &folder) == 0 && ::fchown(fd.get(), folder.st_uid, folder.st_gid) != 0)
    return system_error("record " + file, errno);
  return RedactionRecord(std::move(fd), file, std::move(by_whom));
}

Result<void> RedactionRecord::add(const std::string& path, const std::string& job_id,
                                  const std::vector<Redaction>& removed, bool resumed) {
  Json rules = Json::array();
  for (const Redaction& r : removed)
    rules.push_back({{"rule", r.rule}, {"where", r.where}, {"count", r.count}});
  Json line = {{"time", format_rfc3339(system_clock().now(), TimePrecision::kMilliseconds)},
               {"by", by_whom_},
               {"path", path},
               {"job_id", job_id},
               {"redactions", std::move(rules)}};
  if (resumed) line["resumed"] = true;
  auto written =
      write_fd(fd_.get(), line.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n");
  if (!written) return written.error().with_context("record " + file_);
  return sync_fd(fd_.get(), file_);
}

std::string user_running_this() {
  const auto found = find_user(::getuid());
  std::string name = found && *found ? (*found)->name : std::to_string(::getuid());
  const char* const sudo = ::getenv("SUDO_USER");
  return sudo != nullptr && *sudo != '\0' ? name + " (" + sudo + ")" : name;
}

}  // namespace scriptorium::cli
