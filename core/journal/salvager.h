#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/api/logger.h"
#include "core/journal/codec.h"
#include "core/journal/event_reader.h"
#include "core/journal/salvage.h"
#include "core/journal/salvage_target.h"
#include "core/journal/sqlite.h"

namespace scriptorium::journal {

// Reads what can be read of a damaged journal, in one or more passes over copies of it, and writes
// what is proven into a new journal.
class Salvager {
 public:
  Salvager(Connection& to, Logger& log) : target_(to), log_(log) {}

  // Reads the file once. False if it could not be opened, or some table not to its end.
  bool pass(const std::string& file, Connection::Mode mode);
  // Why a pass could not read everything, if that was lack of disk, memory or descriptors.
  const std::optional<Error>& exhausted() const noexcept { return exhausted_; }
  // After the passes: writes what depends on all of them.
  Salvaged finish();

 private:
  struct Mark {
    std::string source;
    CaptureMark mark;
  };
  // `events` or `unresolved`.
  struct Table {
    bool unresolved = false;
    const char* name;
    const char* number;  // the column of its key
  };

  // Takes the connection's error; false if there was none.
  bool take_error();
  // True if the query was read to its end.
  bool each(const std::string& sql, const std::function<void(Statement&)>& row);
  bool is_intact(const char* table);
  void read_sinks();
  void read_sink(const Statement& row);
  void read_exceptions(bool first);  // only the first pass keeps them
  void read_events(const Table& table);
  // Of the numbers that a table may hold: the lowest and the highest.
  std::pair<std::int64_t, std::int64_t> bounds(const Table& table);
  void read_range(const Table& table, std::int64_t low, std::int64_t high);
  void take(const Table& table, Statement& row, EventReader& reader);
  void note_lost(const std::string& id, const std::string& why);
  void read_marks();

  SalvageTarget target_;
  Logger& log_;
  Codec codec_;
  Connection* from_ = nullptr;
  bool complete_ = true;  // of this pass: everything was read
  // Of the first pass that found sinks. What a later pass finds is no more reliable.
  bool sinks_intact_ = false, exceptions_intact_ = false;
  bool exceptions_damaged_ = false, events_damaged_ = false;
  std::map<std::int64_t, SalvageTarget::Sink> sinks_;
  std::vector<SalvageTarget::Exception> exceptions_;
  std::vector<Mark> marks_;
  std::map<std::string, std::string> positions_;
  std::set<std::string> lost_;  // ids of events that were seen and could not be read
  std::optional<Error> exhausted_;
  Salvaged result_;
};

}  // namespace scriptorium::journal
