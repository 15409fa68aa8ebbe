#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/base/sha256.h"
#include "core/capture/entry_table.h"

namespace scriptorium::test {

// A spool, the kernel's two queues and a journal, all in memory, and a driver that asks the table
// what to do in the engine's order. Everything that really happens at the same time as capture may
// happen between any two steps of the driver: `meanwhile` is called there.
class SimulatedSpool {
 public:
  enum class Method { kFanotify, kInotify, kScan };
  struct File {
    std::uint64_t inode = 0;
    std::int64_t mtime_ns = 0;
    std::string bytes;
  };
  using FilePtr = std::shared_ptr<File>;

  static constexpr std::chrono::milliseconds kIncompleteAfter{2000};

  SimulatedSpool(Method method, bool own_directories)
      : method_(method),
        own_directories_(own_directories),
        table_(std::in_place, table_options()) {}

  // Called between any two things that the driver does.
  std::function<void()> meanwhile = [] {};
  std::function<Assessment(const SpoolEntry&)> assess = whole_if_files_end;
  bool journal_full = false;
  bool over_share = false;
  bool unreadable = false;  // nothing can be opened

  // ---- what the scheduler does

  void make_directory(const std::string& key) {
    entries_[key].directory_inode = next_inode();
    tell(key, "", Change::kAppeared);
  }
  FilePtr create(const std::string& key, const std::string& file) {
    auto made = std::make_shared<File>(File{next_inode(), tick(), ""});
    entries_[key].files[file] = made;
    tell(key, file, Change::kAppeared);
    return made;
  }
  void link(const std::string& key, const std::string& file, FilePtr target) {
    entries_[key].files[file] = std::move(target);
    tell(key, file, Change::kAppeared);
  }
  void write(const FilePtr& file, const std::string& more) const {
    file->bytes += more;
    file->mtime_ns = tick();
  }
  void close(const std::string& key, const std::string& file, const FilePtr& written) {
    if (method_ == Method::kFanotify) closed_.push_back({key, file, written});
    tell(key, file, Change::kWritten);
  }
  void remove_file(const std::string& key, const std::string& file) {
    const auto entry = entries_.find(key);
    if (entry == entries_.end()) return;
    if (const auto found = entry->second.files.find(file); found != entry->second.files.end()) {
      free_inodes_.push_back(found->second->inode);
      entry->second.files.erase(found);
    }
    tell(key, file, Change::kGone);
    if (!own_directories_ && entry->second.files.empty()) entries_.erase(entry);
  }
  void remove_directory(const std::string& key) {
    watched_.erase(key);
    entries_.erase(key);
    tell(key, "", Change::kGone);
  }
  void advance(std::chrono::nanoseconds time) { now_ += time; }
  bool stands(const std::string& key) const { return entries_.contains(key); }

  // ---- the driver

  void begin_scan() {
    if (scanning_) return;
    scanning_ = true;
    table_->begin_scan(++scan_, true);
    for (const auto& [key, entry] : entries_) to_scan_.push_back({key, entry.directory_inode});
  }
  void step() {
    ++step_;
    const bool content = method_ == Method::kFanotify;
    read_structure();
    const bool structure_drained = read_.empty();
    const std::size_t closed = closed_.size();
    for (std::size_t i = 0; i < closed; ++i) take_closed();
    for (std::size_t left = content ? read_.size() : std::min<std::size_t>(read_.size(), 16);
         left > 0; --left)
      handle_structure();
    if (unlisted_ && (structure_drained || taken_ >= unlisted_->second)) forget_unlisted();
    const bool drained = structure_drained && closed == 0;
    run(EntryTable::Drained{.structure = structure_drained && !scanning_, .all = drained});
    offer_again();
    scan_some();
    while (drained && table_->next_due() && *table_->next_due() <= now_) {
      run(EntryTable::Timer{now_});
      meanwhile();
    }
  }
  // The daemon ends and is started again: what is queued is lost, the journal's marks are not.
  void restart() {
    table_.emplace(table_options());
    for (const auto& [key, mark] : marks) table_->restore(mark);
    queue_.clear();
    read_.clear();
    closed_.clear();
    to_scan_.clear();
    watched_.clear();
    unlisted_.reset();
    scanning_ = false;
    begin_scan();
  }

