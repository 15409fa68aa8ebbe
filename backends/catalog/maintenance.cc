#include "backends/catalog/maintenance.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "backends/catalog/check.h"
#include "backends/catalog/lock.h"
#include "backends/catalog/move.h"
#include "backends/catalog/readable.h"

namespace scriptorium::catalog {
namespace {

// A segment is rewritten if so much of it is of no use: one in so many.
constexpr std::uint64_t kUselessShare = 10;
constexpr const char* kCannotBeRead = "cannot be read; see \"scriptorium catalog check\"";
constexpr const char* kKeptDamaged = "a damaged segment that was kept; delete it";

std::uint64_t size_of_file(const std::string& file) {
  struct stat st{};
  return ::stat(file.c_str(), &st) == 0 ? static_cast<std::uint64_t>(st.st_size) : 0;
}

std::vector<std::string> damaged_files(const std::string& root) {
  std::vector<std::string> files;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(root + "/segments", error)) {
    if (entry.path().extension().string().starts_with(kDamagedEnding))
      files.push_back(entry.path().string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

Result<std::vector<SegmentInfo>> segments_of(Connection& catalog) {
  auto segments = list_segments(catalog);
  if (auto error = catalog.take_error()) return *std::move(error);
  // The oldest first, so that events keep their order.
  std::reverse(segments.begin(), segments.end());
  return segments;
}

// To continue without the rules would store the secrets once more.
MaintainedSink::Finding interrupted_redaction(const SegmentInfo& segment) {
  return {segment_name(segment.id), "secrets were being removed from it, and that was interrupted",
          false, "scriptorium redact --archive --apply"};
}

// Whether a good part of the file is free pages, or contents that nothing names.
Result<bool> is_loose(Connection& db) {
  const std::uint64_t pages = db.number("PRAGMA page_count");
  const std::uint64_t free = db.number("PRAGMA freelist_count");
  const std::uint64_t garbage = db.number("SELECT sum(garbage) FROM blocks");
  const std::uint64_t contents = db.number("SELECT count(*) FROM contents");
  if (auto error = db.take_error()) return *std::move(error);
  return free * kUselessShare > pages || garbage * kUselessShare > contents + garbage;
}

}  // namespace

Result<void> Maintenance::check_that_it_exists() const {
  if (::access(catalog_file(config_.root).c_str(), F_OK) == 0 || errno != ENOENT) return {};
  return Error{ErrorKind::kVanished, "there is no catalog in " + config_.root};
}

Result<UniqueFd> Maintenance::take_turn() const {
  if (auto there = check_that_it_exists(); !there) return there.error();
  const std::string file = config_.root + "/maintenance.lock";
  UniqueFd fd(::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0640));
  if (!fd) return system_error("open " + file, errno);
  if (::flock(fd.get(), LOCK_EX | LOCK_NB) == 0) return fd;
  if (errno != EWOULDBLOCK) return system_error("lock " + file, errno);
  return Error{ErrorKind::kExhausted,
               "another command checks or rewrites the catalog (maintenance.lock)"};
}

// ---- check and stats

namespace {

// Nothing: it is intact.
std::optional<std::string> damage_of(const std::string& root, Connection& catalog) {
  std::string problem = catalog.text("PRAGMA integrity_check(1)").value_or("");
  // What is behind a page that integrity_check finds no fault with.
  for (const char* columns :
       {"id, state, created FROM segments",
        "id, owner, name, signature, last_name, last_signature FROM families"}) {
    sqlite::Statement select(catalog, std::string("SELECT ") + columns);
    while (select.step()) {
    }
  }
  if (const auto error = catalog.take_error()) return error->message();
  if (problem != "ok") return problem;
  const auto segments = list_segments(catalog);
  if (segments.empty()) return "names no segment";
  const auto files = segment_files(root);
  for (const SegmentInfo& segment : segments) {
    if (!is_leaving(segment.state) && !std::binary_search(files.begin(), files.end(), segment.id))
      return "names " + segment_name(segment.id) + ", which is not there";
  }
  for (const std::int64_t file : files) {
    if (file < segments.front().id &&
        std::none_of(
            segments.begin(), segments.end(),
            [&](const SegmentInfo& segment) { return segment.id == file; }))
      return "does not name " + segment_name(file);
  }
  return std::nullopt;
}

}  // namespace

Result<MaintainedSink::Report> Maintenance::check(const Control& control) {
  Report report;
  for (const char* figure : {"segments", "jobs", "blocks", "contents", "bytes", "findings"})
    report.figures[figure] = 0;
  const auto turn = take_turn();
  if (!turn) return turn.error();
  const auto add = [&](Finding finding) {
    ++report.figures["findings"];
    report.findings.push_back(std::move(finding));
  };
  for (const std::string& file : damaged_files(config_.root))
    add({file, "was kept, since something of it is lost; fill this sink, then delete it", true});
  auto catalog = open_catalog_reader(config_.root);
  if (!catalog && !is_damage(catalog.error())) return catalog.error();
  std::optional<std::string> damage =
      catalog ? damage_of(config_.root, **catalog) : std::optional(catalog.error().message());
  if (damage) {
    add({"catalog.db", *damage});
    return report;
  }
  const auto segments = segments_of(**catalog);
  if (!segments) return segments.error();
  for (const SegmentInfo& segment : *segments) {
    if (control.stop.stop_requested()) break;
    if (segment.state == SegmentState::kRedacting) {
      add(interrupted_redaction(segment));
    } else if (segment.state == SegmentState::kLeaving) {
      add({segment_name(segment.id), "was being rewritten, and that was interrupted"});
    } else {
      check_segment(config_.root, segment, **catalog, control, report);
    }
    ++report.figures["segments"];
  }
  report.interrupted = control.stop.stop_requested();
  return report;
}

namespace {

struct Part {
  const char* figure;
  const char* tables;  // of `sqlite_schema.tbl_name`, which has the table of an index
};
constexpr std::array kParts{
    Part{"blocks_bytes", "tbl_name = 'blocks'"},
    Part{"pending_bytes", "tbl_name = 'pending'"},
    Part{"rows_bytes", "tbl_name IN ('jobs', 'outcomes', 'later', 'contents', 'names', 'owners')"},
    Part{"words_bytes",
         "tbl_name GLOB 'words*' OR tbl_name IN ('pairs', 'places', 'frequent', 'script_blocks')"},
    Part{"fields_bytes",
         "tbl_name IN ('fields', 'chunks', 'daily', 'sums', 'wasteful', 'unfinished')"},
};

void count_segment(Connection& db, std::set<std::string>& owners,
                   std::map<std::string, std::uint64_t>& figures) {
  const auto add = [&](const char* figure, const std::string& sql) {
    figures[figure] += db.number("SELECT " + sql);
  };
  add("jobs", "count(*) FROM jobs");
  add("jobs_verified", "sum(jobs) FROM daily WHERE verified");
  add("jobs_with_outcome", "count(*) FROM outcomes");
  add("contents", "count(*) FROM contents");
  add("contents_pending", "count(*) FROM pending");
  add("contents_unused", "sum(garbage) FROM blocks");
  add("blocks", "count(*) FROM blocks");
  add("raw_bytes",
      "coalesce((SELECT sum(raw) FROM blocks), 0) + coalesce((SELECT sum(raw) FROM pending), 0)");
  figures["free_bytes"] += db.number("PRAGMA freelist_count") * db.number("PRAGMA page_size");
  for (const Part& part : kParts) {
    add(part.figure, std::string("sum(pgsize) FROM dbstat WHERE aggregate = TRUE AND name IN "
                                 "(SELECT name FROM sqlite_schema WHERE ") +
                         part.tables + ")");
  }
  const auto seconds = [](std::int64_t time) {
    return static_cast<std::uint64_t>(std::max<std::int64_t>(time, 0) / kSecond);
  };
  if (const auto oldest = db.integer("SELECT min(oldest) FROM chunks HAVING count(*) > 0")) {
    const auto [known, is_first] = figures.try_emplace("oldest_job_time", seconds(*oldest));
    if (!is_first) known->second = std::min(known->second, seconds(*oldest));
    std::uint64_t& newest = figures["newest_job_time"];
    newest = std::max(newest, seconds(db.integer("SELECT max(newest) FROM chunks").value_or(0)));
  }
  sqlite::Statement names(db, "SELECT name FROM owners");
  while (names.step()) owners.emplace(names.text(0));
}

}  // namespace

Result<MaintainedSink::Report> Maintenance::stats() {
  Report report;
  auto& figures = report.figures;
  if (auto there = check_that_it_exists(); !there) return there.error();
  auto catalog = open_catalog_reader(config_.root);
  if (!catalog) return catalog.error();
  const auto segments = segments_of(**catalog);
  if (!segments) return segments.error();
  std::set<std::string> owners;
  std::vector<std::string> files{catalog_file(config_.root)};
  for (const SegmentInfo& segment : *segments) {
    files.push_back(segment_file(config_.root, segment.id));
    auto db = open_segment_reader(config_.root, segment.id);
    if (db) count_segment(**db, owners, figures);
    const auto error = db ? (*db)->take_error() : std::optional(db.error());
    if (error) report.findings.push_back({segment_name(segment.id), error->message()});
  }
  for (const std::string& file : files) {
    figures["file_bytes"] += size_of_file(file);
    figures["wal_bytes"] += size_of_file(file + "-wal");
  }
  figures["segments"] = segments->size();
  figures["owners"] = owners.size();
  figures["families"] = (*catalog)->number("SELECT count(*) FROM families");
  if (auto error = (*catalog)->take_error()) return *std::move(error);
  return report;
}

// ---- rewriting

Result<ConnectionPtr> Maintenance::repaired_catalog(Report& report) const {
  report.figures["catalog_db_rewritten"] = 0;
  {
    // A writer would wait for the daemon before it could say what is wrong.
    auto catalog = open_catalog_reader(config_.root);
    if (!catalog && !is_damage(catalog.error())) return catalog;
    if (catalog && !damage_of(config_.root, **catalog)) return open_catalog_writer(config_.root);
  }
  const auto lock = WriterLock::take(config_.root);
  if (!lock) return lock.error();
  if (auto replaced = replace_catalog(config_.root, clock_.now()); !replaced)
    return replaced.error();
  report.figures["catalog_db_rewritten"] = 1;
  return open_catalog_writer(config_.root);
}

Result<bool> Maintenance::needs_rewriting(Rewrite which, const SegmentInfo& segment,
                                          Connection& catalog, const Control& control,
                                          Report& report) const {
  if (segment.state == SegmentState::kLeaving) return true;
  if (segment.state == SegmentState::kRedacting) {
    report.findings.push_back(interrupted_redaction(segment));
    return false;
  }
  if (which == Rewrite::kUnpacked) {
    auto db = open_segment_reader(config_.root, segment.id);
    if (db) {
      auto loose = is_loose(**db);
      if (loose || !is_damage(loose.error())) return loose;
    } else if (!is_damage(db.error())) {
      return db.error();
    }
    report.findings.push_back({segment_name(segment.id), "is damaged and was left alone"});
    return false;
  }
  Report found;
  check_segment(config_.root, segment, catalog, control, found);
  return std::any_of(found.findings.begin(), found.findings.end(),
                     [](const Finding& finding) { return !finding.lost; });
}

Result<MaintainedSink::Report> Maintenance::rewrite(Rewrite which, const Control& control) {
  Report report;
  for (const char* figure : {"segments", "segments_rewritten", "events", "findings"})
    report.figures[figure] = 0;
  const auto turn = take_turn();
  if (!turn) return turn.error();
  auto catalog = repaired_catalog(report);
  if (!catalog) return catalog.error();
  const auto segments = segments_of(**catalog);
  if (!segments) return segments.error();
  for (const SegmentInfo& segment : *segments) {
    ++report.figures["segments"];
    const auto needed = needs_rewriting(which, segment, **catalog, control, report);
    if (!needed) return needed.error().with_context(segment_name(segment.id));
    if (control.stop.stop_requested()) break;
    if (!*needed) continue;
    auto moved = move_segment(config_, clock_, segment.id, control);
    if (!moved) return moved.error().with_context(segment_name(segment.id));
    report.figures["events"] += moved->events;
    std::move(moved->lost.begin(), moved->lost.end(), std::back_inserter(report.findings));
    if (!moved->finished) break;
    ++report.figures["segments_rewritten"];
  }
  report.interrupted = control.stop.stop_requested();
  report.figures["findings"] = report.findings.size();
  return report;
}

// ---- redaction

namespace {

using EventPtr = std::shared_ptr<const Event>;

// Asks for each event once: what an earlier look at the segment has found out is remembered.
class EditedMove final : public MoveEditor {
 public:
  EditedMove(const std::string& segment, RewritableSink::Editor& editor,
             RewritableSink::Summary& summary, bool resumed)
      : segment_(segment), editor_(editor), summary_(summary), resumed_(resumed) {}

