#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace scriptorium::cli {

inline constexpr const char* kDefaultConfigFile = "/etc/scriptorium/scriptorium.toml";

// The command; it cares for the sinks of any plugin that has Sink::maintained().
inline constexpr const char* kCatalogCommand = "catalog";  // no plugin's name
// It asks any source that has FreeSource::own_job().
inline constexpr const char* kUsageCommand = "usage";  // no plugin's name
// It reads images of programs, and asks no source.
inline constexpr const char* kCheckpointCommand = "checkpoint";  // no plugin's name

enum class Command {
  kRun,
  kCheck,
  kPlugins,
  kStatus,
  kDeadLettersList,
  kDeadLettersShow,
  kDeadLettersRetry,
  kDeadLettersDiscard,
  kSinksList,
  kSinksForget,
  kSinksFill,
  kOwnersList,
  kOwnersRetry,
  kShow,
  kSearch,
  kDiff,
  kHistory,
  kSoftware,
  kReport,
  kUsage,
  kServe,
  kSetup,
  kImport,
  kRedact,
  kCatalogCheck,
  kCatalogRebuild,
  kCatalogCompact,
  kCatalogStats,
  kCheckpointList,
  kCheckpointShow,
  kCheckpointVerify,
  kCheckpointPrune,
  kVersion,
  kCompletion,
  kMan,
};

// The parsed command line; members that the command does not use keep their defaults.
struct Arguments {
  Command command = Command::kVersion;
  std::string config_file = kDefaultConfigFile;
  bool config_given = false;

  bool once = false;                      // run
  bool markdown = false;                  // plugins
  bool open = false;                      // serve
  bool json = false;                      // status, show, search, redact, catalog, deadletters list
                                          // and show, checkpoint list and show
  bool health = false;                    // status --check
  std::int64_t behind_warning_s = 300;    // status --check
  std::int64_t behind_critical_s = 3600;  // status --check
  bool all = false;                       // deadletters retry, discard; search; checkpoint prune
  bool yes = false;                       // deadletters discard
  bool raw = false;                       // show
  bool environment = false;               // show, redact
  bool print = false;                     // setup, redact
  bool no_wait = false;                   // sinks fill, owners retry
  bool stop = false;                      // sinks fill
  std::string name;                       // plugins NAME, setup SINK, sinks forget and fill SINK
  std::string id;                         // deadletters show, retry, discard
  std::string sink;                       // deadletters, catalog
  std::string job;                        // report
  std::string user;                       // report
  std::string since;                      // report, search
  std::string until;                      // report
  std::string archive;                    // report, redact; "" = all that the sinks stored
  std::int64_t limit = 50;                // report, search
  bool js1 = false;                       // report
  bool family = false;                    // report
  bool mail = false;                      // report
  bool resend = false;                    // report --mail
  std::string period = "week";            // report --mail
  std::string eml_dir;                    // report --mail; "" = the mails are sent
  std::vector<std::string> users;         // report --mail; empty = all; otherwise `user` is the one
  std::string account;                    // report --mail; "" = all
  bool here = false;                      // usage
  bool until_exit = false;                // usage
  std::string format;                     // import
  std::string tree;                       // import
  std::string source;                     // import
  std::string cluster;                    // import, show
  std::string scheduler;                  // import
  std::string before;                     // import, checkpoint prune
  std::string owners;                     // import
  bool dry_run = false;                   // import, redact --archive, checkpoint prune
  bool again = false;                     // import
  bool of_import = false;                 // deadletters
  std::vector<std::string> files;         // redact, checkpoint
  std::int64_t keep = 1;                  // checkpoint prune
  std::string mode;                       // redact; "" = the configuration's
  std::string record;                     // redact --archive
  bool explain = false;                   // redact
  bool rules = false;                     // redact
  bool apply = false;                     // redact --archive
  std::vector<std::string> jobs;          // show, diff, history
  std::vector<std::string> query;         // search
  std::string in;                         // search, diff, history, software: only this sink
  std::string by;                         // software, report
  bool script = false;                    // diff
  bool csv = false;                       // search, software, report
  bool ids = false;                       // search
  bool nul = false;                       // search
  bool count = false;                     // search
  bool exact = false;                     // search
  std::string facets;                     // search
  std::string after;                      // search
  std::int64_t context = 0;               // search
  double deadline = -1;                   // search; seconds, 0 = none; below 0: not given
  std::string shell;                      // completion
  std::vector<std::string> help_of;       // help
};

}  // namespace scriptorium::cli
