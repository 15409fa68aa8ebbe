#include "core/delivery/crash_record.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <sstream>
#include <utility>

#include "core/base/text.h"

namespace scriptorium {
namespace {

constexpr std::uint32_t kCrashesUntilGuilty = 2;
constexpr std::uint32_t kDeathsUntilGuilty = 5;
constexpr std::chrono::seconds kBlameFor{30};
constexpr std::chrono::seconds kStoreAfter{5};
constexpr std::size_t kMostSuspects = 100'000;
constexpr std::size_t kHeaderBytes = 128;
constexpr std::size_t kAtOnce = 1024;
constexpr std::size_t kSignalStackBytes = 64U << 10;
constexpr std::uint64_t kMostFileBytes = 64U << 20;
constexpr std::array kCrashSignals{SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT};

enum class State { kNothing = 0, kBatch = 1, kSuspect = 2 };

std::uint64_t checksum(std::string_view bytes) {  // FNV-1a
  std::uint64_t sum = 0xcbf29ce484222325U;
  for (const char c : bytes) sum = (sum ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
  return sum;
}

std::array<char, kHeaderBytes> header(State state, std::string_view body) {
  std::array<char, kHeaderBytes> bytes{};
  std::snprintf(bytes.data(), bytes.size(), "in-flight 1 %d %zu %llu", static_cast<int>(state),
                body.size(), static_cast<unsigned long long>(checksum(body)));
  std::replace(bytes.begin(), bytes.end(), '\0', ' ');
  bytes.back() = '\n';
  return bytes;
}

bool write_at(int fd, std::string_view bytes, off_t offset) noexcept {
  while (!bytes.empty()) {
    const ssize_t n = ::pwrite(fd, bytes.data(), bytes.size(), offset);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(n));
    offset += n;
  }
  return true;
}

std::string key_of(std::string_view sink, std::string_view id) {
  return std::string(sink).append("\n").append(id);
}

// ---- the note of a crash. A signal handler can reach nothing but globals
// ------------------------------------------

struct Note {
  std::array<char, 8> magic{'d', 'i', 'e', 'd', ' ', '1', ' ', '\n'};
  std::int32_t signal = 0;
  std::int32_t slot = -1;  // whose plugin the thread was in
};

constexpr std::int32_t kNoSlot = -1;
thread_local volatile std::int32_t inside_slot = kNoSlot;
std::atomic<int> note_file{-1};
std::array<struct sigaction, kCrashSignals.size()> previous_actions{};

void note_crash(int signal, siginfo_t* info, void* /*context*/) {
  const int saved = errno;
  // Sent by somebody else, such as systemd's watchdog: no crash.
  const bool own = info->si_code > 0 || info->si_pid == ::getpid();
  const int file = note_file.exchange(-1);
  if (own && file >= 0) {
    Note note;
    note.signal = signal;
    note.slot = inside_slot;
    static_cast<void>(::pwrite(file, &note, sizeof note, 0) == 0);
  }
  for (std::size_t i = 0; i < kCrashSignals.size(); ++i) {
    if (kCrashSignals[i] == signal) ::sigaction(signal, &previous_actions[i], nullptr);
  }
  // A fault happens again on return, and then takes its usual course; what was sent must be sent
  // again.
  if (info->si_code <= 0) ::raise(signal);
  errno = saved;
}

}  // namespace

struct CrashRecord::Found {
  std::int32_t slot = 0;
  State state = State::kNothing;
  std::string sink;
  std::vector<std::string> ids;

