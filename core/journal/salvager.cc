#include "core/journal/salvager.h"

#include <algorithm>

#include "core/base/text.h"
#include "core/journal/event_row.h"
#include "core/journal/mark_table.h"
#include "core/journal/schema.h"

namespace scriptorium::journal {
namespace {

// Probes of unreadable ranges before the rest is given up.
constexpr std::uint64_t kMostFailures = 2'000'000;
// Rows of events that fit in one page, at most, about.
constexpr std::int64_t kMostRowsInPage = 32;
constexpr std::uint64_t kBatch = 1000;  // events in one transaction

}  // namespace

Salvager::Salvager(Connection& to, Logger& log)
    : to_(to), log_(log), contents_(to, codec_), events_(to, codec_, contents_), unresolved_(to) {}

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
    read_events({.select = kSelectEvents, .name = "events", .number = "seq"});
    read_events({.select = kSelectUnresolved,
                 .name = "unresolved",
                 .number = "ticket",
                 .unresolved = true});
    each(kSelectMarks + std::string("true"), [&](Statement& row) {
      CaptureMark mark = mark_of_row(row);
      marks_.try_emplace({std::string(row.text(9)), mark.entry}, std::move(mark));
    });
    read_fills();
    read_unverified();
  } else {
    take_error();
  }
  from_ = nullptr;
  return readable && complete_;
}

Salvaged Salvager::finish() {
  const bool lost = !lost_.empty() || events_damaged_;
  result_.lost_events = lost_.size();
  finish_sinks();
  // If an event was lost, its spool entry may still exist: without its mark it is captured again.
  MarkTable marks(to_);
  for (const auto& [key, mark] : marks_) {
    if (lost && !has(mark.event_id)) continue;
    marks.put(key.first, mark);
    ++result_.marks;
  }
  if (!lost) {
    for (const auto& [source, position] : positions_) marks.put_position(source, position);
  }
  contents_.write_changes();
  return result_;
}

void Salvager::finish_sinks() {
  SinkTable sinks(to_);
  ExceptionTable exceptions(to_);
  // A cursor says what need not be delivered again, so it counts only if there is no sign against
  // it.
  const bool trusted = sinks_intact_ && exceptions_intact_;
  result_.redelivers = !trusted;
  for (auto& [id, sink] : sinks_) {
    if (!sink.sum_matches) {
      result_.redelivers = true;
      sink.row.absences.clear();
    }
    if (!trusted || !sink.sum_matches) sink.row.cursor = 0;
    sinks.insert(sink.row);
    if (const auto fill = fills_.find(sink.row.name); fill != fills_.end())
      sinks.set_fill(fill->second);
  }
  for (const StoredException& x : exceptions_) {
    if (!sinks_.contains(x.sink)) continue;
    if (events_.find(x.settle.sequence)) exceptions.put(x.sink, x.settle, x.state);
    if (x.state == State::kDead) ++result_.dead_letters;
  }
}

bool Salvager::take_error() {
  auto error = from_->take_error();
  if (error && error->kind() == ErrorKind::kExhausted && !exhausted_) exhausted_ = *error;
  return error.has_value();
}

bool Salvager::each(const std::string& sql, const std::function<void(Statement&)>& row) {
  Statement statement(*from_, sql);
  while (statement.step()) row(statement);
  statement.reset();
  if (!take_error()) return true;
  return complete_ = false;
}

bool Salvager::is_intact(const char* table) {
  const auto answer = from_->text(std::string("PRAGMA quick_check('") + table + "')");
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
  const bool read = each(std::string("SELECT ") + kSinkColumns + " FROM sinks",
                         [&](Statement& row) { read_sink(sink_of_row(row)); });
  read_exceptions(first);
  if (!first) return;
  sinks_intact_ = intact && read;
  each("SELECT source, position FROM positions",
       [&](Statement& row) { positions_.emplace(row.text(0), row.text(1)); });
}

void Salvager::read_sink(const StoredSink& stored) {
  const SinkRow& sink = stored.row;
  const bool is_known = std::ranges::any_of(
      sinks_, [&](const auto& other) { return other.second.row.name == sink.name; });
  if (!sink.name.empty() && sink.id > 0 && !is_known) sinks_.try_emplace(sink.id, stored);
}

void Salvager::read_exceptions(bool first) {
  const bool intact = is_intact("exceptions");
  const bool read =
      each(std::string("SELECT ") + kExceptionColumns + " FROM exceptions", [&](Statement& row) {
        StoredException x = exception_of_row(row);
        if (!x.sum_matches) {
          // Its event is unknown: deliver everything again.
          exceptions_damaged_ = true;
        } else if (first) {
          exceptions_.push_back(std::move(x));
        }
      });
  if (first) exceptions_intact_ = intact && read && !exceptions_damaged_;
}

