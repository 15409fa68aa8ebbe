#include "core/daemon/check.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string_view>
#include <utility>

#include "core/base/file.h"
#include "core/base/text.h"
#include "core/capture/capture.h"
#include "core/capture/spool_opener.h"
#include "core/daemon/reload.h"
#include "core/delivery/parts.h"
#include "core/journal/journal.h"
#include "core/plugin/call_plugin.h"
#include "core/plugin/call_within.h"

namespace scriptorium {
namespace {

// What the packages' configuration names the cluster.
constexpr std::string_view kPlaceholderCluster = "change-me";
constexpr std::chrono::seconds kCheckLimit{30};

// What a plugin throws becomes an error, and `check` continues with the next instance.
template <typename Call>
auto guarded(Call call, ErrorKind kind = ErrorKind::kInvalidConfig) {
  return call_plugin("the plugin", kind, call);
}

// The findings about one subject, added to those about the others.
class Findings {
 public:
  Findings(std::vector<Finding>& all, std::string subject)
      : all_(all), subject_(std::move(subject)) {}
  void ok(std::string text) { add(Finding::Level::kOk, std::move(text)); }
  void warning(std::string text) { add(Finding::Level::kWarning, std::move(text)); }
  void failed(std::string text) { add(Finding::Level::kFailed, std::move(text)); }
  // A start would be refused with this error.
  void refused(const Error& error) {
    add(Finding::Level::kFailed, error.message());
    all_.back().refusal = error.kind();
  }
  void refused(std::string text, ErrorKind kind) { refused({kind, std::move(text)}); }

 private:
  void add(Finding::Level level, std::string text) {
    all_.push_back({level, subject_, std::move(text), std::nullopt});
  }

