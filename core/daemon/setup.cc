#include "core/daemon/setup.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sysexits.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <exception>
#include <optional>
#include <string_view>
#include <utility>

#include "core/base/file.h"
#include "core/base/text.h"
#include "core/capture/spool_opener.h"
#include "core/daemon/fingerprint.h"
#include "core/daemon/privileges.h"
#include "core/journal/journal.h"
#include "core/plugin/call_plugin.h"

namespace scriptorium {
namespace {

// ---- load

// What the packages' configuration names the cluster.
constexpr std::string_view kPlaceholderCluster = "change-me";

enum class Role { kSource, kSink };

bool fits(Role role, PluginKind kind) {
  return (role == Role::kSink) == (kind == PluginKind::kSink);
}

void check_plugin_options(const LoadedPlugin& plugin, const Table& table,
                          const std::vector<OptionInfo>& common, Problems& problems) {
  std::vector<OptionInfo> known;
  const auto thrown = call_plugin([&] {
    plugin.descriptor->check(table, problems);
    known = plugin.descriptor->options();
  });
  if (!thrown) {
    known.insert(known.end(), common.begin(), common.end());
    return check_unknown_keys(table, known, problems);
  }
  problems.add(table, "plugin",
               plugin.file + ": its option check throws (" + *thrown +
                   "); report it to the plugin's author");
}

// The instance's plugin, its options checked; nothing if there is none to be had.
std::optional<LoadedPlugin> load_instance(PluginLoader& loader, Role role,
                                          const InstanceConfig& instance,
                                          const std::string& plugin_name,
                                          const std::vector<OptionInfo>& common,
                                          Problems& problems) {
  auto plugin = loader.load(plugin_name.empty() ? instance.name : plugin_name);
  if (!plugin) {
    problems.add(instance.table, "plugin", plugin.error().message());
    return std::nullopt;
  }
  if (!fits(role, plugin->descriptor->kind)) {
    const bool is_sink = plugin->descriptor->kind == PluginKind::kSink;
    problems.add(instance.table, "plugin",
                 std::string{"\""} + plugin->descriptor->name + "\" is a " +
                     (is_sink ? "sink" : "source") + ", so it belongs under [" +
                     (is_sink ? "sink." : "source.") + instance.name + "]");
    return std::nullopt;
  }
  check_plugin_options(*plugin, instance.table, common, problems);
  return *std::move(plugin);
}

// ---- check

// What a plugin's call throws becomes an error: `check` goes on with the next instance.
template <typename Call>
auto guarded(Call call, ErrorKind kind = ErrorKind::kInvalidConfig) {
  return call_plugin("the plugin", kind, call);
}

class Findings {
 public:
  explicit Findings(std::string subject) : subject_(std::move(subject)) {}
  void ok(std::string text) { add(Finding::Level::kOk, std::move(text)); }
  void warning(std::string text) { add(Finding::Level::kWarning, std::move(text)); }
  void failed(std::string text) { add(Finding::Level::kFailed, std::move(text)); }
  // What a start would be refused for, as an error of this kind.
  void refused(std::string text, ErrorKind kind) {
    add(Finding::Level::kFailed, std::move(text));
    list_.back().refusal = kind;
  }
  bool any_failed() const noexcept { return failed_; }
  std::vector<Finding> take() { return std::move(list_); }

 private:
  void add(Finding::Level level, std::string text) {
    failed_ = failed_ || level == Finding::Level::kFailed;
    list_.push_back({level, subject_, std::move(text), std::nullopt});
  }

