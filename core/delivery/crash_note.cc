#include "core/delivery/crash_note.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "core/base/file.h"

namespace scriptorium::crash_note {
namespace {

constexpr std::size_t kStackBytes = 64U << 10;
constexpr std::array kCrashSignals{SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT};

// The file: the note after 8 bytes that name it and its version.
struct NoteFile {
  std::array<char, 8> magic{'d', 'i', 'e', 'd', ' ', '1', ' ', '\n'};
  Note note;
};

thread_local volatile std::int32_t slot_of_thread = kNoSlot;
std::atomic<int> note_file{-1};
std::array<struct sigaction, kCrashSignals.size()> previous_actions{};

void write_note(int signal, siginfo_t* info, void* /*context*/) {
  const int saved = errno;
  // A signal that another process sent, such as systemd's watchdog, is not a crash.
  const bool own = info->si_code > 0 || info->si_pid == ::getpid();
  const int file = note_file.exchange(-1);
  if (own && file >= 0) {
    NoteFile content;
    content.note = {.signal = signal, .slot = slot_of_thread};
    static_cast<void>(::pwrite(file, &content, sizeof content, 0) == 0);
  }
  for (std::size_t i = 0; i < kCrashSignals.size(); ++i) {
    if (kCrashSignals[i] == signal) ::sigaction(signal, &previous_actions[i], nullptr);
  }
  // A fault happens again when this returns; a signal that was sent must be sent again.
  if (info->si_code <= 0) ::raise(signal);
  errno = saved;
}

}  // namespace

Result<void> start(const std::string& path) {
  UniqueFd file(::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file) return system_error("open " + path, errno);
  note_file = file.release();
  struct sigaction action{};
  action.sa_sigaction = &write_note;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  for (std::size_t i = 0; i < kCrashSignals.size(); ++i) {
    if (::sigaction(kCrashSignals[i], &action, &previous_actions[i]) != 0)
      return system_error("sigaction", errno);
  }
  return {};
}

void stop() noexcept {
  const int file = note_file.exchange(-1);
  if (file >= 0) ::close(file);
}

std::optional<Note> read(const std::string& path) {
  NoteFile content;
  const auto bytes = read_file(path);
  if (!bytes || bytes->size() != sizeof content) return std::nullopt;
  std::memcpy(&content, bytes->data(), sizeof content);
  if (content.magic != NoteFile{}.magic) return std::nullopt;
  return content.note;
}

void set_slot_of_thread(std::int32_t slot) noexcept { slot_of_thread = slot; }

SignalStack::SignalStack() : memory_(std::make_unique<char[]>(kStackBytes)) {
  stack_t stack{};
  stack.ss_sp = memory_.get();
  stack.ss_size = kStackBytes;
  stack_t before{};
  if (::sigaltstack(nullptr, &before) != 0 || (before.ss_flags & SS_DISABLE) == 0 ||
      ::sigaltstack(&stack, nullptr) != 0)
    memory_.reset();
}

SignalStack::~SignalStack() {
  if (memory_ == nullptr) return;
  stack_t none{};
  none.ss_flags = SS_DISABLE;
  ::sigaltstack(&none, nullptr);
}

}  // namespace scriptorium::crash_note