  std::vector<Finding>& all_;
  const std::string subject_;
};

std::string joined(const std::vector<std::string>& texts) {
  std::string all;
  for (const std::string& text : texts) all.append(all.empty() ? "" : ", ").append(text);
  return all;
}

std::string capability_text(CapabilitySet set) { return joined(capability_names(set)); }

void check_privileges(const Privileges& privileges, Findings found) {
  const std::string user = printable(privileges.user);
  if (!privileges.refused.empty()) {
    found.refused(privileges.refused, ErrorKind::kInvalidConfig);
  } else if (!privileges.separated) {
    found.warning("not separated: " + privileges.why);
  } else if (privileges.uid == 0) {
    found.warning(
        "the daemon itself runs without capabilities, but as root, who owns much; "
        "set user = \"...\"");
  } else {
    std::vector<std::string> kept;
    if (privileges.opener != nullptr)
      kept.push_back("the spool opener keeps " +
                     capability_text(privileges.opener->capabilities()));
    if (privileges.executables != nullptr) {
      kept.push_back("the executable reader keeps " +
                     capability_text(privileges.executables->process().capabilities()));
    }
    found.ok(joined(kept) + "; everything else runs as " + user + ", without capabilities");
  }
  if (!privileges.executables_problem.empty()) found.warning(privileges.executables_problem);
}

// The directory above that exists.
std::filesystem::path nearest_existing(const std::string& directory) {
  std::filesystem::path above = std::filesystem::path(directory + "/").parent_path().parent_path();
  while (above.has_relative_path() && ::access(above.c_str(), F_OK) != 0 && errno == ENOENT)
    above = above.parent_path();
  return above;
}

void check_state_dir(const std::string& directory, Findings found) {
  const auto stat = stat_path(directory);
  if (!stat && stat.error().kind() != ErrorKind::kVanished) {
    found.refused(stat.error().message(), ErrorKind::kTransient);
  } else if (!stat) {
    const std::string above = nearest_existing(directory);
    if (::access(above.c_str(), W_OK | X_OK) == 0) {
      found.ok(directory + " is not there yet; `run` makes it");
    } else {
      found.refused(directory + " is not there and cannot be made: " +
                        system_error("write into " + above, errno).message() +
                        "; make it and give it to the daemon's user",
                    ErrorKind::kTransient);
    }
  } else if (!stat->is_directory()) {
    found.refused(directory + " is not a directory", ErrorKind::kTransient);
  } else {
    std::string probe = directory + "/.check.XXXXXX";
    const UniqueFd fd{::mkostemp(probe.data(), O_CLOEXEC)};
    if (!fd) {
      found.refused(system_error("write into " + directory, errno).message() +
                        "; give it to the user that runs the daemon",
                    ErrorKind::kTransient);
    } else {
      ::unlink(probe.c_str());
      found.ok(directory + " is writable");
    }
    if ((stat->mode & S_IWOTH) != 0)
      found.warning(directory + " can be written by everyone; chmod o-w " + directory);
  }
}

void check_journal(const CoreConfig& config, Logger& log, Findings found) {
  const std::string& directory = config.state_dir;
  if (::access((directory + "/journal.db").c_str(), F_OK) != 0) {
    return found.ok("none yet; `run` makes it");
  }
  const auto max_bytes = static_cast<std::uint64_t>(config.journal_max_bytes);
  const auto journal = Journal::open(
      {.directory = directory, .max_bytes = max_bytes, .read_only = true}, log, system_clock());
  if (!journal) return found.refused(journal.error());
  if (const auto& report = (*journal)->open_report(); !report.damage.empty()) {
    found.warning("damaged (" + report.damage +
                  "); `run` puts it aside and keeps what can be read");
  } else if (auto verified = (*journal)->verify(); !verified) {
    found.warning("damaged (" + verified.error().message() +
                  "); what is damaged becomes a dead letter, the rest is delivered");
  }
  const auto usage = (*journal)->usage();
  const std::string text = std::to_string(usage.events) + " events, " + format_bytes(usage.bytes) +
                           " of " + format_bytes(max_bytes);
  if (usage.full) {
    found.warning(
        text +
        ": full; the spool is not read until a sink takes events, or journal_max_bytes is raised");
  } else {
    found.ok(text);
  }
}

void check_notifications(const SourceConfig& common, const OpenedAccess& opened, Findings& found) {
  const std::string& method = common.capture;
  if (method == "scan") {
    return found.ok("capture: scan, as configured; jobs shorter than rescan_seconds can be missed");
  }
  std::string fanotify = opened.fanotify_problem;
  if ((method == "auto" || method == "fanotify") && fanotify.empty()) {
    const auto marked = opened.access->mark();
    if (marked) return found.ok("capture: fanotify works");
    fanotify = marked.error().message();
  }
  if (method == "fanotify") {
    return found.refused("capture = \"fanotify\" is not possible here: " + fanotify +
                             "; give the daemon CAP_SYS_ADMIN, or set capture = \"auto\"",
                         ErrorKind::kInvalidConfig);
  }
  if (!opened.inotify_problem.empty()) {
    const std::string text = "inotify is not possible here: " + opened.inotify_problem;
    return method == "auto" ? found.warning("capture: scan only; " + text)
                            : found.refused(text, ErrorKind::kInvalidConfig);
  }
  if (method == "auto") {
    found.warning(
        "capture: inotify, as fanotify is not possible with the rights of this command: " +
        fanotify + "; entries that live for a few milliseconds only may be missed");
  } else {
    found.ok("capture: inotify works");
  }
}

void check_spool(const SourceConfig& common, const SpoolAdapter& adapter, SpoolOpener* opener,
                 Findings& found) {
  const std::string root = adapter.spool_root();
  const std::string place = "spool " + root;
  auto opened = open_spool(opener, root, SpoolCapture::wanted(common));
  if (!opened)
    return found.refused(place + ": " + opened.error().message(), ErrorKind::kInvalidConfig);
  const auto listed = opened->access->list("");
  if (!listed) {
    return found.refused(place + ": " + listed.error().message() +
                             "; let the daemon's user read it (group, ACL, or CAP_DAC_READ_SEARCH)",
                         ErrorKind::kInvalidConfig);
  }
  std::vector<std::string> names;
  names.reserve(listed->size());
  for (const SpoolName& name : *listed) names.push_back(name.name);
  if (auto ok = guarded([&] { return adapter.check_root(names); }); !ok)
    return found.refused(ok.error().with_context(place));
  found.ok(place + " is readable (" + std::to_string(names.size()) + " names)");
  check_notifications(common, *opened, found);
}

void check_resolver(SpoolAdapter& adapter, Findings& found) {
  auto resolver =
      guarded([&] { return Result<std::unique_ptr<OwnerResolver>>{adapter.make_resolver()}; });
  if (!resolver) {
    found.refused(resolver.error());
  } else if (*resolver == nullptr) {
    found.ok("no scheduler is asked for the owners of jobs: user.verified stays false");
  } else if (auto ok = guarded([&] { return (*resolver)->check(); }); ok) {
    found.ok("the scheduler answers who owns jobs");
  } else if (ok.error().kind() == ErrorKind::kInvalidConfig) {
    found.failed("owners of jobs: " + ok.error().message());
  } else {
    // The daemon starts nevertheless: events go out unverified after resolve_timeout_seconds.
    found.warning("owners of jobs: " + ok.error().message());
  }
}

// False: with this configuration the scheduler cannot be asked.
bool check_scheduler(const SpoolAdapter& adapter, Findings& found) {
  constexpr std::chrono::milliseconds kPatience{1500};
  bool good = true;
  for (Mismatch& mismatch :
       adapter.compare_with_scheduler({}, std::chrono::steady_clock::now() + kPatience)) {
    good = good && !mismatch.wrong;
    mismatch.wrong ? found.failed(std::move(mismatch.text))
                   : found.warning(std::move(mismatch.text));
  }
  return good;
}

// For a sink or a free source: was it made, and what does its check() report?
// Returns it if it can be asked more.
template <typename Instance>
std::shared_ptr<Instance> check_ready(Result<std::unique_ptr<Instance>> made, Findings& found) {
  if (!made) {
    found.refused(made.error());
    return nullptr;
  }
  std::shared_ptr<Instance> instance = *std::move(made);
  const auto answer = call_within(kCheckLimit, [instance] {
    return guarded([&] { return instance->check(); }, ErrorKind::kPermanent);
  });
  if (!answer) {
    found.failed("no answer within " + std::to_string(kCheckLimit.count()) +
                 " s; does its file server or network hang?");
    return nullptr;
  }
  if (*answer) {
    found.ok("ready");
  } else if (std::is_same_v<Instance, Sink> &&
             answer->error().kind() == ErrorKind::kInvalidConfig) {
    found.refused(answer->error());  // start() would return the same error
  } else {
    found.failed(answer->error().message());
  }
  return instance;
}

void check_source(const LoadedSource& source, const PluginContext& context, SpoolOpener* opener,
                  Findings found) {
  if (source.plugin.descriptor->kind == PluginKind::kFreeSource) {
    check_ready(create_free_source(source.plugin, source.instance.table, context), found);
    return;
  }
  auto made = create_spool_adapter(source.plugin, source.instance.table, context);
  if (!made) return found.refused(made.error());
  auto asked = guarded([&] {
    check_spool(source.instance.common, **made, opener, found);
    // If the scheduler's configuration is missing, a query would only fail after a long wait.
    if (check_scheduler(**made, found)) check_resolver(**made, found);
    return Result<void>{};
  });
  if (!asked) found.refused(asked.error());
}

void check_parts(const SinkConfig& config, Sink& sink, Findings& found) {
  if (delivery::gets_whole_events(config)) return;
  auto readable = guarded([&] { return Result<bool>{sink.readable() != nullptr}; });
  std::string parts;
  for (const std::string& part : config.parts) parts += (parts.empty() ? "" : ", ") + part;
  found.ok("gets only: " + parts +
           (readable && *readable ? "; so it cannot serve as an archive for other sinks" : ""));
}

void check_sink(const LoadedSink& sink, const PluginContext& context, SinkDirectories& directories,
                Findings found) {
  const std::shared_ptr<Sink> made =
      check_ready(create_sink(sink.plugin, sink.instance.table, context), found);
  if (made == nullptr) return;
  check_parts(sink.instance.common, *made, found);
  auto own = call_within(kCheckLimit, [made] {
    return guarded(
        [&] { return Result<std::vector<std::string>>{follow_links(made->directories())}; });
  });
  if (own && *own) directories.emplace_back(sink.instance.name, **std::move(own));
}

void check_rules(const LoadedSource& source, const Setup& setup, Findings found) {
  if (source.redactor == nullptr) return;
  const redact::Mode mode = source.redactor->mode();
  const std::string option = std::string("redact = \"") + redact::to_string(mode) + "\": ";
  if (mode == redact::Mode::kOff || setup.rules == nullptr) {
    found.warning(option + "passwords and keys in scripts and variables are archived as they are");
  } else if (mode == redact::Mode::kFlag) {
    found.warning(option + "passwords and keys are reported, and archived as they are");
  } else {
    found.ok(option + std::to_string(setup.rules->rules().size()) + " rules for secrets");
  }
}

}  // namespace

std::vector<Finding> check_setup(const Setup& setup, Logger& log, const Privileges& privileges) {
  std::vector<Finding> all;
  const CoreConfig& core = setup.config.core;
  const auto about = [&](std::string subject) { return Findings(all, std::move(subject)); };
  const auto context = [&](const std::string& name) {
    return PluginContext{name, core.cluster, log, system_clock()};
  };
  if (core.cluster == kPlaceholderCluster) {
    about("cluster").failed(
        "\"" + core.cluster +
        "\" is still the configuration's installed default, and every event would carry "
        "it; give the name of this cluster");
  }
  check_privileges(privileges, about("privileges"));
  if (privileges.state_dir_note.empty()) {
    check_state_dir(core.state_dir, about("state_dir"));
    check_journal(core, log, about("journal"));
  } else {
    about("state_dir").ok(privileges.state_dir_note);
  }
  for (const LoadedSource& source : setup.sources) {
    const std::string& name = source.instance.name;
    check_rules(source, setup, about("source." + name));
    check_source(source, context(name), privileges.opener.get(), about("source." + name));
  }
  SinkDirectories directories;
  for (const LoadedSink& sink : setup.sinks) {
    const std::string& name = sink.instance.name;
    check_sink(sink, context(name), directories, about("sink." + name));
  }
  for (const std::string& shared : shared_directories(directories)) about("sinks").failed(shared);
  return all;
}

}  // namespace scriptorium
