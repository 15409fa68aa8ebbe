#pragma once

#include <cstdint>
#include <functional>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/api/options.h"

namespace scriptorium {

// environment = "all" | "none" | { keep = [...], drop = [...] }: which variables of a job are kept.
// Shell-style patterns on the name; `keep` applies first (absent = all), then `drop`.
struct EnvironmentRule {
  enum class Mode { kAll, kNone, kPatterns } mode = Mode::kAll;
  std::optional<std::vector<std::string>> keep;
  std::vector<std::string> drop;
};

// The top-level options of scriptorium.toml. Defaults are defined only here.
struct CoreConfig {
  std::string cluster;  // required; [A-Za-z0-9][A-Za-z0-9._-]*, at most 64
  std::string state_dir = "/var/lib/scriptorium";
  std::string user;                      // the user to run as; "" = the user that starts the daemon
  std::string host;                      // the event's host.name; "" = this machine's name
  std::vector<std::string> plugin_dirs;  // searched before the default places
  std::int64_t journal_max_bytes = std::int64_t{1} << 30;
  std::int64_t user_share_percent = 25;
  std::int64_t shutdown_seconds = 30;
  std::string metrics_listen;      // "127.0.0.1:9417"; "" = no network
  std::string metrics_socket;      // "" = metrics.sock in state_dir
  std::string metrics_textfile;    // "" = none
  std::string log_level = "info";  // "debug" | "info" | "warning" | "error"
  std::string redact = "default";  // "off" | "flag" | "default" | "strict"
};

// Options of every source, in addition to its plugin's.
struct SourceConfig {
  std::string plugin;                          // absent: the instance's name
  std::string capture = "auto";                // "auto" | "fanotify" | "inotify" | "scan"
  std::optional<std::int64_t> rescan_seconds;  // absent: 60, and 2 for capture = "scan"
  std::int64_t incomplete_after_seconds = 60;
  std::int64_t resolve_timeout_seconds = 30;
  std::int64_t max_file_bytes = std::int64_t{128} << 20;
  EnvironmentRule environment;
  std::optional<std::string> redact;  // absent: the top-level one
};

// The parts of an event, for the option `parts` of a sink.
inline constexpr std::string_view kScriptPart = "script";            // the file of that name
inline constexpr std::string_view kEnvironmentPart = "environment";  // the file of that name
inline constexpr std::string_view kRecordsPart = "records";          // all other files
inline constexpr std::string_view kEventParts[] = {kScriptPart, kEnvironmentPart, kRecordsPart};

// Options of every sink, in addition to its plugin's.
struct SinkConfig {
  std::string plugin;
  std::vector<std::string> kinds = {"job.script"};
  std::vector<std::string> parts{std::begin(kEventParts), std::end(kEventParts)};
  std::int64_t batch_max_events = 500;
  std::int64_t batch_max_bytes = std::int64_t{8} << 20;
  std::int64_t batch_max_ms = 50;  // how long an event may wait for its batch to fill
  std::int64_t retry_max_ms = 60'000;
  std::int64_t workers = 1;
};

// One [source.NAME] or [sink.NAME] table.
struct InstanceConfig {
  std::string name;
  Table table;
};
struct SourceInstance : InstanceConfig {
  SourceConfig common;
};
struct SinkInstance : InstanceConfig {
  SinkConfig common;
};

// [report.mail]: mails to users about what their jobs wasted (docs/mail.md).
struct MailConfig {
  std::string from;         // required; a mail_address()
  std::string unsubscribe;  // an address that a person reads; "" = that of `from`
  std::string sendmail = "/usr/sbin/sendmail";
  std::string state_dir = "/var/lib/scriptorium-mail";
  double min_wasted_core_hours = 10;
  std::int64_t min_jobs = 5;
  std::string consent = "opt-out";  // "opt-out" | "opt-in"
  std::string no_mail;              // file with logins; "" = none
  std::string addresses;            // file with "login address" lines; "" = none
  std::string address_command;      // "" = none
  std::string domain;               // login@domain; "" = the login alone
  std::string language = "en";
  std::string languages;          // file with "login language" lines; "" = none
  std::vector<std::string> site;  // addresses that get a mail about all jobs
  bool account_names = false;     // coordinators of an account read who wasted what

  // What the last `report --mail` did, and which mails wait or may be lost: a JSON object that
  // everybody may read, for the daemon's status.
  std::string status_file() const { return state_dir + "/last.json"; }
};

// [report]
struct ReportConfig {
  std::string page_url;            // "" = none
  std::optional<MailConfig> mail;  // absent: no mails
};

// [serve]: the query service (docs/serve.md) and the page (docs/page.md).
struct ServeConfig {
  std::string socket = "/run/scriptorium-web/query.sock";
  std::vector<std::string> reader_groups;  // whose members see all jobs
  std::string page_socket = "/run/scriptorium-web/page.sock";
  std::vector<std::string> proxy_users;  // logins of web servers; empty: no page
};

struct Config {
  CoreConfig core;
  ReportConfig report;
  std::optional<ServeConfig> serve;  // absent: the site did not ask for a service
  std::vector<SourceInstance> sources;
  std::vector<SinkInstance> sinks;
  std::vector<std::string> files;  // files that were read, in order
};

// "127.0.0.1:9417" or "[::1]:9417": an address that only this machine can reach.
struct LoopbackAddress {
  bool v6 = false;
  std::uint16_t port = 0;
};
std::optional<LoopbackAddress> parse_loopback_address(std::string_view text) noexcept;

// The address of "hpc@example.org" or "HPC support <hpc@example.org>". Nothing for a text that a
// mail program might take as something else: [A-Za-z0-9._%+-]+(@[A-Za-z0-9.-]+)?, not beginning
// with '-', and no control characters before it.
std::optional<std::string> mail_address(std::string_view text);

// The options of core itself, for reference pages and `scriptorium plugins`.
std::vector<OptionInfo> core_options();
std::vector<OptionInfo> report_options();
std::vector<OptionInfo> mail_options();
std::vector<OptionInfo> serve_options();
std::vector<OptionInfo> source_options();
std::vector<OptionInfo> sink_options();

// Reads `file`, then every *.toml in plugins.d beside it, in name order. Adds every problem of
// every file to `problems`, except those of plugins' own options; the result is valid only if there
// were none. A missing or unreadable `file` is a problem too, with a remedy.
Config load_config(const std::string& file, Problems& problems);

// Parses one text as if it were the file `name`; for tests and fuzzers.
Config parse_config(std::string_view text, const std::string& name, Problems& problems);

// Reports unknown keys of an instance's table, given the plugin's and core's options, with a "did
// you mean".
void check_unknown_keys(const Table& table, const std::vector<OptionInfo>& known,
                        Problems& problems);

}  // namespace scriptorium