  static std::optional<Found> read(const std::string& file, std::int32_t slot) {
    auto bytes = read_file(file, kMostFileBytes);
    if (!bytes || bytes->size() < kHeaderBytes) return std::nullopt;
    int state = 0;
    std::size_t size = 0;
    unsigned long long sum = 0;
    std::istringstream head(bytes->substr(0, kHeaderBytes));
    std::string magic;
    std::string version;
    if (!(head >> magic >> version >> state >> size >> sum) || magic != "in-flight" ||
        version != "1")
      return std::nullopt;
    if (bytes->size() < kHeaderBytes + size || (state != 1 && state != 2)) return std::nullopt;
    const std::string body = bytes->substr(kHeaderBytes, size);
    if (checksum(body) != sum) return std::nullopt;
    Found found{.slot = slot, .state = static_cast<State>(state)};
    std::istringstream lines(body);
    std::getline(lines, found.sink);
    for (std::string id; std::getline(lines, id);) found.ids.push_back(std::move(id));
    return found;
  }
};

Result<std::unique_ptr<CrashRecord>> CrashRecord::open(
    const std::string& state_dir, Logger& log, const Clock& clock,
    const std::function<bool(const std::string&)>& known) {
  const std::string directory = state_dir + "/in-flight";
  if (::mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST)
    return system_error("mkdir " + directory, errno);
  std::unique_ptr<CrashRecord> record(new CrashRecord(directory, log, clock));
  record->take_over(known);
  if (auto stored = record->store_suspects(); !stored) return stored.error();
  // What it says is counted now.
  const std::string note = directory + "/died";
  if (::unlink(note.c_str()) != 0 && errno != ENOENT) return system_error("unlink " + note, errno);
  return record;
}

CrashRecord::~CrashRecord() { close(); }

// What the process before has left becomes suspicion.
void CrashRecord::take_over(const std::function<bool(const std::string&)>& known) {
  std::map<std::string, Suspicion, std::less<>> suspects;
  if (auto text = read_file(directory_ + "/suspects")) {
    std::istringstream lines(*text);
    std::string id;
    std::string sink;
    for (Suspicion s; lines >> s.crashes >> s.deaths >> id >> sink;) suspects[key_of(sink, id)] = s;
  }

  std::vector<Found> all;
  std::vector<std::string> files;
  if (DIR* handle = ::opendir(directory_.c_str())) {
    while (const dirent* entry = ::readdir(handle)) {
      const std::string_view name = entry->d_name;
      std::int32_t slot = 0;
      const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), slot);
      if (error != std::errc{} || end != name.data() + name.size()) continue;
      files.push_back(directory_ + "/" + entry->d_name);
      if (auto found = Found::read(files.back(), slot)) all.push_back(*std::move(found));
    }
    ::closedir(handle);
  }
  Note note;
  bool crashed = false;
  if (auto bytes = read_file(directory_ + "/died"); bytes && bytes->size() == sizeof note) {
    std::memcpy(&note, bytes->data(), sizeof note);
    crashed = note.magic == Note{}.magic;
  }
  // The thread that crashed was in the plugin for this batch: the others have nothing to do with
  // it.
  if (crashed && note.slot != kNoSlot)
    std::erase_if(all, [&](const Found& f) { return f.slot != note.slot; });

  for (const Found& found : all) {
    const bool alone = found.ids.size() == 1 && (found.state == State::kSuspect || all.size() == 1);
    for (const std::string& id : found.ids) {
      if (suspects.size() >= kMostSuspects) break;
      Suspicion& suspicion = suspects[key_of(found.sink, id)];
      if (!alone) continue;
      ++suspicion.deaths;
      if (crashed) ++suspicion.crashes;
    }
    log_.warning("CRASHED_BEFORE",
                 "the process before ended while a plugin had events in hand; they are handed over "
                 "one by one, so that another "
                 "crash shows which of them is to blame",
                 {{"sink", printable(found.sink, 80)},
                  {"events", found.ids.size()},
                  {"first", found.ids.empty() ? std::string{} : printable(found.ids.front(), 80)},
                  {"signal", crashed ? std::to_string(note.signal) : "unknown"}});
  }
  std::erase_if(suspects, [&](const auto& s) {
    const std::string id = s.first.substr(s.first.find('\n') + 1);
    return id.empty() || !known(id);
  });
  shared_.with([&](Shared& shared) { shared.suspects = std::move(suspects); });
  // From here on it is in `suspects`; counted twice if the process ends before that is written,
  // which needs no care.
  for (const std::string& file : files) ::unlink(file.c_str());
}

