#include "checkpoint/record.h"

#include <fcntl.h>
#include <sys/fsuid.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <nlohmann/json.hpp>

#include "checkpoint/folder.h"
#include "core/base/text.h"

namespace scriptorium::checkpoint {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kRecordFormat = 1;
constexpr const char* kNewRecord = ".new";
// The group removes records, which are the service's own: with the bit, it has what is made there.
constexpr mode_t kFolderMode = 02770;
constexpr std::string_view kEnding = ".json";
constexpr double kMillisecond = 0.001;

void add_text(Json& json, const char* name, const std::string& text) {
  if (!text.empty() && is_utf8(text)) json[name] = text;
}

template <typename Number>
void add_number(Json& json, const char* name, Number number) {
  if (number > 0) json[name] = number;
}

Json record_json(const Record& record, bool with_path) {
  Json checkpoint{{"action", record.action}};
  add_text(checkpoint, "engine", record.engine);
  add_text(checkpoint, "engine_version", record.engine_version);
  add_number(checkpoint, "root_pid", record.root_pid);
  add_number(checkpoint, "processes", record.processes);
  if (with_path) add_text(checkpoint, "image_path", record.image_path);
  add_number(checkpoint, "image_bytes", record.image_bytes);
  add_text(checkpoint, "manifest_sha256", record.manifest_sha256);
  if (record.duration_ms)
    checkpoint["duration_seconds"] = static_cast<double>(*record.duration_ms) * kMillisecond;
  if (record.frozen_ms)
    checkpoint["frozen_seconds"] = static_cast<double>(*record.frozen_ms) * kMillisecond;
  if (record.runs_on) checkpoint["runs_on"] = *record.runs_on;
  add_number(checkpoint, "tries", record.tries);
  add_text(checkpoint, "reason", record.reason);
  if (record.exit_code) checkpoint["exit_code"] = *record.exit_code;
  Json json{{"format", kRecordFormat},
            {"time", format_rfc3339(record.time, TimePrecision::kMilliseconds)},
            {"node", record.node},
            {"scheduler", record.scheduler},
            {"job", record.job}};
  if (!record.user.empty())
    json["user"] = {{"name", record.user}, {"id", std::to_string(record.uid)}};
  json["checkpoint"] = std::move(checkpoint);
  return json;
}

// "1795881600123456789-1001.json": when, and whose.
std::string record_name(std::int64_t when, uid_t uid) {
  return std::to_string(when) + "-" + std::to_string(uid) + std::string(kEnding);
}

// A process without CAP_CHOWN can give a new folder only to a group that it is in, and one that has
// CAP_SETGID can be in any.
Result<void> make_folder(const std::string& path, gid_t group) {
  const gid_t own = ::setfsgid(group);
  const bool made = ::mkdir(path.c_str(), 0770) == 0;
  const int error = errno;
  // chmod() would leave the bit out for a group that the caller is not in. umask does not count.
  const bool opened = !made || ::chmod(path.c_str(), kFolderMode) == 0;
  const int mode_error = errno;
  ::setfsgid(own);
  if (!made && error != EEXIST) return system_error("make " + path, error);
  if (!opened) return system_error("chmod " + path, mode_error);
  return {};
}

}  // namespace

std::string record_text(const Record& record) {
  const auto text = [&](bool with_path) {
    return record_json(record, with_path).dump(-1, ' ', false, Json::error_handler_t::replace) +
           "\n";
  };
  std::string whole = text(true);
  return whole.size() <= kMostRecordBytes ? whole : text(false);
}

Result<void> write_user_record(const std::string& folder, const Record& record) {
  // Others, who could take the name before, cannot know it.
  const std::string path = folder + "/" + std::to_string(record.time.nanoseconds) + "-" +
                           std::to_string(::getpid()) + std::string(kEnding);
  const UniqueFd file(
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0640));
  if (!file) return system_error("make a record", errno);
  // The folder's group reads it, whatever the umask.
  auto written = ::fchmod(file.get(), 0640) == 0 ? write_fd(file.get(), record_text(record))
                                                 : system_error("chmod a record", errno);
  if (!written) ::unlink(path.c_str());
  return written;
}

Result<RecordFolder> RecordFolder::open(const std::string& path, gid_t group, std::size_t most,
                                        std::size_t most_of_one_user) {
  if (auto made = make_folder(path, group); !made) return made.error();
  UniqueFd directory(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!directory) return system_error("open " + path, errno);
  struct stat found{};
  if (::fstat(directory.get(), &found) != 0) return system_error("open " + path, errno);
  if (found.st_uid != ::geteuid() || found.st_gid != group ||
      (found.st_mode & 07777) != kFolderMode)
    return Error{ErrorKind::kInvalidConfig,
                 path + " is not the service's own, of that group, with mode 2770"};
  return RecordFolder(std::move(directory), most, most_of_one_user);
}

Result<void> RecordFolder::write(const Record& record) {
  const auto names = names_in(directory_.get());
  if (!names) return names.error();
  const std::string ending = "-" + std::to_string(record.uid) + std::string(kEnding);
  const auto of_user = std::ranges::count_if(
      *names, [&](const std::string& name) { return name.ends_with(ending); });
  if (names->size() >= most_) {
    return Error{ErrorKind::kExhausted,
                 "there are " + std::to_string(names->size()) + " that nothing has collected"};
  }
  if (static_cast<std::size_t>(of_user) >= most_of_one_user_) {
    return Error{ErrorKind::kExhausted, "there are " + std::to_string(of_user) +
                                            " of this user that nothing has collected"};
  }
  ::unlinkat(directory_.get(), kNewRecord, 0);
  const UniqueFd file(::openat(directory_.get(), kNewRecord,
                               O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0640));
  if (!file) return system_error("make a record", errno);
  if (::fchmod(file.get(), 0640) != 0) return system_error("make a record", errno);
  if (auto written = write_fd(file.get(), record_text(record)); !written) return written;
  // In the order of what happened, also if the clock is set back, and never the name of another.
  last_name_ = std::max(record.time.nanoseconds, last_name_ + 1);
  if (::renameat(directory_.get(), kNewRecord, directory_.get(),
                 record_name(last_name_, record.uid).c_str()) != 0)
    return system_error("name a record", errno);
  return {};
}

}  // namespace scriptorium::checkpoint
