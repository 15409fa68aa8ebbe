#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/accounts.h"
#include "core/base/command.h"
#include "core/base/result.h"

namespace scriptorium::mail {

// Which users want mails, and where to. As the options of [report.mail].
struct RecipientOptions {
  bool opt_in = false;          // only users who asked for it
  std::string no_mail_file;     // logins, one a line, '#' begins a comment: never. "" = none
  std::string addresses_file;   // "login address" a line. "" = none
  std::string address_command;  // absolute path; gets the login, prints its address. "" = none
  std::string domain;           // login@domain; "" = the login alone, which is local delivery
  std::string languages_file;   // "login language" a line. "" = none
};

inline constexpr const char* kOptedOut = "opted out";
inline constexpr const char* kNotOptedIn = "not opted in";

struct Recipient {
  std::string address;   // "": gets no mail
  std::string language;  // "": the site's
  // Why there is no address, for counting; one of: "no account" (also a login that no mail program
  // may get), "account not found out" (a name service failed), "system account" (uid below 1000),
  // "opted out", "not opted in", "home does not answer", "home is closed" (to its owner, as a home
  // that wants a Kerberos ticket is), "home not asked: not root", "address command failed", "bad
  // address".
  std::string why_not;
  std::string detail;  // for people, one line; may be empty
};

// Whether a file is in a home; what the child that looked for it found.
struct HomeFile {
  enum class Kind {
    kThere,
    kAbsent,    // neither file nor, maybe, home
    kNoAnswer,  // a file server does not answer, or failed
    kClosed,    // its owner may not look
    kNotOwner,  // this process cannot become the owner
  } kind = Kind::kAbsent;
  std::string detail;  // what failed
};

// Looks for a file as a user, in a child, since a home may be on a file server that is gone. The
// child becomes the user for good and has no descriptor of this process. A symbolic link counts
// without what it points to. Children that hang even after SIGKILL are added to `stuck`. Threads:
// any.
HomeFile find_in_home(const UserRecord& user, const std::string& path,
                      std::chrono::milliseconds most, std::vector<pid_t>& stuck);

// What a test of Recipients replaces.
struct RecipientSources {
  std::function<Result<std::optional<UserRecord>>(const std::string& login)> account =
      [](const std::string& login) { return find_user(login); };
  decltype(&find_in_home) home_file = &find_in_home;
  std::chrono::milliseconds most{5000};  // for a home, and for the command
};

// Decides for each user: an account, not in no_mail_file, in the home no .scriptorium/no-mail (with
// opt_in: .scriptorium/mail), then the first address of addresses_file, address_command and domain.
// Homes and the command have five seconds each; after ten that did not answer no more are asked,
// which counts as no answer. A home that is not there has no such file. A command that fails or
// prints nothing is not replaced by the domain.
//
// Threads: one at a time. Name services are asked in this thread and have no deadline but their
// own.
class Recipients {
 public:
  // kInvalidConfig: a file cannot be read or has a wrong line; names file and line.
  static Result<Recipients> read(const RecipientOptions& options, RecipientSources sources = {});

  Recipient find(const std::string& login);

 private:
  Recipients(RecipientOptions options, RecipientSources sources);
  // Without why_not: wants mail.
  Recipient ask_home(const UserRecord& user);
  Recipient address_of(const std::string& login);
  Recipient ask_command(const std::string& login);

  RecipientOptions options_;
  RecipientSources sources_;
  std::map<std::string, std::string> no_mail_;  // login -> ""
  std::map<std::string, std::string> addresses_;
  std::map<std::string, std::string> languages_;
  std::unique_ptr<CommandRunner> runner_;
  std::vector<pid_t> stuck_;
  int silent_homes_ = 0;
  int silent_commands_ = 0;
};

}  // namespace scriptorium::mail