  EventPtr edit(const Event& event) override {
    if (const auto known = known_.find(event.id); known != known_.end()) return known->second;
    ++summary_.events;
    auto after = editor_.edit(place(event), event);
    if (after) return *after;
    ++summary_.left[kNotEdited];
    editor_.left(place(event), kNotEdited);
    return nullptr;
  }
  void remember(const Event& event, EventPtr after) { known_[event.id] = std::move(after); }

  Result<void> stored(const std::vector<std::pair<EventPtr, EventPtr>>& changes) override {
    for (const auto& [before, after] : changes) {
      if (auto noted = editor_.replacing(place(*before), *before, *after, resumed_); !noted)
        return noted;
      ++(resumed_ ? summary_.resumed : summary_.changed);
    }
    return {};
  }

 private:
  static constexpr const char* kNotEdited = "the rules could not be applied";
  std::string place(const Event& event) const { return segment_ + ": job " + event.job.id; }

  const std::string segment_;
  RewritableSink::Editor& editor_;
  RewritableSink::Summary& summary_;
  const bool resumed_;
  std::map<std::string, EventPtr> known_;
};

// All events that the rows of a segment name; until use() returns false.
class RowEvents {
 public:
  RowEvents(EventReader& segment, std::string name, RewritableSink::Editor& editor,
            RewritableSink::Summary& summary)
      : segment_(segment), name_(std::move(name)), editor_(editor), summary_(summary) {}

