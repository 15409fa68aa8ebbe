#include "core/mail/recipients.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string_view>
#include <utility>

#include "core/base/ascii.h"
#include "core/base/child_process.h"
#include "core/base/file.h"
#include "core/base/text.h"
#include "core/mail/message.h"
#include "core/mail/texts.h"

namespace scriptorium::mail {
namespace {

using std::chrono::steady_clock;

constexpr uid_t kFirstOrdinaryUser = 1000;
constexpr int kMostSilent = 10;
constexpr int kNotOwner = 250;   // exit status of the child; others are errno values
constexpr int kLastErrno = 128;  // above: the child was ended by a signal

// For the child of a process that may have threads: only system calls, no lock, no memory. The
// functions of glibc that change ids would ask the other threads.
[[noreturn]] void inspect(const UserRecord& user, const std::vector<gid_t>& groups,
                          const char* path) noexcept {
  ::setpgid(0, 0);
  // This process may hang for days, and must keep no lock or file system of its parent.
  if (::syscall(SYS_close_range, 0U, ~0U, 0U) != 0) {  // before Linux 5.9
    rlimit most{};
    ::getrlimit(RLIMIT_NOFILE, &most);
    for (rlim_t fd = 0; fd < std::min<rlim_t>(most.rlim_cur, 65536); ++fd)
      ::close(static_cast<int>(fd));
  }
  const bool is_owner = ::getuid() == user.uid && ::geteuid() == user.uid;
  if (!is_owner && (::syscall(SYS_setgroups, groups.size(), groups.data()) != 0 ||
                    ::syscall(SYS_setresgid, user.gid, user.gid, user.gid) != 0 ||
                    ::syscall(SYS_setresuid, user.uid, user.uid, user.uid) != 0))
    ::_exit(kNotOwner);
  struct stat file{};
  ::_exit(::fstatat(AT_FDCWD, path, &file, AT_SYMLINK_NOFOLLOW) == 0 ? 0 : errno);
}

HomeFile home_file_of(int status, const std::string& path) {
  using Kind = HomeFile::Kind;
  if (status == 0) return {Kind::kThere, {}};
  if (status == ENOENT || status == ENOTDIR) return {Kind::kAbsent, {}};
  if (status == kNotOwner) return {Kind::kNotOwner, {}};
  if (status > kLastErrno) return {Kind::kNoAnswer, path + ": the process that asked was killed"};
  return {status == EACCES ? Kind::kClosed : Kind::kNoAnswer, system_error(path, status).message()};
}

// "login value" a line, or only logins.
Result<std::map<std::string, std::string>> read_logins(
    const std::string& path, std::string_view value_name,
    const std::function<bool(std::string_view)>& is_value) {
  std::map<std::string, std::string> result;
  if (path.empty()) return result;
  const auto text = read_file(path);
  if (!text) return Error(ErrorKind::kInvalidConfig, text.error().message());
  std::string_view rest = *text;
  for (std::size_t number = 1; !rest.empty(); ++number) {
    const auto wrong = [&](const std::string& problem) {
      return Error(ErrorKind::kInvalidConfig, path + ":" + std::to_string(number) + ": " + problem);
    };
    std::string_view line = take_until(rest, '\n');
    line = trim(line.substr(0, line.find('#')), " \t\r");
    if (line.empty()) continue;
    const std::string_view login = line.substr(0, line.find_first_of(" \t"));
    const std::string_view value = trim(line.substr(login.size()), " \t");
    if (!is_address(login)) return wrong("not a login: \"" + printable(login, 80) + '"');
    if (value_name.empty() && !value.empty())
      return wrong("only a login is allowed; given: \"" + printable(line, 160) + '"');
    if (!value_name.empty() && !is_value(value)) {
      return wrong("needs a login and " + std::string(value_name) + "; given: \"" +
                   printable(line, 160) + '"');
    }
    if (!result.try_emplace(std::string(login), value).second && !value_name.empty())
      return wrong("second line for " + std::string(login));
  }
  return result;
}

Recipient without(std::string why_not, std::string detail = {}) {
  return {
      .address = {}, .language = {}, .why_not = std::move(why_not), .detail = std::move(detail)};
}

}  // namespace

HomeFile find_in_home(const UserRecord& user, const std::string& path,
                      std::chrono::milliseconds most, std::vector<pid_t>& stuck) {
  const std::vector<gid_t> groups = groups_of(user);
  const auto deadline = steady_clock::now() + most;
  const pid_t pid = ::fork();
  if (pid < 0) return {HomeFile::Kind::kNoAnswer, system_error("fork", errno).message()};
  if (pid == 0) inspect(user, groups, path.c_str());
  const ChildProcess child(pid, stuck);
  constexpr int kPaceMs = 1;
  while (true) {
    if (const auto status = child.ended()) return home_file_of(*status, path);
    if (steady_clock::now() >= deadline)
      return {HomeFile::Kind::kNoAnswer, path + ": no answer in time"};
    ::poll(nullptr, 0, kPaceMs);
  }
}

Recipients::Recipients(RecipientOptions options, RecipientSources sources)
    : options_(std::move(options)),
      sources_(std::move(sources)),
      runner_(std::make_unique<CommandRunner>(std::size_t{4096})) {}

Result<Recipients> Recipients::read(const RecipientOptions& options, RecipientSources sources) {
  Recipients result(options, std::move(sources));
  auto no_mail = read_logins(options.no_mail_file, {}, {});
  if (!no_mail) return no_mail.error();
  auto addresses = read_logins(options.addresses_file, "an address", is_address);
  if (!addresses) return addresses.error();
  auto languages = read_logins(options.languages_file, "a language", is_language);
  if (!languages) return languages.error();
  result.no_mail_ = *std::move(no_mail);
  result.addresses_ = *std::move(addresses);
  result.languages_ = *std::move(languages);
  return result;
}

Recipient Recipients::find(const std::string& login) {
  if (!is_address(login))
    return without("no account", "not asked: no mail program may get this login");
  const auto user = sources_.account(login);
  if (!user) return without("account not found out", user.error().message());
  if (!*user) return without("no account");
  if ((*user)->uid < kFirstOrdinaryUser) return without("system account");
  if (no_mail_.contains(login)) return without(kOptedOut, options_.no_mail_file);
  if (auto refusal = ask_home(**user); !refusal.why_not.empty()) return refusal;
  Recipient result = address_of(login);
  if (!result.why_not.empty()) return result;
  if (!is_address(result.address))
    return without("bad address", '"' + printable(result.address, 80) + '"');
  if (const auto language = languages_.find(login); language != languages_.end())
    result.language = language->second;
  return result;
}

Recipient Recipients::ask_home(const UserRecord& user) {
  using Kind = HomeFile::Kind;
  constexpr const char* kSilent = "home does not answer";
  const std::string absent = options_.opt_in ? kNotOptedIn : "";
  if (!user.home.starts_with('/')) return without(absent, "no home");
  if (silent_homes_ >= kMostSilent)
    return without(kSilent, "not asked: too many homes did not answer");
  reap_ended(stuck_);
  const std::string path = user.home + (options_.opt_in ? "/.scriptorium/mail"  //
                                                        : "/.scriptorium/no-mail");
  const HomeFile file = sources_.home_file(user, path, sources_.most, stuck_);
  switch (file.kind) {
    case Kind::kThere: return options_.opt_in ? Recipient{} : without(kOptedOut, path);
    case Kind::kAbsent: return without(absent, path);
    case Kind::kClosed: return without("home is closed", file.detail);
    case Kind::kNotOwner: return without("home not asked: not root", path);
    case Kind::kNoAnswer: break;
  }
  ++silent_homes_;
  return without(kSilent, file.detail);
}

Recipient Recipients::address_of(const std::string& login) {
  if (const auto entry = addresses_.find(login); entry != addresses_.end())
    return {.address = entry->second, .language = {}, .why_not = {}, .detail = {}};
  if (!options_.address_command.empty()) return ask_command(login);
  Recipient result;
  result.address = options_.domain.empty() ? login : login + "@" + options_.domain;
  return result;
}

Recipient Recipients::ask_command(const std::string& login) {
  constexpr const char* kFailed = "address command failed";
  if (silent_commands_ >= kMostSilent)
    return without(kFailed, "not asked: it did not answer too often");
  const std::string& program = options_.address_command;
  const auto answer =
      runner_->run({.program = program,
                    .arguments = {login},
                    .environment = {"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C"}},
                   {}, steady_clock::now() + sources_.most);
  if (!answer) {
    ++silent_commands_;
    return without(kFailed, answer.error().message());
  }
  const std::string name = program.substr(program.rfind('/') + 1);
  if (answer->status != 0) return without(kFailed, exit_error(name, *answer).message());
  const std::string_view line = trim(answer->output, " \t\r\n");
  if (line.empty()) return without(kFailed, name + ": printed nothing");
  if (line.find('\n') != std::string_view::npos)
    return without(kFailed, name + ": printed more than one line");
  Recipient result;
  result.address = line;
  return result;
}

}  // namespace scriptorium::mail
