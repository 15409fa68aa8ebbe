#include "core/mail/hand_over.h"

#include "core/base/ascii.h"
#include "core/base/text.h"
#include "core/mail/message.h"

namespace scriptorium::mail {
namespace {

using Kind = HandedOver::Kind;

// By sysexits.h. No meaning in 75 alone: Exim ends with 1 where a later try would succeed, and
// msmtp with 69. msmtp ends with 74 or 76 if its connection broke, perhaps after the server had
// taken the mail.
Kind kind_of(int status) {
  constexpr int kUsage = 64;
  constexpr int kDataError = 65;
  constexpr int kNoUser = 67;
  constexpr int kNoHost = 68;
  constexpr int kIoError = 74;
  constexpr int kProtocol = 76;
  constexpr int kSignals = 64;  // at most; CommandRunner gives 128 + signal
  if (status == 0) return Kind::kTaken;
  if (status == kUsage || status == kDataError || status == kNoUser || status == kNoHost)
    return Kind::kRefused;
  if (status == kIoError || status == kProtocol) return Kind::kUndecided;
  return status > 128 && status <= 128 + kSignals ? Kind::kUndecided : Kind::kLater;
}

}  // namespace

HandedOver hand_over(CommandRunner& runner, const std::string& program, const std::string& sender,
                     const std::string& recipient, const std::string& message,
                     const std::stop_token& stop, std::chrono::milliseconds most) {
  for (const std::string& address : {sender, recipient}) {
    if (!is_address(address))
      return {Kind::kRefused, "not a plain address: \"" + printable(address, 80) + "\""};
  }
  const CommandRunner::Command command{
      .program = program,
      .arguments = {"-i", "-f", sender, "--", recipient},
      .environment = {"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C"},
      .input = message,
      .leaves_children = true,
  };
  const auto answer = runner.run(command, stop, std::chrono::steady_clock::now() + most);
  if (!answer)
    return {runner.started() ? Kind::kUndecided : Kind::kLater, answer.error().message()};
  const Kind kind = kind_of(answer->status);
  if (kind == Kind::kTaken) return {};
  const std::string name = program.substr(program.rfind('/') + 1);
  std::string reason = name + ": exit status " + std::to_string(answer->status);
  const std::string_view said = trim(answer->error, " \r\n\t");
  if (!said.empty()) reason += ": " + printable(said, 200);
  return {kind, reason};
}

}  // namespace scriptorium::mail
