#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "core/base/result.h"

struct sqlite3;
struct sqlite3_stmt;

namespace scriptorium::journal {

// One SQLite connection. Errors stick: after the first one every further step does nothing, until
// take_error(). A transaction is therefore a plain list of steps with one check before its commit,
// where a failure anywhere means rollback. Threads: one at a time.
class Connection {
 public:
  // kImmutable ignores -wal and takes no locks: for a file that no other process has open.
  enum class Mode { kReadWrite, kReadOnly, kImmutable };
  static Result<std::unique_ptr<Connection>> open(const std::string& file, Mode mode);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  bool execute(const char* sql);
  std::optional<std::int64_t> integer(const char* sql);  // first column of the first row
  std::uint64_t number(const char* sql);                 // the same; 0 if there is none
  std::optional<std::string> text(const char* sql);
  std::int64_t changes() const;
  bool in_transaction() const;
  void rollback() noexcept;          // if a transaction is open; works even after an error
  void reset_statements() noexcept;  // ends every read snapshot

  // From now on, checkpoints only on demand; wal_pages() is then the length of -wal after the last
  // commit.
  void manual_checkpoints();
  std::uint64_t wal_pages() const noexcept { return static_cast<std::uint64_t>(wal_pages_); }
  // Moves -wal into the database, except for what readers of an older state still need, and waits
  // this long for such readers. True: all of it, and the next commit restarts the -wal.
  bool checkpoint(std::chrono::milliseconds patience);

  bool ok() const noexcept { return !error_; }
  // Whether the current or the last taken error was damage of the file.
  bool damaged() const noexcept { return damaged_; }
  void fail(std::string_view what);  // takes SQLite's own code and message
  void fail(Error error);
  std::optional<Error> take_error();
  sqlite3* handle() const noexcept { return handle_; }

 private:
  explicit Connection(sqlite3* handle) : handle_(handle) {}

  sqlite3* handle_;
  std::optional<Error> error_;
  bool damaged_ = false;
  int wal_pages_ = 0;
};

// One prepared statement, for repeated use. Parameters are bound in order by bind_*(). SQLite
// copies text and blobs, except those of bind_large(), which must live until the statement has run.
class Statement {
 public:
  Statement() = default;
  Statement(Connection& connection, const char* sql);  // a failure is the connection's error
  Statement(Statement&& other) noexcept;
  Statement& operator=(Statement&& other) noexcept;
  ~Statement();

  Statement& bind(std::int64_t value);
  Statement& bind_number(std::uint64_t value) { return bind(static_cast<std::int64_t>(value)); }
  Statement& bind_text(std::string_view value);
  Statement& bind_blob(std::string_view value);
  Statement& bind_large(std::string_view value);
  // 64 lower-case hex digits as 32 bytes, anything else as text.
  Statement& bind_id(std::string_view event_id);
  Statement& bind_null();

  bool step();  // true: there is a row. False: at the end (and reset), or failed
  bool run();   // to the end; true if nothing failed
  void reset() noexcept;

  // Of the current row. Views are valid until the next step or reset.
  std::int64_t integer(int column) const;
  std::uint64_t number(int column) const { return static_cast<std::uint64_t>(integer(column)); }
  std::string_view text(int column) const;  // or blob
  std::string id(int column) const;         // what bind_id() stored
  bool is_null(int column) const;

 private:
  Connection* connection_ = nullptr;
  sqlite3_stmt* statement_ = nullptr;
  int next_ = 1;
};

}  // namespace scriptorium::journal
