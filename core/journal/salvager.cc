#include "core/journal/salvager.h"

#include <algorithm>

#include "core/base/text.h"
#include "core/journal/event_row.h"
#include "core/journal/schema.h"

namespace scriptorium::journal {
namespace {

// Probes of unreadable ranges before the rest is given up.
constexpr std::uint64_t kMostFailures = 2'000'000;
// Rows of events that fit in one page, at most, about.
constexpr std::int64_t kMostRowsInPage = 32;

}  // namespace

bool Salvager::pass(const std::string& file, Connection::Mode mode) {
  auto opened = Connection::open(file, mode);
  if (!opened) {
    if (opened.error().kind() == ErrorKind::kExhausted) exhausted_ = opened.error();
    return false;
  }
  from_ = opened->get();
  complete_ = true;
  from_->execute("PRAGMA cache_size=-8192");
  const bool readable = from_->integer("SELECT count(*) FROM sqlite_schema").has_value();
  if (readable) {
    // In this order: the sinks and exceptions bound the numbers of the events.
    read_sinks();
    read_events({.unresolved = false, .name = "events", .number = "seq"});
    read_events({.unresolved = true, .name = "unresolved", .number = "ticket"});
    read_marks();
  } else {
    take_error();
  }
  from_ = nullptr;
  return readable && complete_;
}

Salvaged Salvager::finish() {
  const bool lost = !lost_.empty() || events_damaged_;
  result_.lost_events = lost_.size();
  // A cursor says what need not be delivered again, so it counts only if there is no sign against
  // it.
  const bool trusted = sinks_intact_ && exceptions_intact_;
  result_.redelivers = !trusted;
  for (auto& [id, sink] : sinks_) {
    if (!sink.sum_matches) {
      result_.redelivers = true;
      sink.absences.clear();
    }
    if (!trusted || !sink.sum_matches) sink.cursor = 0;
    target_.add_sink(id, sink);
  }
  for (const SalvageTarget::Exception& x : exceptions_) {
    if (!sinks_.contains(x.sink)) continue;
    target_.add_exception(x);
    if (x.state == State::kDead) ++result_.dead_letters;
  }
  // If an event was lost, its spool entry may still exist: without its mark it is captured again.
  for (const auto& [source, mark] : marks_) {
    if (lost && !target_.has(mark.event_id)) continue;
    target_.add_mark(source, mark);
    ++result_.marks;
  }
  if (!lost) {
    for (const auto& [source, position] : positions_) target_.add_position(source, position);
  }
  return result_;
}

bool Salvager::take_error() {
  auto error = from_->take_error();
  if (error && error->kind() == ErrorKind::kExhausted && !exhausted_) exhausted_ = *error;
  return error.has_value();
}

bool Salvager::each(const std::string& sql, const std::function<void(Statement&)>& row) {
  Statement statement(*from_, sql.c_str());
  while (statement.step()) row(statement);
  statement.reset();
  if (!take_error()) return true;
  return complete_ = false;
}

bool Salvager::is_intact(const char* table) {
  const auto answer = from_->text((std::string("PRAGMA quick_check('") + table + "')").c_str());
  from_->take_error();
  return answer == "ok";
}

void Salvager::read_sinks() {
  if (!has_table(*from_, "sinks")) {
    from_->take_error();
    complete_ = false;
    return;
  }
  const bool first = sinks_.empty();
  const bool intact = is_intact("sinks");
  const bool read = each("SELECT id, name, kinds, cursor, acknowledged, last_success, sum, " +
                             column_or(*from_, "sinks", "absences", "''") + " FROM sinks",
                         [&](Statement& row) { read_sink(row); });
  read_exceptions(first);
  if (!first) return;
  sinks_intact_ = intact && read;
  each("SELECT source, position FROM positions",
       [&](Statement& row) { positions_.emplace(row.text(0), row.text(1)); });
}

void Salvager::read_sink(const Statement& row) {
  SalvageTarget::Sink sink;
  sink.name = row.text(1);
  sink.kinds = row.text(2);
  sink.cursor = row.integer(3);
  sink.acknowledged = std::max<std::int64_t>(row.integer(4), 0);
  if (!row.is_null(5)) sink.last_success = row.integer(5);
  sink.absences = row.text(7);
  sink.sum_matches = row.integer(6) == sink_sum(sink.name, sink.kinds, sink.cursor, sink.absences);
  const bool is_known = std::any_of(sinks_.begin(), sinks_.end(), [&](const auto& other) {
    return other.second.name == sink.name;
  });
  if (!sink.name.empty() && row.integer(0) > 0 && !is_known)
    sinks_.try_emplace(row.integer(0), std::move(sink));
}

void Salvager::read_exceptions(bool first) {
  const bool intact = is_intact("exceptions");
  const bool read = each(
      "SELECT sink, seq, state, reason, attempts, first_attempt, last_attempt, sum FROM exceptions",
      [&](Statement& row) {
        SalvageTarget::Exception x{row.integer(0),
                                   row.integer(1),
                                   static_cast<State>(row.integer(2)),
                                   std::string(row.text(3)),
                                   row.integer(4),
                                   row.integer(5),
                                   row.integer(6)};
        if (row.integer(7) != exception_sum(x.sink, x.seq, x.state)) {
          exceptions_damaged_ = true;  // its event is unknown: deliver everything again
        } else if (first) {
          exceptions_.push_back(std::move(x));
        }
      });
  if (first) exceptions_intact_ = intact && read && !exceptions_damaged_;
}

std::pair<std::int64_t, std::int64_t> Salvager::bounds(const Table& table) {
  const std::string number = table.number, name = table.name;
  const auto bound = [&](const std::string& function) {
    const auto value = from_->integer(
        ("SELECT coalesce(" + function + "(" + number + "),0) FROM " + name).c_str());
    if (from_->take_error()) {
      events_damaged_ = true;
      complete_ = false;
    }
    return value;
  };
  const auto low = bound("min");
  auto high = bound("max");
  if (!low && !high) {
    // The tree's root is lost. Its index lists every number, if it is intact.
    each("SELECT max(" + number + ") FROM (SELECT " + number + " FROM " + name +
             " INDEXED BY sqlite_autoindex_" + name + "_1)",
         [&](Statement& row) { high = row.integer(0); });
    for (const auto& x : exceptions_) high = std::max(high.value_or(0), x.seq);
    for (const auto& [id, sink] : sinks_) high = std::max(high.value_or(0), sink.cursor);
  }
  if (high) return {low.value_or(1), *high};
  // How far they went is unknown; there cannot be more rows than the file has room for.
  const auto pages = from_->integer("PRAGMA page_count").value_or(0);
  from_->take_error();
  return {low.value_or(1), pages * kMostRowsInPage};
}

void Salvager::read_events(const Table& table) {
  const auto [low, high] = bounds(table);
  read_range(table, low, high);
}

// Where reading fails, the rest is read by halves, so that one bad page costs only its own rows.
void Salvager::read_range(const Table& table, std::int64_t low, std::int64_t high) {
  const std::string columns = table.unresolved ? std::string(content_columns(*from_)) +
                                                     ", ticket, '', 0, 0, id, '', 0, source, entry"
                                               : event_columns(*from_) + ", source, NULL";
  const std::string number = table.number;
  Statement rows(*from_, ("SELECT " + columns + " FROM " + table.name + " WHERE " + number +
                          ">=?1 AND " + number + "<=?2 ORDER BY " + number)
                             .c_str());
  EventReader reader(*from_, codec_, Proof::kSha256);
  std::uint64_t failures = 0;
  std::vector<std::pair<std::int64_t, std::int64_t>> ranges{{low, high}};  // the lowest last
  while (!ranges.empty() && failures < kMostFailures) {
    const auto [first, last] = ranges.back();
    ranges.pop_back();
    std::int64_t next = first;
    rows.bind(first, last);
    while (rows.step()) {
      next = rows.integer(3) + 1;
      take(table, rows, reader);
    }
    rows.reset();
    if (!take_error()) continue;
    events_damaged_ = true;
    complete_ = false;
    ++failures;
    if (next > last || (next == first && first == last)) continue;
    if (next == last) {
      ranges.emplace_back(next, last);
      continue;
    }
    const std::int64_t middle = next + (last - next) / 2;
    ranges.emplace_back(middle + 1, last);
    ranges.emplace_back(next, middle);
  }
}

void Salvager::take(const Table& table, Statement& row, EventReader& reader) {
  const std::string id = row.id(7);
  const SalvageTarget::EventRow kept{.unresolved = table.unresolved,
                                     .number = row.integer(3),
                                     .source = std::string(row.text(10)),
                                     .entry = std::string(row.text(11)),
                                     .target = row.integer(6),
                                     .meta = std::string(row.text(0)),
                                     .blobs = std::string(row.text(1))};
  if (EventReader::is_in_archive(row)) {
    if (const auto locator = reader.locator(row)) {
      if (!target_.has(id)) {
        target_.add_locator(kept, *locator, row.integer(5));
        ++result_.events;
      }
      lost_.erase(id);
      return;
    }
  }
  auto loaded = reader.load(row);
  from_->take_error();
  if (!loaded) return note_lost(id, loaded.error().message());
  if ((*loaded)->id != id) return note_lost(id, "id differs");
  lost_.erase(id);
  if (target_.has(id)) return;
  target_.add_event(kept, **loaded);
  ++result_.events;
}

void Salvager::note_lost(const std::string& id, const std::string& why) {
  if (target_.has(id) || !lost_.insert(id).second) return;
  log_.error("JOURNAL_EVENT_LOST",
             "an event of the damaged journal cannot be read; if its spool entry is still there, "
             "it is captured again",
             {{"event_id", printable(id, 80)}, {"reason", why}});
}

void Salvager::read_marks() {
  const std::string columns = mark_columns(*from_);
  from_->take_error();
  each("SELECT source, entry, " + columns + " FROM marks",
       [&](Statement& row) { marks_.push_back({std::string(row.text(0)), mark_of_row(row, 1)}); });
}

}  // namespace scriptorium::journal
