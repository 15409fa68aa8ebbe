#include "core/config/options.h"

#include <algorithm>
#include <array>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/ascii.h"
#include "core/base/number.h"
#include "core/base/text.h"

namespace scriptorium {
namespace {

constexpr std::int64_t kMebibyte = std::int64_t{1} << 20;
constexpr std::int64_t kDaySeconds = 86'400;
constexpr std::size_t kMaxPath = 4000;  // PATH_MAX minus what we append

// [A-Za-z0-9][A-Za-z0-9._-]*
bool is_plain_name(std::string_view name, std::size_t most) noexcept {
  return !name.empty() && name.size() <= most && is_alphanumeric(name.front()) &&
         std::all_of(name.begin(), name.end(),
                     [](char c) { return is_alphanumeric(c) || c == '.' || c == '_' || c == '-'; });
}

using TextProblem = std::function<std::optional<std::string>(const std::string&)>;

std::optional<std::string> cluster_problem(const std::string& name) {
  if (is_plain_name(name, 64)) return std::nullopt;
  return name.empty() ? "is empty" : "cannot be a cluster's name";
}

std::optional<std::string> host_problem(const std::string& name) {
  if (name.empty() || is_plain_name(name, 253)) return std::nullopt;
  return "cannot be a host's name";
}

std::optional<std::string> user_problem(const std::string& name) {
  if (name.empty() || name == "_" || is_plain_name(name.front() == '_' ? name.substr(1) : name, 32))
    return std::nullopt;
  return "cannot be a user's name";
}

std::optional<std::string> group_problem(const std::string& name) {
  if (!name.empty() && !user_problem(name)) return std::nullopt;
  return "cannot be a group's name";
}

std::optional<std::string> metrics_address_problem(const std::string& address) {
  if (address.empty() || parse_loopback_address(address)) return std::nullopt;
  return "not an address of this machine alone";
}

std::optional<std::string> path_problem(const std::string& path) {
  if (path.empty()) return "is empty";
  if (path.front() != '/') return "is not an absolute path";
  if (path.size() > kMaxPath) return "is too long";
  if (std::any_of(path.begin(), path.end(),
                  [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; })) {
    return "holds a control character";
  }
  return std::nullopt;
}

std::optional<std::string> path_or_nothing_problem(const std::string& path) {
  return path.empty() ? std::nullopt : path_problem(path);
}

std::optional<std::string> textfile_problem(const std::string& path) {
  if (path.empty()) return std::nullopt;
  if (!path.ends_with(".prom")) return "node_exporter reads only files that end in .prom";
  return path_problem(path);
}

constexpr const char* kAddressRule = "\"name@domain\" or \"Some words <name@domain>\"";

std::optional<std::string> address_problem(const std::string& text) {
  if (mail_address(text)) return std::nullopt;
  return "cannot be a mail address";
}

std::optional<std::string> address_or_nothing_problem(const std::string& text) {
  return text.empty() ? std::nullopt : address_problem(text);
}

std::optional<std::string> url_problem(const std::string& url) {
  if (url.empty() || url.starts_with("http://") || url.starts_with("https://")) return std::nullopt;
  return "not the address of a page";
}

std::optional<std::string> plugin_problem(const std::string& name) {
  if (is_instance_name(name)) return std::nullopt;
  return "cannot be a plugin's name";
}

std::optional<std::string> kind_problem(const std::string& pattern) {
  return glob_problem(pattern);
}

std::optional<std::string> part_problem(const std::string& name) {
  if (std::ranges::find(kEventParts, name) != std::end(kEventParts)) return std::nullopt;
  return "unknown value";
}

// A string, or a list of strings, that `problem` accepts.
template <typename T>
Option<T> checked(Option<T> base, std::string allowed, std::string T::* member,
                  TextProblem problem) {
  base.info.allowed = std::move(allowed);
  base.apply = [info = base.info, member, problem = std::move(problem)](
                   const Value& value, const Table& table, T& into, Problems& problems) {
    std::string got;
    if (!options_detail::get(value, table, info, problems, got)) return;
    if (const auto wrong = problem(got))
      return options_detail::not_allowed(value, table, info, *wrong, problems);
    into.*member = std::move(got);
  };
  return base;
}

// `words`: what a wrong item may have been meant to be.
template <typename T>
Option<T> checked(Option<T> base, std::string allowed, std::vector<std::string> T::* member,
                  TextProblem problem, std::vector<std::string> words = {}) {
  base.info.allowed = std::move(allowed);
  base.apply = [info = base.info, member, problem = std::move(problem), words = std::move(words)](
                   const Value& value, const Table& table, T& into, Problems& problems) {
    std::vector<std::string> got;
    if (!options_detail::get(value, table, info, problems, got)) return;
    bool good = true;
    for (const Value& item : std::get<std::vector<Value>>(value.data)) {
      if (const auto wrong = problem(std::get<std::string>(item.data))) {
        options_detail::not_allowed(item, table, info, *wrong, problems, words);
        good = false;
      }
    }
    if (good) into.*member = std::move(got);
  };
  return base;
}

// Lists such as `kinds` must not be empty: the instance would silently receive nothing.
template <typename T>
Option<T> not_empty(Option<T> base, std::string problem) {
  base.apply = [info = base.info, apply = std::move(base.apply), problem = std::move(problem)](
                   const Value& value, const Table& table, T& into, Problems& problems) {
    const auto* list = std::get_if<std::vector<Value>>(&value.data);
    if (list != nullptr && list->empty())
      return options_detail::not_allowed(value, table, info, problem, problems);
    apply(value, table, into, problems);
  };
  return base;
}

std::vector<std::pair<std::string, std::string>> words(std::initializer_list<const char*> list) {
  std::vector<std::pair<std::string, std::string>> result;
  for (const char* word : list) result.emplace_back(word, word);
  return result;
}

constexpr std::array kRedactModes{"default", "strict", "flag", "off"};
constexpr const char* kRedactHelp =
    "what becomes of passwords, keys and tokens in scripts, variables and texts, before they reach "
    "a disk: replaced by \"[redacted:RULE]\"; strict: also by rules that hit ordinary text now and "
    "then; flag: kept, and reported in the event; off: not looked for";

template <typename T = std::string>
std::vector<std::pair<std::string, T>> redact_modes() {
  std::vector<std::pair<std::string, T>> result;
  for (const char* mode : kRedactModes) result.emplace_back(mode, T(mode));
  return result;
}

// The problem of a pattern on variable names, or nothing.
std::optional<std::string> name_pattern_problem(const std::string& pattern) {
  if (auto wrong = glob_problem(pattern)) return "bad pattern: " + *wrong;
  if (pattern.find('\0') != std::string::npos) return "bad pattern: no name holds a NUL byte";
  // NAME=value looks like a rule on the value, but would match nothing and so let a secret through.
  if (pattern.find('=', 1) != std::string::npos)
    return "bad pattern: it is matched against the name only, which has no '='";
  return std::nullopt;
}

bool read_patterns(const Value& value, const Table& table, const OptionInfo& info,
                   Problems& problems, std::vector<std::string>& out) {
  std::vector<std::string> got;
  if (!options_detail::get(value, table, info, problems, got)) return false;
  bool good = true;
  for (const Value& item : std::get<std::vector<Value>>(value.data)) {
    if (const auto wrong = name_pattern_problem(std::get<std::string>(item.data))) {
      options_detail::not_allowed(item, table, info, *wrong, problems);
      good = false;
    }
  }
  if (good) out = std::move(got);
  return good;
}

const OptionInfo& environment_info() {
  static const OptionInfo info{
      .name = "environment",
      .type = "\"all\" | \"none\" | { keep = [...], drop = [...] }",
      .default_value = "\"all\"",
      .allowed = "\"all\", \"none\", { keep = [...], drop = [...] }",
      .help =
          "which variables of a job's environment are kept, by case-sensitive shell-style patterns "
          "on the name: keep first (absent: all), then drop; what is dropped never reaches the "
          "disk"};
  return info;
}

void read_environment(const Value& value, const Table& table, SourceConfig& into,
                      Problems& problems) {
  const OptionInfo& info = environment_info();
  if (const auto* word = std::get_if<std::string>(&value.data)) {
    if (*word == "all") {
      into.environment = {};
    } else if (*word == "none") {
      into.environment = {.mode = EnvironmentRule::Mode::kNone};
    } else {
      options_detail::not_allowed(value, table, info, "unknown value", problems, {"all", "none"});
    }
    return;
  }
  const auto* rules = std::get_if<Table>(&value.data);
  if (rules == nullptr) return options_detail::wrong_type(value, table, info, problems);
  static const OptionInfo keep{.name = "keep",
                               .type = "list of strings",
                               .help = "patterns; only variables that match one are kept"};
  static const OptionInfo drop{.name = "drop",
                               .type = "list of strings",
                               .help = "patterns; variables that match one are dropped"};
  EnvironmentRule rule{.mode = EnvironmentRule::Mode::kPatterns};
  bool good = true;
  if (const Value* patterns = rules->find("keep")) {
    rule.keep.emplace();
    good = read_patterns(*patterns, *rules, keep, problems, *rule.keep) && good;
    const auto* list = std::get_if<std::vector<Value>>(&patterns->data);
    if (list != nullptr && list->empty()) {
      options_detail::not_allowed(
          *patterns, *rules, keep,
          "an empty list keeps nothing; write environment = \"none\" if that is intended",
          problems);
      good = false;
    }
  }
  if (const Value* patterns = rules->find("drop"))
    good = read_patterns(*patterns, *rules, drop, problems, rule.drop) && good;
  check_unknown_keys(*rules, {keep, drop}, problems);
  if (good) into.environment = std::move(rule);
}

}  // namespace

std::optional<LoopbackAddress> parse_loopback_address(std::string_view text) noexcept {
  constexpr std::string_view kV4 = "127.0.0.1:";
  constexpr std::string_view kV6 = "[::1]:";
  LoopbackAddress address;
  address.v6 = text.starts_with(kV6);
  if (!address.v6 && !text.starts_with(kV4)) return std::nullopt;
  text.remove_prefix(address.v6 ? kV6.size() : kV4.size());
  address.port = parse_number<std::uint16_t>(text).value_or(0);
  return address.port == 0 ? std::nullopt : std::optional(address);
}

std::optional<std::string> mail_address(std::string_view text) {
  if (text.size() > 320 || std::any_of(text.begin(), text.end(), [](char c) {
        return static_cast<unsigned char>(c) < 0x20 || c == 0x7F;
      })) {
    return std::nullopt;
  }
  if (text.ends_with('>')) {
    text.remove_suffix(1);
    const std::size_t begin = text.find('<');
    if (begin == std::string_view::npos) return std::nullopt;
    text.remove_prefix(begin + 1);
  }
  const std::size_t at = std::min(text.find('@'), text.size());
  const auto consists_of = [](std::string_view part, std::string_view others) {
    return !part.empty() && std::all_of(part.begin(), part.end(), [&](char c) {
      return is_alphanumeric(c) || others.find(c) != std::string_view::npos;
    });
  };
  if (text.size() > 254 || text.starts_with('-') || !consists_of(text.substr(0, at), "._%+-"))
    return std::nullopt;
  if (at < text.size() && !consists_of(text.substr(at + 1), ".-")) return std::nullopt;
  return std::string(text);
}

bool is_instance_name(std::string_view name) noexcept {
  return !name.empty() && name.size() <= 64 && is_lower(name.front()) &&
         std::all_of(name.begin(), name.end(),
                     [](char c) { return is_lower(c) || is_digit(c) || c == '_' || c == '-'; });
}

const Schema<CoreConfig>& core_schema() {
  static const Schema<CoreConfig> schema{
      checked(required("cluster", &CoreConfig::cluster,
                       "name of the cluster, which every event carries"),
              "a letter or digit, then letters, digits, '.', '_' and '-', at most 64",
              &CoreConfig::cluster, cluster_problem),
      checked(option("state_dir", &CoreConfig::state_dir,
                     "folder of the journal, the lock and the control socket; one daemon owns it"),
              "an absolute path", &CoreConfig::state_dir, path_problem),
      checked(option("user", &CoreConfig::user,
                     "user that the daemon becomes when it is started as root; empty: the user "
                     "that starts it"),
              "a user's name: letters, digits, '.', '_' and '-', at most 32", &CoreConfig::user,
              user_problem),
      checked(
          option("host", &CoreConfig::host, "host name that events carry; empty: this machine's"),
          "letters, digits, '.', '_' and '-', at most 253", &CoreConfig::host, host_problem),
      checked(option("plugin_dirs", &CoreConfig::plugin_dirs,
                     "folders to search for plugins before the default ones (beside the command, "
                     "then the installed folder); the first that has a plugin is used"),
              "absolute paths", &CoreConfig::plugin_dirs, path_problem),
      integer("journal_max_bytes", &CoreConfig::journal_max_bytes, kMebibyte, std::int64_t{1} << 44,
              "size of the journal in bytes at which capture stops and entries wait in the spool"),
      integer("user_share_percent", &CoreConfig::user_share_percent, 1, 100,
              "how much of journal_max_bytes one user's jobs may take while a destination is away; "
              "more of them wait in the spool"),
      integer("shutdown_seconds", &CoreConfig::shutdown_seconds, 1, 3600,
              "seconds that a stop may take to deliver what waits; the rest stays in the journal"),
      checked(option("metrics_listen", &CoreConfig::metrics_listen,
                     "address on which metrics are given by HTTP (GET /metrics); empty: on the "
                     "socket only"),
              "\"127.0.0.1:PORT\" or \"[::1]:PORT\": there is no authentication",
              &CoreConfig::metrics_listen, metrics_address_problem),
      checked(
          option(
              "metrics_socket", &CoreConfig::metrics_socket,
              "Unix socket on which metrics are given by HTTP; empty: metrics.sock in state_dir"),
          "an absolute path", &CoreConfig::metrics_socket, path_or_nothing_problem),
      checked(option("metrics_textfile", &CoreConfig::metrics_textfile,
                     "file that gets the metrics every 15 s, for node_exporter's textfile "
                     "collector; empty: none"),
              "an absolute path that ends in .prom", &CoreConfig::metrics_textfile,
              textfile_problem),
      choice("log_level", &CoreConfig::log_level, words({"debug", "info", "warning", "error"}),
             "least important messages that are logged"),
      choice("redact", &CoreConfig::redact, redact_modes(), kRedactHelp),
  };
  return schema;
}

namespace {

const Schema<MailConfig>& mail_schema() {
  const auto file = [](const char* name, std::string MailConfig::* member, const char* help) {
    return checked(option(name, member, help), "an absolute path", member, path_or_nothing_problem);
  };
  static const Schema<MailConfig> schema{
      checked(required("from", &MailConfig::from, "sender of the mails, who gets their bounces"),
              kAddressRule, &MailConfig::from, address_problem),
      checked(option("unsubscribe", &MailConfig::unsubscribe,
                     "address of a person who takes users off the list; empty: that of from"),
              kAddressRule, &MailConfig::unsubscribe, address_or_nothing_problem),
      checked(option("sendmail", &MailConfig::sendmail,
                     "mail program, with the arguments of Sendmail: -i -f SENDER -- RECIPIENT"),
              "an absolute path", &MailConfig::sendmail, path_problem),
      checked(option("state_dir", &MailConfig::state_dir,
                     "folder that keeps which mails were sent, and those that wait"),
              "an absolute path", &MailConfig::state_dir, path_problem),
      option("min_wasted_core_hours", &MailConfig::min_wasted_core_hours,
             "core hours that a user must have wasted; a GPU hour counts as ten"),
      integer("min_jobs", &MailConfig::min_jobs, 1, 1'000'000, "jobs that a user must have run"),
      choice("consent", &MailConfig::consent, words({"opt-out", "opt-in"}),
             "who gets mails: all but who has a file .scriptorium/no-mail at home, or only who has "
             ".scriptorium/mail"),
      file("no_mail", &MailConfig::no_mail, "file with users who get none, a login a line"),
      file("addresses", &MailConfig::addresses,
           "file with a line \"login address\" for some users"),
      file("address_command", &MailConfig::address_command,
           "program that gets a login and prints its address; asked for users without a line"),
      checked(option("domain", &MailConfig::domain,
                     "domain of the other users' addresses; empty: the login alone"),
              "letters, digits, '.' and '-', at most 253", &MailConfig::domain, host_problem),
      checked(option("language", &MailConfig::language, "language of the mails"),
              "as a file LANGUAGE.toml is called", &MailConfig::language, plugin_problem),
      file("languages", &MailConfig::languages,
           "file with a line \"login language\" for some users"),
      checked(option("site", &MailConfig::site,
                     "addresses that get a mail about all jobs, with the most wasteful accounts"),
              kAddressRule, &MailConfig::site, address_problem),
      option("account_names", &MailConfig::account_names,
             "the mails to coordinators of accounts name the users who wasted most"),
  };
  return schema;
}

}  // namespace

const Schema<ReportConfig>& report_schema() {
  static const OptionInfo mail{
      .name = "mail", .type = "table", .help = "mails to users; absent: none are sent"};
  static const Schema<ReportConfig> schema{
      checked(option("page_url", &ReportConfig::page_url,
                     "a page of the site, which mails link; {user} in it is replaced by the login"),
              "http://... or https://...", &ReportConfig::page_url, url_problem),
      custom<ReportConfig>(
          mail,
          [](const Value& value, const Table& table, ReportConfig& into, Problems& problems) {
            const auto* mail_table = std::get_if<Table>(&value.data);
            if (mail_table == nullptr)
              return options_detail::wrong_type(value, table, mail, problems);
            into.mail = mail_schema().parse(*mail_table, problems);
            check_unknown_keys(*mail_table, mail_schema().options(), problems);
          }),
  };
  return schema;
}

const Schema<ServeConfig>& serve_schema() {
  static const Schema<ServeConfig> schema{
      checked(option("socket", &ServeConfig::socket,
                     "socket on which `scriptorium serve` answers, and commands ask it"),
              "an absolute path", &ServeConfig::socket, path_problem),
      checked(option("reader_groups", &ServeConfig::reader_groups,
                     "groups whose members see the jobs of all users, as root does"),
              "names of groups", &ServeConfig::reader_groups, group_problem),
      checked(option("page_socket", &ServeConfig::page_socket,
                     "socket on which the page answers the site's web server"),
              "an absolute path", &ServeConfig::page_socket, path_problem),
      option("proxy_users", &ServeConfig::proxy_users,
             "logins as which the site's web server runs; what it says about who asks is believed. "
             "Without one there is no page"),
  };
  return schema;
}

const Schema<SourceConfig>& source_schema() {
  static const Schema<SourceConfig> schema{
      checked(option("plugin", &SourceConfig::plugin,
                     "plugin that reads this source; absent: the name of the instance"),
              kInstanceNameRule, &SourceConfig::plugin, plugin_problem),
      choice("capture", &SourceConfig::capture, words({"auto", "fanotify", "inotify", "scan"}),
             "how changes of the spool are noticed; auto uses the best method that works here"),
      integer("rescan_seconds", &SourceConfig::rescan_seconds, 1, kDaySeconds,
              "seconds between two scans of the whole spool; absent: 60, and 2 with capture = "
              "\"scan\""),
      integer("incomplete_after_seconds", &SourceConfig::incomplete_after_seconds, 1, kDaySeconds,
              "seconds after which an entry that is still half written is kept as it is and marked "
              "incomplete"),
      integer("resolve_timeout_seconds", &SourceConfig::resolve_timeout_seconds, 1, kDaySeconds,
              "seconds that an event waits for the scheduler to name its owner, from the first "
              "answer that could have; then it "
              "goes out unverified"),
      integer(
          "max_file_bytes", &SourceConfig::max_file_bytes, 1024, std::int64_t{1} << 30,
          "bytes that are read of one spool file; a larger one is cut there and marked incomplete"),
      custom<SourceConfig>(environment_info(), read_environment),
      choice("redact", &SourceConfig::redact, redact_modes<std::optional<std::string>>(),
             "as the top-level option, for this source alone; absent: the top-level one"),
  };
  return schema;
}

const Schema<SinkConfig>& sink_schema() {
  static const Schema<SinkConfig> schema{
      checked(option("plugin", &SinkConfig::plugin,
                     "plugin that writes to this sink; absent: the name of the instance"),
              kInstanceNameRule, &SinkConfig::plugin, plugin_problem),
      not_empty(checked(option("kinds", &SinkConfig::kinds,
                               "kinds of events that this sink gets, as shell-style patterns such "
                               "as \"usage.*\""),
                        "patterns that are not empty", &SinkConfig::kinds, kind_problem),
                "an empty list; this sink would get nothing"),
      not_empty(checked(option("parts", &SinkConfig::parts,
                               "files of an event that this sink gets; records are the scheduler's "
                               "own files, all but script and environment. The metadata are always "
                               "there. A sink that does not get all parts cannot serve as an "
                               "archive for other sinks"),
                        "\"script\", \"environment\", \"records\"", &SinkConfig::parts,
                        part_problem, {std::begin(kEventParts), std::end(kEventParts)}),
                "an empty list; to get all parts, leave the option out"),
      integer("batch_max_events", &SinkConfig::batch_max_events, 1, 100'000,
              "most events in one batch"),
      integer("batch_max_bytes", &SinkConfig::batch_max_bytes, 1, std::int64_t{1} << 30,
              "bytes of scripts and environments at which a batch is full; a single larger event "
              "goes alone"),
      integer("batch_max_ms", &SinkConfig::batch_max_ms, 1, 60'000,
              "milliseconds that an event may wait for others to share its batch"),
      integer("retry_max_ms", &SinkConfig::retry_max_ms, 1, kDaySeconds * 1000,
              "longest pause in milliseconds between two attempts"),
      integer("workers", &SinkConfig::workers, 1, 64,
              "batches that are delivered at the same time; above 1 the order is not kept"),
  };
  return schema;
}

namespace {

// The help says "absent: the name of the instance"; "" would look like a valid default.
std::vector<OptionInfo> without_empty_defaults(std::vector<OptionInfo> options) {
  for (OptionInfo& o : options) {
    if (o.default_value == "\"\"" && o.name == "plugin") o.default_value.clear();
  }
  return options;
}

}  // namespace

std::vector<OptionInfo> core_options() { return core_schema().options(); }
std::vector<OptionInfo> report_options() { return report_schema().options(); }
std::vector<OptionInfo> serve_options() { return serve_schema().options(); }
std::vector<OptionInfo> mail_options() { return mail_schema().options(); }
std::vector<OptionInfo> source_options() {
  return without_empty_defaults(source_schema().options());
}
std::vector<OptionInfo> sink_options() { return without_empty_defaults(sink_schema().options()); }

}  // namespace scriptorium