  Result<void> for_each(const std::function<bool(const Event&)>& use) {
    const std::int64_t end = segment_.db().integer("SELECT max(id) FROM jobs").value_or(0) + 1;
    for (std::int64_t first = 0; first < end && more_; first += kChunkJobs) {
      segment_.db().execute("BEGIN");
      segment_.rows().forget();
      segment_.contents().forget();
      auto read = segment_.rows().read_range(first, first + kChunkJobs,
                                             [&](JobEntry&& entry) { return use_job(entry, use); });
      segment_.db().rollback();
      if (!read) leave(read.error());
    }
    if (const auto error = segment_.db().take_error()) leave(*error);
    return {};
  }

 private:
  bool use_job(const JobEntry& entry, const std::function<bool(const Event&)>& use) {
    if (entry.record) use_one(segment_.submission(entry), use);
    const auto records = segment_.later_records(entry.id);
    if (!records) leave(records.error());
    for (const std::int64_t record : records.value_or(std::vector<std::int64_t>{}))
      use_one(segment_.record(record), use);
    return more_;
  }
  void use_one(const Result<Event>& event, const std::function<bool(const Event&)>& use) {
    if (!event) {
      leave(event.error());
    } else if (more_) {
      more_ = use(*event);
    }
  }
  void leave(const Error& error) {
    ++summary_.left[kCannotBeRead];
    editor_.left(name_ + ": " + error.message(), kCannotBeRead);
  }

