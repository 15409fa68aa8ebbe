#include "core/capture/capture.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <utility>

#include "core/base/thread_name.h"
#include "core/capture/entry_check.h"

namespace scriptorium {
namespace {

using std::chrono::milliseconds;

// Under load notifications are taken at most this often, unless many are queued.
constexpr milliseconds kGather{1};
// The longest wait without anything to wait for.
constexpr milliseconds kLongestWait{60'000};
// A scan follows this soon when a directory could not be watched.
constexpr milliseconds kScanAfterFailure{1000};
// Steps between two checks of the mount table, beside what poll() reports.
constexpr std::uint64_t kMountsEvery = 16;

std::chrono::seconds rescan_interval(const SourceConfig& common) {
  return std::chrono::seconds(common.rescan_seconds.value_or(common.capture == "scan" ? 2 : 60));
}

// A scan alone may find an entry long after one with a higher number.
std::chrono::seconds gap_patience(const SourceConfig& common) {
  return rescan_interval(common) + std::chrono::seconds{5};
}

EntryTable::Options table_options(const CaptureContext& context) {
  return {.incomplete_after = std::chrono::seconds(context.options.common.incomplete_after_seconds),
          .content_notifications = context.has_content_notifications(),
          .watches_entries = context.has_inotify_only()};
}

}  // namespace

SpoolCapture::SpoolCapture(Options options, const SpoolAdapter& adapter, OpenedAccess opened,
                           Journal& journal, Logger& log, const Clock& clock)
    : options_(std::move(options)),
      access_(std::move(opened.access)),
      adapter_(adapter, options_.around_parse, options_.name, log),
      context_{options_,
               *access_,
               adapter_,
               journal,
               std::make_shared<CaptureReport>(options_.name, log),
               clock},
      wake_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)),
      gaps_(options_.name, gap_patience(options_.common), adapter.make_number_resolver(), journal,
            log, clock),
      table_(table_options(context_)),
      presence_(context_, table_),
      watches_(context_),
      scanner_(context_, table_, watches_, gaps_, rescan_interval(options_.common)),
      runner_(context_, table_, presence_, watches_, scanner_),
      intake_(context_, table_, presence_, runner_),
      notifications_(*access_) {
  note_method(opened);
  restore_marks();
}

SpoolCapture::~SpoolCapture() { stop(); }

Notifications SpoolCapture::wanted(const SourceConfig& common) {
  return {.inotify = common.capture != "scan",
          .fanotify = common.capture != "scan" && common.capture != "inotify"};
}

void SpoolCapture::note_method(const OpenedAccess& opened) {
  const bool content = context_.has_content_notifications();
  const bool structure = access_->inotify_fd() >= 0;
  const std::string& wanted = options_.common.capture;
  context_.report->change([&](CaptureStatus& s) {
    s.capture_method = content ? "fanotify" : (structure ? "inotify" : "scan");
    if (wanted == "auto" && !content) s.why_not_better = opened.fanotify_problem;
    if ((wanted == "auto" || wanted == "inotify") && !structure)
      s.why_not_better += (s.why_not_better.empty() ? "" : "; ") + opened.inotify_problem;
  });
}

void SpoolCapture::restore_marks() {
  for (const CaptureMark& mark : context_.journal.marks(options_.name)) {
    if (const auto number = adapter_.number_of(mark.entry)) gaps_.seen({&*number, 1});
    table_.restore(mark);
  }
}

// ---- from other threads

void SpoolCapture::start() {
  gaps_.start();
  context_.journal.on_room(options_.name, [this] {
    room_ = true;
    wake();
  });
  started_ = true;
  thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
}

void SpoolCapture::stop() {
  if (!std::exchange(started_, false)) return;
  thread_ = {};
  context_.journal.on_room(options_.name, {});
  gaps_.stop();
  runner_.end_waiting();
}

void SpoolCapture::pause() {
  gaps_.stop();  // this may wait for the scheduler's answer, so entries are still taken meanwhile
  // Not by the stop token, which drops what was read of the queue and not yet taken.
  pausing_ = true;
  wake();
  if (thread_.joinable()) thread_.join();
  pausing_ = false;
}

void SpoolCapture::change(Options options, const SpoolAdapter& adapter,
                          std::unique_ptr<NumberResolver> numbers) {
  options_ = std::move(options);
  adapter_.replace(adapter);
  gaps_.change(gap_patience(options_.common), std::move(numbers));
  table_.change_incomplete_after(table_options(context_).incomplete_after);
  scanner_.change_interval(rescan_interval(options_.common));
}

void SpoolCapture::wake() const {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = ::write(wake_.get(), &one, sizeof one);
}

void SpoolCapture::rescan() {
  rescan_asked_ = true;
  wake();
}

CaptureStatus SpoolCapture::status() const {
  CaptureStatus status = context_.report->status();
  if (GapStatus gaps = gaps_.status(); gaps.highest) status.gaps = std::move(gaps);
  return status;
}

bool SpoolCapture::unchanged(const CaptureMark& mark) const {
  const auto now = as_captured(context_, mark.entry, mark.identity);
  if (!now || now->device == mark.identity.device) return now.has_value();
  // The device number differs after a remount, or on another file system, which is not the spool's.
  const auto root = access_->stat("");
  return root && root->device == now->device;
}

// ---- the loop

