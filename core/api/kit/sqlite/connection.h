#pragma once

#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "core/base/result.h"
#include "core/base/time.h"

struct sqlite3;
struct sqlite3_stmt;

namespace scriptorium::sqlite {

// One SQLite connection. Errors stick: after the first one every further step does nothing, until
// take_error(). A transaction is therefore a plain list of steps with one check before its commit,
// where a failure anywhere means rollback. Threads: one at a time.
class Connection {
 public:
  // kImmutable ignores -wal and takes no locks: for a file that no other process has open.
  enum class Mode { kReadWrite, kReadOnly, kImmutable };
  // `name` begins the messages of its errors.
  static Result<std::unique_ptr<Connection>> open(const std::string& file, Mode mode,
                                                  std::string name = "journal");
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  bool execute(const std::string& sql);  // one or more statements without parameters
  // One statement, prepared for this call alone.
  template <typename... Values>
  bool run(const std::string& sql, const Values&... values);
  // The first column of its first row.
  template <typename... Values>
  std::optional<std::int64_t> integer(const std::string& sql, const Values&... values);
  template <typename... Values>
  std::uint64_t number(const std::string& sql, const Values&... values);  // 0 if there is no row
  template <typename... Values>
  std::optional<std::string> text(const std::string& sql, const Values&... values);
  std::int64_t changes() const;
  std::int64_t last_insert_id() const;
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
  Connection(sqlite3* handle, std::string name) : handle_(handle), name_(std::move(name)) {}

  sqlite3* handle_;
  std::string name_;
  std::optional<Error> error_;
  bool damaged_ = false;
  int wal_pages_ = 0;
};

// How a text is bound to a parameter; a plain string is bound as text.
struct Blob {
  std::string_view bytes;
};
// A blob that SQLite does not copy: it must live until the statement has run.
struct Large {
  std::string_view bytes;
};
// 64 lower-case hex digits as 32 bytes, anything else as text.
struct Id {
  std::string_view event_id;
};
// What reads such a column back.
struct IdInto {
  std::string& event_id;
};

// One statement for repeated use, prepared when it is first used. A failure is the connection's
// error.
class Statement {
 public:
  Statement(Connection& connection, std::string sql)
      : connection_(&connection), sql_(std::move(sql)) {}

  // The next parameters, in order: numbers, times, text, Blob, Large, Id; NULL for nullptr or an
  // empty optional.
  template <typename... Values>
  Statement& bind(const Values&... values) {
    prepare();
    (bind_one(values), ...);
    return *this;
  }

  bool step();  // true: there is a row. False: at the end (and reset), or failed
  // Binds the last parameters and runs to the end; true if nothing failed.
  template <typename... Values>
  bool run(const Values&... values) {
    bind(values...);
    return finish();
  }
  // Binds the last parameters; the first column of the first row, if there is one.
  template <typename... Values>
  std::optional<std::int64_t> first(const Values&... values) {
    bind(values...);
    return finish_first();
  }
  void reset() noexcept;

  // Of the current row. Views are valid until the next step or reset.
  std::int64_t integer(int column) const;
  std::uint64_t number(int column) const { return static_cast<std::uint64_t>(integer(column)); }
  double real(int column) const;
  std::string_view text(int column) const;  // or blob
  std::string id(int column) const;         // that was bound as Id
  bool is_null(int column) const;
  // Assigns the columns from the first on: numbers, times and text; IdInto for an id. An optional
  // becomes empty at NULL.
  template <typename... Values>
  void read(Values&&... values) const {
    int column = 0;
    (read_one(column++, values), ...);
  }

 private:
  template <typename Value>
    requires std::integral<Value> || std::is_enum_v<Value>
  void bind_one(Value value) {
    bind_integer(static_cast<std::int64_t>(value));
  }
  template <typename Value>
  void bind_one(const std::optional<Value>& value) {
    value ? bind_one(*value) : bind_one(nullptr);
  }
  void bind_one(std::string_view text);
  void bind_one(Blob blob);
  void bind_one(Large blob);
  void bind_one(Id id);
  void bind_one(std::nullptr_t);
  void bind_one(Timestamp time) { bind_integer(time.nanoseconds); }
  void bind_one(double value);
  void bind_integer(std::int64_t value);

  template <typename Value>
    requires std::integral<Value> || std::is_enum_v<Value>
  void read_one(int column, Value& value) const {
    value = static_cast<Value>(integer(column));
  }
  template <typename Value>
  void read_one(int column, std::optional<Value>& value) const {
    value.reset();
    if (!is_null(column)) read_one(column, value.emplace());
  }
  void read_one(int column, double& value) const { value = real(column); }
  void read_one(int column, std::string& value) const { value = text(column); }
  void read_one(int column, Timestamp& value) const { value = {integer(column)}; }
  void read_one(int column, const IdInto& into) const { into.event_id = id(column); }

  struct Finalize {
    void operator()(sqlite3_stmt* statement) const noexcept;
  };
  void prepare();
  bool finish();
  std::optional<std::int64_t> finish_first();

  Connection* connection_;
  std::string sql_;
  std::unique_ptr<sqlite3_stmt, Finalize> statement_;
  int next_ = 1;
};

template <typename... Values>
bool Connection::run(const std::string& sql, const Values&... values) {
  return Statement(*this, sql).run(values...);
}
template <typename... Values>
std::optional<std::int64_t> Connection::integer(const std::string& sql, const Values&... values) {
  return Statement(*this, sql).first(values...);
}
template <typename... Values>
std::optional<std::string> Connection::text(const std::string& sql, const Values&... values) {
  Statement statement(*this, sql);
  if (!statement.bind(values...).step()) return std::nullopt;
  return std::string(statement.text(0));
}
template <typename... Values>
std::uint64_t Connection::number(const std::string& sql, const Values&... values) {
  return static_cast<std::uint64_t>(integer(sql, values...).value_or(0));
}

}  // namespace scriptorium::sqlite
