#include "core/cli/open_stores.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "core/base/text.h"
#include "core/cli/common.h"
#include "core/cli/exit_codes.h"
#include "core/daemon/log.h"
#include "core/plugin/call_plugin.h"

namespace scriptorium::cli {
namespace {

std::vector<std::string> sink_names(const Setup& setup) {
  std::vector<std::string> names;
  for (const LoadedSink& sink : setup.sinks) names.push_back(sink.instance.name);
  return names;
}

int no_such_sink(const Arguments& arguments, const Setup& setup, Console& console) {
  const auto near = did_you_mean(arguments.in, sink_names(setup));
  return fail(console,
              "--in: there is no sink \"" + printable(arguments.in) + "\" in " +
                  printable(arguments.config_file) +
                  (near ? "; did you mean \"" + *near + "\"?" : ""),
              kExitUsage);
}

bool is_closed_index(const Sink& sink, const Searchable& searchable) {
  if (searchable.speed() != Searchable::Speed::kIndexed) return false;
  const auto directories = sink.directories();
  return std::any_of(directories.begin(), directories.end(), [](const std::string& directory) {
    return ::faccessat(AT_FDCWD, directory.c_str(), R_OK | X_OK, AT_EACCESS) != 0 &&
           errno == EACCES;
  });
}

}  // namespace

OpenStores open_local_stores(Setup setup, const std::string& only, Console& console) {
  OpenStores open;
  open.setup_ = std::make_unique<Setup>(std::move(setup));
  open.log_ = make_command_logger();
  for (const LoadedSink& sink : open.setup_->sinks) {
    if (!only.empty() && sink.instance.name != only) continue;
    const PluginContext context{.name = sink.instance.name,
                                .cluster = open.setup_->config.core.cluster,
                                .log = *open.log_,
                                .clock = system_clock()};
    auto made = create_sink(sink.plugin, sink.instance.table, context);
    if (!made) {
      console.err << "scriptorium: " << printable(made.error().message(), 1024) << "\n";
      open.incomplete_ = true;
      continue;
    }
    Searchable* searchable = nullptr;
    bool closed = false;
    static_cast<void>(call_plugin([&] {
      searchable = (*made)->searchable();
      closed = searchable != nullptr && is_closed_index(**made, *searchable);
    }));
    if (closed) {
      open.closed_.push_back(sink.instance.name);
      continue;
    }
    open.sinks_.push_back({sink.instance.name, *std::move(made)});
    if (searchable != nullptr) open.stores_.push_back({sink.instance.name, searchable});
  }
  query::order_by_speed(open.stores_);
  return open;
}

OpenStores open_stores(Setup setup, const std::string& only, Console& console) {
  OpenStores open = open_local_stores(std::move(setup), only, console);
  if (!open.closed_.empty()) open.ask_service(console);
  return open;
}

void OpenStores::ask_service(Console& console) {
  const auto& given = setup_->config.serve;
  const std::string socket = given.value_or(ServeConfig{}).socket;
  const auto answers = serve::RemoteStore::probe(socket);
  if (!answers && answers.error().kind() == ErrorKind::kVanished) {
    // Where a site has a service, its users expect an answer of it.
    if (given) {
      console.err << "scriptorium: the query service is not on this host (" << printable(socket)
                  << ")" << (stores_.empty() ? "" : "; other sinks are searched") << "\n";
    }
    return;
  }
  if (!answers) {
    service_problem_ = answers.error().message();
    console.err << "scriptorium: " << printable(service_problem_, 1024) << "\n";
    incomplete_ = true;
    return;
  }
  for (const std::string& name : std::exchange(closed_, {})) {
    remote_.push_back(std::make_unique<serve::RemoteStore>(socket, name));
    stores_.push_back({name, remote_.back().get()});
  }
  query::order_by_speed(stores_);
}

bool OpenStores::is_remote(const query::Store& store) const noexcept {
  return std::any_of(remote_.begin(), remote_.end(),
                     [&](const auto& remote) { return remote.get() == store.searchable; });
}

std::optional<OpenStores> open_stores_or_say(const Arguments& arguments, Console& console,
                                             int& code) {
  if (!become_daemon_user_or_say(arguments, console, code)) return std::nullopt;
  Problems problems;
  Setup setup = load_setup(arguments.config_file, problems);
  // A user without access to another plugin's secret may still search, so every sink that can be
  // opened is opened.
  print_problems(problems, console);
  if (setup.sinks.empty()) {
    code = problems.empty() ? fail(console, "the configuration has no sink", kExitConfig)
                            : int{kExitConfig};
    return std::nullopt;
  }
  const auto names = sink_names(setup);
  if (!arguments.in.empty() && std::find(names.begin(), names.end(), arguments.in) == names.end()) {
    code = no_such_sink(arguments, setup, console);
    return std::nullopt;
  }
  OpenStores open = open_stores(std::move(setup), arguments.in, console);
  if (!open.service_problem().empty()) {
    code = kExitUnavailable;
    return std::nullopt;
  }
  if (open.list().empty() && !open.closed().empty()) {
    say_closed(open, console);
    code = kExitUnavailable;
    return std::nullopt;
  }
  if (open.list().empty()) {
    code =
        fail(console,
             arguments.in.empty()
                 ? "no sink of the configuration can be searched; docs/search.md says which ones "
                   "can"
                 : "sink " + printable(arguments.in) + " cannot be searched",
             arguments.in.empty() ? kExitConfig : kExitUsage);
    return std::nullopt;
  }
  return open;
}

void say_closed(const OpenStores& open, Console& console) {
  for (const std::string& name : open.closed()) {
    console.err << "scriptorium: this user may not read the sink " << printable(name)
                << "; members of its reader_group may\n";
  }
}

int say_refusals(const std::vector<query::Refusal>& refused, Console& console) {
  for (const query::Refusal& refusal : refused) {
    console.err << "scriptorium: sink " << printable(refusal.store) << ": "
                << printable(refusal.error.message(), 1024) << "\n";
  }
  return kExitUnavailable;
}

}  // namespace scriptorium::cli