void SpoolCapture::run(const std::stop_token& stop) noexcept {
  name_thread("capture", options_.name);
  const std::stop_callback wake_on_stop(stop, [this] { wake(); });
  if (!std::exchange(begun_, true)) begin();
  while (!stop.stop_requested() && !pausing_) {
    const Pause pause = step(stop);
    if (!stop.stop_requested() && !pausing_) wait(pause);
  }
}

void SpoolCapture::begin() {
  if (presence_.is_bare_mount_point()) {
    // The file system with the spool may not be mounted yet. The journal's marks must survive that.
    presence_.expect_mount();
    lose_spool("an empty directory stands in its place");
  } else {
    watches_.add_directory("");
    begin_scan(true);
  }
}

SpoolCapture::Pause SpoolCapture::step(const std::stop_token& stop) {
  runner_.begin_step(stop);
  const bool drained = take_notifications();
  forget_unlisted();
  const bool scans = scanner_.is_running() || scanner_.has_items();
  runner_.report(EntryTable::Drained{.structure = structure_drained_ && !scans, .all = drained});
  if (rescan_asked_.exchange(false)) begin_scan(true);
  offer_waiting();
  scan_some();
  // Only now have all earlier notifications been read, so a missing entry may be counted as missed.
  if (drained) inspect_due();
  check_mounts();
  const SteadyTime now = context_.clock.steady();
  if (!presence_.is_there() && now >= presence_.next_search()) search_spool();
  if (!scanner_.is_running() && now >= scanner_.next()) begin_scan(scanner_.take_thorough());
  if (watches_.take_failure()) scanner_.no_later_than(now + kScanAfterFailure);
  runner_.reader().held().drop_old(now);
  publish();
  return pause(drained);
}

SpoolCapture::Pause SpoolCapture::pause(bool drained) {
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
  const auto left = std::chrono::ceil<milliseconds>(next - context_.clock.steady());
  return {.most = std::clamp(left, milliseconds{0}, kLongestWait)};
}

void SpoolCapture::wait(Pause pause) {
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

std::size_t SpoolCapture::run_once(milliseconds patience, const std::stop_token& stop) {
  constexpr milliseconds kBetweenRounds{20};
  const SteadyTime until = context_.clock.steady() + patience;
  runner_.begin_step(stop);
  table_.expect_no_more();
  scanner_.ignore_numbers();
  runner_.wait_for_room();
  begin_scan(true);
  while (!runner_.is_stopping()) {
    while (scanner_.is_running() && !runner_.is_stopping()) scan_some();
    if (table_.entries().inspections() == 0 || context_.clock.steady() >= until) break;
    wait({.most = kBetweenRounds});
    for (const std::string& key : table_.open_keys()) runner_.inspect(key, "scan");
  }
  return table_.entries().inspections();
}

void SpoolCapture::publish() {
  runner_.send_forgotten_marks();
  context_.report->change([&](CaptureStatus& s) {
    s.pending = table_.entries().inspections();
    s.waiting_for_room = table_.waiting().size();
    s.pending_bytes = table_.entries().held_bytes();
  });
}

// ---- the root

void SpoolCapture::check_mounts() {
  if (!presence_.mounts_changed() && runner_.step() % kMountsEvery != 0) return;
  presence_.poll_mounts();
  if (!presence_.take_mounts_changed()) return;
  intake_.forget_mounts();
  if (!presence_.is_there()) {
    presence_.search_soon(context_.clock.steady());
  } else if (check_root() == SpoolPresence::State::kRemounted) {
    begin_scan(true);
  }
}

// kLost only if no spool was found in place of the lost one.
SpoolPresence::State SpoolCapture::check_root() {
  const SpoolPresence::State state = presence_.check();
  // The same directory through a new mount: what watched the old one may have ended with it.
  if (state == SpoolPresence::State::kRemounted) adopt_root();
  if (state != SpoolPresence::State::kLost) return state;
  lose_spool(presence_.reason());
  search_spool();
  return presence_.is_there() ? SpoolPresence::State::kSame : SpoolPresence::State::kLost;
}

void SpoolCapture::lose_spool(const std::string& reason) {
  if (!presence_.is_there()) return;
  presence_.lose(reason, context_.clock.steady());
  scanner_.abandon();
  unlisted_.reset();
  watches_.drop_all();
  runner_.reader().held().drop_all();
  context_.report->change([](CaptureStatus& s) { s.spool_there = false; });
  context_.report->note_error("spool: " + reason);
  context_.report->log().error(
      "SPOOL_GONE",
      "the spool directory is gone or was unmounted; it is looked for until it is there again",
      {{"source", options_.name}, {"spool", access_->root()}, {"reason", reason}});
}

void SpoolCapture::search_spool() {
  if (!presence_.search(context_.clock.steady())) {
    if (presence_.reason().empty()) return;
    context_.report->note_error("spool: " + presence_.reason());
    // The first name that appears in it shows that it is the spool after all.
    if (!watches_.has_directories()) watches_.add_directory("");
    return;
  }
  context_.report->change([](CaptureStatus& s) { s.spool_there = true; });
  adopt_root();
  context_.report->log().info("SPOOL_BACK", "the spool directory is there again; it is scanned",
                              {{"source", options_.name}, {"spool", access_->root()}});
  begin_scan(true);
}

void SpoolCapture::adopt_root() {
  intake_.forget_mounts();
  gaps_.expect_listing();  // the entries there are not new, and a scan follows
  if (context_.has_content_notifications()) {
    if (auto marked = access_->mark(); !marked)
      context_.report->note_error(marked.error().message());
  }
  watches_.drop_all();
  watches_.add_directory("");
}

}  // namespace scriptorium
