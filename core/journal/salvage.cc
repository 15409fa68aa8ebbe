#include "core/journal/salvage.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "core/base/fault_point.h"
#include "core/base/file.h"
#include "core/journal/salvager.h"
#include "core/journal/schema.h"
#include "core/journal/sqlite.h"

namespace scriptorium::journal {
namespace {

// With write() and unlink(), not std::filesystem: the test of power cuts records these calls.
Result<void> copy_file(const std::string& from, const std::string& to) {
  UniqueFd in(::open(from.c_str(), O_RDONLY | O_CLOEXEC));
  if (!in) return system_error("open " + from, errno);
  UniqueFd out(::open(to.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (!out) return system_error("open " + to, errno);
  std::string buffer(std::size_t{1} << 20, '\0');
  while (true) {
    const ssize_t n = ::read(in.get(), buffer.data(), buffer.size());
    if (n < 0) return system_error("read " + from, errno);
    if (n == 0) return {};
    if (auto result = write_fd(out.get(), {buffer.data(), static_cast<std::size_t>(n)}); !result)
      return result;
  }
}

// SQLite would take the rest of another database beside ours for ours.
Result<void> remove_database(const std::string& file) {
  for (const char* suffix : {"", "-wal", "-shm", "-journal"}) {
    const std::string path = file + suffix;
    if (::unlink(path.c_str()) != 0 && errno != ENOENT)
      return system_error("remove " + path, errno);
  }
  return {};
}

// Moves -wal into the file, so that the file alone is the whole database.
Result<void> fold_in(Connection& db, const std::string& file) {
  if (const int code = FAULT_ERROR("journal.salvage_fold"); code != 0)
    return system_error("write " + file, code);
  const auto left = db.integer("PRAGMA wal_checkpoint(TRUNCATE)");  // 0 = done, 1 = somebody reads
  if (auto error = db.take_error()) return *std::move(error);
  const auto wal = stat_path(file + "-wal");
  if (left != 0 || (wal && wal->size > 0))
    return Error{ErrorKind::kTransient, file + "-wal could not be moved into the database"};
  return {};
}

// The first page holds only what every journal of this format has: the header and where each table
// begins. The tables are created once, in one order, and never moved, so a new journal's first page
// fits every old one.
Result<void> replace_first_page(const std::string& file, const std::string& fresh) {
  auto page = read_file(fresh);
  if (!page) return page.error();
  if (page->size() < static_cast<std::size_t>(kPageSize))
    return Error{ErrorKind::kCorrupt, "short page"};
  auto state = stat_path(file);
  if (!state) return state.error();
  UniqueFd fd(::open(file.c_str(), O_WRONLY | O_CLOEXEC));
  if (!fd) return system_error("open " + file, errno);
  page->resize(static_cast<std::size_t>(kPageSize));
  const auto put = [&](std::size_t at, std::uint32_t value) {
    for (std::size_t i = 0; i < 4; ++i) (*page)[at + i] = static_cast<char>(value >> (24 - 8 * i));
  };
  put(28, static_cast<std::uint32_t>(state->size / kPageSize));  // pages in the file
  put(32, 0);  // no free pages: the copy is only read
  put(36, 0);
  put(24, 1);  // change counter, and the version for which the number of pages is valid
  put(92, 1);
  return write_fd(fd.get(), *page);
}

// A fresh copy of the damaged file, with or without its -wal: reading -wal would change the files,
// and they are evidence.
Result<void> copy_database(const std::string& from, const std::string& to, bool with_wal) {
  if (auto result = remove_database(to); !result) return result;
  if (auto result = copy_file(from, to); !result) return result;
  if (with_wal && stat_path(from + "-wal")) return copy_file(from + "-wal", to + "-wal");
  return {};
}

// Reads as much as can be read: each pass supposes more damage than the one before.
Result<void> read_damaged(Salvager& salvager, const std::string& damaged,
                          const std::string& target) {
  const std::string copy = target + ".read";
  if (auto result = copy_database(damaged, copy, true); !result) return result;
  bool complete = salvager.pass(copy, Connection::Mode::kReadWrite);
  if (!complete) {
    // Perhaps -wal belongs to another database, or is what is damaged: the database alone.
    if (auto result = copy_database(damaged, copy, false); !result) return result;
    complete = salvager.pass(copy, Connection::Mode::kImmutable);
  }
  if (!complete) {
    if (auto result = copy_database(damaged, copy, false); !result) return result;
    const std::string fresh = target + ".fresh";
    if (auto result = remove_database(fresh); !result) return result;
    if (auto result = create_empty(fresh); !result) return result;
    if (auto result = replace_first_page(copy, fresh); !result) return result;
    salvager.pass(copy, Connection::Mode::kImmutable);
    if (auto result = remove_database(fresh); !result) return result;
  }
  return remove_database(copy);
}

// Everything but the final sync.
Result<Salvaged> salvage_into(const std::string& damaged, const std::string& target, Logger& log) {
  auto opened = Connection::open(target, Connection::Mode::kReadWrite);
  if (!opened) return opened.error();
  Connection& db = **opened;
  // Synced as a whole at the end; until then it is only a draft.
  db.execute("PRAGMA synchronous=OFF");
  db.execute("BEGIN");
  Salvager salvager(db, log);
  if (stat_path(damaged)) {
    if (auto result = read_damaged(salvager, damaged, target); !result) return result.error();
  }
  // Lack of room or memory is not damage: what could not be read because of it may be there.
  if (auto error = salvager.exhausted()) return error->with_context("salvage");
  const Salvaged salvaged = salvager.finish();
  db.execute("COMMIT");
  if (auto error = db.take_error()) return error->with_context("salvage");
  if (auto result = fold_in(db, target); !result) return result.error().with_context("salvage");
  return salvaged;
}

}  // namespace

Result<void> create_empty(const std::string& file) {
  {
    UniqueFd fd(::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!fd) return system_error("create " + file, errno);
  }
  auto opened = Connection::open(file, Connection::Mode::kReadWrite);
  if (!opened) return opened.error();
  Connection& db = **opened;
  db.execute("PRAGMA page_size=" + std::to_string(kPageSize));
  db.execute("PRAGMA journal_mode=WAL");
  db.execute("PRAGMA synchronous=FULL");
  db.execute("BEGIN IMMEDIATE");
  db.execute("PRAGMA application_id=" + std::to_string(kApplicationId));
  db.execute("PRAGMA user_version=" + std::to_string(kFormatVersion));
  db.execute(kSchema);
  db.execute("COMMIT");
  if (auto error = db.take_error()) return *std::move(error);
  return {};
}

Result<Salvaged> salvage(const std::string& quarantine, const std::string& target, Logger& log) {
  if (auto result = remove_database(target); !result) return result.error();
  if (auto result = create_empty(target); !result) return result.error();
  auto salvaged = salvage_into(quarantine + "/" + kFileName, target, log);
  if (!salvaged) return salvaged;
  UniqueFd fd(::open(target.c_str(), O_RDWR | O_CLOEXEC));
  if (!fd) return system_error("open " + target, errno);
  if (auto result = sync_fd(fd.get(), target); !result) return result.error();
  return salvaged;
}

}  // namespace scriptorium::journal