  EventReader& segment_;
  const std::string name_;
  RewritableSink::Editor& editor_;
  RewritableSink::Summary& summary_;
  bool more_ = true;
};

}  // namespace

Result<RewritableSink::Summary> Maintenance::rewrite(const Pass& pass, Editor& editor) {
  Summary summary;
  if (!pass.directory.empty())
    return Error{ErrorKind::kInvalidConfig, "a catalog is cleaned as a whole"};
  const auto turn = take_turn();
  if (!turn && turn.error().kind() == ErrorKind::kVanished) return summary;
  if (!turn) return turn.error();
  auto catalog = open_catalog_reader(config_.root);
  if (!catalog) return catalog.error();
  const auto segments = segments_of(**catalog);
  if (!segments) return segments.error();
  for (const std::string& file : damaged_files(config_.root)) {
    ++summary.left[kKeptDamaged];
    editor.left(file, kKeptDamaged);
  }
  for (const SegmentInfo& segment : *segments) {
    if (pass.stop.stop_requested()) break;
    if (auto done = redact_segment(pass, segment, editor, summary); !done)
      return done.error().with_context(segment_name(segment.id));
  }
  return summary;
}

Result<void> Maintenance::redact_segment(const Pass& pass, const SegmentInfo& segment,
                                         Editor& editor, Summary& summary) const {
  const std::string name = config_.root + "/" + segment_name(segment.id);
  const bool resumed = is_leaving(segment.state);
  EditedMove move(name, editor, summary, resumed);
  bool found = resumed;
  if (!resumed) {
    auto reader = EventReader::open(config_.root, segment.id);
    if (!reader) {
      ++summary.left[kCannotBeRead];
      editor.left(name + ": " + reader.error().message(), kCannotBeRead);
      return {};
    }
    RowEvents events(**reader, name, editor, summary);
    auto read = events.for_each([&](const Event& event) {
      EventPtr after = move.edit(event);
      const bool changes = after != nullptr;
      if (changes && !pass.apply) ++summary.changed;
      if (pass.apply) move.remember(event, std::move(after));
      found = found || changes;
      return !pass.stop.stop_requested() && !(pass.apply && found);
    });
    if (!read) return read;
    // Former versions of events, of which no row speaks, go with the rest.
    found = found || (*reader)->db().number("SELECT sum(garbage) FROM blocks") > 0;
    if (auto error = (*reader)->db().take_error()) return *std::move(error);
  }
  if (!pass.apply || !found || pass.stop.stop_requested()) return {};
  const MaintainedSink::Control control{.stop = pass.stop, .progress = {}};
  const auto moved = move_segment(config_, clock_, segment.id, control, &move);
  if (!moved) return moved.error();
  for (const Finding& lost : moved->lost) {
    ++summary.left[kCannotBeRead];
    editor.left(lost.place + ": " + lost.problem, kCannotBeRead);
  }
  return {};
}

}  // namespace scriptorium::catalog