  EntryTable& table() { return *table_; }
  SteadyTime now() const { return now_; }

  // ---- what came out

  struct Captured {
    std::string script, environment;  // "" = none
    bool whole = false;
    std::string id;
  };
  std::vector<Captured> captured;            // in the order of the journal
  std::map<std::string, int> ids;            // event id -> how often the journal took it
  std::map<std::string, CaptureMark> marks;  // of the journal
  std::map<std::string, int> missed;         // key -> how often
  std::map<std::string, int> ignored;        // likewise
  std::map<std::string, int> opened;         // key -> files that were read
  std::set<std::string> taken_keys;          // that became an event
  int duplicates = 0;

 private:
  EntryTable::Options table_options() const {
    return {.incomplete_after = kIncompleteAfter,
            .content_notifications = method_ == Method::kFanotify,
            .watches_entries = method_ == Method::kInotify};
  }

  enum class Change { kAppeared, kGone, kWritten };
  struct Structure {
    std::string key;
    std::string file;
    Change change = Change::kAppeared;
    std::uint64_t end = 0;
  };
  struct SimulatedEntry {
    std::uint64_t directory_inode = 0;
    std::map<std::string, FilePtr> files;
  };
  struct Closed {
    std::string key;
    std::string file;
    FilePtr content;
  };

  static Assessment whole_if_files_end(const SpoolEntry& entry) {
    const auto ends = [&](const char* name) {
      const SpoolFile* file = entry.file(name);
      return file != nullptr && file->bytes->ends_with('\0');
    };
    if (ends("script") && ends("environment")) return {.state = Assessment::State::kComplete};
    return {.state = Assessment::State::kIncomplete, .reason = "not whole"};
  }

  // A clock of a file system, which stands still for 4 ms; inodes are used again at once.
  std::int64_t tick() const { return now_.time_since_epoch().count() / 4'000'000 * 4'000'000 + 1; }
  std::uint64_t next_inode() {
    if (free_inodes_.empty()) return ++last_inode_;
    const std::uint64_t inode = free_inodes_.back();
    free_inodes_.pop_back();
    return inode;
  }
  Timestamp wall() const { return {now_.time_since_epoch().count()}; }

  // Directories that hold entries are watched; an entry's own only if the table asked for it.
  void tell(const std::string& key, const std::string& file, Change change) {
    if (method_ == Method::kScan) return;
    const bool in_directory = own_directories_ && !file.empty();
    if (in_directory && !watched_.contains(key)) return;
    if (in_directory && change == Change::kGone) return;
    queue_.push_back({key, file, change, ++told_});
  }
  FileStat stat_of(const File& file) const {
    FileStat stat;
    stat.device = 1;
    stat.inode = file.inode;
    stat.mtime_ns = file.mtime_ns;
    stat.size = file.bytes.size();
    stat.links = 1;
    return stat;
  }