// A fill that was under way starts from the beginning, because events that it has sent may be lost.
// An event that the sink has already stored changes nothing there.
void Salvager::read_fills() {
  each("SELECT sink, archive, since, state FROM fills", [&](Statement& row) {
    Fill fill{.sink = std::string(row.text(0)), .archive = std::string(row.text(1))};
    fill.since = Timestamp{row.integer(2)};
    fill.state = static_cast<Fill::State>(row.integer(3));
    if (fill.is_under_way()) {
      fill.state = Fill::State::kCounting;
      fills_.try_emplace(fill.sink, std::move(fill));
    }
  });
}

// Each is proven by the id in its metadata.
void Salvager::read_unverified() {
  each("SELECT number, id, source, noted_at, due, meta FROM unverified", [&](Statement& row) {
    const auto json = codec_.decompress(row.text(5));
    const auto event = json ? event_from_json(*json) : Result<Event>(json.error());
    if (!event || event->id != row.id(1)) return;
    to_.run(
        "INSERT OR IGNORE INTO unverified(number,id,source,noted_at,due,meta) "
        "VALUES(?1,?2,?3,?4,?5,?6)",
        row.number(0), Id{event->id}, row.text(2), row.integer(3), row.integer(4),
        Large{std::string(row.text(5))});
    count_insert();
  });
}

std::pair<std::int64_t, std::int64_t> Salvager::bounds(const Table& table) {
  const std::string number = table.number, name = table.name;
  const auto bound = [&](const std::string& function) {
    const auto value =
        from_->integer("SELECT coalesce(" + function + "(" + number + "),0) FROM " + name);
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
    each("SELECT max(" + number + ") FROM (SELECT " + number + " FROM main." + name +
             " INDEXED BY sqlite_autoindex_" + name + "_1)",
         [&](Statement& row) { high = row.integer(0); });
    for (const auto& x : exceptions_)
      high = std::max(high.value_or(0), static_cast<std::int64_t>(x.settle.sequence));
    for (const auto& [id, sink] : sinks_)
      high = std::max(high.value_or(0), static_cast<std::int64_t>(sink.row.cursor));
  }
  if (high) return {low.value_or(1), *high};
  // How far they went is unknown; there cannot be more rows than the file has room for.
  const auto pages = from_->integer("PRAGMA page_count").value_or(0);
  from_->take_error();
  return {low.value_or(1), pages * kMostRowsInPage};
}

// Where reading fails, the rest is read by halves, so that one bad page costs only its own rows.
void Salvager::read_events(const Table& table) {
  const std::string number = table.number;
  Statement rows(*from_, table.select + number + ">=?1 AND " + number + "<=?2 ORDER BY " + number);
  EventReader reader(*from_, codec_, Proof::kSha256);
  std::uint64_t failures = 0;
  std::vector<std::pair<std::int64_t, std::int64_t>> ranges{bounds(table)};  // the lowest last
  while (!ranges.empty() && failures < kMostFailures) {
    const auto [first, last] = ranges.back();
    ranges.pop_back();
    std::int64_t next = first;
    rows.bind(first, last);
    if (!from_->ok()) failures = kMostFailures;  // its definition is damaged
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
  const auto loaded = reader.load(row);
  from_->take_error();
  if (!loaded) return note_lost(id, loaded.error().message());
  if (loaded->event->id != id) return note_lost(id, "id differs");
  lost_.erase(id);
  if (has(id)) return;
  add_event(table, row, *loaded->event, loaded->in_archive);
  ++result_.events;
}

void Salvager::note_lost(const std::string& id, const std::string& why) {
  if (has(id) || !lost_.insert(id).second) return;
  log_.error("JOURNAL_EVENT_LOST",
             "an event of the damaged journal cannot be read; if its spool entry is still there, "
             "it is captured again",
             {{"event_id", printable(id, 80)}, {"reason", why}});
}

bool Salvager::has(const std::string& event_id) {
  return events_.find(event_id).has_value() || unresolved_.contains(event_id);
}

// If another event has the number already, which only a damaged page can cause, the next free one.
std::uint64_t Salvager::free_number(const Table& table, std::uint64_t wanted) {
  while (table.unresolved ? unresolved_.find(wanted).has_value() : events_.find(wanted).has_value())
    ++wanted;
  return wanted;
}

void Salvager::add_event(const Table& table, const Statement& row, const Event& event,
                         bool in_archive) {
  StoredEvent added = row_of(free_number(table, row.number(3)), std::string(row.text(10)), event);
  added.meta = row.text(0);  // the frame, as it was
  if (in_archive) {
    added.bytes = row.number(5);
    added.content.pack = kInArchive;
  } else {
    added.content = contents_.store(event);
  }
  if (table.unresolved) {
    unresolved_.insert(added,
                       row.is_null(11) ? std::nullopt : std::optional(std::string(row.text(11))));
  } else {
    if (!in_archive) {
      added.content.owner = charged_to(event, static_cast<SinkId>(row.integer(6)));
      added.content.stored += added.meta.size();
    }
    events_.insert(added, static_cast<SinkId>(row.integer(6)));
  }
  count_insert();
}

void Salvager::count_insert() {
  if (++pending_ % kBatch != 0) return;
  contents_.write_changes();
  contents_.begin();
  to_.execute("COMMIT");
  to_.execute("BEGIN");
}

}  // namespace scriptorium::journal
