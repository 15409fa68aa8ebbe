#include "core/mail/ledger.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <nlohmann/json.hpp>

#include "core/base/sha256.h"

namespace scriptorium::mail {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kDone = "done";
constexpr std::string_view kFileEnd = ".jsonl";
constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 30;

constexpr std::array<std::pair<MailState, const char*>, 4> kStates{
    {{MailState::kClaimed, "claimed"},
     {MailState::kWaiting, "waiting"},
     {MailState::kTaken, "taken"},
     {MailState::kRefused, "refused"}}};

const char* word_of(MailState state) {
  const auto* found = std::find_if(kStates.begin(), kStates.end(),
                                   [&](const auto& pair) { return pair.first == state; });
  return found == kStates.end() ? "" : found->second;
}

std::optional<MailState> state_of(std::string_view word) {
  for (const auto& [state, text] : kStates) {
    if (word == text) return state;
  }
  return std::nullopt;
}

std::string text_at(const Json& json, const char* key) {
  return json.contains(key) && json.at(key).is_string() ? json.at(key).get<std::string>() : "";
}

std::string line_of(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string time_text(Timestamp time) { return format_rfc3339(time, TimePrecision::kSeconds); }

}  // namespace

std::string MailKey::id() const {
  std::string all;
  for (const std::string* part : {&kind, &cluster, &user, &period}) {
    all += *part;
    all += '\0';
  }
  return sha256_hex(all).substr(0, 32);
}

Result<Ledger> Ledger::open(const std::string& folder) {
  const bool is_new = !stat_path(folder);
  if (auto made = make_directories(folder, 0711); !made) return made.error();
  // Whatever the umask, the daemon's user must reach MailConfig::status_file().
  if (is_new && ::chmod(folder.c_str(), 0711) != 0) return system_error(folder, errno);
  if (auto made = make_directories(folder + "/waiting", 0700); !made) return made.error();
  const std::string name = folder + "/lock";
  UniqueFd lock(::open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!lock) return system_error(name, errno);
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK)
      return Error(ErrorKind::kTransient, name + ": another process sends mails now");
    return system_error(name, errno);
  }
  Ledger ledger(folder, std::move(lock));
  const std::unique_ptr<DIR, int (*)(DIR*)> stream(::opendir(folder.c_str()), &::closedir);
  if (stream == nullptr) return system_error(folder, errno);
  while (const dirent* entry = ::readdir(stream.get())) {
    const std::string_view file = entry->d_name;
    if (!file.ends_with(kFileEnd)) continue;
    if (auto read = ledger.read(std::string(file)); !read) return read.error();
  }
  return ledger;
}

// What follows the last newline is a step that was not written to its end, so it did not happen.
Result<void> Ledger::read(const std::string& name) {
  const std::string path = folder_ + "/" + name;
  UniqueFd fd(::open(path.c_str(), O_RDWR | O_APPEND | O_CLOEXEC | O_NOFOLLOW));
  if (!fd) return system_error(path, errno);
  auto text = read_fd(fd.get(), kMostBytes);
  if (!text) return text.error();
  const std::size_t whole = text->rfind('\n') + 1;  // npos + 1: 0
  if (whole < text->size() && ::ftruncate(fd.get(), static_cast<off_t>(whole)) != 0)
    return system_error(path, errno);
  std::size_t number = 0;
  for (std::size_t begin = 0; begin < whole; ++number) {
    const std::size_t end = text->find('\n', begin);
    if (auto taken = take_line(std::string_view(*text).substr(begin, end - begin)); !taken)
      return taken.error().with_context(path + ":" + std::to_string(number + 1));
    begin = end + 1;
  }
  files_.emplace(name.substr(0, name.size() - kFileEnd.size()), std::move(fd));
  return {};
}

Result<void> Ledger::take_line(std::string_view line) {
  const Json json = Json::parse(line, nullptr, false);
  const MailKey key{.kind = text_at(json, "kind"),
                    .cluster = text_at(json, "cluster"),
                    .user = text_at(json, "user"),
                    .period = text_at(json, "period")};
  const std::string state = text_at(json, "state");
  const auto time = parse_rfc3339(text_at(json, "time"));
  const auto known = state_of(state);
  if (key.kind.empty() || key.period.empty() || !time || (!known && state != kDone)) {
    return Error(ErrorKind::kCorrupt,
                 "is no step of a mail; no mail is sent while this line is here, because it might "
                 "say that one was sent");
  }
  if (!known) {
    done_.emplace(key.kind, key.period);
    return {};
  }
  MailEntry& entry = entries_[key];
  if (entry.state == MailState::kNone) entry.since = *time;
  entry.state = *known;
  entry.reason = text_at(json, "reason");
  if (json.contains("recipient")) entry.recipient = text_at(json, "recipient");
  return {};
}