  void run(const EntryTable::Input& input) {
    for (const EntryAction& action : table_->on(input)) act(action);
  }
  void act(const EntryAction& action) {
    using Kind = EntryAction::Kind;
    const std::string& key = action.key;
    switch (action.kind) {
      case Kind::kCountNumber:
      case Kind::kRelease:
      case Kind::kLeaveToScan: return;
      case Kind::kReadAtOnce: {
        read_files(key);
        const Inspection* inspection = table_->inspection(key);
        if (inspection != nullptr && !inspection->content.files.empty() &&
            assess(inspection->content).state == Assessment::State::kComplete)
          return run(content_of(key));
        watched_.insert(key);
        return inspect(key);
      }
      case Kind::kInspect: return inspect(key);
      case Kind::kVerify: {
        const CaptureRecord* record = table_->record(key);
        if (record != nullptr && as_recorded(key, *record))
          return run(EntryTable::Verified{key, record->identity});
        return inspect(key);
      }
      case Kind::kTake: return take(key, action.whole);
      case Kind::kIgnoreEmpty: return run(EntryTable::Ignored{key, {}});
      case Kind::kWatch: watched_.insert(key); return;
      case Kind::kSetMark: marks[key] = mark_of(key, *table_->record(key)); return;
      case Kind::kForgetMark: marks.erase(key); return;
      case Kind::kCountMissed: ++missed[key]; return;
      case Kind::kCountIgnored: ++ignored[key]; return;
      case Kind::kCountDuplicate: ++duplicates; return;
    }
  }
  bool as_recorded(const std::string& key, const CaptureRecord& record) const {
    const auto entry = entries_.find(key);
    if (entry == entries_.end()) return false;
    if (record.identity.file.empty()) return entry->second.files.empty();
    const auto file = entry->second.files.find(record.identity.file);
    return file != entry->second.files.end() && record.identity.matches(stat_of(*file->second));
  }
  EntryTable::Content content_of(const std::string& key) {
    EntryTable::Content content{.key = key, .assessment = {}, .now = now_, .wall = wall()};
    const Inspection* inspection = table_->inspection(key);
    if (inspection != nullptr && !inspection->content.files.empty())
      content.assessment = assess(inspection->content);
    return content;
  }
  void inspect(const std::string& key) {
    run(EntryTable::Inspecting{key, "scan", now_});
    meanwhile();
    const bool found = stands(key);
    if (found && !unreadable) read_files(key);
    run(EntryTable::Inspected{.content = content_of(key),
                              .found = found,
                              .unreadable = found && unreadable,
                              .step = step_});
  }
  void read_files(const std::string& key) {
    const auto entry = entries_.find(key);
    if (entry == entries_.end()) return;
    for (const auto& [name, file] : entry->second.files) {
      const SpoolFile* known = table_->inspection(key)->content.file(name);
      if (known == nullptr || *known->bytes != file->bytes ||
          known->stat.mtime_ns != file->mtime_ns || known->stat.inode != file->inode)
        add(key, name, *file);
    }
  }
  void add(const std::string& key, const std::string& name, const File& file) {
    ++opened[key];
    table_->add_file(key, {.name = name, .stat = stat_of(file), .bytes = make_bytes(file.bytes)},
                     now_);
  }

  void read_structure() {
    for (; !queue_.empty(); queue_.pop_front()) {
      Structure& event = queue_.front();
      if (method_ == Method::kInotify && event.file.empty() && event.change == Change::kAppeared &&
          table_->is_empty(event.key)) {
        for (const EntryAction& action :
             table_->on(EntryTable::DirectoryAppeared{event.key, now_})) {
          if (action.kind == EntryAction::Kind::kReadAtOnce) read_files(action.key);
        }
      }
      read_.push_back(std::move(event));
    }
  }
  void handle_structure() {
    const Structure event = std::move(read_.front());
    read_.pop_front();
    taken_ = event.end;
    const std::string& key = event.key;
    if (event.file.empty()) {
      if (event.change == Change::kAppeared) {
        run(EntryTable::DirectoryAppeared{key, now_});
      } else {
        run(EntryTable::DirectoryRemoved{key, table_->needs_proof(key) && !stands(key)});
      }
    } else {
      const CaptureRecord* record = table_->record(key);
      const bool unchanged = record != nullptr && as_recorded(key, *record);
      const bool is_record = event.file == "JB" || event.file == "TA";
      if (is_record && (event.change == Change::kGone || table_->is_settled(key))) return;
      if (event.change == Change::kGone) {
        run(EntryTable::FileRemoved{key, event.file, own_directories_, unchanged});
      } else {
        run(EntryTable::FileChanged{.key = key,
                                    .file = event.file,
                                    .in_directory = own_directories_,
                                    .appeared = event.change == Change::kAppeared,
                                    .is_record = is_record,
                                    .unchanged = unchanged,
                                    .now = now_});
      }
    }
    meanwhile();
  }
  void take_closed() {
    const Closed event = std::move(closed_.front());
    closed_.pop_front();
    const FileStat stat = stat_of(*event.content);
    const bool is_record = event.file == "JB" || event.file == "TA";
    if (is_record && (table_->is_settled(event.key) || stat.size == 0)) return;
    if (table_->was_captured(event.key, identity_of(event.file, stat))) {
      run(EntryTable::CapturedBefore{event.key});
    } else {
      run(EntryTable::ContentArrived{event.key, is_record, now_});
      add(event.key, event.file, *event.content);
      run(content_of(event.key));
    }
    meanwhile();
  }

