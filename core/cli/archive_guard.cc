#include "core/cli/archive_guard.h"

#include <unistd.h>

#include <filesystem>
#include <utility>

#include "core/base/time.h"
#include "core/cli/console.h"
#include "core/daemon/state_dir.h"
#include "core/journal/journal.h"

namespace scriptorium::cli {

namespace fs = std::filesystem;

bool directories_overlap(const std::string& one, const std::string& other) {
  std::error_code failed;
  const fs::path a = fs::weakly_canonical(one, failed);
  if (failed) return false;
  const fs::path b = fs::weakly_canonical(other, failed);
  if (failed) return false;
  const auto [in_a, in_b] = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  return in_a == a.end() || in_b == b.end();
}

Result<void> ArchiveGuard::take_one(const std::string& directory, const std::string& who,
                                    Logger& log) {
  auto lock = lock_state_dir(directory);
  if (!lock) {
    if (lock.error().kind() != ErrorKind::kExhausted) return lock.error();
    return Error{ErrorKind::kExhausted, who + " runs and may write to this archive (" +
                                            lock.error().message() +
                                            "); stop it, run this command again, then start it"};
  }
  locks_.push_back(*std::move(lock));
  if (::access((directory + "/journal.db").c_str(), F_OK) != 0) return {};
  auto journal = Journal::open({.directory = directory, .read_only = true}, log, system_clock());
  if (!journal) return journal.error();
  for (const Journal::SinkState& sink : (*journal)->usage().sinks) {
    waiting_ += sink.waiting + sink.dead;
    if (sink.in_archive == 0) continue;
    return Error{ErrorKind::kTransient,
                 count_of(sink.in_archive, "event") + " for the sink " + sink.name +
                     " must still be fetched from an archive as it is: start " + who +
                     ", wait until \"scriptorium sinks list\" no longer says \"will be refilled "
                     "from archive\" (or give the events up with \"scriptorium sinks forget " +
                     sink.name + "\"), stop it, and run this command again"};
  }
  return {};
}

Result<ArchiveGuard> ArchiveGuard::take(const std::string& state_dir, Logger& log) {
  ArchiveGuard guard;
  std::error_code failed;
  // Nothing was ever started here.
  if (!fs::exists(state_dir, failed)) return guard;
  if (auto taken = guard.take_one(state_dir, "the daemon", log); !taken) return taken.error();
  // import::import_directory(): one for all sinks, and one for each sink.
  for (const auto& entry : fs::directory_iterator(state_dir, failed)) {
    const std::string name = entry.path().filename();
    if ((name != "import" && !name.starts_with("import-")) || !entry.is_directory(failed)) continue;
    if (auto taken = guard.take_one(entry.path(), "an import", log); !taken) return taken.error();
  }
  return guard;
}

}  // namespace scriptorium::cli
