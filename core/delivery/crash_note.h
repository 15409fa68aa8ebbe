#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "core/base/result.h"

// A note that a crashing process leaves in STATE_DIR/in-flight/died: which signal ended it, and
// which batch's plugin code the crashing thread was running. A signal handler reaches nothing but
// globals, so this is the one part of core that has some.
namespace scriptorium::crash_note {

inline constexpr std::int32_t kNoSlot = -1;

struct Note {
  std::int32_t signal = 0;
  std::int32_t slot = kNoSlot;
};

// From now on SIGSEGV, SIGBUS, SIGILL, SIGFPE and SIGABRT of this process write the note before
// they take their usual course. Once; the handlers stay until the process ends.
Result<void> start(const std::string& path);
// No note is written any more.
void stop() noexcept;

// What the process before has noted; nothing if it did not crash.
std::optional<Note> read(const std::string& path);

// The slot that a crash of the calling thread is to be noted with; kNoSlot = none.
void set_slot_of_thread(std::int32_t slot) noexcept;

// An alternate signal stack for the calling thread. Without one, a crash by endless recursion
// leaves no note. An existing one, such as a sanitizer's, is kept.
class SignalStack {
 public:
  SignalStack();
  ~SignalStack();
  SignalStack(const SignalStack&) = delete;
  SignalStack& operator=(const SignalStack&) = delete;

 private:
  std::unique_ptr<char[]> memory_;
};

}  // namespace scriptorium::crash_note
