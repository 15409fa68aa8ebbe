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
#include "core/journal/content_store.h"
#include "core/journal/event_reader.h"
#include "core/journal/owner_tables.h"
#include "core/journal/salvage.h"
#include "core/journal/sink_tables.h"

namespace scriptorium::journal {

// Reads what can be read of a damaged journal, in one or more passes over copies of it, and writes
// what is proven into a new journal.
class Salvager {
 public:
  // The caller begins the first transaction of the new journal `to` and commits the last.
  Salvager(Connection& to, Logger& log);

  // Reads the file once. False if it could not be opened, or some table not to its end.
  bool pass(const std::string& file, Connection::Mode mode);
  // Why a pass could not read everything, if that was lack of disk, memory or descriptors.
  const std::optional<Error>& exhausted() const noexcept { return exhausted_; }
  // After the passes: writes what depends on all of them.
  Salvaged finish();

 private:
  // `events` or `unresolved`.
  struct Table {
    const char* select;
    const char* name;
    const char* number;  // the column of its key
    bool unresolved = false;
  };

  // Takes the connection's error; false if there was none.
  bool take_error();
  // True if the query was read to its end.
  bool each(const std::string& sql, const std::function<void(Statement&)>& row);
  bool is_intact(const char* table);
  void read_sinks();
  void read_sink(const StoredSink& stored);
  void read_exceptions(bool first);  // only the first pass keeps them
  void read_events(const Table& table);
  void read_fills();
  void read_unverified();
  // Of the numbers that a table may hold: the lowest and the highest.
  std::pair<std::int64_t, std::int64_t> bounds(const Table& table);
  void take(const Table& table, Statement& row, EventReader& reader);
  void note_lost(const std::string& id, const std::string& why);

  // Into the new journal

  bool has(const std::string& event_id);
  void add_event(const Table& table, const Statement& row, const Event& event, bool in_archive);
  std::uint64_t free_number(const Table& table, std::uint64_t wanted);
  void finish_sinks();
  void count_insert();

  Connection& to_;
  Logger& log_;
  Codec codec_;
  ContentStore contents_;
  EventTable events_;
  UnresolvedTable unresolved_;
  std::uint64_t pending_ = 0;  // events in the open transaction
  Connection* from_ = nullptr;
  bool complete_ = true;  // of this pass: everything was read
  // Of the first pass that found sinks. What a later pass finds is no more reliable.
  bool sinks_intact_ = false, exceptions_intact_ = false;
  bool exceptions_damaged_ = false, events_damaged_ = false;
  std::map<SinkId, StoredSink> sinks_;
  std::vector<StoredException> exceptions_;
  std::map<std::pair<std::string, std::string>, CaptureMark> marks_;  // by source and entry
  std::map<std::string, std::string> positions_;
  std::map<std::string, Fill> fills_;  // under way, by sink
  std::set<std::string> lost_;         // ids of events that were seen and could not be read
  std::optional<Error> exhausted_;
  Salvaged result_;
};

}  // namespace scriptorium::journal
