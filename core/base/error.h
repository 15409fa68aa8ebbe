#pragma once

#include <string>
#include <string_view>
#include <utility>

namespace scriptorium {

// What the *caller* should do about a failure. Adding a kind needs a design note.
enum class ErrorKind {
  kInvalidConfig,  // refuse to start
  kVanished,       // the spool entry no longer exists: skip it, count it
  kTransient,      // the same input may work later: retry
  kPermanent,      // the same input will never work: dead letter
  kExhausted,      // no disk space, descriptors or watches: slow down, alarm
  kCorrupt,        // our own data is damaged: quarantine, alarm
};

// The kind as it appears in logs, such as "transient". The pointer is to static storage.
const char* to_string(ErrorKind kind) noexcept;

// Why something failed: a kind for the program and a sentence for a person. Cheap to move.
class [[nodiscard]] Error {
 public:
  Error(ErrorKind kind, std::string message) : kind_(kind), message_(std::move(message)) {}

  ErrorKind kind() const noexcept { return kind_; }
  const std::string& message() const noexcept { return message_; }

  // The same error with the context in front: "spool entry hash.1/job.1: " + message.
  Error with_context(std::string_view context) const;

 private:
  ErrorKind kind_;
  std::string message_;
};

// The error of a failed system call, such as "open /x: permission denied". The kind follows from
// errno: ENOENT, ESTALE and ENOTDIR are kVanished; EMFILE, ENFILE, ENOSPC, EDQUOT and ENOMEM are
// kExhausted; all others are kTransient. `code` is an errno value; `what` names the call and its
// object.
Error system_error(std::string_view what, int code);

}  // namespace scriptorium
