#include "core/capture/capture.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/fanotify.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstring>
#include <deque>
#include <queue>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "core/base/fault_point.h"
#include "core/base/guarded.h"
#include "core/base/sha256.h"
#include "core/base/text.h"
#include "core/base/thread_name.h"
#include "core/base/thrown.h"
#include "core/capture/foreign_filter.h"
#include "core/capture/gap_watch.h"
#include "core/capture/mount_table.h"

namespace scriptorium {
namespace {

using std::chrono::milliseconds;

// How long a notification of structure (a directory, a linked file) may wait for the one of content
// before we look.
constexpr milliseconds kStructureGrace{300};
// How soon an incomplete entry is looked at again when no notification can tell that it changed.
constexpr milliseconds kLookAgain{200};
// Under load notifications are taken at most so often, unless they come in numbers.
constexpr milliseconds kGather{1};
// A spool that is gone is looked for at once, then less and less often, until this.
constexpr milliseconds kSpoolGoneRetry{1000};
constexpr milliseconds kSpoolGoneFirst{20};
// Descriptors that one read of fanotify may open: a quarter of all that we may have, so that none
// is ever missing.
constexpr std::size_t kEventsARead = 170;
constexpr std::size_t kEventsAReadLeast = 4;
// With no more than this many descriptors left, they count as used up.
constexpr std::uint64_t kSpareDescriptors = 64;
// The shortest time between two scans because descriptors had run out.
constexpr milliseconds kDescriptorScans{60'000};
// Bytes of half-seen entries held in memory; beyond it they are let go and read again from the
// spool.
constexpr std::uint64_t kPendingBytesLimit = 32U << 20;
// Entries that wait for room in the journal; beyond it they are left to a scan that follows when
// there is room.
constexpr std::size_t kWaitingMost = 20'000;
// Without a call from the journal, what it refused is offered again after this.
constexpr milliseconds kOfferAgain{1000};
// Entries that one turn of the loop scans before it looks at notifications again.
constexpr std::size_t kScanSlice = 32;
// How long files of an entry that is being written are held open, and how many: not so long that a
// spool could not be unmounted, not so many that descriptors would run out.
constexpr milliseconds kHoldOpen{1000};
constexpr std::size_t kHeldMost = 64;
// The longest time between two looks at an entry that stands and is not taken.
constexpr milliseconds kLookAtLeast{30'000};
// Entries that went and were counted, until no late word of them can come any more.
constexpr std::size_t kAccountedMost = 100'000;
// The same of entries that were taken: more of them would be memory for a case that is hardly ever
// met.
constexpr std::size_t kGoneMost = 4'096;
// Notifications of structure that are handled before new ones are read, and how many may be in
// hand.
constexpr std::size_t kStructureSlice = 16;
constexpr std::size_t kStructureMost = 50'000;
// Without fanotify: how long a new entry is looked at again and again.
constexpr std::chrono::microseconds kInsist{400};
// A scan by d_ino alone finds nothing new in a directory that was removed and made again with the
// same inode, so every tenth one compares the files themselves.
constexpr std::uint64_t kFullScanEvery = 10;

constexpr std::uint32_t kDirectoryMask = IN_CREATE | IN_MOVED_TO | IN_MOVED_FROM | IN_DELETE |
                                         IN_CLOSE_WRITE | IN_DELETE_SELF | IN_MOVE_SELF;
constexpr std::uint32_t kEntryMask =
    IN_CREATE | IN_MOVED_TO | IN_CLOSE_WRITE | IN_DELETE_SELF | IN_MOVE_SELF;

// An entry that was captured and, as far as we know, still stands.
struct Taken {
  FileIdentity identity;
  std::uint64_t size = 0;             // of the script as kept
  std::uint64_t directory_inode = 0;  // as readdir names the entry; 0 = not known yet
  std::string event_id;               // "" = ignored on purpose
  std::uint64_t scan = 0;             // the last scan that saw it
  bool marked = false;                // the journal has a mark of it
  bool may_grow = false;              // taken half written
};

// An entry that was seen and not yet taken.
struct Pending {
  SpoolEntry entry;
  SteadyTime first_seen;
  std::optional<SteadyTime> due;  // of the next look
  int watch = -1;
  std::uint64_t bytes = 0;
  SteadyTime changed;  // when a file of it was last read anew
  std::uint64_t gone =
      0;  // the turn in which it was not there; its content may still be in fanotify's queue
  bool noticed = false;     // it was seen to be there: if it vanishes unread, it counts as missed
  bool unreadable = false;  // at the last look something of it could not be opened
  bool waits = false;       // for room in the journal; in waiting_
  bool complete = false;    // of what waits: as it was when it was refused
  bool refused = false;     // it has waited for room
  // Without fanotify: its files that are not whole yet. They can be read to their end even if the
  // entry goes first.
  std::vector<std::pair<std::string, UniqueFd>> held;
  const char* way = "scan";
};

struct Due {
  SteadyTime at;
  std::string key;
  bool operator>(const Due& other) const { return at > other.at; }
};

std::string parent_of(std::string_view path) {
  const auto slash = path.rfind('/');
  return slash == std::string_view::npos ? std::string{} : std::string(path.substr(0, slash));
}

std::string join(std::string_view directory, std::string_view name) {
  if (directory.empty()) return std::string(name);
  return std::string(directory).append("/").append(name);
}

// The limit on descriptors, raised as far as it goes.
std::uint64_t raise_descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return 1024;
  if (limit.rlim_cur < limit.rlim_max) {
    const rlim_t before = std::exchange(limit.rlim_cur, limit.rlim_max);
    if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) limit.rlim_cur = before;
  }
  return limit.rlim_cur;
}

// What a file system or a careful administrator leaves in a directory that nobody uses.
bool is_nobodys(std::string_view name) { return name.starts_with('.') || name == "lost+found"; }

std::chrono::seconds rescan_interval(const SourceConfig& common) {
  return std::chrono::seconds(common.rescan_seconds.value_or(common.capture == "scan" ? 2 : 60));
}

}  // namespace

class SpoolCapture::Engine {
 public:
  Engine(Options options, const SpoolAdapter& adapter, OpenedAccess opened, Journal& journal,
         Logger& log, const Clock& clock)
      : options_(std::move(options)),
        adapter_(adapter),
        access_(std::move(opened.access)),
        journal_(journal),
        log_(log),
        clock_(clock),
        wake_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)),
        // An entry may be found by the scan alone, long after one with a higher number was.
        gaps_(options_.name, rescan_interval(options_.common) + std::chrono::seconds{5},
              adapter.make_number_resolver(), journal, log, clock) {
    descriptor_limit_ = raise_descriptor_limit();
    events_a_read_ =
        std::clamp<std::size_t>(descriptor_limit_ / 4, kEventsAReadLeast, kEventsARead);
    counters_->with([&](Counters& c) {
      c.status.way = access_->fanotify_fd() >= 0
                         ? "fanotify"
                         : (access_->inotify_fd() >= 0 ? "inotify" : "scan");
      const bool all = options_.common.capture == "auto";
      if (all && access_->fanotify_fd() < 0) c.status.why_not_better = opened.fanotify_problem;
      if ((all || options_.common.capture == "inotify") && access_->inotify_fd() < 0) {
        c.status.why_not_better +=
            (c.status.why_not_better.empty() ? "" : "; ") + opened.inotify_problem;
      }
    });
    if (auto stat = access_->stat("")) {
      owner_ = stat->owner;
      root_inode_ = stat->inode;
      root_device_ = stat->device;
      root_mount_ = MountTable::mount_of(access_->root());
    }
    for (CaptureMark& mark : journal_.marks(options_.name)) {
      Taken taken;
      if (const auto number = number_of(mark.entry)) gaps_.seen({&*number, 1});
      taken.identity = std::move(mark.identity);
      taken.size = mark.size;
      taken.event_id = std::move(mark.event_id);
      taken.marked = true;
      remember(std::move(mark.entry), std::move(taken));
    }
  }

  void start() {
    gaps_.start();
    journal_.on_room(options_.name, [this] {
      room_ = true;
      wake();
    });
    thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
  }

  void stop() {
    thread_.request_stop();
    wake();
    if (!thread_.joinable()) return;
    thread_.join();
    journal_.on_room(options_.name, {});
    gaps_.stop();
  }

  void wake() const {
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t n = ::write(wake_.get(), &one, sizeof one);
  }

  void rescan() {
    rescan_asked_ = true;
    wake();
  }

  CaptureStatus status() const {
    CaptureStatus status = counters_->with([](const Counters& c) { return c.status; });
    if (GapStatus gaps = gaps_.status(); gaps.highest) status.gaps = std::move(gaps);
    return status;
  }

  bool unchanged(const CaptureMark& mark) const {
    const auto now = as_captured(mark.entry, mark.identity);
    if (!now || now->device == mark.identity.device) return now.has_value();
    // Remounted under another number since, or another file system: then it is not the spool's.
    const auto root = access_->stat("");
    return root && root->device == now->device;
  }

  std::size_t run_once(milliseconds patience, const std::stop_token& stop) {
    const SteadyTime until = clock_.steady() + patience;
    once_ = true;
    begin_scan(true);
    while (!stop.stop_requested()) {
      while (scanning_ && !stop.stop_requested()) scan_some(stop);
      if (pending_.empty() || clock_.steady() >= until) break;
      wait(milliseconds{20});
      std::vector<std::string> keys;
      for (const auto& [key, pending] : pending_) keys.push_back(key);
      for (const std::string& key : keys) look(key, "scan", stop);
    }
    return pending_.size();
  }

 private:
  struct Counters {
    CaptureStatus status;
  };

  using PendingMap = std::unordered_map<std::string, Pending>;
  using TakenMap = std::unordered_map<std::string, Taken>;

  struct StructureEvent {
    int wd = -1;
    std::uint32_t mask = 0;
    std::string name;
    std::uint64_t upto = 0;  // bytes of notifications that were read ever, this one the last
  };

  struct ScanItem {
    std::string key;
    std::uint64_t directory_inode = 0;
    bool counts = false;  // as missed, if it vanishes unread
  };

  // An entry that the journal has refused. Its bytes are held in pending_, or were let go and are
  // read again from the spool.
  struct Waiting {
    std::string key;
    std::uint64_t bytes = 0;    // as they were when it was refused
    std::int64_t mtime_ns = 0;  // as the journal was told; 0 = it was not asked
  };

  // What a complete scan has not seen is to be forgotten.
  struct Forget {
    std::uint64_t scan = 0;  // number of a complete one
    std::uint64_t after =
        0;  // structure_handled_ from where on all is handled that was queued when it ended
  };

  // ---- the loop
  // ----------------------------------------------------------------------------------------------

  void run(const std::stop_token& stop) noexcept {
    name_thread("capture", options_.name);
    const std::stop_callback wake_on_stop(stop, [this] { wake(); });
    if (is_another_place()) {
      // The file system with the spool may not be mounted yet. What the journal remembers of it
      // must outlast that.
      root_inode_ = 0;
      lose_spool("an empty directory stands in its place");
    } else {
      watch_directory("");
      begin_scan(true);
    }
    while (!stop.stop_requested()) {
      ++turns_;
      const bool drained = take_notifications(stop);
      if (forget_unseen_ && (structure_drained_ || structure_handled_ >= forget_unseen_->after)) {
        forget_unseen(std::exchange(forget_unseen_, std::nullopt)->scan);
      }
      if ((structure_drained_ && !scanning_ && to_scan_.empty()) ||
          accounted_.size() > kAccountedMost)
        accounted_.clear();
      // With both queues empty, no word of what has gone can come any more.
      if ((drained && structure_drained_) || gone_.size() > kGoneMost) TakenMap().swap(gone_);
      if (rescan_asked_.exchange(false)) begin_scan(true);
      if (!waiting_.empty()) offer_again(stop);
      if (scanning_ || !to_scan_.empty()) scan_some(stop);
      // A due look may only count an entry as missed once every event that came before has been
      // read.
      if (drained) look_at_due(stop);
      trim_due();
      if (mounts_changed_ || turns_ % 16 == 0) look_at_mounts();
      if (!spool_there_ && clock_.steady() >= spool_retry_) find_spool_again();
      if (!scanning_ && clock_.steady() >= next_scan_)
        begin_scan(++periodic_scans_ % kFullScanEvery == 0 || next_scan_full_);
      publish();
      if (stop.stop_requested() || scanning_ || !to_scan_.empty()) continue;
      if (drained) {
        wait(until_next());
      } else if (few_) {
        gather();
      }
    }
    give_up_waiting();
  }

  milliseconds until_next() {
    SteadyTime next = spool_there_ ? next_scan_ : std::min(next_scan_, spool_retry_);
    if (!waiting_.empty()) next = std::min(next, next_offer_);
    while (!due_.empty() && !is_current(due_.top())) due_.pop();
    if (!due_.empty() && spool_there_) next = std::min(next, due_.top().at);
    const auto left = std::chrono::ceil<milliseconds>(next - clock_.steady());
    return std::clamp(left, milliseconds{0}, milliseconds{60'000});
  }

  // Waking up for each notification costs more than reading it. fanotify's hold their files, so
  // nothing is lost meanwhile; inotify's do not.
  void gather() const {
    pollfd wake{wake_.get(), POLLIN, 0};
    ::poll(&wake, 1, static_cast<int>(kGather.count()));
  }

  void wait(milliseconds most) {
    std::array<pollfd, 4> fds{{{wake_.get(), POLLIN, 0},
                               {access_->inotify_fd(), POLLIN, 0},
                               {access_->fanotify_fd(), POLLIN, 0},
                               {mounts_.fd(), POLLPRI, 0}}};
    ::poll(fds.data(), fds.size(), static_cast<int>(most.count()));
    if (fds[3].revents != 0) mounts_changed_ = true;
    std::uint64_t count = 0;
    [[maybe_unused]] const ssize_t n = ::read(wake_.get(), &count, sizeof count);
  }

  // True if nothing is left to read. Structure is read first but handled last: what it tells of was
  // written before, so the content events that are queued by now must be taken before a missing
  // entry may be called missing.
  bool take_notifications(const std::stop_token& stop) {
    const bool content = access_->fanotify_fd() >= 0;
    read_structure(!content);
    structure_drained_ = structure_.empty();
    bool drained = structure_drained_;
    if (content) {
      int queued = 0;
      if (::ioctl(access_->fanotify_fd(), FIONREAD, &queued) != 0) queued = 0;
      long left = queued;
      while (left > 0 && !stop.stop_requested()) {
        const ssize_t n = read_content(left, stop);
        if (n <= 0) break;
        left -= n;
      }
      if (queued > 0) drained = false;
      few_ = static_cast<std::size_t>(queued) < fanotify_buffer_.size() / 4;
    }
    // Without fanotify only some: what has appeared meanwhile must be grabbed before it goes.
    const std::size_t most =
        content ? structure_.size() : std::min(structure_.size(), kStructureSlice);
    for (std::size_t i = 0; i < most && !structure_.empty() && !stop.stop_requested(); ++i) {
      const StructureEvent event = std::move(structure_.front());
      structure_.pop_front();
      on_structure(event, stop);
      structure_handled_ = event.upto;
    }
    return drained;
  }

  // `grab`: reads what has appeared at once, before anything is made of it.
  void read_structure(bool grab) {
    if (access_->inotify_fd() < 0) return;
    // With fanotify, the content that is queued when this is done is taken before any of it is
    // believed. All that is there: while a storm's content is taken, more comes here than one read
    // can hold.
    while (structure_.size() < kStructureMost) {
      const ssize_t n =
          ::read(access_->inotify_fd(), inotify_buffer_.data(), inotify_buffer_.size());
      for (ssize_t at = 0; at < n;) {
        const auto* event = reinterpret_cast<const inotify_event*>(inotify_buffer_.data() + at);
        const std::size_t length = sizeof(inotify_event) + event->len;
        structure_read_ += length;
        structure_.push_back({event->wd, event->mask,
                              event->len > 0 ? std::string(event->name) : std::string{},
                              structure_read_});
        if (grab) grab_early(structure_.back());
        at += static_cast<ssize_t>(length);
      }
      if (n <= 0) return;
    }
  }

  // An entry without fanotify can only be read while it stands, so its bytes are read before any
  // other entry is parsed or given to the journal. What this leaves open is done when the event's
  // turn comes.
  void grab_early(const StructureEvent& event) {
    if ((event.mask & (IN_CREATE | IN_MOVED_TO | IN_CLOSE_WRITE)) == 0 ||
        pending_bytes_ > kPendingBytesLimit)
      return;
    const auto watch = watches_.find(event.wd);
    if (watch == watches_.end()) return;
    const std::string path = join(watch->second.path, event.name);
    const SpoolPath place = classify(path);
    const std::string key(place.entry);
    if (place.role == SpoolPath::Role::kEntryFile && watch->second.of_entry) {
      if (const auto pending = pending_.find(key); pending != pending_.end())
        read_entry_file(key, path, pending->second);
      return;
    }
    if (place.role != SpoolPath::Role::kEntryDirectory || (event.mask & IN_ISDIR) == 0) return;
    // Of a name that is known already nobody can tell yet which of its lives this is.
    if (pending_.contains(key) || taken_.contains(key) || accounted_.contains(key)) return;
    read_appeared(key, pending_of(key, "inotify"));
  }

  // Reads what an entry's directory usually has, each file by its name; true if that is the whole
  // entry. If not, the directory is watched from here on. The scheduler writes an entry within a
  // fraction of a millisecond, and may remove it as quickly: so this insists for as long, and opens
  // a file when it is there but not yet whole.
  bool read_appeared(const std::string& key, Pending& pending) {
    pending.noticed = true;
    const SteadyTime until = clock_.steady() + kInsist;
    for (int round = 0; !usual_files_.empty(); ++round) {
      bool there = false;
      for (const std::string& name : usual_files_)
        there = read_entry_file(key, path_of(key, name), pending) || there;
      if (is_whole(pending)) return true;
      if (!there && !pending.held.empty()) {
        read_held(pending);  // gone
        return is_whole(pending);
      }
      // The watch, then at least once more: what is written in between is seen by one of the two.
      if (round == 0 && !watch_entry(key, pending)) return false;
      if (round > 0 && (clock_.steady() >= until || pending.unreadable)) return false;
      if (!there && round % 4 == 3 && !access_->stat(key)) return false;
    }
    watch_entry(key, pending);
    return false;
  }

  bool is_whole(const Pending& pending) const {
    return !pending.entry.files.empty() &&
           assess(pending.entry).state == Assessment::State::kComplete;
  }

  // ---- content: fanotify
  // -------------------------------------------------------------------------------------

  // `queued`: how many bytes of events there are at least.
  ssize_t read_content(long queued, const std::stop_token& stop) {
    const std::size_t room = events_a_read_ * sizeof(fanotify_event_metadata);
    const ssize_t n = ::read(access_->fanotify_fd(), fanotify_buffer_.data(), room);
    // The kernel opens the events' descriptors inside read(). Where that fails it throws the event
    // away without a word, and without an error if others came before it: but then it gave fewer
    // than there were. Not only for want of descriptors: any user who holds a lease on a file of
    // his own can make it fail at will.
    if (n >= 0 ? n < std::min(queued, static_cast<long>(room)) && descriptors_are_short()
               : errno == EMFILE || errno == ENFILE) {
      descriptors_ran_out();
    }
    if (n < 0) {
      if (errno == EMFILE || errno == ENFILE) {
        // Said above.
      } else if (errno != EAGAIN && errno != EINTR) {
        overflow("CAPTURE_READ_FAILED", "reading notifications failed; the spool is scanned again");
      }
      return 0;
    }
    const auto* event = reinterpret_cast<const fanotify_event_metadata*>(fanotify_buffer_.data());
    auto length = static_cast<std::size_t>(n);
    // All descriptors are ours from here on, also when we stop half way.
    for (; FAN_EVENT_OK(event, length); event = FAN_EVENT_NEXT(event, length)) {
      UniqueFd fd(event->fd >= 0 ? event->fd : -1);
      FAULT_POINT("capture.event_read");
      if (event->vers != FANOTIFY_METADATA_VERSION) continue;
      if ((event->mask & FAN_Q_OVERFLOW) != 0) {
        overflow("CAPTURE_OVERFLOW",
                 "the kernel's queue of notifications ran over; the spool is scanned again");
        continue;
      }
      if (!fd || stop.stop_requested()) continue;
      if (event->pid == own_pid_ && options_.skip_own_writes) {
        // Our own archive. One of eight is enough to learn where it stands.
        if (++own_writes_ % 8 == 0) {
          if (const auto path = path_of_descriptor(fd.get())) foreign_.saw(*path);
        }
        continue;
      }
      on_content(fd.get(), stop);
    }
    return n;
  }

  // Whether another descriptor can hardly be had. Other threads may have closed some since the
  // kernel wanted one, so nearly none left counts as well.
  bool descriptors_are_short() const {
    const UniqueFd next(
        ::open("/dev/null", O_RDONLY | O_CLOEXEC));  // the lowest number that is free
    if (!next) return errno == EMFILE || errno == ENFILE;
    return static_cast<std::uint64_t>(next.get()) >=
           descriptor_limit_ - std::min(kSpareDescriptors, descriptor_limit_ / 8);
  }

  // One scan a minute finds what was dropped. A scan each time could keep us from doing anything
  // else.
  void descriptors_ran_out() {
    const SteadyTime now = clock_.steady();
    if (descriptors_out_at_ && now < *descriptors_out_at_ + kDescriptorScans) {
      next_scan_ = std::min(next_scan_, *descriptors_out_at_ + kDescriptorScans);
      next_scan_full_ = true;
      return;
    }
    descriptors_out_at_ = now;
    overflow("CAPTURE_DESCRIPTORS_USED_UP",
             "no descriptor was left for an event; the spool is scanned again, once a minute at "
             "most; raise LimitNOFILE of the "
             "unit, or fs.file-max");
  }

  // As the kernel names it; valid until the next call.
  std::optional<std::string_view> path_of_descriptor(int fd) {
    std::array<char, 32> link{};
    std::snprintf(link.data(), link.size(), "/proc/self/fd/%d", fd);
    const ssize_t n = ::readlink(link.data(), path_buffer_.data(), path_buffer_.size());
    if (n <= 0) return std::nullopt;
    return std::string_view(path_buffer_.data(), static_cast<std::size_t>(n));
  }

  void on_content(int fd, const std::stop_token& stop) {
    const auto named = path_of_descriptor(fd);
    if (!named) return;
    std::string_view path = *named;
    constexpr std::string_view kDeleted = " (deleted)";
    bool deleted = false;
    if (path.ends_with(kDeleted)) {
      deleted = true;
      path.remove_suffix(kDeleted.size());
    }
    const std::string& root = access_->root();
    const bool below =
        path.size() > root.size() + 1 && path.starts_with(root) && path[root.size()] == '/';
    const std::string_view relative = below ? path.substr(root.size() + 1) : tail_of(path);
    const SpoolPath place = classify(relative);
    if (!place.is_file()) {
      if (!below) foreign_.saw(path);
      return;
    }
    const bool record = place.role == SpoolPath::Role::kEntryRecord;
    if (record && tells_nothing_new(place)) return;
    auto stat = stat_fd(fd);
    if (!stat || !stat->is_regular() || (record && stat->size == 0)) return;
    // A file that lives on under another name (links left) may have lost this one; or its name
    // really ends so.
    if (deleted && stat->links > 0 && access_->stat(std::string(relative) + std::string(kDeleted)))
      return;
    // Whoever may write anywhere on this file system can mount a directory of his own over the
    // spool's path in a namespace of his own; the event then bears the genuine path. The owner
    // cannot be forged.
    if (stat->owner != owner_) {
      count_ignored("another owner");
      return;
    }
    if (taken_already(place, *stat)) {
      // What came of its other files meanwhile belongs to the same.
      if (const auto pending = pending_.find(std::string(place.entry)); pending != pending_.end())
        drop_pending(pending);
      counters_->with([](Counters& c) { ++c.status.duplicates; });
      return;
    }
    if (!below) {
      // Written through another mount. It is believed if that shows the spool's own root, or if the
      // very file also stands in the spool; the rest comes in by the scan.
      auto same = shows_spool(path.substr(0, path.size() - relative.size()))
                      ? Result<FileStat>(*stat)
                      : access_->stat(std::string(relative));
      if (!same || same->inode != stat->inode || same->device != stat->device) {
        count_ignored("another path");
        return;
      }
    }
    auto bytes = read_settled(fd, *stat);
    if (!bytes) {
      note_error("read " + std::string(relative) + ": " + bytes.error().message());
      return schedule_look(std::string(place.entry), kLookAgain, "fanotify");
    }
    FAULT_POINT("capture.content_read");
    Pending& pending = pending_of(std::string(place.entry), "fanotify");
    pending.noticed = pending.noticed || !record;
    pending.way = "fanotify";  // whatever noticed the entry's directory first
    put_file(pending, std::string(place.file), *stat, *std::move(bytes));
    consider(std::string(place.entry), stop);
  }

  // True of the file by which an entry is known, if that was taken whole as it is now: a scan was
  // quicker than the word of its close, or it was closed several times, and this is the word of a
  // later close. Taken again, perhaps when the entry's other files have gone, it would be an
  // incomplete event with the id of the whole one. The entry must be the same, not only the file's
  // number: a file system may give that to the next entry's script while its clock has not moved
  // on.
  bool taken_already(const SpoolPath& place, const FileStat& stat) const {
    const std::string key(place.entry);
    const auto same = [&](const Taken& taken) {
      return !taken.may_grow && !taken.event_id.empty() &&
             taken.identity == identity_of(std::string(place.file), stat);
    };
    if (const auto standing = taken_.find(key); standing != taken_.end())
      return same(standing->second);
    const auto gone = gone_.find(key);
    return gone != gone_.end() && same(gone->second);
  }

  // A record of an entry that was taken: the scheduler writes it again throughout the job's life,
  // and nobody waits for it.
  bool tells_nothing_new(const SpoolPath& place) const {
    const auto taken = taken_.find(std::string(place.entry));
    if (taken == taken_.end() || taken->second.may_grow || taken->second.event_id.empty())
      return false;
    const auto pending = pending_.find(taken->first);
    return pending == pending_.end() || pending->second.entry.files.empty();
  }

  // The bytes of a file, and in `stat` the state that belongs to them. The time is part of the
  // event's id: a write between fstat and read would put the time of the file's beginning beside
  // the bytes of its end, and the next look would make a second event of them. A file that never
  // rests is incomplete, and is looked at again.
  Result<std::string> read_settled(int fd, FileStat& stat) const {
    constexpr int kAttempts = 4;
    for (int attempt = 1;; ++attempt) {
      auto bytes =
          read_fd(fd, static_cast<std::uint64_t>(options_.common.max_file_bytes) + 1, stat.size);
      if (!bytes) return bytes;
      auto after = stat_fd(fd);
      if (!after) return after.error();
      const bool rested = after->mtime_ns == stat.mtime_ns && after->size == stat.size;
      stat = *after;
      if (rested || attempt == kAttempts) return bytes;
    }
  }

  // True if this directory is the spool's root under another name. As good as the root's own name:
  // both come from the writer's mounts, and neither tells who he is.
  bool shows_spool(std::string_view directory) {
    constexpr std::size_t kKept = 64;
    const auto [place, fresh] = trusted_.try_emplace(std::string(directory), false);
    if (!fresh) return place->second;
    const auto stat = stat_path(place->first);
    const bool is_root = stat && stat->inode == root_inode_ && stat->device == root_device_;
    place->second = is_root;
    if (trusted_.size() > kKept) trusted_.clear();
    return is_root;
  }

  // The end of a path that might be an entry's file although the spool's own path is not in front
  // of it.
  std::string_view tail_of(std::string_view path) const {
    std::string_view tail;
    std::size_t at = path.size();
    for (int parts = 0; parts < 3 && at != std::string_view::npos && at > 0; ++parts) {
      at = path.rfind('/', at - 1);
      if (at == std::string_view::npos) break;
      const std::string_view candidate = path.substr(at + 1);
      if (classify(candidate).is_file()) tail = candidate;
    }
    return tail;
  }

  void overflow(std::string_view id, std::string_view sentence) {
    counters_->with([](Counters& c) { ++c.status.overflows; });
    log_.warning(id, sentence, {{"source", options_.name}});
    begin_scan(true);
  }

  // ---- structure: inotify
  // ------------------------------------------------------------------------------------

  void on_structure(const StructureEvent& event, const std::stop_token& stop) {
    if ((event.mask & IN_Q_OVERFLOW) != 0) {
      return overflow("CAPTURE_OVERFLOW",
                      "the kernel's queue of notifications ran over; the spool is scanned again; "
                      "raise fs.inotify.max_queued_events");
    }
    const auto watch = watches_.find(event.wd);
    if (watch == watches_.end()) return;
    const std::string directory = watch->second.path;  // a copy: what follows may change the table
    const bool of_entry = watch->second.of_entry;
    if ((event.mask & IN_IGNORED) != 0) {
      forget_watch(event.wd);
      return;
    }
    if ((event.mask & IN_UNMOUNT) != 0) return lose_spool("it was unmounted");
    if (!spool_there_) {
      // Something happened where it should be: a look at once.
      spool_retry_ = clock_.steady();
      return;
    }
    if ((event.mask & (IN_DELETE_SELF | IN_MOVE_SELF)) != 0) {
      drop_watch(event.wd);
      if (directory.empty()) return lose_spool("it was removed or renamed");
      if (of_entry) return look(directory, "inotify", stop);
      return;
    }
    const std::string path = join(directory, event.name);
    const SpoolPath place = classify(path);
    const bool appeared = (event.mask & (IN_CREATE | IN_MOVED_TO)) != 0;
    const bool gone = (event.mask & (IN_DELETE | IN_MOVED_FROM)) != 0;
    if ((event.mask & IN_MOVED_TO) != 0 && (event.mask & IN_ISDIR) != 0) foreign_.forget();
    switch (place.role) {
      case SpoolPath::Role::kForeign: return;
      case SpoolPath::Role::kDirectory:
        if (gone) return drop_directory(path);
        if (appeared && (event.mask & IN_ISDIR) != 0) {
          watch_directory(path);
          scan_directory(path);
        }
        return;
      case SpoolPath::Role::kEntryDirectory:
        if ((event.mask & IN_ISDIR) == 0) return;
        return on_entry(std::string(place.entry), appeared, gone, stop);
      case SpoolPath::Role::kEntryRecord:
        if (gone || tells_nothing_new(place)) return;
        [[fallthrough]];
      case SpoolPath::Role::kEntryFile: return on_entry_file(place, of_entry, appeared, gone, stop);
    }
  }

  void on_entry_file(const SpoolPath& place, bool in_entry_directory, bool appeared, bool gone,
                     const std::stop_token& stop) {
    const std::string key(place.entry);
    auto taken = taken_.find(key);
    if (gone) {
      // An entry without a directory of its own is gone with the file that it is known by.
      if (!in_entry_directory && taken != taken_.end() &&
          taken->second.identity.file == place.file && !still_stands(key, taken->second)) {
        forget(taken);
        accounted_[key] = true;
        // A record may stand a moment longer than its script.
        if (const auto pending = pending_.find(key);
            pending != pending_.end() && pending->second.entry.file(place.file) == nullptr)
          drop_pending(pending);
      }
      return;
    }
    // Content notifications tell of closed files; only links and renames need a look beside them.
    if (access_->fanotify_fd() >= 0) {
      if (appeared && (taken == taken_.end() || !still_stands(key, taken->second)))
        schedule_look(key, kStructureGrace, "scan");
      return;
    }
    if (taken != taken_.end() && taken->second.identity.file == place.file &&
        still_stands(key, taken->second))
      return;
    // It was left out because it had no script, and here is one.
    if (appeared && place.role == SpoolPath::Role::kEntryFile && taken != taken_.end() &&
        taken->second.event_id.empty()) {
      forget(taken);
      taken = taken_.end();
    }
    if (place.role == SpoolPath::Role::kEntryFile && taken == taken_.end()) {
      if (appeared && !in_entry_directory) pending_of(key, "inotify");
      notice(key);
    }
    return look(key, "inotify", stop);
  }

  void on_entry(const std::string& key, bool appeared, bool gone, const std::stop_token& stop) {
    const bool fanotify = access_->fanotify_fd() >= 0;
    if (gone) {
      const auto taken = taken_.find(key);
      if (taken != taken_.end()) {
        // The same name may stand again already, captured, before its predecessor's removal is read
        // here.
        if (is_gone(key)) {
          forget(taken);
          accounted_[key] = true;
        }
        return;
      }
      const auto pending = pending_.find(key);
      // An entry that waits for room without its bytes is lost now; one whose bytes are held is
      // delivered later.
      if (pending != pending_.end() && pending->second.waits) {
        if (pending->second.entry.files.empty() && is_gone(key)) lose_waiting(pending);
      } else if (!fanotify && pending != pending_.end()) {
        look(key, "inotify", stop);
      }
      if (const auto accounted = accounted_.find(key); accounted != accounted_.end())
        accounted->second = true;
      return;
    }
    if (!appeared) return;
    if (const auto accounted = accounted_.find(key); accounted != accounted_.end()) {
      if (!accounted->second) return;  // the late word of what was counted already
      accounted_.erase(accounted);     // its end was read: this is another one of the same name
    }
    if (fanotify) {
      if (!taken_.contains(key)) {
        schedule_look(key, kStructureGrace, "scan");
        notice(key);
      }
      return;
    }
    Pending& pending = pending_of(key, "inotify");
    pending.noticed = true;
    if (is_whole(pending) || read_appeared(key, pending)) return consider(key, stop);
    look(key, "inotify", stop);
  }

  bool watch_entry(const std::string& key, Pending& pending) {
    if (pending.watch >= 0) return true;
    auto number = access_->watch(key, kEntryMask);
    if (!number) {
      if (number.error().kind() == ErrorKind::kExhausted) watch_failed(number.error());
      return false;
    }
    pending.watch = *number;
    watches_[*number] = {key, true};
    return true;
  }

  void watch_directory(const std::string& path) {
    if (access_->inotify_fd() < 0) return;
    auto number = access_->watch(path, kDirectoryMask);
    if (!number) {
      if (number.error().kind() != ErrorKind::kVanished) watch_failed(number.error());
      return;
    }
    // The same number again means the same directory under a new name.
    if (const auto old = watches_.find(*number); old != watches_.end())
      directories_.erase(old->second.path);
    if (const auto old = directories_.find(path);
        old != directories_.end() && old->second != *number)
      drop_watch(old->second);
    watches_[*number] = {path, false};
    directories_[path] = *number;
  }

  void watch_failed(const Error& error) {
    note_error(error.message());
    log_.error(
        "CAPTURE_WATCH_FAILED",
        "a directory of the spool cannot be watched; its entries are found by the scan alone",
        {{"source", options_.name}, {"reason", error.message()}});
    next_scan_ = std::min(next_scan_, clock_.steady() + kSpoolGoneRetry);
  }

  void forget_watch(int number) {
    const auto watch = watches_.find(number);
    if (watch == watches_.end()) return;
    if (watch->second.of_entry) {
      if (const auto pending = pending_.find(watch->second.path);
          pending != pending_.end() && pending->second.watch == number)
        pending->second.watch = -1;
    } else if (const auto directory = directories_.find(watch->second.path);
               directory != directories_.end() && directory->second == number) {
      directories_.erase(directory);
    }
    watches_.erase(watch);
  }

  void drop_watch(int number) {
    access_->unwatch(number);
    forget_watch(number);
  }

  void drop_directory(const std::string& path) {
    // Also when it was only renamed: a watch follows the directory, and would go on under the old
    // name.
    if (const auto directory = directories_.find(path); directory != directories_.end())
      drop_watch(directory->second);
    next_scan_ = std::min(next_scan_, clock_.steady() + kStructureGrace);
  }

  // ---- the root
  // ----------------------------------------------------------------------------------------------

  void look_at_mounts() {
    if (!mounts_.changed() && !mounts_changed_) return;
    mounts_changed_ = false;
    trusted_.clear();
    if (spool_there_) {
      const auto before = root_mount_;
      if (check_root() && root_mount_ != before) begin_scan(true);
    } else {
      spool_retry_ = clock_.steady();
    }
  }

  // Is the spool still the directory that we know? If not, whatever is there now is looked at; true
  // if that is a spool.
  bool check_root() {
    auto root = access_->stat("");
    if (root && root->inode == root_inode_ && root->device == root_device_) {
      // The same directory through a new mount: what watched the old one may have ended with it.
      if (MountTable::mount_of(access_->root()) != root_mount_) adopt_root(*root);
      return true;
    }
    lose_spool(root ? "another directory stands in its place" : root.error().message());
    find_spool_again();
    return spool_there_;
  }

  // True for a directory that holds nothing and lies elsewhere than what was captured: the place
  // where the spool's file system is to be mounted. To take it for the spool would mean to forget
  // all entries.
  bool is_another_place() const {
    auto root = access_->stat("");
    if (!root) return false;
    const bool moved =
        root_inode_ == 0 || root->device != root_device_ ||
        MountTable::mount_of(access_->root()) != root_mount_ ||
        std::any_of(taken_.begin(), taken_.end(), [&](const auto& entry) {
          return entry.second.identity.device != 0 && entry.second.identity.device != root->device;
        });
    if (!moved || (root_inode_ != 0 && taken_.empty() && spool_there_)) return false;
    auto names = access_->list("");
    return names && std::all_of(names->begin(), names->end(),
                                [](const SpoolName& n) { return is_nobodys(n.name); });
  }

  // Why what is there now is not the spool; "" = it is.
  std::string why_no_spool() const {
    if (is_another_place()) return "an empty directory stands in its place";
    auto names = access_->list("");
    if (!names) return names.error().message();
    std::vector<std::string> list;
    for (SpoolName& name : *names) list.push_back(std::move(name.name));
    try {
      if (auto fits = adapter_.check_root(list); !fits) return fits.error().message();
    } catch (...) {
      adapter_threw();
    }
    return {};
  }

  void lose_spool(const std::string& reason) {
    if (!spool_there_) return;
    spool_there_ = false;
    spool_retry_ = clock_.steady();
    spool_retry_delay_ = kSpoolGoneFirst;
    to_scan_.clear();
    listed_numbers_ = {};
    scanning_ = false;
    scan_again_ = false;
    forget_unseen_.reset();
    while (!watches_.empty()) drop_watch(watches_.begin()->first);
    for (auto& [key, pending] : pending_) drop_held(pending);
    counters_->with([](Counters& c) { c.status.spool_there = false; });
    note_error("spool: " + reason);
    log_.error(
        "SPOOL_GONE",
        "the spool directory is gone or was unmounted; it is looked for until it is there again",
        {{"source", options_.name}, {"spool", access_->root()}, {"reason", reason}});
  }

  void find_spool_again() {
    spool_retry_ = clock_.steady() + spool_retry_delay_;
    spool_retry_delay_ = std::min(spool_retry_delay_ * 2, kSpoolGoneRetry);
    auto stat = access_->stat("");
    if (!stat) return;
    if (const std::string why = why_no_spool(); !why.empty()) {
      note_error("spool: " + why);
      // The first thing in it tells that it is the spool after all.
      if (directories_.empty()) watch_directory("");
      return;
    }
    spool_there_ = true;
    counters_->with([](Counters& c) { c.status.spool_there = true; });
    adopt_root(*stat);
    log_.info("SPOOL_BACK", "the spool directory is there again; it is scanned",
              {{"source", options_.name}, {"spool", access_->root()}});
    begin_scan(true);
  }

  void adopt_root(const FileStat& stat) {
    owner_ = stat.owner;
    root_inode_ = stat.inode;
    root_device_ = stat.device;
    root_mount_ = MountTable::mount_of(access_->root());
    trusted_.clear();
    gaps_.expect_listing();  // the entries there are not new, and a scan follows
    if (access_->fanotify_fd() >= 0) {
      if (auto marked = access_->mark(); !marked) note_error(marked.error().message());
    }
    while (!watches_.empty()) drop_watch(watches_.begin()->first);
    watch_directory("");
  }

  // ---- scan
  // --------------------------------------------------------------------------------------------------

  void begin_scan(bool full) {
    next_scan_ = clock_.steady() + rescan_interval(options_.common);
    if (!spool_there_) return;  // it is scanned when it is there again
    // What is found again is scanned by that.
    if (const std::uint64_t before = scan_number_; !check_root() || scan_number_ != before) return;
    if (scanning_) {
      // The running one may have passed the place already: once more when it is done.
      scan_again_ = true;
      return;
    }
    scanning_ = true;
    scan_full_ = full;
    next_scan_full_ = next_scan_full_ && !full;
    ++scan_number_;
    trusted_.clear();
    foreign_.forget();
    counters_->with([](Counters& c) { ++c.status.scans; });
    scan_failed_ = false;
    scan_directory("");
    if (spool_there_ && !scan_failed_) gaps_.scanned();
  }

  // Lists a directory and what is below it, and puts the entries into the scan's list.
  void scan_directory(const std::string& path) {
    std::vector<std::uint64_t> numbers;
    list_directory(path, numbers);
    // In the order of the count: a directory's own order looks like a count that jumps back and
    // forth.
    std::sort(numbers.begin(), numbers.end());
    gaps_.seen(numbers);
  }

  // `numbers` gets those that were not known yet.
  void list_directory(const std::string& path, std::vector<std::uint64_t>& numbers) {
    auto names = access_->list(path);
    if (!names) {
      if (names.error().kind() != ErrorKind::kVanished) {
        scan_failed_ = true;
        note_error("list " + (path.empty() ? access_->root() : path) + ": " +
                   names.error().message());
        log_.error("SPOOL_UNREADABLE",
                   "a directory of the spool cannot be listed; give the daemon's user the right to "
                   "read it",
                   {{"source", options_.name},
                    {"directory", path.empty() ? access_->root() : path},
                    {"reason", names.error().message()}});
      }
      return;
    }
    // An empty root says nothing of the entries that it had: it may be the bare place of a mount.
    if (path.empty() && !taken_.empty() &&
        std::all_of(names->begin(), names->end(),
                    [](const SpoolName& n) { return is_nobodys(n.name); }))
      scan_failed_ = true;
    std::unordered_set<std::string> seen;
    for (const SpoolName& name : *names) {
      const std::string child = join(path, name.name);
      const SpoolPath place = classify(child);
      if (place.role == SpoolPath::Role::kDirectory && name.is_directory) {
        if (!directories_.contains(child)) watch_directory(child);
        list_directory(child, numbers);
      } else if (place.role == SpoolPath::Role::kEntryDirectory && name.is_directory) {
        add_to_scan({std::string(place.entry), name.inode, true}, numbers);
      } else if (place.is_file() && seen.insert(std::string(place.entry)).second) {
        add_to_scan({std::string(place.entry), 0, place.role == SpoolPath::Role::kEntryFile},
                    numbers);
      }
    }
  }

  void add_to_scan(ScanItem item, std::vector<std::uint64_t>& numbers) {
    if (const auto number = new_number(item.key)) {
      numbers.push_back(*number);
      listed_numbers_.add(*number, *number);
    }
    to_scan_.push_back(std::move(item));
  }

  void scan_some(const std::stop_token& stop) {
    for (std::size_t i = 0; i < kScanSlice && !to_scan_.empty() && !stop.stop_requested(); ++i) {
      ScanItem item = std::move(to_scan_.front());
      to_scan_.pop_front();
      FAULT_POINT("capture.scan_entry");
      const auto taken = taken_.find(item.key);
      if (taken != taken_.end()) {
        taken->second.scan = scan_number_;
        if (!scan_full_ && !taken->second.may_grow && item.directory_inode != 0 &&
            taken->second.directory_inode == item.directory_inode)
          continue;
        if (still_stands(item.key, taken->second)) {
          taken->second.directory_inode = item.directory_inode;
          continue;
        }
      } else if (const auto pending = pending_.find(item.key);
                 pending != pending_.end() && (pending->second.due || pending->second.waits)) {
        continue;  // has a look of its own to come
      }
      if (item.counts && taken == taken_.end()) pending_of(item.key, "scan").noticed = true;
      look(item.key, "scan", stop);
      if (const auto now = taken_.find(item.key); now != taken_.end()) {
        now->second.scan = scan_number_;
        now->second.directory_inode = item.directory_inode;
      }
    }
    if (to_scan_.empty()) listed_numbers_ = {};
    if (!scanning_ || !to_scan_.empty() || stop.stop_requested()) return;
    scanning_ = false;
    if (!scan_failed_) {
      int queued = 0;
      if (::ioctl(access_->inotify_fd(), FIONREAD, &queued) != 0) queued = 0;
      forget_unseen_ = {scan_number_, structure_read_ + static_cast<std::uint64_t>(queued)};
    }
    if (std::exchange(scan_again_, false)) begin_scan(true);
  }

  // What a complete scan has not seen is gone from the spool. Not before every notification of
  // structure has been handled that is older than that: an entry that was captured and forgotten
  // would look like one that was missed when the word of its appearance comes late. In a storm the
  // queue is never found empty, so it is counted how far that is.
  void forget_unseen(std::uint64_t scan) {
    for (auto it = taken_.begin(); it != taken_.end();) {
      const auto entry = it++;
      if (entry->second.scan >= scan || !is_gone(entry->first)) continue;
      const std::string& file = entry->second.identity.file;
      if (file.empty() || is_gone(path_of(entry->first, file))) forget(entry);
    }
  }

  // An error of another kind says nothing of it.
  bool is_gone(const std::string& path) const {
    const auto stat = access_->stat(path);
    return !stat && stat.error().kind() == ErrorKind::kVanished;
  }

  // The entry's file as it is now, if that still is in the state in which it was captured.
  std::optional<FileIdentity> as_captured(const std::string& key,
                                          const FileIdentity& identity) const {
    const auto look_at = [&](const std::string& file) -> std::optional<FileIdentity> {
      const auto stat = access_->stat(path_of(key, file));
      if (!stat || !identity.matches(*stat)) return std::nullopt;
      return identity_of(file, *stat);
    };
    if (!identity.file.empty()) return look_at(identity.file);
    // A mark of an older journal: the inode tells which of the entry's files it was.
    if (const auto names = file_names(); !names.empty()) {
      for (const std::string_view name : names) {
        if (auto found = look_at(std::string(name))) return found;
      }
      return std::nullopt;
    }
    const auto names = access_->list(key);
    if (!names) return std::nullopt;
    for (const SpoolName& name : *names) {
      if (name.inode != identity.inode || !classify(join(key, name.name)).is_file()) continue;
      if (auto found = look_at(name.name)) return found;
    }
    return std::nullopt;
  }

  // Completes what is known of the entry, if something was missing: a device's number after a
  // mount, a mark of an older journal.
  bool still_stands(const std::string& key, Taken& taken) {
    if (taken.event_id.empty() &&
        taken.identity.file.empty()) {  // an entry without any file, ignored
      const auto stat = access_->stat(key);
      return stat && taken.identity.matches(*stat);
    }
    auto now = as_captured(key, taken.identity);
    if (!now) return false;
    if (*now == taken.identity) return true;
    taken.identity = *std::move(now);
    if (taken.marked) journal_.set_mark(options_.name, mark_of(key, taken));
    return true;
  }

  // ---- entries
  // -----------------------------------------------------------------------------------------------

  Pending& pending_of(std::string key, const char* way) {
    if (const auto known = pending_.find(key); known != pending_.end()) return known->second;
    if (const auto number = new_number(key)) gaps_.seen({&*number, 1});
    const auto place = pending_.try_emplace(std::move(key)).first;
    place->second.entry.key = place->first;
    place->second.first_seen = clock_.steady();
    place->second.way = way;
    return place->second;
  }

  // The job number of an entry that was not known before. One that is known must not be counted
  // again: the low number of a job that has been waiting for long would look like a count that has
  // wrapped.
  std::optional<std::uint64_t> new_number(const std::string& key) const {
    if (once_ || pending_.contains(key) || taken_.contains(key)) return std::nullopt;
    const auto number = number_of(key);
    if (!number || listed_numbers_.contains(*number) || left_numbers_.contains(*number))
      return std::nullopt;
    return number;
  }

  void notice(const std::string& key) {
    if (const auto pending = pending_.find(key); pending != pending_.end())
      pending->second.noticed = true;
  }

  void put_file(Pending& pending, std::string name, const FileStat& stat, std::string bytes) {
    SpoolFile file;
    file.name = std::move(name);
    file.stat = stat;
    if (bytes.size() > static_cast<std::uint64_t>(options_.common.max_file_bytes)) {
      bytes.resize(static_cast<std::size_t>(options_.common.max_file_bytes));
      file.truncated = true;
    }
    pending.bytes += bytes.size();
    pending_bytes_ += bytes.size();
    file.bytes = make_bytes(std::move(bytes));
    pending.changed = clock_.steady();
    for (SpoolFile& old : pending.entry.files) {
      if (old.name != file.name) continue;
      pending.bytes -= old.bytes->size();
      pending_bytes_ -= old.bytes->size();
      old = std::move(file);
      return;
    }
    pending.entry.files.push_back(std::move(file));
  }

  // Reads an entry from the spool and considers it.
  void look(const std::string& key, const char* way, const std::stop_token& stop) {
    bool vanished = false;
    {
      Pending& pending = pending_of(key, way);
      pending.due.reset();
      const bool unreadable = std::exchange(pending.unreadable, false);
      vanished = !read_entry(key, pending);
      if (vanished) pending.unreadable = unreadable;  // what it was counts as the reason
      if (vanished) read_held(pending);
    }
    const auto pending = pending_.find(key);
    if (vanished) {
      // Bytes that an event brought are as good as ever; what is missing will not come any more.
      const bool nothing = pending->second.entry.files.empty();
      const bool counts =
          pending->second.noticed && !taken_.contains(key) && !accounted_.contains(key);
      const Assessment assessment = nothing ? Assessment{} : assess(pending->second.entry);
      const bool partial = assessment.state == Assessment::State::kIncomplete ||
                           assessment.state == Assessment::State::kDoubtful;
      if (counts && mounts_.changed()) mounts_changed_ = true;
      // With its spool, perhaps; then it comes back with it.
      if (counts && (mounts_changed_ || !spool_there_)) return schedule_look(key, kLookAgain, way);
      if ((nothing ? counts : partial) && access_->fanotify_fd() >= 0 &&
          (pending->second.gone == 0 || pending->second.gone == turns_)) {
        // It may have been closed and removed since the queue of content was found empty: once more
        // after that.
        pending->second.gone = turns_;
        return schedule_look(key, milliseconds{1}, way);
      }
      if (nothing) {
        if (counts) {
          count_missed(pending->second.unreadable ? "unreadable"
                       : pending->second.refused  ? "journal full"
                                                  : "vanished");
          accounted_.emplace(key, false);
        }
        return drop_pending(pending);
      }
      if (assessment.state == Assessment::State::kIgnore) {
        if (!taken_.contains(key)) count_ignored(std::string(assessment.reason));
        return drop_pending(pending);
      }
      return take(key, !partial, stop);
    }
    consider(key, stop);
  }

  // False if the entry is gone.
  bool read_entry(const std::string& key, Pending& pending) {
    if (const auto names = file_names(); !names.empty()) {
      bool any = false;
      for (const std::string_view name : names)
        any = read_entry_file(key, path_of(key, name), pending) || any;
      return any;
    }
    const SpoolPath self = classify(key);
    const std::string directory =
        self.role == SpoolPath::Role::kEntryDirectory ? key : parent_of(key);
    // Without a directory of its own its files stand among those of others, which need not be
    // opened.
    const bool alone = self.role == SpoolPath::Role::kEntryDirectory;
    auto names = alone ? access_->list_open(directory) : unopened(access_->list(directory));
    if (!names) {
      if (names.error().kind() == ErrorKind::kVanished) return false;
      log_unreadable(key, names.error());
      pending.unreadable = true;
      return true;
    }
    bool any = alone;
    for (auto& [name, fd] : *names)
      any = read_entry_file(key, join(directory, name.name), pending, std::move(fd)) || any;
    return any;
  }

  static Result<std::vector<OpenedName>> unopened(Result<std::vector<SpoolName>> names) {
    if (!names) return names.error();
    std::vector<OpenedName> all;
    all.reserve(names->size());
    for (SpoolName& name : *names) all.push_back({std::move(name), {}});
    return all;
  }

  // Reads one file of an entry, unless it is known already. False if it is not there. `opened`: the
  // file, if it is open.
  bool read_entry_file(const std::string& key, const std::string& path, Pending& pending,
                       UniqueFd opened = {}) {
    const SpoolPath place = classify(path);
    if (!place.is_file() || place.entry != key) return false;
    Result<UniqueFd> fd = opened ? Result<UniqueFd>(std::move(opened)) : access_->open(path);
    if (!fd) {
      if (fd.error().kind() == ErrorKind::kVanished) return false;
      if (fd.error().kind() == ErrorKind::kPermanent) {
        count_ignored(fd.error().message());
      } else {
        log_unreadable(path, fd.error());
        pending.unreadable = true;
      }
      return true;
    }
    auto stat = stat_fd(fd->get());
    if (!stat) return true;
    if (stat->owner != owner_) {
      count_ignored("another owner");
      log_.error("SPOOL_OWNER",
                 "a file in the spool does not belong to the owner of the spool directory and is "
                 "left out; "
                 "the spool directory must belong to the user that the scheduler runs as",
                 {{"source", options_.name},
                  {"path", printable(path)},
                  {"file_uid", stat->owner},
                  {"spool_uid", owner_}});
      return true;
    }
    if (place.role == SpoolPath::Role::kEntryRecord && stat->size == 0) return false;
    const SpoolFile* known = pending.entry.file(place.file);
    if (known != nullptr && known->stat.inode == stat->inode &&
        known->stat.mtime_ns == stat->mtime_ns && known->stat.size == stat->size &&
        (known->truncated || known->bytes->size() == stat->size)) {
      return true;
    }
    auto bytes = read_settled(fd->get(), *stat);
    if (!bytes) {
      note_error(path + ": " + bytes.error().message());
      return true;
    }
    FAULT_POINT("capture.content_read");
    put_file(pending, std::string(place.file), *stat, *std::move(bytes));
    if (access_->fanotify_fd() < 0 && access_->inotify_fd() >= 0)
      hold(pending, std::string(place.file), *std::move(fd));
    return true;
  }

  void hold(Pending& pending, std::string name, UniqueFd fd) {
    if (clock_.steady() - pending.first_seen > kHoldOpen) return;
    for (auto& [held, old] : pending.held) {
      if (held != name) continue;
      old = std::move(fd);
      return;
    }
    if (held_ >= kHeldMost) return;
    ++held_;
    pending.held.emplace_back(std::move(name), std::move(fd));
  }
  void drop_held(Pending& pending) {
    held_ -= pending.held.size();
    pending.held.clear();
  }
  // The entry is gone; what is held of it is whole by now.
  void read_held(Pending& pending) {
    for (const auto& [name, fd] : pending.held) {
      auto stat = stat_fd(fd.get());
      if (!stat) continue;
      auto bytes = read_settled(fd.get(), *stat);
      if (bytes) put_file(pending, name, *stat, *std::move(bytes));
    }
    drop_held(pending);
  }

  void log_unreadable(const std::string& path, const Error& error) {
    note_error(path + ": " + error.message());
    if (error.kind() == ErrorKind::kExhausted) {
      log_.warning(
          "CAPTURE_DESCRIPTORS_USED_UP",
          "no descriptor was left to read an entry; it is tried again; raise LimitNOFILE of the "
          "unit, or fs.file-max",
          {{"source", options_.name}, {"path", printable(path)}, {"reason", error.message()}});
      return;
    }
    log_.error("SPOOL_UNREADABLE",
               "an entry of the spool cannot be read; give the daemon's user the right to read it",
               {{"source", options_.name}, {"path", printable(path)}, {"reason", error.message()}});
  }

  // Is the entry whole?
  void consider(const std::string& key, const std::stop_token& stop) {
    const auto found = pending_.find(key);
    Pending& pending = found->second;
    if (clock_.steady() - pending.first_seen > kHoldOpen) drop_held(pending);
    // It waits in the spool until somebody mends the rights; if it goes before that, it was missed.
    if (pending.unreadable) return schedule_look(key, kLookAgain, pending.way);
    if (pending.entry.files.empty()) {
      if (clock_.steady() - pending.first_seen < incomplete_after())
        return schedule_look(key, kLookAgain, pending.way);
      count_ignored("empty entry");
      return ignore(found);
    }
    const Assessment assessment = assess(pending.entry);
    switch (assessment.state) {
      case Assessment::State::kComplete: return take(key, true, stop);
      case Assessment::State::kIgnore:
        // Its record may be written again many times: it is one all the same.
        if (!taken_.contains(key)) count_ignored(std::string(assessment.reason));
        return ignore(found);
      case Assessment::State::kDuplicate:
        if (known_inode(pending.entry)) {
          count_ignored("hard link to another entry's script");
          return ignore(found);
        }
        return take(key, true, stop);
      case Assessment::State::kSettling:
      case Assessment::State::kDoubtful: {
        const auto quiet = clock_.steady() - pending.changed;
        if (quiet >= assessment.settle || newest_age(pending.entry) >= assessment.settle)
          return take(key, assessment.state == Assessment::State::kSettling, stop);
        return schedule_look(key, std::chrono::ceil<milliseconds>(assessment.settle - quiet),
                             pending.way);
      }
      case Assessment::State::kIncomplete: break;
    }
    if (clock_.steady() - pending.first_seen >= incomplete_after() ||
        (once_ && is_old(pending.entry)))
      return take(key, false, stop);
    if (access_->fanotify_fd() < 0 && access_->inotify_fd() >= 0) {
      // Found by a scan half written: from here on its own watch tells, and a look after the watch
      // closes the gap.
      const bool fresh = pending.watch < 0;
      if (fresh && classify(key).role == SpoolPath::Role::kEntryDirectory)
        watch_entry(key, pending);
    }
    if (pending_bytes_ > kPendingBytesLimit) let_go(pending);
    schedule_look(key, kLookAgain, pending.way);
  }

  // With --once there is no time to wait: what was written last long ago will not be completed.
  bool is_old(const SpoolEntry& entry) const { return newest_age(entry) >= incomplete_after(); }

  // How long ago any of its files was written, as the files themselves tell.
  std::chrono::nanoseconds newest_age(const SpoolEntry& entry) const {
    std::int64_t newest = 0;
    for (const SpoolFile& file : entry.files) newest = std::max(newest, file.stat.mtime_ns);
    return std::chrono::nanoseconds(clock_.now().nanoseconds - newest);
  }

  milliseconds incomplete_after() const {
    return std::chrono::seconds(options_.common.incomplete_after_seconds);
  }

  // Forgets an incomplete entry's bytes, to be read again from the spool.
  void let_go(Pending& pending) {
    pending_bytes_ -= pending.bytes;
    pending.bytes = 0;
    pending.entry.files.clear();
  }

  bool known_inode(const SpoolEntry& entry) const {
    return std::any_of(entry.files.begin(), entry.files.end(), [&](const SpoolFile& f) {
      const auto known = taken_inodes_.find(f.stat.inode);
      return known != taken_inodes_.end() && known->second == f.stat.mtime_ns;
    });
  }

  void schedule_look(const std::string& key, milliseconds in, const char* way) {
    Pending& pending = pending_of(key, way);
    if (pending.waits) return;  // it is looked at when the journal has room
    const SteadyTime give_up = pending.first_seen + incomplete_after();
    SteadyTime at = clock_.steady() + in;
    // Not seldomer than needed, not more often than the entry's age deserves.
    if (in == kLookAgain)
      at = clock_.steady() + std::clamp(std::chrono::duration_cast<milliseconds>(
                                            (clock_.steady() - pending.first_seen) / 8),
                                        in, kLookAtLeast);
    if (clock_.steady() < give_up) at = std::min(at, give_up);
    if (pending.due && *pending.due <= at) return;
    pending.due = at;
    due_.push({at, key});
  }

  bool is_current(const Due& due) const {
    const auto pending = pending_.find(due.key);
    return pending != pending_.end() && pending->second.due == due.at;
  }

  // What was taken meanwhile needs no look any more. In a storm no look comes, and its word would
  // stay.
  void trim_due() {
    if (due_.size() <= 2 * pending_.size() + 1000) return;
    decltype(due_) current;
    for (const auto& [key, pending] : pending_) {
      if (pending.due) current.push({*pending.due, key});
    }
    due_ = std::move(current);
  }

  void look_at_due(const std::stop_token& stop) {
    // What is due by now, and not what a look puts off: that is to wait for the notifications which
    // come in between.
    const SteadyTime now = clock_.steady();
    while (spool_there_ && !due_.empty() && !stop.stop_requested()) {
      if (!is_current(due_.top())) {
        due_.pop();
        continue;
      }
      if (due_.top().at > now) return;
      const std::string key = due_.top().key;
      due_.pop();
      const auto pending = pending_.find(key);
      if (const auto taken = taken_.find(key); taken != taken_.end() &&
                                               pending->second.entry.files.empty() &&
                                               still_stands(key, taken->second)) {
        drop_pending(pending);
        continue;
      }
      look(key, pending->second.way, stop);
    }
  }

  void drop_pending(PendingMap::iterator pending) {
    pending_bytes_ -= pending->second.bytes;
    drop_held(pending->second);
    if (pending->second.watch >= 0) drop_watch(pending->second.watch);
    pending_.erase(pending);
  }

  void remember(std::string key, Taken taken) {
    if (!taken.event_id.empty()) taken_inodes_[taken.identity.inode] = taken.identity.mtime_ns;
    taken.scan = scan_number_;  // it may have come after the running scan's lists
    taken_.insert_or_assign(std::move(key), std::move(taken));
  }

  void forget(TakenMap::iterator taken) {
    const FileIdentity& identity = taken->second.identity;
    if (const auto inode = taken_inodes_.find(identity.inode);
        inode != taken_inodes_.end() && inode->second == identity.mtime_ns) {
      taken_inodes_.erase(inode);
    }
    if (taken->second.marked) forgotten_.push_back(taken->first);
    if (access_->fanotify_fd() >= 0) gone_.insert_or_assign(taken->first, std::move(taken->second));
    taken_.erase(taken);
    if (forgotten_.size() >= 1000) send_forgotten();
  }

  void send_forgotten() {
    if (!forgotten_.empty()) journal_.forget_marks(options_.name, std::exchange(forgotten_, {}));
  }

  // An entry that is not archived on purpose is remembered as long as it stands, so that it is not
  // looked at again.
  void ignore(PendingMap::iterator pending) {
    Taken taken;
    if (!pending->second.entry.files.empty()) {
      const SpoolFile& file = pending->second.entry.files.front();
      taken.identity = identity_of(file.name, file.stat);
    } else if (auto stat = access_->stat(pending->first)) {
      taken.identity = identity_of("", *stat);
    }
    remember(pending->first, std::move(taken));
    drop_pending(pending);
  }

  // Makes the event and gives it to the journal.
  void take(const std::string& key, bool complete, const std::stop_token& stop) {
    const auto found = pending_.find(key);
    // Do not parse what would be refused: something of this size or smaller just was.
    if (found->second.bytes >= refused_bytes_) return wait_for_room(found, complete, 0);
    SpoolEntry entry = std::move(found->second.entry);
    const char* const way = found->second.way;
    for (const SpoolFile& file : entry.files) complete = complete && !file.truncated;
    auto parsed = parse(entry);
    FAULT_POINT("capture.parsed");
    if (!parsed) {
      const bool known = taken_.contains(key) || accounted_.contains(key);
      const bool counts = found->second.noticed && !known;
      found->second.entry.files.push_back(entry.files.front());
      if (parsed.error().kind() == ErrorKind::kVanished) {
        const bool stands = !is_gone(path_of(key, entry.files.front().name));
        stands ? ignore(found) : drop_pending(found);
        if (counts) {
          count_missed("vanished");
          accounted_.emplace(key, false);
        } else if (!known && stands) {
          count_ignored(parsed.error().message());
        }
        return;
      }
      ignore(found);
      note_error(key + ": " + parsed.error().message());
      log_.error("ENTRY_UNPARSABLE",
                 "a spool entry could not be turned into an event; it stays in the spool for as "
                 "long as the scheduler keeps it",
                 {{"source", options_.name},
                  {"entry", printable(key)},
                  {"reason", parsed.error().message()}});
      count_missed("unparsable");
      return;
    }
    found->second.entry.files.clear();
    if (complete) learn_usual_files(entry);
    const SpoolFile& identity = identity_file(entry, parsed->script_file);
    auto event =
        std::make_shared<Event>(assemble(options_.origin, entry, *std::move(parsed),
                                         options_.common.environment, complete, way, clock_.now()));

    Taken taken;
    taken.identity = identity_of(identity.name, identity.stat);
    const EventFile* script = event->file("script");
    taken.size = script != nullptr ? script->size : identity.stat.size;
    taken.event_id = event->id;
    taken.may_grow = !complete;
    if (const auto before = taken_.find(key); before != taken_.end()) {
      if (before->second.event_id == event->id) {
        counters_->with([](Counters& c) { ++c.status.duplicates; });
        const std::uint64_t directory = before->second.directory_inode;
        const bool same = before->second.identity == taken.identity;
        taken.marked = before->second.marked;
        taken.directory_inode = directory;
        remember(key, taken);
        if (!same && taken.marked) journal_.set_mark(options_.name, mark_of(key, taken));
        return drop_taken(found, complete);
      }
      if (is_beginning(before->second, *event)) event->supersedes = before->second.event_id;
    }
    // An entry that is gone already cannot come again; only one that stands needs a mark to be
    // known by.
    taken.marked = identity.stat.links > 0;
    Journal::Append item;
    item.source = options_.name;
    item.event = event;
    item.resolve_first = options_.resolve_first;
    if (taken.marked) item.mark = mark_of(key, taken);
    item.durable = [counters = counters_, &clock = clock_, way, time = event->time,
                    malformed = !event->problems.empty(), complete,
                    supersedes = event->supersedes.has_value()](bool fresh) {
      const double lag = static_cast<double>(clock.now().nanoseconds - time.nanoseconds) / 1e9;
      counters->with([&](Counters& c) {
        if (!fresh) {
          ++c.status.duplicates;
          return;
        }
        ++c.status.captured;
        ++c.status.by_way[way];
        if (!complete) ++c.status.incomplete;
        if (malformed) ++c.status.malformed;
        if (supersedes) ++c.status.superseding;
        if (std::strcmp(way, "scan") == 0) return;
        c.status.lag_seconds = lag;
        c.status.close_to_durable.add(lag);
      });
    };
    FAULT_POINT("capture.before_append");
    const auto admission = give(item, stop);
    if (admission != Journal::Admission::kTaken) {
      found->second.entry = std::move(entry);
      if (admission == Journal::Admission::kFull)
        refused_bytes_ = std::min(refused_bytes_, found->second.bytes);
      // One user's entries must not use up what may be held of all.
      const bool over_share = admission == Journal::Admission::kOverShare;
      return wait_for_room(found, complete, taken.identity.mtime_ns,
                           over_share ? kPendingBytesLimit / 2 : kPendingBytesLimit);
    }
    remember(key, std::move(taken));
    drop_taken(found, complete);
  }

  // `key` may be a part of what goes.
  void drop_taken(PendingMap::iterator pending, bool complete) {
    if (!complete)
      pending->second.watch = -1;  // the watch stays in the table: the entry may grow, and says so
    drop_pending(pending);
  }

  Journal::Admission give(Journal::Append& item, const std::stop_token& stop) {
    if (!once_) return journal_.offer(item, stop);
    // With --once there is nothing else to do in the meantime.
    return journal_.append(std::move(item), stop) ? Journal::Admission::kTaken
                                                  : Journal::Admission::kFull;
  }

  // ---- what the journal has no room for
  // ------------------------------------------------------------------------ Notifications are read
  // all the while: each one in the kernel's queue keeps a deleted file on the disk, and most of
  // them concern files outside the spool. Entries of the spool are held within bounds.

  // `mtime_ns`: by which the journal knows what it refused; 0 = it was not asked.
  void wait_for_room(PendingMap::iterator pending, bool complete, std::int64_t mtime_ns,
                     std::uint64_t most_held = kPendingBytesLimit) {
    Pending& entry = pending->second;
    drop_held(entry);
    entry.due.reset();
    entry.complete = complete;
    entry.refused = true;
    if (!std::exchange(entry.waits, true)) {
      if (waiting_.size() >= kWaitingMost) return leave_to_scan(pending);
      waiting_.push_back({pending->first, entry.bytes, mtime_ns});
    }
    if (pending_bytes_ > most_held) let_go(entry);
    if (waiting_.size() == 1) next_offer_ = clock_.steady() + kOfferAgain;
  }

  // Too many entries wait already; a scan finds this one when there is room.
  void leave_to_scan(PendingMap::iterator pending) {
    if (!std::exchange(left_to_scan_, true)) {
      counters_->with([](Counters& c) { ++c.status.overflows; });
      log_.warning("CAPTURE_LEFT_TO_SCAN",
                   "more entries wait for room in the journal than are kept count of; the others "
                   "are found by a scan when there "
                   "is room, if the scheduler keeps them until then",
                   {{"source", options_.name}, {"waiting", waiting_.size()}});
    }
    if (const auto number = number_of(pending->first)) left_numbers_.add(*number, *number);
    drop_pending(pending);
  }

  void offer_again(const std::stop_token& stop) {
    const SteadyTime now = clock_.steady();
    if (!room_.exchange(false) && now < next_offer_) return;
    next_offer_ = now + kOfferAgain;
    refused_bytes_ = UINT64_MAX;
    // One round over those that wait now; what is refused again moves to the end.
    for (std::size_t left = waiting_.size(); left > 0 && !stop.stop_requested(); --left) {
      Waiting waiting = std::move(waiting_.front());
      waiting_.pop_front();
      const auto pending = pending_.find(waiting.key);
      if (pending == pending_.end() || !pending->second.waits) continue;
      if (waiting.bytes >= refused_bytes_ ||
          (waiting.mtime_ns != 0 &&
           journal_.refuses(options_.name,
                            {.entry = waiting.key, .identity = {.mtime_ns = waiting.mtime_ns}}))) {
        waiting_.push_back(std::move(waiting));
        continue;
      }
      pending->second.waits = false;
      if (pending->second.entry.files.empty()) {
        look(waiting.key, pending->second.way, stop);
      } else {
        take(waiting.key, pending->second.complete, stop);
      }
    }
    if (waiting_.empty() && std::exchange(left_to_scan_, false)) {
      begin_scan(true);
      left_numbers_ = {};
    }
  }

  // The entry was removed before there was room, and its bytes are not held.
  void lose_waiting(PendingMap::iterator pending) {
    count_missed("journal full");
    accounted_.emplace(pending->first, true);
    drop_pending(pending);
  }

  // At shutdown. Entries that still exist are found at the next start; the others are counted as
  // missed.
  void give_up_waiting() {
    std::vector<std::string> lost;
    for (const Waiting& waiting : waiting_) {
      const auto pending = pending_.find(waiting.key);
      if (pending != pending_.end() && pending->second.waits && is_gone(waiting.key))
        lost.push_back(waiting.key);
    }
    for (const std::string& key : lost) lose_waiting(pending_.find(key));
  }

  void learn_usual_files(const SpoolEntry& entry) {
    constexpr std::size_t kMost = 4;
    for (const SpoolFile& file : entry.files) {
      if (usual_files_.size() < kMost &&
          std::find(usual_files_.begin(), usual_files_.end(), file.name) == usual_files_.end())
        usual_files_.push_back(file.name);
    }
  }

  // True if the event's script begins with what was captured before: then it grew, and is not
  // another job's.
  bool is_beginning(const Taken& before, const Event& event) const {
    const EventFile* script = event.file("script");
    if (script == nullptr || before.event_id.empty() || script->size < before.size) return false;
    return event_id(event.cluster, event.scheduler, event.kind, event.job.id,
                    before.identity.mtime_ns,
                    sha256_hex(std::string_view(*script->bytes).substr(0, before.size))) ==
           before.event_id;
  }

  static CaptureMark mark_of(const std::string& key, const Taken& taken) {
    return {
        .entry = key, .identity = taken.identity, .size = taken.size, .event_id = taken.event_id};
  }

  // ---- the adapter: a plugin, so nothing that escapes from it may end the thread
  // --------------------------------

  SpoolPath classify(std::string_view path) const try {
    return adapter_.classify(path);
  } catch (...) {
    adapter_threw();
    return {};
  }
  Assessment assess(const SpoolEntry& entry) const try {
    return adapter_.assess(entry);
  } catch (...) {
    adapter_threw();
    return {};
  }
  Result<ParsedJob> parse(const SpoolEntry& entry) const try {
    if (!options_.around_parse) return adapter_.parse(entry);
    Result<ParsedJob> parsed =
        Error{ErrorKind::kPermanent, "the adapter has ended the process on it again and again"};
    options_.around_parse(entry, [&] { parsed = adapter_.parse(entry); });
    return parsed;
  } catch (...) {
    adapter_threw();
    return Error{ErrorKind::kPermanent, "the adapter threw: " + thrown_text()};
  }
  std::optional<std::uint64_t> number_of(std::string_view entry) const try {
    return adapter_.number_of(entry);
  } catch (...) {
    adapter_threw();
    return std::nullopt;
  }
  std::string path_of(std::string_view entry, std::string_view file) const try {
    return adapter_.path_of(entry, file);
  } catch (...) {
    adapter_threw();
    return std::string(entry) + '/' +
           std::string(file);  // what an adapter that says nothing of it means
  }
  std::span<const std::string_view> file_names() const try {
    return adapter_.file_names();
  } catch (...) {
    adapter_threw();
    return {};
  }
  // Only within a catch block.
  void adapter_threw() const {
    log_.error("ADAPTER_THREW",
               "the scheduler adapter threw an exception; the path or entry is left out; this is a "
               "bug of the plugin",
               {{"source", options_.name}, {"what", thrown_text()}});
  }

  // ---- counting
  // ----------------------------------------------------------------------------------------------

  void count_missed(const std::string& reason) {
    counters_->with([&](Counters& c) { ++c.status.missed[reason]; });
    log_.warning("ENTRY_MISSED", "a spool entry was seen to appear and could not be read",
                 {{"source", options_.name}, {"reason", reason}});
  }
  void count_ignored(const std::string& reason) {
    counters_->with([&](Counters& c) { ++c.status.ignored[reason]; });
  }
  void note_error(const std::string& text) {
    counters_->with([&](Counters& c) { c.status.last_error = printable(text); });
  }
  void publish() {
    send_forgotten();
    counters_->with([&](Counters& c) {
      c.status.pending = pending_.size();
      c.status.waiting_for_room = waiting_.size();
      c.status.pending_bytes = pending_bytes_;
    });
  }

  std::deque<StructureEvent> structure_;  // read, not yet handled
  struct Watch {
    std::string path;
    bool of_entry = false;
  };

  const Options options_;
  const SpoolAdapter& adapter_;
  const std::unique_ptr<SpoolAccess> access_;
  Journal& journal_;
  Logger& log_;
  const Clock& clock_;
  const UniqueFd wake_;
  const pid_t own_pid_ = ::getpid();
  // Shared with the callbacks that the journal may still hold when we are gone.
  const std::shared_ptr<Guarded<Counters>> counters_ = std::make_shared<Guarded<Counters>>();
  GapWatch gaps_;
  std::atomic<bool> rescan_asked_ = false;
  std::atomic<bool> room_ = false;  // the journal may take what it refused

  // Everything below belongs to the capture thread.
  std::uint32_t owner_ = 0;
  std::uint64_t root_inode_ = 0;
  std::uint64_t root_device_ = 0;
  std::optional<std::uint64_t> root_mount_;
  MountTable mounts_;
  bool mounts_changed_ = false;
  std::uint64_t turns_ = 0;
  std::uint64_t descriptor_limit_ = 0;
  std::size_t events_a_read_ = kEventsARead;
  std::optional<SteadyTime> descriptors_out_at_;  // of the last scan for that reason
  // Directories through which other mounts show the spool, or do not: path -> it is the spool's
  // root.
  std::unordered_map<std::string, bool> trusted_;
  PendingMap pending_;
  std::uint64_t pending_bytes_ = 0;
  std::size_t held_ = 0;
  std::vector<std::string> usual_files_;  // that an entry's directory has
  // Gone and counted, as captured or as missed; true: the word of the end was read, not only seen
  // to be so.
  std::unordered_map<std::string, bool> accounted_;
  TakenMap taken_;
  TakenMap
      gone_;  // with fanotify: whose end was read, until all is read that was written before it
  std::unordered_map<std::uint64_t, std::int64_t>
      taken_inodes_;  // of scripts: inode -> modification time
  std::vector<std::string> forgotten_;
  std::priority_queue<Due, std::vector<Due>, std::greater<>> due_;
  std::unordered_map<int, Watch> watches_;
  std::unordered_map<std::string, int> directories_;
  std::deque<Waiting> waiting_;  // oldest first; entries that do not wait any more are passed over
  std::uint64_t refused_bytes_ =
      UINT64_MAX;  // the smallest that the journal had no room for, until it may have some
  SteadyTime next_offer_;
  bool left_to_scan_ = false;
  NumberRanges
      left_numbers_;  // of entries that are left to a scan: known, and no news when it finds them
  std::deque<ScanItem> to_scan_;
  NumberRanges listed_numbers_;  // of the entries that came into to_scan_ since it was empty
  bool once_ = false;
  bool scanning_ = false;
  bool scan_full_ = true;
  bool scan_again_ = false;
  bool scan_failed_ = false;
  std::uint64_t scan_number_ = 0;
  std::optional<Forget> forget_unseen_;
  std::uint64_t structure_read_ = 0;  // bytes, ever
  std::uint64_t structure_handled_ = 0;
  bool structure_drained_ = true;
  bool few_ = false;  // fanotify's queue was short when it was looked at last
  std::uint64_t periodic_scans_ = 0;
  SteadyTime next_scan_;
  bool next_scan_full_ = false;
  bool spool_there_ = true;
  SteadyTime spool_retry_;
  milliseconds spool_retry_delay_ = kSpoolGoneFirst;
  alignas(inotify_event) std::array<char, 65536> inotify_buffer_;
  alignas(fanotify_event_metadata)
      std::array<char, kEventsARead * sizeof(fanotify_event_metadata)> fanotify_buffer_;
  std::array<char, PATH_MAX> path_buffer_;
  ForeignFilter foreign_{*access_};
  std::uint64_t own_writes_ = 0;

  std::jthread thread_;
};

SpoolCapture::SpoolCapture(Options options, const SpoolAdapter& adapter, OpenedAccess access,
                           Journal& journal, Logger& log, const Clock& clock)
    : engine_(std::make_unique<Engine>(std::move(options), adapter, std::move(access), journal, log,
                                       clock)) {}
SpoolCapture::~SpoolCapture() { stop(); }

Notifications SpoolCapture::wanted(const SourceConfig& common) {
  if (common.capture == "scan") return {false, false};
  if (common.capture == "inotify") return {true, false};
  return {true, true};
}

void SpoolCapture::start() { engine_->start(); }
void SpoolCapture::stop() { engine_->stop(); }
std::size_t SpoolCapture::run_once(milliseconds patience, const std::stop_token& stop) {
  return engine_->run_once(patience, stop);
}
void SpoolCapture::rescan() { engine_->rescan(); }
CaptureStatus SpoolCapture::status() const { return engine_->status(); }
bool SpoolCapture::unchanged(const CaptureMark& mark) const { return engine_->unchanged(mark); }

}  // namespace scriptorium
