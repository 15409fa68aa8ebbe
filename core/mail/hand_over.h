#pragma once

#include <chrono>
#include <stop_token>
#include <string>

#include "core/base/command.h"

namespace scriptorium::mail {

// What became of a message.
struct HandedOver {
  enum class Kind {
    kTaken,      // exit status 0: the mail program has it
    kLater,      // it did not start, or refused for now: try again
    kRefused,    // it will always refuse this recipient or message (64, 65, 67, 68)
    kUndecided,  // it was killed, did not end in time or lost a connection (74, 76): it may have it
  } kind = Kind::kTaken;
  // For people, one line: "sendmail: exit status 75: connection refused"; "" if taken.
  std::string reason;
};

inline constexpr std::chrono::seconds kMostForHandOver{60};

// Gives a message to `program` (absolute path; called as Sendmail: -i -f SENDER -- RECIPIENT),
// which may hang, refuse or leave children behind. A sender or recipient that is not is_address()
// is refused and the program not started. A stop is as a program that does not end in time.
//
// An exit status of 129 to 192 is undecided: it may be a shell's for a program that was killed.
HandedOver hand_over(CommandRunner& runner, const std::string& program, const std::string& sender,
                     const std::string& recipient, const std::string& message,
                     const std::stop_token& stop,
                     std::chrono::milliseconds most = kMostForHandOver);

}  // namespace scriptorium::mail
