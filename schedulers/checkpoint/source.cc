#include "schedulers/checkpoint/source.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/api/kit/path_option.h"
#include "core/base/file.h"
#include "core/base/stop_signal.h"
#include "core/base/text.h"
#include "schedulers/checkpoint/parse.h"
#include "schedulers/checkpoint/record_file.h"

namespace scriptorium::checkpoint_records {
namespace {

using std::chrono::ceil;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

// Of a folder that is not there yet, and so cannot be watched.
constexpr std::chrono::milliseconds kRetry{5'000};
// Between two readings of the users' folder.
constexpr std::chrono::milliseconds kUserPause{1'000};

const Schema<RecordsConfig>& schema() {
  static const Schema<RecordsConfig> kSchema{
      option("folder", &RecordsConfig::folder,
             "The service's option records: the folder into which it writes; an absolute path."),
      option("user_folder", &RecordsConfig::user_folder,
             "The folder into which scriptorium-run and other programs of jobs write records as "
             "their users; an absolute path; empty: none. It need not exist."),
  };
  return kSchema;
}

Result<std::vector<std::string>> names_in(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  std::filesystem::directory_iterator entry(folder, error);
  for (const std::filesystem::directory_iterator end; !error && entry != end;
       entry.increment(error)) {
    std::string name = entry->path().filename();
    if (!name.starts_with('.')) names.push_back(std::move(name));  // that is being written
  }
  if (error) return system_error("list " + folder, error.value());
  std::ranges::sort(names);  // the order of what happened
  return names;
}

Result<void> check_file(const struct stat& file, uid_t owner) {
  std::string_view why = why_no_record(file);
  if (S_ISREG(file.st_mode) && file.st_uid != owner)
    why = "it does not belong to the folder's owner";
  return why.empty() ? Result<void>() : Error{ErrorKind::kPermanent, std::string(why)};
}

void read_hints(int notify) {
  std::array<char, 4096> hints{};
  while (::read(notify, hints.data(), hints.size()) > 0) {
  }
}

// kPermanent: it is not a record.
Result<std::string> read_record(int directory, const std::string& name) {
  struct stat folder{};
  struct stat file{};
  if (::fstat(directory, &folder) != 0 ||
      ::fstatat(directory, name.c_str(), &file, AT_SYMLINK_NOFOLLOW) != 0)
    return system_error(name, errno);
  if (auto good = check_file(file, folder.st_uid); !good) return good.error();
  const UniqueFd open(
      ::openat(directory, name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!open || ::fstat(open.get(), &file) != 0) return system_error(name, errno);
  if (auto good = check_file(file, folder.st_uid); !good) return good.error();
  return read_fd(open.get(), kMostRecordBytes + 1);
}

}  // namespace

std::vector<OptionInfo> describe() { return schema().options(); }

RecordsConfig read_config(const Table& table, Problems& problems) {
  RecordsConfig config = schema().parse(table, problems);
  check_absolute_path(table, "folder", problems);
  check_absolute_path(table, "user_folder", problems, EmptyPath::kAllowed);
  return config;
}

RecordsSource::RecordsSource(RecordsConfig config, const PluginContext& context,
                             std::chrono::milliseconds rescan)
    : config_(std::move(config)),
      context_(context),
      rescan_(rescan),
      user_records_(config_.user_folder, context) {}

Result<void> RecordsSource::run(EventWriter& writer, std::stop_token stop, bool once) {
  if (once) {
    auto done = collect(writer, stop);
    return done ? user_records_.collect(writer, stop) : done;
  }
  const StopSignal signal(stop);
  const UniqueFd notify(::inotify_init1(IN_NONBLOCK | IN_CLOEXEC));
  const UniqueFd user_notify(::inotify_init1(IN_NONBLOCK | IN_CLOEXEC));
  SteadyTime users_due;
  SteadyTime no_users_before;
  while (!stop.stop_requested()) {
    // Before the folder is read, so that no record can come in between. Of one that is watched
    // already it changes nothing.
    const bool is_watched =
        ::inotify_add_watch(notify.get(), config_.folder.c_str(), IN_MOVED_TO | IN_ONLYDIR) >= 0;
    if (auto done = collect(writer, stop); !done) return done;
    if (const SteadyTime now = steady_clock::now(); now >= users_due) {
      ::inotify_add_watch(user_notify.get(), config_.user_folder.c_str(),
                          IN_CLOSE_WRITE | IN_MOVED_TO | IN_ONLYDIR);
      if (auto done = user_records_.collect(writer, stop); !done) return done;
      users_due = now + rescan_;
      no_users_before = steady_clock::now() + kUserPause;
    }
    const auto pause = ceil<milliseconds>(no_users_before - steady_clock::now());
    const bool pauses = pause > milliseconds::zero();
    const milliseconds wait = is_watched ? rescan_ : kRetry;
    std::array<pollfd, 3> fds = {{{signal.fd(), POLLIN, 0},
                                  {notify.get(), POLLIN, 0},
                                  {pauses ? -1 : user_notify.get(), POLLIN, 0}}};
    ::poll(fds.data(), fds.size(), static_cast<int>((pauses ? pause : wait).count()));
    read_hints(notify.get());
    if (fds[2].revents == 0) continue;
    read_hints(user_notify.get());
    users_due = {};
  }
  return {};
}

Result<void> RecordsSource::collect(EventWriter& writer, const std::stop_token& stop) {
  const UniqueFd directory(::open(config_.folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  const int error = errno;
  const auto names =
      directory ? names_in(config_.folder)
                : Result<std::vector<std::string>>(system_error("open " + config_.folder, error));
  if (!names) {
    note_unusable(config_.folder, names.error());
    return {};
  }
  repeats_.forget(config_.folder);
  std::erase_if(left_,
                [&](const std::string& name) { return !std::ranges::binary_search(*names, name); });
  std::vector<Read> batch;
  for (const std::string& name : *names) {
    if (stop.stop_requested()) break;
    if (left_.contains(name)) {
      remove(directory.get(), name);
      continue;
    }
    const auto text = read_record(directory.get(), name);
    if (!text && text.error().kind() == ErrorKind::kVanished) continue;
    if (!text && text.error().kind() != ErrorKind::kPermanent) {
      note_unusable(name, text.error());
      continue;
    }
    auto event = text ? parse_record(*text, context_.cluster) : text.error();
    if (event) {
      batch.push_back({name, *std::move(event)});
      if (batch.size() < kMostEventsOfAWrite) continue;
      if (auto done = write(writer, directory.get(), std::exchange(batch, {})); !done) return done;
      continue;
    }
    context_.log.warning("CHECKPOINT_RECORD_REFUSED",
                         "a file that is not a record of the checkpoint service is removed",
                         {{"source", context_.name},
                          {"file", printable(name)},
                          {"reason", printable(event.error().message())}});
    status_.with([](Status& status) { ++status.refused; });
    remove(directory.get(), name);
  }
  return write(writer, directory.get(), std::move(batch));
}

Result<void> RecordsSource::write(EventWriter& writer, int directory, std::vector<Read> batch) {
  if (batch.empty()) return {};
  std::vector<Event> events;
  events.reserve(batch.size());
  for (Read& read : batch) events.push_back(std::move(read.event));
  if (auto written = writer.write(std::move(events)); !written) return written;
  status_.with([&](Status& status) { status.records += batch.size(); });
  for (const Read& read : batch) remove(directory, read.name);
  return {};
}

void RecordsSource::remove(int directory, const std::string& name) {
  if (remove_entry(directory, name)) {
    left_.erase(name);
  } else {
    const int error = errno;
    left_.insert(name);
    note_unusable(name, system_error("remove", error));
  }
  status_.with([&](Status& status) { status.not_removed = left_.size(); });
}

void RecordsSource::note_unusable(const std::string& name, const Error& why) {
  if (!repeats_.allows(name, context_.clock.steady())) return;
  context_.log.warning(
      "CHECKPOINT_RECORDS_UNREADABLE",
      "records of the checkpoint service cannot be collected; tried again",
      {{"source", context_.name}, {"file", printable(name)}, {"reason", printable(why.message())}});
}

std::string RecordsSource::status_json() const {
  const Status status = status_.with([](const Status& s) { return s; });
  const UserRecords::Status users = user_records_.status();
  return nlohmann::ordered_json{{"records", status.records},
                                {"refused", status.refused},
                                {"not_removed", status.not_removed},
                                {"of_users",
                                 {{"records", users.records},
                                  {"refused", users.refused},
                                  {"dropped", users.dropped},
                                  {"not_removed", users.not_removed}}}}
      .dump();
}

}  // namespace scriptorium::checkpoint_records
