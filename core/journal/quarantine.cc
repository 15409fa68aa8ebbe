#include "core/journal/quarantine.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>

#include "core/base/fault_point.h"
#include "core/base/file.h"
#include "core/base/text.h"
#include "core/journal/salvage.h"
#include "core/journal/schema.h"

namespace scriptorium::journal {
namespace {

namespace fs = std::filesystem;

constexpr const char* kDraft = "journal.salvage";  // a salvaged journal that is not yet the journal
// In a quarantine until its salvage has become the journal.
constexpr const char* kPending = "salvage.pending";
// In a quarantine from the moment that all damaged files are in it, synced.
constexpr const char* kMoved = "salvage.moved";
constexpr const char* kWanted = "salvage.wanted";  // beside a journal found damaged while in use

Result<void> move(const std::string& from, const std::string& to) {
  if (const int code = FAULT_ERROR("journal.quarantine_rename"); code != 0)
    return system_error("rename " + from, code);
  if (::rename(from.c_str(), to.c_str()) != 0 && errno != ENOENT)
    return system_error("rename " + from, errno);
  return {};
}

// Its absence is on disk when this returns.
Result<void> remove_marker(const std::string& directory, const char* name) {
  const std::string path = directory + "/" + name;
  int code = FAULT_ERROR("journal.quarantine_unlink");
  if (code == 0 && ::unlink(path.c_str()) != 0) code = errno;
  if (code != 0 && code != ENOENT) return system_error("remove " + path, code);
  return sync_parent(path);
}

Result<void> make_marker(const std::string& directory, const char* name, std::string_view text) {
  return replace_file(directory + "/" + name, text, 0600);
}

Result<void> move_files(const std::string& directory, const std::string& bad) {
  for (const char* suffix : {"-wal", "-shm", ""}) {
    FAULT_POINT("journal.quarantine");
    const std::string name = std::string("/") + kFileName + suffix;
    if (auto result = move(directory + name, bad + name); !result) return result;
  }
  for (const std::string& moved : {bad, directory}) {
    if (auto result = sync_parent(moved + "/" + kFileName); !result) return result;
  }
  return make_marker(bad, kMoved, "");
}

}  // namespace

std::string unfinished_quarantine(const std::string& directory) {
  std::string found;
  std::error_code failed;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory, failed)) {
    if (entry.path().filename().string().starts_with("bad.") && stat_path(entry.path() / kPending))
      found = entry.path();
  }
  return found;
}

Result<std::string> new_quarantine(const std::string& directory, const Clock& clock) {
  std::string stamp = format_rfc3339(clock.now(), TimePrecision::kSeconds);
  std::erase_if(stamp, [](char c) { return c == ':' || c == '-'; });
  for (int i = 1; i < 1000; ++i) {
    std::string path = directory + "/bad." + stamp + (i == 1 ? "" : "-" + std::to_string(i));
    if (::mkdir(path.c_str(), 0700) == 0) {
      if (auto result = make_marker(path, kPending, ""); !result) return result.error();
      if (auto result = sync_parent(path); !result) return result.error();
      return path;
    }
    if (errno != EEXIST) return system_error("mkdir " + path, errno);
  }
  return Error{ErrorKind::kTransient, "no free name for a quarantine in " + directory};
}

// Until kMoved exists, whatever has the journal's name belongs to the damaged one. From then on, a
// database of that name is the salvaged one, perhaps with new events: it must not be replaced.
Result<void> quarantine(const std::string& directory, const std::string& bad,
                        const std::string& damage, Logger& log, OpenReport& report) {
  const std::string file = directory + "/" + kFileName;
  if (!stat_path(bad + "/" + kMoved)) {
    if (auto result = move_files(directory, bad); !result) return result;
  }
  // Only the last step was missing.
  if (stat_path(file)) return remove_marker(bad, kPending);
  FAULT_POINT("journal.quarantine");
  const std::string draft = directory + "/" + kDraft;
  auto salvaged = salvage(bad, draft, log);
  if (!salvaged) return salvaged.error();
  FAULT_POINT("journal.quarantine");
  if (auto result = move(draft, file); !result) return result;
  if (auto result = sync_parent(file); !result) return result;
  FAULT_POINT("journal.quarantine");
  if (auto result = remove_marker(bad, kPending); !result) return result;
  report.quarantined = bad;
  report.salvaged_events = salvaged->events;
  report.lost_events = salvaged->lost_events;
  report.damage = damage;
  log.error("JOURNAL_QUARANTINED",
            "the journal was damaged; it was put aside, and what could be read of it is in a new "
            "one; keep the old one until you know what was lost",
            {{"quarantine", bad},
             {"damage", printable(damage, 400)},
             {"salvaged_events", salvaged->events},
             {"lost_events", salvaged->lost_events},
             {"dead_letters", salvaged->dead_letters},
             {"marks", salvaged->marks},
             {"redelivers", salvaged->redelivers ? "yes" : "no"}});
  return {};
}

Result<void> ask_for_salvage(const std::string& directory, const std::string& why) {
  return make_marker(directory, kWanted, why);
}

Result<std::string> asked_for_salvage(const std::string& directory) {
  return read_file(directory + "/" + kWanted);
}

Result<void> withdraw_salvage(const std::string& directory) {
  return remove_marker(directory, kWanted);
}

}  // namespace scriptorium::journal