MailEntry Ledger::find(const MailKey& key) const {
  const auto found = entries_.find(key);
  return found == entries_.end() ? MailEntry{} : found->second;
}

std::vector<std::pair<MailKey, MailEntry>> Ledger::all(MailState state) const {
  std::vector<std::pair<MailKey, MailEntry>> found;
  for (const auto& [key, entry] : entries_) {
    if (entry.state == state) found.emplace_back(key, entry);
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const auto& a, const auto& b) { return a.second.since < b.second.since; });
  return found;
}

Result<void> Ledger::write(const std::string& period, const std::string& line, bool sync) {
  const std::string path = folder_ + "/" + period + std::string(kFileEnd);
  UniqueFd& fd = files_[period];
  if (!fd) {
    fd.reset(::open(path.c_str(), O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!fd) return system_error(path, errno);
    if (auto synced = sync_parent(path); !synced) return synced;
  }
  if (auto written = write_fd(fd.get(), line); !written) return written.error().with_context(path);
  return sync ? sync_fd(fd.get(), path) : Result<void>{};
}

Result<void> Ledger::add(const MailKey& key, MailEntry entry, Timestamp now, bool sync) {
  Json json{{"kind", key.kind},     {"cluster", key.cluster},        {"user", key.user},
            {"period", key.period}, {"state", word_of(entry.state)}, {"time", time_text(now)}};
  if (entry.state == MailState::kClaimed) json["recipient"] = entry.recipient;
  if (!entry.reason.empty()) json["reason"] = entry.reason;
  if (auto written = write(key.period, line_of(json), sync); !written) return written;
  entries_[key] = std::move(entry);
  return {};
}

Result<void> Ledger::claim(const MailKey& key, const std::string& recipient, Timestamp now) {
  MailEntry entry = find(key);
  if (entry.state == MailState::kNone) entry.since = now;
  entry.state = MailState::kClaimed;
  entry.recipient = recipient;
  entry.reason.clear();
  return add(key, std::move(entry), now, true);
}

// Not synced: a power cut may forget it, and the mail is then named as one that may be lost.
Result<void> Ledger::taken(const MailKey& key, Timestamp now) {
  MailEntry entry = find(key);
  entry.state = MailState::kTaken;
  entry.reason.clear();
  auto added = add(key, std::move(entry), now, false);
  if (added) ::unlink(waiting_file(key).c_str());
  return added;
}

Result<void> Ledger::wait(const MailKey& key, const std::string& reason, std::string_view message,
                          Timestamp now) {
  if (auto kept = replace_file(waiting_file(key), message, 0600); !kept) return kept;
  MailEntry entry = find(key);
  entry.state = MailState::kWaiting;
  entry.reason = reason;
  return add(key, std::move(entry), now, true);
}

Result<void> Ledger::refused(const MailKey& key, const std::string& reason, Timestamp now) {
  MailEntry entry = find(key);
  entry.state = MailState::kRefused;
  entry.reason = reason;
  auto added = add(key, std::move(entry), now, true);
  if (added) ::unlink(waiting_file(key).c_str());
  return added;
}

Result<std::string> Ledger::message(const MailKey& key) const {
  return read_file(waiting_file(key));
}

std::string Ledger::waiting_file(const MailKey& key) const {
  return folder_ + "/waiting/" + key.id() + ".eml";
}

bool Ledger::is_done(std::string_view kind, std::string_view period) const {
  return done_.contains({std::string(kind), std::string(period)});
}

Result<void> Ledger::done(std::string_view kind, std::string_view period, Timestamp now) {
  const Json json{{"kind", kind}, {"period", period}, {"state", kDone}, {"time", time_text(now)}};
  auto written = write(std::string(period), line_of(json), true);
  if (written) done_.emplace(kind, period);
  return written;
}

}  // namespace scriptorium::mail