  std::string subject_;
  std::vector<Finding> list_;
  bool failed_ = false;
};

std::vector<Finding> check_privileges(const Privileges& privileges) {
  Findings found("privileges");
  const std::string user = printable(privileges.user);
  if (!privileges.refused.empty()) {
    found.refused(privileges.refused, ErrorKind::kInvalidConfig);
  } else if (!privileges.separated) {
    found.warning("not separated: " + privileges.why);
  } else if (privileges.uid == 0) {
    found.warning(
        "everything but the spool opener runs without capabilities, but as root, who owns much; "
        "set user = \"...\"");
  } else {
    std::string kept;
    for (const std::string& name : capability_names(privileges.opener->capabilities()))
      kept += (kept.empty() ? "" : ", ") + name;
    found.ok("the spool opener keeps " + kept + "; everything else runs as " + user +
             ", without capabilities");
  }
  return found.take();
}

std::string parent_of(const std::string& path) {
  const std::size_t slash = path.find_last_not_of('/') == std::string::npos
                                ? 0
                                : path.rfind('/', path.find_last_not_of('/'));
  return slash == 0 || slash == std::string::npos ? "/" : path.substr(0, slash);
}

std::vector<Finding> check_state_dir(const std::string& directory) {
  Findings found("state_dir");
  const auto stat = stat_path(directory);
  if (!stat && stat.error().kind() != ErrorKind::kVanished) {
    found.refused(stat.error().message(), ErrorKind::kTransient);
  } else if (!stat) {
    std::string above = parent_of(directory);
    while (above != "/" && ::access(above.c_str(), F_OK) != 0 && errno == ENOENT)
      above = parent_of(above);
    if (::access(above.c_str(), W_OK | X_OK) == 0) {
      found.ok(directory + " is not there yet; `run` makes it");
    } else {
      found.refused(directory + " is not there and cannot be made: " +
                        system_error("write into " + above, errno).message() +
                        "; make it and give it to the daemon's user",
                    ErrorKind::kTransient);
    }
  } else if (!stat->is_directory()) {
    found.refused(directory + " is no directory", ErrorKind::kTransient);
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
  return found.take();
}

std::vector<Finding> check_journal(const std::string& directory, const CoreConfig& config,
                                   Logger& log) {
  Findings found("journal");
  if (::access((directory + "/journal.db").c_str(), F_OK) != 0) {
    found.ok("none yet; `run` makes it");
    return found.take();
  }
  Journal::Options options;
  options.directory = directory;
  options.max_bytes = static_cast<std::uint64_t>(config.journal_max_bytes);
  options.read_only = true;
  const auto journal = Journal::open(options, log, system_clock());
  if (!journal) {
    found.refused(journal.error().message(), journal.error().kind());
    return found.take();
  }
  if (const auto& report = (*journal)->open_report(); !report.damage.empty()) {
    found.warning("damaged (" + report.damage +
                  "); `run` puts it aside and keeps what can be read");
  } else if (auto verified = (*journal)->verify(); !verified) {
    found.warning("damaged (" + verified.error().message() +
                  "); what is damaged becomes a dead letter, the rest is delivered");
  }
  const auto usage = (*journal)->usage();
  const std::string text = std::to_string(usage.events) + " events, " + format_bytes(usage.bytes) +
                           " of " + format_bytes(options.max_bytes);
  if (usage.full) {
    found.warning(
        text +
        ": full; the spool is not read until a sink takes events, or journal_max_bytes is raised");
  } else {
    found.ok(text);
  }
  return found.take();
}

void check_notifications(const SourceConfig& common, const OpenedAccess& opened, Findings& found) {
  const std::string& way = common.capture;
  if (way == "scan") {
    found.ok("capture: scan, as configured; jobs shorter than rescan_seconds can be missed");
    return;
  }
  std::string fanotify = opened.fanotify_problem;
  if ((way == "auto" || way == "fanotify") && fanotify.empty()) {
    const auto marked = opened.access->mark();
    if (marked) {
      found.ok("capture: fanotify works");
      return;
    }
    fanotify = marked.error().message();
  }
  if (way == "fanotify") {
    found.refused("capture = \"fanotify\" is not possible here: " + fanotify +
                      "; give the daemon CAP_SYS_ADMIN, or set capture = \"auto\"",
                  ErrorKind::kInvalidConfig);
    return;
  }
  if (!opened.inotify_problem.empty()) {
    const std::string text = "inotify is not possible here: " + opened.inotify_problem;
    way == "auto" ? found.warning("capture: scan only; " + text)
                  : found.refused(text, ErrorKind::kInvalidConfig);
    return;
  }
  if (way == "auto") {
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
  const bool auto_way = common.capture == "auto";
  auto opened = open_spool(
      opener, root,
      {.inotify = auto_way || common.capture == "inotify" || common.capture == "fanotify",
       .fanotify = auto_way || common.capture == "fanotify"});
  if (!opened) {
    found.refused("spool " + root + ": " + opened.error().message(), ErrorKind::kInvalidConfig);
    return;
  }
  const auto listed = opened->access->list("");
  if (!listed) {
    found.refused("spool " + root + ": " + listed.error().message() +
                      "; let the daemon's user read it (group, ACL, or CAP_DAC_READ_SEARCH)",
                  ErrorKind::kInvalidConfig);
    return;
  }
  std::vector<std::string> names;
  names.reserve(listed->size());
  for (const SpoolName& name : *listed) names.push_back(name.name);
  if (auto ok = guarded([&] { return adapter.check_root(names); }); !ok) {
    found.refused("spool " + root + ": " + ok.error().message(), ok.error().kind());
    return;
  }
  found.ok("spool " + root + " is readable (" + std::to_string(names.size()) + " names)");
  check_notifications(common, *opened, found);
}

void check_resolver(SpoolAdapter& adapter, Findings& found) {
  auto resolver =
      guarded([&] { return Result<std::unique_ptr<OwnerResolver>>{adapter.make_resolver()}; });
  if (!resolver) {
    found.refused(resolver.error().message(), resolver.error().kind());
  } else if (*resolver == nullptr) {
    found.ok("nobody is asked for the owners of jobs: user.verified stays false");
  } else if (auto ok = guarded([&] { return (*resolver)->check(); }); ok) {
    found.ok("the scheduler answers who owns jobs");
  } else if (ok.error().kind() == ErrorKind::kInvalidConfig) {
    found.failed("owners of jobs: " + ok.error().message());
  } else {
    // The daemon starts all the same: events go out unverified after resolve_timeout_seconds.
    found.warning("owners of jobs: " + ok.error().message());
  }
}

// False: the scheduler cannot be asked so.
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

// Of a sink or a free source: was it made, and what does it say of its other side?
template <typename Instance>
void check_ready(const Result<std::unique_ptr<Instance>>& made, Findings& found) {
  if (!made) {
    found.refused(made.error().message(), made.error().kind());
  } else if (auto ok = guarded([&] { return (*made)->check(); }, ErrorKind::kPermanent); ok) {
    found.ok("ready");
  } else if (std::is_same_v<Instance, Sink> && ok.error().kind() == ErrorKind::kInvalidConfig) {
    found.refused(ok.error().message(), ok.error().kind());  // start() says the same
  } else {
    found.failed(ok.error().message());
  }
}

std::vector<Finding> check_source(const LoadedSource& source, const CoreConfig& core,
                                  SpoolOpener* opener, Logger& log) {
  Findings found("source." + source.instance.name);
  const PluginContext context{
      .name = source.instance.name, .cluster = core.cluster, .log = log, .clock = system_clock()};
  if (source.plugin.descriptor->kind == PluginKind::kFreeSource) {
    check_ready(create_free_source(source.plugin, source.instance.table, context), found);
    return found.take();
  }
  auto made = create_spool_adapter(source.plugin, source.instance.table, context);
  if (!made) {
    found.refused(made.error().message(), made.error().kind());
    return found.take();
  }
  auto asked = guarded([&] {
    check_spool(source.instance.common, **made, opener, found);
    // With a configuration of the scheduler that is not there, the question would only take its
    // time to fail.
    if (check_scheduler(**made, found)) check_resolver(**made, found);
    return Result<void>{};
  });
  if (!asked) found.refused(asked.error().message(), asked.error().kind());
  return found.take();
}

std::vector<Finding> check_sink(const LoadedSink& sink, const CoreConfig& core, Logger& log,
                                SinkDirectories& directories) {
  Findings found("sink." + sink.instance.name);
  const PluginContext context{
      .name = sink.instance.name, .cluster = core.cluster, .log = log, .clock = system_clock()};
  const auto made = create_sink(sink.plugin, sink.instance.table, context);
  check_ready(made, found);
  if (made) {
    auto own = guarded([&] { return Result<std::vector<std::string>>{(*made)->directories()}; });
    if (own) directories.emplace_back(sink.instance.name, *std::move(own));
  }
  return found.take();
}

}  // namespace

int exit_code_of(ErrorKind kind) noexcept {
  switch (kind) {
    case ErrorKind::kInvalidConfig: return EX_CONFIG;
    case ErrorKind::kExhausted: return EX_TEMPFAIL;
    default: return EX_CANTCREAT;
  }
}

Setup load_setup(const std::string& config_file, Problems& problems) {
  Setup setup;
  setup.config = load_config(config_file, problems);
  setup.plugin_dirs = plugin_directories(setup.config.core.plugin_dirs);
  PluginLoader loader(setup.plugin_dirs);
  const auto source_common = source_options();
  const auto sink_common = sink_options();
  for (const SourceInstance& instance : setup.config.sources) {
    auto plugin = load_instance(loader, Role::kSource, instance, instance.common.plugin,
                                source_common, problems);
    if (plugin) setup.sources.push_back({instance, *std::move(plugin)});
  }
  for (const SinkInstance& instance : setup.config.sinks) {
    auto plugin =
        load_instance(loader, Role::kSink, instance, instance.common.plugin, sink_common, problems);
    if (plugin) setup.sinks.push_back({instance, *std::move(plugin)});
  }
  problems.sort();
  return setup;
}

std::vector<Finding> check_setup(const Setup& setup, Logger& log, const Privileges& privileges) {
  std::vector<Finding> all;
  const auto append = [&all](std::vector<Finding> more) {
    for (Finding& finding : more) all.push_back(std::move(finding));
  };
  const CoreConfig& core = setup.config.core;
  if (core.cluster == kPlaceholderCluster) {
    all.push_back(
        {Finding::Level::kFailed, "cluster",
         "\"" + core.cluster +
             "\" is still the configuration's installed default, and every event would carry it; "
             "give the name of this cluster",
         std::nullopt});
  }
  append(check_privileges(privileges));
  if (privileges.state_dir_note.empty()) {
    append(check_state_dir(core.state_dir));
    append(check_journal(core.state_dir, core, log));
  } else {
    all.push_back({Finding::Level::kOk, "state_dir", privileges.state_dir_note, std::nullopt});
  }
  for (const LoadedSource& source : setup.sources)
    append(check_source(source, core, privileges.opener.get(), log));
  SinkDirectories directories;
  for (const LoadedSink& sink : setup.sinks) append(check_sink(sink, core, log, directories));
  for (const std::string& shared : shared_directories(directories))
    all.push_back({Finding::Level::kFailed, "sinks", shared});
  return all;
}

}  // namespace scriptorium
