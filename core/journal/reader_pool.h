#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/base/guarded.h"
#include "core/journal/codec.h"
#include "core/journal/event_reader.h"
#include "core/journal/sqlite.h"

namespace scriptorium::journal {

// Connections for reading, opened when needed; a few are kept.
// Threads: lease() from any thread; what it returns belongs to the caller. The pool outlives it.
class ReaderPool {
 public:
  struct Reader {
    std::unique_ptr<Connection> connection;
    Codec codec;
    std::unique_ptr<EventReader> events;
    std::string content;  // content_columns()
    std::string columns;  // event_columns()
    Statement scan;       // of event_columns(): after ?1, at most ?2
    Statement row;        // the same, one event
    Statement parked;     // seq and attempts of a sink's parked events after ?2
    Statement size;       // bytes and meta of one event
  };
  // Its end closes every statement, so that no snapshot of the database is held.
  class Lease {
   public:
    Lease(ReaderPool& pool, std::unique_ptr<Reader> reader)
        : pool_(&pool), reader_(std::move(reader)) {}
    Lease(Lease&&) noexcept = default;
    ~Lease();
    Reader* operator->() const noexcept { return reader_.get(); }
    Reader& operator*() const noexcept { return *reader_; }

   private:
    ReaderPool* pool_;
    std::unique_ptr<Reader> reader_;
  };

  ReaderPool(std::string file, Connection::Mode mode) : file_(std::move(file)), mode_(mode) {}
  Result<Lease> lease();

 private:
  static constexpr std::size_t kKept = 4;
  Result<std::unique_ptr<Reader>> open() const;

  std::string file_;
  Connection::Mode mode_;
  Guarded<std::vector<std::unique_ptr<Reader>>> idle_;
};

}  // namespace scriptorium::journal
