#include "core/api/kit/sqlite/connection.h"

#include <fcntl.h>
#include <sqlite3.h>

#include <cstdarg>
#include <cstring>
#include <mutex>
#include <utility>

#include "core/base/text.h"

namespace scriptorium::sqlite {
namespace {

// Another process (sqlite3 by hand, `check`) may hold a lock for a moment.
constexpr int kBusyMs = 10'000;

bool is_lower_hex_id(std::string_view id) noexcept {
  return id.size() == 64 && id.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

// SQLite's locks are those of POSIX, which a process loses when it closes any descriptor of the
// file (https://sqlite.org/howtocorrupt.html, 2.2). The daemon does: fanotify hands it one of each
// file of the spool's file system that some process has closed after writing, also of a database
// that a command has just used. Another process then takes itself for the only one, and makes the
// shared memory of -shm once more while this one relies on it. Locks of the open file description
// (fcntl(2), F_OFD_SETLK) stay until SQLite itself closes the file. In WAL mode SQLite keeps one
// description for the locks in -shm, and one of the database for as long as any connection of the
// process has a lock on it.
int lock_by_description(int fd, int command, ...) {
  va_list arguments;
  va_start(arguments, command);
  void* const argument = va_arg(arguments, void*);
  va_end(arguments);
  switch (command) {
    case F_SETLK: command = F_OFD_SETLK; break;
    case F_SETLKW: command = F_OFD_SETLKW; break;
    case F_GETLK: command = F_OFD_GETLK; break;
    default: return ::fcntl(fd, command, argument);
  }
  static_cast<struct flock*>(argument)->l_pid = 0;  // as these commands want it
  return ::fcntl(fd, command, argument);
}

// For all connections of the process, before the first one.
void use_locks_of_descriptions() {
  static std::once_flag once;
  std::call_once(once, [] {
    sqlite3_vfs* const vfs = sqlite3_vfs_find(nullptr);
    vfs->xSetSystemCall(vfs, "fcntl", reinterpret_cast<sqlite3_syscall_ptr>(&lock_by_description));
  });
}

// A path as an SQLite URI: characters that are special in a URI are percent-encoded.
std::string uri_of(const std::string& file, Connection::Mode mode) {
  std::string uri = "file:";
  for (const char c : file) {
    if (c == '%' || c == '?' || c == '#') {
      uri += '%';
      uri += hex_encode({&c, 1});
    } else {
      uri += c;
    }
  }
  if (mode == Connection::Mode::kImmutable) uri += "?immutable=1";
  return uri;
}

// SQLite would bind NULL for a null pointer.
const char* data_of(std::string_view bytes) { return bytes.data() == nullptr ? "" : bytes.data(); }

Error sqlite_error(sqlite3* handle, int code, std::string_view what) {
  const int system = handle == nullptr ? 0 : sqlite3_system_errno(handle);
  const char* message = handle == nullptr ? sqlite3_errstr(code) : sqlite3_errmsg(handle);
  const std::string text = std::string(what) + ": " + message;
  switch (code & 0xff) {
    case SQLITE_FULL:
      return {ErrorKind::kExhausted, std::string(what) + ": no space left on device"};
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB: return {ErrorKind::kCorrupt, text};
    case SQLITE_IOERR:
    case SQLITE_CANTOPEN:
      if (system != 0) {
        const Error error = system_error(what, system);
        return {error.kind() == ErrorKind::kVanished ? ErrorKind::kTransient : error.kind(),
                error.message()};
      }
      return {ErrorKind::kTransient, text};
    case SQLITE_NOMEM: return {ErrorKind::kExhausted, text};
    case SQLITE_ERROR:
      // SQLite does not know the header's schema format (bytes 44 to 47), although that has had no
      // new value since 2006.
      if (std::strcmp(message, "unsupported file format") == 0) return {ErrorKind::kCorrupt, text};
      [[fallthrough]];
    default: return {ErrorKind::kTransient, text};
  }
}

}  // namespace

Result<std::unique_ptr<Connection>> Connection::open(const std::string& file, Mode mode,
                                                     std::string name) {
  use_locks_of_descriptions();
  sqlite3* handle = nullptr;
  const int access = mode == Mode::kReadWrite ? SQLITE_OPEN_READWRITE : SQLITE_OPEN_READONLY;
  const int code = sqlite3_open_v2(
      uri_of(file, mode).c_str(), &handle,
      access | SQLITE_OPEN_URI | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE, nullptr);
  if (code != SQLITE_OK) {
    const Error error = sqlite_error(handle, code, "open " + file);
    sqlite3_close_v2(handle);
    return error;
  }
  sqlite3_busy_timeout(handle, kBusyMs);
  return std::unique_ptr<Connection>(new Connection(handle, std::move(name)));
}

Connection::~Connection() { sqlite3_close_v2(handle_); }

bool Connection::execute(const std::string& sql) {
  if (error_) return false;
  if (sqlite3_exec(handle_, sql.c_str(), nullptr, nullptr, nullptr) != SQLITE_OK) fail(sql);
  return ok();
}

std::int64_t Connection::changes() const { return sqlite3_changes(handle_); }
std::int64_t Connection::last_insert_id() const { return sqlite3_last_insert_rowid(handle_); }
bool Connection::in_transaction() const { return sqlite3_get_autocommit(handle_) == 0; }

void Connection::rollback() noexcept {
  reset_statements();
  if (in_transaction()) sqlite3_exec(handle_, "ROLLBACK", nullptr, nullptr, nullptr);
}

void Connection::reset_statements() noexcept {
  for (sqlite3_stmt* s = sqlite3_next_stmt(handle_, nullptr); s != nullptr;
       s = sqlite3_next_stmt(handle_, s)) {
    if (sqlite3_stmt_busy(s) != 0) sqlite3_reset(s);
  }
}

void Connection::manual_checkpoints() {
  sqlite3_wal_hook(
      handle_,
      [](void* self, sqlite3*, const char*, int pages) {
        static_cast<Connection*>(self)->wal_pages_ = pages;
        return SQLITE_OK;
      },
      this);
}

bool Connection::checkpoint(std::chrono::milliseconds patience) {
  int in_wal = 0, done = 0;
  sqlite3_busy_timeout(handle_, static_cast<int>(patience.count()));
  // RESTART does what PASSIVE does, and then waits for readers for at most the busy timeout.
  const int code =
      sqlite3_wal_checkpoint_v2(handle_, nullptr, SQLITE_CHECKPOINT_RESTART, &in_wal, &done);
  sqlite3_busy_timeout(handle_, kBusyMs);
  return code == SQLITE_OK && in_wal == done;
}

void Connection::fail(std::string_view what) {
  const int code = sqlite3_extended_errcode(handle_);
  // Only the first words of the statement help a reader.
  fail(sqlite_error(handle_, code,
                    name_ + ": " + std::string(what.substr(0, what.find_first_of("(\n")))));
}

void Connection::fail(Error error) {
  if (error_) return;
  damaged_ = error.kind() == ErrorKind::kCorrupt;
  error_ = std::move(error);
}

std::optional<Error> Connection::take_error() { return std::exchange(error_, std::nullopt); }

void Statement::Finalize::operator()(sqlite3_stmt* statement) const noexcept {
  sqlite3_finalize(statement);
}

void Statement::prepare() {
  if (statement_ || !connection_->ok()) return;
  sqlite3_stmt* prepared = nullptr;
  if (sqlite3_prepare_v3(connection_->handle(), sql_.c_str(), static_cast<int>(sql_.size()) + 1,
                         SQLITE_PREPARE_PERSISTENT, &prepared, nullptr) != SQLITE_OK)
    connection_->fail(sql_);
  statement_.reset(prepared);
}

void Statement::bind_integer(std::int64_t value) {
  sqlite3_bind_int64(statement_.get(), next_++, value);
}
void Statement::bind_one(std::string_view text) {
  sqlite3_bind_text64(statement_.get(), next_++, data_of(text), text.size(), SQLITE_TRANSIENT,
                      SQLITE_UTF8);
}
void Statement::bind_one(Blob blob) {
  sqlite3_bind_blob64(statement_.get(), next_++, data_of(blob.bytes), blob.bytes.size(),
                      SQLITE_TRANSIENT);
}
void Statement::bind_one(Large blob) {
  sqlite3_bind_blob64(statement_.get(), next_++, data_of(blob.bytes), blob.bytes.size(),
                      SQLITE_STATIC);
}
void Statement::bind_one(Id id) {
  if (is_lower_hex_id(id.event_id)) {
    bind_one(Blob{hex_decode(id.event_id).value_or(std::string{})});
  } else {
    bind_one(id.event_id);
  }
}
void Statement::bind_one(std::nullptr_t) { sqlite3_bind_null(statement_.get(), next_++); }
void Statement::bind_one(double value) { sqlite3_bind_double(statement_.get(), next_++, value); }

bool Statement::step() {
  prepare();
  if (!statement_ || !connection_->ok()) {
    reset();
    return false;
  }
  const int code = sqlite3_step(statement_.get());
  if (code == SQLITE_ROW) return true;
  if (code != SQLITE_DONE) connection_->fail(sql_);
  reset();
  return false;
}

bool Statement::finish() {
  while (step()) {
  }
  return connection_->ok();
}

std::optional<std::int64_t> Statement::finish_first() {
  std::optional<std::int64_t> value;
  if (step()) value = integer(0);
  reset();
  return value;
}

void Statement::reset() noexcept {
  sqlite3_reset(statement_.get());
  next_ = 1;
}

std::int64_t Statement::integer(int column) const {
  return sqlite3_column_int64(statement_.get(), column);
}

double Statement::real(int column) const { return sqlite3_column_double(statement_.get(), column); }

std::string_view Statement::text(int column) const {
  // The pointer first: asking for the bytes may convert the value.
  const void* data = sqlite3_column_type(statement_.get(), column) == SQLITE_BLOB
                         ? sqlite3_column_blob(statement_.get(), column)
                         : sqlite3_column_text(statement_.get(), column);
  const auto size = static_cast<std::size_t>(sqlite3_column_bytes(statement_.get(), column));
  return data == nullptr ? std::string_view{}
                         : std::string_view{static_cast<const char*>(data), size};
}

std::string Statement::id(int column) const {
  if (sqlite3_column_type(statement_.get(), column) == SQLITE_BLOB) return hex_encode(text(column));
  return std::string(text(column));
}

bool Statement::is_null(int column) const {
  return sqlite3_column_type(statement_.get(), column) == SQLITE_NULL;
}

}  // namespace scriptorium::sqlite
