#include "core/capture/capture_engine.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <utility>

#include "core/base/fault_point.h"

namespace scriptorium {
namespace {

using std::chrono::milliseconds;

// Under load notifications are taken at most this often, unless they come in numbers.
constexpr milliseconds kGather{1};
// The longest wait without anything to wait for.
constexpr milliseconds kLongestWait{60'000};
// At least this long between two scans because descriptors had run out.
constexpr milliseconds kDescriptorScans{60'000};
// A scan follows this soon when a directory could not be watched.
constexpr milliseconds kScanAfterFailure{1000};
// Entries of a scan, and notifications of structure, that one step handles before it reads
// notifications again.
constexpr int kScanSlice = 32;
constexpr std::size_t kStructureSlice = 16;
// Steps between two looks at the mount table, beside what poll() tells.
constexpr std::uint64_t kMountsEvery = 16;

std::chrono::seconds rescan_interval(const SourceConfig& common) {
  return std::chrono::seconds(common.rescan_seconds.value_or(common.capture == "scan" ? 2 : 60));
}

EntryTable::Options table_options(const SourceConfig& common, const SpoolAccess& access) {
  return {.incomplete_after = std::chrono::seconds(common.incomplete_after_seconds),
          .content_notifications = access.fanotify_fd() >= 0,
          .watches_entries = access.fanotify_fd() < 0 && access.inotify_fd() >= 0};
}

std::string join(const std::string& directory, const std::string& name) {
  return directory.empty() ? name : directory + '/' + name;
}

}  // namespace

CaptureEngine::CaptureEngine(CaptureOptions options, const SpoolAdapter& adapter,
                             OpenedAccess opened, Journal& journal, Logger& log, const Clock& clock)
    : options_(std::move(options)),
      access_(std::move(opened.access)),
      journal_(journal),
      log_(log),
      clock_(clock),
      wake_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)),
      report_(std::make_shared<CaptureReport>(options_.name, log)),
      adapter_(adapter, options_.around_parse, options_.name, log),
      check_(*access_, adapter_),
      // An entry may be found by the scan alone, long after one with a higher number was.
      gaps_(options_.name, rescan_interval(options_.common) + std::chrono::seconds{5},
            adapter.make_number_resolver(), journal, log, clock),
      table_(table_options(options_.common, *access_)),
      presence_(*access_, adapter_, table_),
      watches_(*access_, *report_),
      scanner_({*access_, adapter_, table_, watches_, gaps_, *report_, clock},
               rescan_interval(options_.common)),
      parts_{options_, *access_, adapter_, table_,  presence_, watches_,
             scanner_, check_,   journal,  report_, clock},
      runner_(parts_),
      intake_(parts_, runner_),
      notifications_(*access_) {
  note_method(opened);
  restore_marks();
}

CaptureEngine::~CaptureEngine() = default;

void CaptureEngine::note_method(const OpenedAccess& opened) {
  const bool content = access_->fanotify_fd() >= 0;
  const bool structure = access_->inotify_fd() >= 0;
  const std::string& wanted = options_.common.capture;
  report_->change([&](CaptureStatus& s) {
    s.capture_method = content ? "fanotify" : (structure ? "inotify" : "scan");
    if (wanted == "auto" && !content) s.why_not_better = opened.fanotify_problem;
    if ((wanted == "auto" || wanted == "inotify") && !structure)
      s.why_not_better += (s.why_not_better.empty() ? "" : "; ") + opened.inotify_problem;
  });
}

void CaptureEngine::restore_marks() {
  for (const CaptureMark& mark : journal_.marks(options_.name)) {
    if (const auto number = adapter_.number_of(mark.entry)) gaps_.seen({&*number, 1});
    table_.restore(mark);
  }
}

void CaptureEngine::start() {
  gaps_.start();
  journal_.on_room(options_.name, [this] {
    room_ = true;
    wake();
  });
}

void CaptureEngine::stop() {
  journal_.on_room(options_.name, {});
  gaps_.stop();
}

void CaptureEngine::wake() const {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = ::write(wake_.get(), &one, sizeof one);
}

void CaptureEngine::rescan() {
  rescan_asked_ = true;
  wake();
}

CaptureStatus CaptureEngine::status() const {
  CaptureStatus status = report_->status();
  if (GapStatus gaps = gaps_.status(); gaps.highest) status.gaps = std::move(gaps);
  return status;
}

bool CaptureEngine::unchanged(const CaptureMark& mark) const {
  const auto now = check_.as_captured(mark.entry, mark.identity);
  if (!now || now->device == mark.identity.device) return now.has_value();
  // Remounted under another number since, or another file system: then it is not the spool's.
  const auto root = access_->stat("");
  return root && root->device == now->device;
}

// ---- the loop

void CaptureEngine::begin() {
  if (presence_.is_bare_mount_point()) {
    // The file system with the spool may not be mounted yet. What the journal remembers of it must
    // outlast that.
    presence_.expect_mount();
    lose_spool("an empty directory stands in its place");
  } else {
    watches_.add_directory("");
    begin_scan(true);
  }
}

CaptureEngine::Pause CaptureEngine::step(const std::stop_token& stop) {
  runner_.begin_step();
  const bool drained = take_notifications(stop);
  forget_unlisted(stop);
  const bool scans = scanner_.is_running() || scanner_.has_items();
  runner_.tell(EntryTable::Drained{.structure = structure_drained_ && !scans, .all = drained},
               stop);
  if (rescan_asked_.exchange(false)) begin_scan(true);
  offer_waiting(stop);
  scan_some(stop);
  // Only now: every event that came before has been read, so what is not there may be counted as
  // missed.
  if (drained) inspect_due(stop);
  look_at_mounts();
  const SteadyTime now = clock_.steady();
  if (!presence_.is_there() && now >= presence_.next_search()) search_spool();
  if (!scanner_.is_running() && now >= scanner_.next()) begin_scan(scanner_.take_thorough());
  if (watches_.take_failure()) scanner_.no_later_than(now + kScanAfterFailure);
  runner_.reader().held().drop_old(now);
  publish();
  return pause(drained);
}

CaptureEngine::Pause CaptureEngine::pause(bool drained) {
  if (scanner_.is_running() || scanner_.has_items()) return {};
  if (!drained) {
    // Waking up for each notification costs more than reading it. fanotify's hold their files, so
    // nothing is lost meanwhile; inotify's do not.
    return small_batch_ ? Pause{.most = kGather, .until_notification = false} : Pause{};
  }
  SteadyTime next = scanner_.next();
  if (!presence_.is_there()) next = std::min(next, presence_.next_search());
  if (!table_.waiting().is_empty()) next = std::min(next, table_.waiting().next_offer());
  if (const auto due = table_.next_due(); due && presence_.is_there()) next = std::min(next, *due);
  const auto left = std::chrono::ceil<milliseconds>(next - clock_.steady());
  return {.most = std::clamp(left, milliseconds{0}, kLongestWait)};
}

void CaptureEngine::wait(Pause pause) {
  if (pause.most.count() == 0 && !pause.until_notification) return;
  std::array<pollfd, 4> fds{{{wake_.get(), POLLIN, 0},
                             {access_->inotify_fd(), POLLIN, 0},
                             {access_->fanotify_fd(), POLLIN, 0},
                             {presence_.mounts_fd(), POLLPRI, 0}}};
  const nfds_t count = pause.until_notification ? fds.size() : 1;
  ::poll(fds.data(), count, static_cast<int>(pause.most.count()));
  if (!pause.until_notification) return;
  if (fds[3].revents != 0) presence_.note_mounts_changed();
  std::uint64_t wakes = 0;
  [[maybe_unused]] const ssize_t n = ::read(wake_.get(), &wakes, sizeof wakes);
}

void CaptureEngine::end() { runner_.give_up_waiting({}); }

std::size_t CaptureEngine::run_once(milliseconds patience, const std::stop_token& stop) {
  constexpr milliseconds kBetweenRounds{20};
  const SteadyTime until = clock_.steady() + patience;
  table_.expect_no_more();
  scanner_.ignore_numbers();
  runner_.taker().wait_for_room();
  begin_scan(true);
  while (!stop.stop_requested()) {
    while (scanner_.is_running() && !stop.stop_requested()) scan_some(stop);
    if (table_.entries().inspections() == 0 || clock_.steady() >= until) break;
    wait({.most = kBetweenRounds});
    for (const std::string& key : table_.open_keys()) runner_.inspect(key, "scan", stop);
  }
  return table_.entries().inspections();
}

void CaptureEngine::inspect_due(const std::stop_token& stop) {
  // What is due by now, and not what an inspection puts off: that waits for the notifications that
  // come in between.
  const SteadyTime now = clock_.steady();
  while (presence_.is_there() && !stop.stop_requested()) {
    const auto due = table_.next_due();
    if (!due || *due > now) return;
    runner_.tell(EntryTable::Timer{now}, stop);
  }
}

void CaptureEngine::offer_waiting(const std::stop_token& stop) {
  if (table_.waiting().is_empty()) return;
  runner_.offer_again(room_.exchange(false), stop);
  if (!table_.waiting().scan_is_due()) return;
  begin_scan(true);
  scanner_.forget_left();
}

void CaptureEngine::publish() {
  runner_.send_forgotten_marks();
  report_->change([&](CaptureStatus& s) {
    s.pending = table_.entries().inspections();
    s.waiting_for_room = table_.waiting().size();
    s.pending_bytes = table_.entries().held_bytes();
  });
}

// ---- notifications

// True if nothing was left to read.
bool CaptureEngine::take_notifications(const std::stop_token& stop) {
  const bool content = access_->fanotify_fd() >= 0;
  if (content) {
    notifications_.read_structure({});
  } else {
    notifications_.read_structure([&](const StructureEvent& event) { read_early(event, stop); });
  }
  structure_drained_ = !notifications_.has_structure();
  const bool content_drained = !content || take_content(stop);
  // Without fanotify only some: what has appeared meanwhile must be read before it goes.
  std::size_t most = notifications_.structure_count();
  if (!content) most = std::min(most, kStructureSlice);
  for (; most > 0 && !stop.stop_requested(); --most)
    on_structure(notifications_.take_structure(), stop);
  return structure_drained_ && content_drained;
}

// All that is queued now; true if nothing was.
bool CaptureEngine::take_content(const std::stop_token& stop) {
  using Trouble = NotificationReader::ContentBatch::Trouble;
  const std::size_t queued = notifications_.queued_content();
  small_batch_ = notifications_.is_small(queued);
  for (std::size_t left = queued; left > 0 && !stop.stop_requested();) {
    const auto batch = notifications_.read_content(left);
    if (batch.trouble == Trouble::kNoDescriptors) on_no_descriptors();
    if (batch.trouble == Trouble::kFailed)
      on_overflow("CAPTURE_READ_FAILED",
                  "reading notifications failed; the spool is scanned again");
    if (batch.bytes == 0) break;
    for (const ContentEvent& event : batch.events) {
      FAULT_POINT("capture.event_read");
      if (event.overflow) {
        on_overflow("CAPTURE_OVERFLOW",
                    "the kernel's queue of notifications ran over; the spool is scanned again");
      } else if (!stop.stop_requested()) {
        intake_.take(event, stop);
      }
    }
    left -= std::min(left, batch.bytes);
  }
  return queued == 0;
}

// One scan a minute finds what was dropped. A scan each time could keep us from anything else.
void CaptureEngine::on_no_descriptors() {
  const SteadyTime now = clock_.steady();
  if (no_descriptors_at_ && now < *no_descriptors_at_ + kDescriptorScans) {
    scanner_.no_later_than(*no_descriptors_at_ + kDescriptorScans);
    scanner_.make_next_thorough();
    return;
  }
  no_descriptors_at_ = now;
  on_overflow("CAPTURE_DESCRIPTORS_USED_UP",
              "no descriptor was left for an event; the spool is scanned again, once a minute at "
              "most; raise LimitNOFILE of the unit, or fs.file-max");
}

void CaptureEngine::on_overflow(std::string_view id, std::string_view sentence) {
  report_->change([](CaptureStatus& s) { ++s.overflows; });
  log_.warning(id, sentence, {{"source", options_.name}});
  begin_scan(true);
}

// An entry without fanotify can only be read while it stands, so its bytes are read before any
// other entry is parsed or given to the journal.
void CaptureEngine::read_early(const StructureEvent& event, const std::stop_token& stop) {
  using Kind = StructureEvent::Kind;
  if ((event.kind != Kind::kAppeared && event.kind != Kind::kWritten) || !table_.may_hold_more())
    return;
  const WatchList::Watched* watched = watches_.find(event.watch);
  if (watched == nullptr) return;
  const std::string path = join(watched->path, event.name);
  const SpoolPath place = adapter_.classify(path);
  const std::string key(place.entry);
  if (place.role == SpoolPath::Role::kEntryFile && watched->of_entry) {
    if (table_.inspection(key) != nullptr) runner_.reader().read_file(key, path);
  } else if (place.role == SpoolPath::Role::kEntryDirectory && event.is_directory) {
    runner_.read_early(key, stop);
  }
}

void CaptureEngine::on_structure(const StructureEvent& event, const std::stop_token& stop) {
  using Kind = StructureEvent::Kind;
  if (event.kind == Kind::kOverflow) {
    return on_overflow("CAPTURE_OVERFLOW",
                       "the kernel's queue of notifications ran over; the spool is scanned again; "
                       "raise fs.inotify.max_queued_events");
  }
  const WatchList::Watched* found = watches_.find(event.watch);
  if (found == nullptr) return;
  const WatchList::Watched watched = *found;  // what follows may change the list
  if (event.kind == Kind::kWatchEnded) return watches_.forget(event.watch);
  if (event.kind == Kind::kUnmounted) return lose_spool("it was unmounted");
  // Something happened where the spool should be.
  if (!presence_.is_there()) return presence_.search_soon(clock_.steady());
  if (event.kind != Kind::kSelfGone) return on_name(event, watched, stop);
  watches_.drop(event.watch);
  if (watched.path.empty()) return lose_spool("it was removed or renamed");
  if (watched.of_entry) runner_.inspect(watched.path, "inotify", stop);
}

void CaptureEngine::on_name(const StructureEvent& event, const WatchList::Watched& watched,
                            const std::stop_token& stop) {
  const std::string path = join(watched.path, event.name);
  const SpoolPath place = adapter_.classify(path);
  if (event.kind == StructureEvent::Kind::kAppeared && event.moved && event.is_directory)
    intake_.forget_foreign();
  switch (place.role) {
    case SpoolPath::Role::kForeign: return;
    case SpoolPath::Role::kDirectory: return on_directory(event, path);
    case SpoolPath::Role::kEntryDirectory:
      if (event.is_directory) on_entry(event, std::string(place.entry), stop);
      return;
    case SpoolPath::Role::kEntryRecord:
      if (event.kind == StructureEvent::Kind::kGone || table_.is_settled(place.entry)) return;
      [[fallthrough]];
    case SpoolPath::Role::kEntryFile: return on_file(event, place, watched.of_entry, stop);
  }
}

void CaptureEngine::on_directory(const StructureEvent& event, const std::string& path) {
  if (event.kind == StructureEvent::Kind::kGone) {
    watches_.drop_directory(path);
    scanner_.no_later_than(clock_.steady() + EntryTable::kStructureGrace);
  } else if (event.kind == StructureEvent::Kind::kAppeared && event.is_directory) {
    watches_.add_directory(path);
    scanner_.add_directory(path);
  }
}

void CaptureEngine::on_entry(const StructureEvent& event, const std::string& key,
                             const std::stop_token& stop) {
  if (event.kind == StructureEvent::Kind::kGone) {
    const bool is_gone = table_.needs_proof(key) && check_.is_gone(key);
    runner_.tell(EntryTable::DirectoryRemoved{key, is_gone}, stop);
  } else if (event.kind == StructureEvent::Kind::kAppeared) {
    runner_.tell(EntryTable::DirectoryAppeared{key, clock_.steady()}, stop);
  }
}

void CaptureEngine::on_file(const StructureEvent& event, const SpoolPath& place, bool in_directory,
                            const std::stop_token& stop) {
  const bool gone = event.kind == StructureEvent::Kind::kGone;
  const bool appeared = event.kind == StructureEvent::Kind::kAppeared;
  // The record's file is only compared where that decides something.
  const CaptureRecord* record = table_.record(place.entry);
  const bool is_of_record = record != nullptr && record->identity.file == place.file;
  const bool content = access_->fanotify_fd() >= 0;
  const bool matters = gone      ? is_of_record && !in_directory
                       : content ? record != nullptr && appeared
                                 : is_of_record;
  const bool stands = matters && check_.as_recorded(place.entry, *record).has_value();
  if (gone) {
    runner_.tell(EntryTable::FileRemoved{place.entry, place.file, in_directory, stands}, stop);
    return;
  }
  runner_.tell(EntryTable::FileChanged{.key = place.entry,
                                       .file = place.file,
                                       .in_directory = in_directory,
                                       .appeared = appeared,
                                       .tells_only = place.role == SpoolPath::Role::kEntryRecord,
                                       .stands = stands,
                                       .now = clock_.steady()},
               stop);
}

// ---- scans

void CaptureEngine::begin_scan(bool thorough) {
  scanner_.plan(clock_.steady());
  if (!presence_.is_there()) return;  // it is scanned when it is there again
  const std::uint32_t before = scanner_.number();
  // What is found again is scanned by that.
  if (check_root() == SpoolPresence::State::kLost || scanner_.number() != before) return;
  if (!scanner_.is_running()) {
    intake_.forget_mounts();
    intake_.forget_foreign();
  }
  scanner_.begin(thorough);
}

void CaptureEngine::scan_some(const std::stop_token& stop) {
  for (int i = 0; i < kScanSlice && !stop.stop_requested(); ++i) {
    const auto item = scanner_.take();
    if (!item) break;
    FAULT_POINT("capture.scan_entry");
    runner_.tell(
        EntryTable::Listed{item->key, item->directory_inode, item->counts, clock_.steady()}, stop);
    table_.listed_with(item->key, item->directory_inode);
  }
  if (stop.stop_requested()) return;
  const auto finished = scanner_.finish();
  if (!finished) return;
  if (finished->complete) unlisted_ = {scanner_.number(), notifications_.structure_end()};
  if (finished->again) begin_scan(true);
}

void CaptureEngine::forget_unlisted(const std::stop_token& stop) {
  if (!unlisted_) return;
  if (!structure_drained_ && notifications_.structure_taken() < unlisted_->after) return;
  const std::uint32_t scan = std::exchange(unlisted_, std::nullopt)->scan;
  for (const std::string& key : table_.unlisted(scan)) {
    if (check_.is_gone(key, *table_.record(key))) runner_.tell(EntryTable::Unlisted{key}, stop);
  }
}

// ---- the root

void CaptureEngine::look_at_mounts() {
  if (!presence_.mounts_changed() && runner_.step() % kMountsEvery != 0) return;
  presence_.poll_mounts();
  if (!presence_.take_mounts_changed()) return;
  intake_.forget_mounts();
  if (!presence_.is_there()) {
    presence_.search_soon(clock_.steady());
  } else if (check_root() == SpoolPresence::State::kRemounted) {
    begin_scan(true);
  }
}

// kLost only if no spool was found in the place of the one that is gone.
SpoolPresence::State CaptureEngine::check_root() {
  const SpoolPresence::State state = presence_.check();
  // The same directory through a new mount: what watched the old one may have ended with it.
  if (state == SpoolPresence::State::kRemounted) adopt_root();
  if (state != SpoolPresence::State::kLost) return state;
  lose_spool(presence_.reason());
  search_spool();
  return presence_.is_there() ? SpoolPresence::State::kSame : SpoolPresence::State::kLost;
}

void CaptureEngine::lose_spool(const std::string& reason) {
  if (!presence_.is_there()) return;
  presence_.lose(reason, clock_.steady());
  scanner_.abandon();
  unlisted_.reset();
  watches_.drop_all();
  runner_.reader().held().drop_all();
  report_->change([](CaptureStatus& s) { s.spool_there = false; });
  report_->note_error("spool: " + reason);
  log_.error(
      "SPOOL_GONE",
      "the spool directory is gone or was unmounted; it is looked for until it is there again",
      {{"source", options_.name}, {"spool", access_->root()}, {"reason", reason}});
}

void CaptureEngine::search_spool() {
  if (!presence_.search(clock_.steady())) {
    if (presence_.reason().empty()) return;
    report_->note_error("spool: " + presence_.reason());
    // The first thing in it tells that it is the spool after all.
    if (!watches_.has_directories()) watches_.add_directory("");
    return;
  }
  report_->change([](CaptureStatus& s) { s.spool_there = true; });
  adopt_root();
  log_.info("SPOOL_BACK", "the spool directory is there again; it is scanned",
            {{"source", options_.name}, {"spool", access_->root()}});
  begin_scan(true);
}

void CaptureEngine::adopt_root() {
  intake_.forget_mounts();
  gaps_.expect_listing();  // the entries there are not new, and a scan follows
  if (access_->fanotify_fd() >= 0) {
    if (auto marked = access_->mark(); !marked) report_->note_error(marked.error().message());
  }
  watches_.drop_all();
  watches_.add_directory("");
}

}  // namespace scriptorium