Result<void> CrashRecord::store_suspects() const {
  std::string text;
  shared_.with([&](const Shared& shared) {
    for (const auto& [key, s] : shared.suspects) {
      const auto split = key.find('\n');
      text.append(std::to_string(s.crashes))
          .append(" ")
          .append(std::to_string(s.deaths))
          .append(" ");
      text.append(key, split + 1).append(" ").append(key, 0, split).append("\n");
    }
  });
  const std::string file = directory_ + "/suspects";
  if (text.empty()) {
    if (::unlink(file.c_str()) != 0 && errno != ENOENT)
      return system_error("unlink " + file, errno);
  } else if (auto stored = replace_file(file, text, 0600); !stored) {
    return stored;
  }
  return {};
}

CrashRecord::Verdict CrashRecord::verdict(std::string_view sink,
                                          const std::string& event_id) const {
  return shared_.with([&](const Shared& shared) {
    if (shared.suspects.empty()) return Verdict::kInnocent;
    const auto found = shared.suspects.find(key_of(sink, event_id));
    if (found == shared.suspects.end()) return Verdict::kInnocent;
    const bool guilty =
        found->second.crashes >= kCrashesUntilGuilty || found->second.deaths >= kDeathsUntilGuilty;
    return guilty ? Verdict::kGuilty : Verdict::kSuspect;
  });
}

