#include "schedulers/checkpoint/user_records.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "core/base/accounts.h"
#include "core/base/file.h"
#include "core/base/text.h"
#include "schedulers/checkpoint/parse.h"
#include "schedulers/checkpoint/record_file.h"

namespace scriptorium::checkpoint_records {
namespace {

struct CloseDirectory {
  void operator()(DIR* directory) const noexcept { ::closedir(directory); }
};

std::int64_t changed_ns(const struct stat& file) {
  return file.st_ctim.tv_sec * kSecond + file.st_ctim.tv_nsec;
}

struct UserFile {
  uid_t owner = 0;
  Timestamp changed;
  std::string text;
};

// kPermanent: it is not a record. kVanished: it is gone.
Result<UserFile> read_user_file(int directory, const std::string& name) {
  const UniqueFd open(
      ::openat(directory, name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  struct stat file{};
  if (!open || ::fstat(open.get(), &file) != 0) {
    const int error = errno;
    if (error == ENOENT) return system_error("open it", error);
    return Error{ErrorKind::kPermanent, system_error("open it", error).message()};
  }
  if (const std::string_view why = why_no_record(file); !why.empty())
    return Error{ErrorKind::kPermanent, std::string(why)};
  auto text = read_fd(open.get(), kMostRecordBytes + 1);
  if (!text) return Error{ErrorKind::kPermanent, text.error().message()};
  return UserFile{file.st_uid, {changed_ns(file)}, *std::move(text)};
}

}  // namespace

// Events whose files are removed once the journal has them.
class UserRecords::Batch {
 public:
  Batch(UserRecords& records, EventWriter& writer, int directory)
      : records_(records), writer_(writer), directory_(directory) {}

  int directory() const { return directory_; }

  Result<void> add(std::string name, Event event) {
    names_.push_back(std::move(name));
    events_.push_back(std::move(event));
    return events_.size() < kMostEventsOfAWrite ? Result<void>() : write();
  }
  Result<void> write() {
    if (events_.empty()) return {};
    if (auto written = writer_.write(std::exchange(events_, {})); !written) return written;
    records_.status_.with([&](Status& status) { status.records += names_.size(); });
    for (const std::string& name : std::exchange(names_, {})) remove_entry(directory_, name);
    return {};
  }

 private:
  UserRecords& records_;
  EventWriter& writer_;
  const int directory_;
  std::vector<std::string> names_;
  std::vector<Event> events_;
};

Result<void> UserRecords::collect(EventWriter& writer, const std::stop_token& stop) {
  if (folder_.empty()) return {};
  const UniqueFd directory(
      ::open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  const int error = errno;
  if (!directory && error == ENOENT) return {};
  auto users = directory ? find(directory.get(), stop)
                         : Result<std::map<uid_t, Found>>(system_error("open", error));
  if (!users) {
    if (repeats_.allows(folder_, context_.clock.steady())) {
      context_.log.warning("CHECKPOINT_RECORDS_UNREADABLE",
                           "records of programs cannot be collected; tried again",
                           {{"source", context_.name},
                            {"file", printable(folder_)},
                            {"reason", printable(users.error().message())}});
    }
    return {};
  }
  Batch batch(*this, writer, directory.get());
  for (auto& [uid, found] : *users) {
    if (stop.stop_requested()) break;
    if (auto taken = take(uid, found, batch); !taken) return taken;
    report(uid, found);
  }
  if (auto written = batch.write(); !written) return written;
  status_.with([this](Status& status) { status.not_removed = not_removed_; });
  return {};
}

// Removes what cannot be a record, and what exceeds the number of its user.
Result<std::map<uid_t, UserRecords::Found>> UserRecords::find(int directory,
                                                              const std::stop_token& stop) {
  not_removed_ = 0;
  // A descriptor of its own: the offset of a copy would be shared.
  UniqueFd own(::openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  const std::unique_ptr<DIR, CloseDirectory> list(own ? ::fdopendir(own.get()) : nullptr);
  if (!list) return system_error("list", errno);
  own.release();
  std::map<uid_t, Found> users;
  while (const dirent* entry = ::readdir(list.get())) {  // NOLINT(concurrency-mt-unsafe)
    if (stop.stop_requested()) break;
    const std::string name = entry->d_name;
    struct stat file{};
    if (name == "." || name == ".." ||
        ::fstatat(directory, name.c_str(), &file, AT_SYMLINK_NOFOLLOW) != 0)
      continue;
    Found& found = users[file.st_uid];
    const std::string_view why = why_no_record(file);
    if (why.empty() && found.files.size() < kMostWaiting) {
      found.files.push_back({changed_ns(file), name});
    } else if (!remove_entry(directory, name)) {
      ++not_removed_;
    } else if (why.empty()) {
      ++found.dropped;
    } else {
      ++found.refused;
      found.reason = why;
    }
  }
  return users;
}

Result<void> UserRecords::take(uid_t uid, Found& found, Batch& batch) {
  if (found.files.empty()) return {};
  const auto user = find_user(uid);
  if (!user) return {};  // tried again
  std::ranges::sort(found.files);
  for (const WaitingFile& waiting : found.files) {
    auto file = read_user_file(batch.directory(), waiting.name);
    if (!file && file.error().kind() == ErrorKind::kVanished) continue;
    const std::int64_t age_ns =
        file ? context_.clock.now().nanoseconds - file->changed.nanoseconds : 0;
    if (file && !file->text.ends_with('\n') && std::abs(age_ns) < kUnfinishedSeconds * kSecond)
      continue;
    auto event =
        !file ? Result<Event>(file.error())
        : !*user || file->owner != uid
            ? Error{ErrorKind::kPermanent, "its owner is not a user of this node"}
            : parse_user_record(file->text, context_.cluster, {(*user)->name, uid, file->changed});
    if (event) {
      if (!may_take(uid)) return {};
      if (auto added = batch.add(waiting.name, *std::move(event)); !added) return added;
    } else if (remove_entry(batch.directory(), waiting.name)) {
      ++found.refused;
      found.reason = event.error().message();
    }
  }
  return {};
}

bool UserRecords::may_take(uid_t uid) {
  const SteadyTime now = context_.clock.steady();
  constexpr double kMost = kMostAMinute;
  const auto left = [&](const Allowance& allowance) {
    const std::chrono::duration<double, std::ratio<60>> minutes = now - allowance.since;
    return std::min(kMost, allowance.left + minutes.count() * kMost);
  };
  std::erase_if(allowances_, [&](const auto& each) { return left(each.second) >= kMost; });
  Allowance& allowance = allowances_.try_emplace(uid, Allowance{kMost, now}).first->second;
  allowance = {left(allowance), now};
  if (allowance.left < 1) return false;
  allowance.left -= 1;
  return true;
}

void UserRecords::report(uid_t uid, const Found& found) {
  if (found.refused + found.dropped == 0) return;
  status_.with([&](Status& status) {
    status.refused += found.refused;
    status.dropped += found.dropped;
  });
  context_.log.warning("CHECKPOINT_USER_RECORDS_REMOVED",
                       "files of a user were removed that are not records, or too many",
                       {{"source", context_.name},
                        {"uid", uid},
                        {"refused", found.refused},
                        {"reason", printable(found.reason)},
                        {"dropped", found.dropped}});
}

}  // namespace scriptorium::checkpoint_records