  void take(const std::string& key, bool whole) {
    const Inspection& inspection = *table_->inspection(key);
    if (table_->waiting().is_too_large(inspection.bytes))
      return run(EntryTable::Refused{.key = key, .whole = whole, .asked = false, .now = now_});
    const SpoolFile* script = inspection.content.file("script");
    if (script == nullptr) script = inspection.content.file("SC");
    const SpoolFile& known_by = script != nullptr ? *script : inspection.content.files.front();
    const std::string id = sha256_hex(key + '/' + known_by.name + '/' +
                                      std::to_string(known_by.stat.mtime_ns) + *known_by.bytes);
    CaptureRecord record;
    record.identity = identity_of(known_by.name, known_by.stat);
    record.event_id = record.capture_key = *pack_event_id(id);
    record.kind = whole ? CaptureRecord::Kind::kWhole : CaptureRecord::Kind::kPartial;
    record.marked = true;
    if (table_->made_event(key, record.capture_key) != nullptr)
      return run(EntryTable::Captured{.key = key, .record = record, .duplicate = true});
    if (journal_full || over_share) {
      return run(EntryTable::Refused{.key = key,
                                     .whole = whole,
                                     .over_share = over_share,
                                     .mtime_ns = known_by.stat.mtime_ns,
                                     .now = now_});
    }
    ++ids[id];
    taken_keys.insert(key);
    const SpoolFile* environment = inspection.content.file("environment");
    captured.push_back({script != nullptr ? *script->bytes : "",
                        environment != nullptr ? *environment->bytes : "", whole, id});
    marks[key] = mark_of(key, record);
    run(EntryTable::Captured{.key = key, .record = std::move(record)});
  }
  void offer_again() {
    WaitingList& waiting = table_->waiting();
    if (waiting.is_empty()) return;
    for (std::size_t left = waiting.begin_round(now_, !journal_full && !over_share); left > 0;
         --left) {
      WaitingList::Item item = waiting.take();
      const Inspection* inspection = table_->inspection(item.key);
      if (inspection == nullptr || !inspection->waits()) continue;
      if (waiting.is_too_large(item.bytes)) {
        waiting.keep(std::move(item));
      } else {
        run(EntryTable::Offered{item.key});
      }
      meanwhile();
    }
    if (waiting.scan_is_due()) begin_scan();
  }

  void scan_some() {
    for (int i = 0; i < 3 && !to_scan_.empty(); ++i) {
      const auto [key, inode] = to_scan_.front();
      to_scan_.pop_front();
      const auto entry = entries_.find(key);
      const bool counts =
          own_directories_ || (entry != entries_.end() && entry->second.files.contains("SC"));
      run(EntryTable::Listed{key, inode, counts, now_});
      table_->listed_with(key, inode);
      meanwhile();
    }
    if (!scanning_ || !to_scan_.empty()) return;
    scanning_ = false;
    unlisted_ = {scan_, told_};
  }
  void forget_unlisted() {
    for (const std::string& key : table_->unlisted(unlisted_->first)) {
      if (!stands(key)) run(EntryTable::Unlisted{key});
    }
    unlisted_.reset();
  }

  const Method method_;
  const bool own_directories_;
  std::optional<EntryTable> table_;
  SteadyTime now_{std::chrono::hours(1)};
  std::uint64_t last_inode_ = 100;
  std::vector<std::uint64_t> free_inodes_;
  std::map<std::string, SimulatedEntry> entries_;
  std::set<std::string> watched_;
  std::deque<Structure> queue_;  // the kernel's
  std::deque<Structure> read_;   // ours
  std::deque<Closed> closed_;
  std::uint64_t told_ = 0;
  std::uint64_t taken_ = 0;
  std::uint64_t step_ = 0;
  bool scanning_ = false;
  std::uint32_t scan_ = 0;
  std::deque<std::pair<std::string, std::uint64_t>> to_scan_;
  std::optional<std::pair<std::uint32_t, std::uint64_t>> unlisted_;
};

}  // namespace scriptorium::test