CrashRecord::InHand CrashRecord::hand_over(std::string_view sink,
                                           std::span<const std::string> event_ids, bool suspect,
                                           const std::stop_token& stop) {
  if (suspect) {
    bool taken = false;
    shared_.wait(stop, [&](Shared& shared) {
      return taken || (taken = !std::exchange(shared.suspect_in_hand, true));
    });
    if (!taken) return {};
  }
  std::string body(sink);
  body.append("\n");
  for (const std::string& id : event_ids) body.append(id).append("\n");

  const SteadyTime now = clock_.steady();
  const auto [slot, known_file] = shared_.with([&](Shared& shared) {
    const auto free = std::find_if(shared.slots.begin(), shared.slots.end(),
                                   [](const Slot& s) { return !s.taken; });
    const auto index = static_cast<std::size_t>(free - shared.slots.begin());
    if (free == shared.slots.end()) shared.slots.emplace_back();
    Slot& s = shared.slots[index];
    s.taken = true;
    s.suspect = suspect;
    s.blamed = false;
    s.since = now;
    return std::pair(index, s.file.get());
  });
  InHand in_hand(this, slot);
  int file = known_file;
  UniqueFd made;
  if (file < 0) {
    const std::string path = directory_ + "/" + std::to_string(slot);
    made =
        UniqueFd(::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
    file = made.get();
  }
  const auto head = header(suspect ? State::kSuspect : State::kBatch, body);
  // The header last: it makes what stands after it count. Of a few bytes there is no half.
  const bool small = body.size() <= kAtOnce;
  std::string whole;
  if (small) whole.append(head.data(), head.size()).append(body);
  const bool written = small ? file >= 0 && write_at(file, whole, 0)
                             : file >= 0 && write_at(file, body, kHeaderBytes) &&
                                   write_at(file, {head.data(), head.size()}, 0);
  const int code = errno;
  const bool say = shared_.with([&](Shared& shared) {
    Slot& s = shared.slots[slot];
    if (made) s.file = std::move(made);
    s.blamed = written;
    return !written && !std::exchange(shared.write_failed, true);
  });
  if (say) {
    log_.warning("CRASH_RECORD_FAILED",
                 "what is handed to plugins cannot be recorded; delivery continues, but an event "
                 "that crashes the daemon is not found",
                 {{"reason", system_error(directory_, code).message()}});
  }
  return in_hand;
}

void CrashRecord::clear(const Slot& slot) const noexcept {
  const auto head = header(State::kNothing, {});
  if (!slot.file || write_at(slot.file.get(), {head.data(), head.size()}, 0)) return;
  [[maybe_unused]] const int emptied =
      ::ftruncate(slot.file.get(), 0);  // an empty record says nothing either
}

// The write is one of a page that is in memory; done under the lock, it cannot undo what the next
// batch writes there.
void CrashRecord::let_go(std::size_t index) noexcept {
  shared_.with_notify([&](Shared& shared) {
    Slot& slot = shared.slots[index];
    if (slot.blamed) clear(slot);
    if (slot.suspect) shared.suspect_in_hand = false;
    slot.blamed = slot.suspect = slot.taken = false;
  });
}

void CrashRecord::InHand::release() noexcept {
  if (record_ != nullptr) std::exchange(record_, nullptr)->let_go(slot_);
}

CrashRecord::Inside::Inside(const InHand& in_hand) noexcept {
  inside_slot = in_hand.record_ != nullptr ? static_cast<std::int32_t>(in_hand.slot_) : kNoSlot;
}
CrashRecord::Inside::~Inside() { inside_slot = kNoSlot; }

CrashRecord::SignalStack::SignalStack() : memory_(std::make_unique<char[]>(kSignalStackBytes)) {
  stack_t stack{};
  stack.ss_sp = memory_.get();
  stack.ss_size = kSignalStackBytes;
  stack_t before{};
  // A sanitizer's own stays.
  if (::sigaltstack(nullptr, &before) != 0 || (before.ss_flags & SS_DISABLE) == 0 ||
      ::sigaltstack(&stack, nullptr) != 0)
    memory_.reset();
}
CrashRecord::SignalStack::~SignalStack() {
  if (memory_ == nullptr) return;
  stack_t none{};
  none.ss_flags = SS_DISABLE;
  ::sigaltstack(&none, nullptr);
}

void CrashRecord::settled(std::string_view sink, const std::string& event_id) {
  const SteadyTime now = clock_.steady();
  shared_.with([&](Shared& shared) {
    if (shared.suspects.erase(key_of(sink, event_id)) > 0) shared.changed = now;
  });
}

void CrashRecord::tick() {
  const SteadyTime now = clock_.steady();
  const bool store = shared_.with_notify([&](Shared& shared) {
    for (Slot& slot : shared.slots) {
      if (!slot.taken || now - slot.since < kBlameFor) continue;
      if (std::exchange(slot.blamed, false)) clear(slot);
      if (std::exchange(slot.suspect, false)) shared.suspect_in_hand = false;
    }
    if (!shared.changed || now - *shared.changed < kStoreAfter) return false;
    shared.changed.reset();
    return true;
  });
  if (store) static_cast<void>(store_suspects());  // else some are delivered alone once more
}

void CrashRecord::close() noexcept {
  const int file = note_file.exchange(-1);
  const bool store = shared_.with([&](Shared& shared) {
    for (Slot& slot : shared.slots) {
      if (std::exchange(slot.blamed, false)) clear(slot);
    }
    // Those that no death was laid on would be found again; most of them were settled just before a
    // crash.
    const bool dropped =
        std::erase_if(shared.suspects, [](const auto& s) { return s.second.deaths == 0; }) > 0;
    return std::exchange(shared.changed, std::nullopt).has_value() || dropped;
  });
  if (store) static_cast<void>(store_suspects());
  if (file >= 0) ::close(file);
}

Result<void> CrashRecord::watch_signals() {
  const std::string path = directory_ + "/died";
  UniqueFd file(::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file) return system_error("open " + path, errno);
  note_file = file.release();
  struct sigaction action{};
  action.sa_sigaction = &note_crash;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  for (std::size_t i = 0; i < kCrashSignals.size(); ++i) {
    if (::sigaction(kCrashSignals[i], &action, &previous_actions[i]) != 0)
      return system_error("sigaction", errno);
  }
  return {};
}

}  // namespace scriptorium
