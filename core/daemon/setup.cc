#include "core/daemon/setup.h"

#include <sysexits.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <utility>

#include "core/plugin/call_plugin.h"

namespace scriptorium {
namespace {

enum class Role { kSource, kSink };

void check_plugin_options(const LoadedPlugin& plugin, const Table& table,
                          const std::vector<OptionInfo>& common, Problems& problems) {
  std::vector<OptionInfo> known;
  const auto thrown = call_plugin([&] {
    plugin.descriptor->check(table, problems);
    known = plugin.descriptor->options();
  });
  if (thrown) {
    return problems.add(table, "plugin",
                        plugin.file + ": its option check throws (" + *thrown +
                            "); report it to the plugin's author");
  }
  known.insert(known.end(), common.begin(), common.end());
  check_unknown_keys(table, known, problems);
}

// Loads the instance's plugin and checks its options; nothing if it cannot be loaded.
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
  const bool is_sink = plugin->descriptor->kind == PluginKind::kSink;
  if (is_sink != (role == Role::kSink)) {
    problems.add(instance.table, "plugin",
                 std::string{"\""} + plugin->descriptor->name + "\" is a " +
                     (is_sink ? "sink" : "source") + ", so it belongs under [" +
                     (is_sink ? "sink." : "source.") + instance.name + "]");
    return std::nullopt;
  }
  check_plugin_options(*plugin, instance.table, common, problems);
  return *std::move(plugin);
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
  const auto load_all = [&](const auto& instances, Role role, auto& loaded,
                            const std::vector<OptionInfo>& common) {
    for (const auto& instance : instances) {
      auto plugin = load_instance(loader, role, instance, instance.common.plugin, common, problems);
      if (!plugin) continue;
      auto& one = loaded.emplace_back();
      one.instance = instance;
      one.plugin = *std::move(plugin);
    }
  };
  load_all(setup.config.sources, Role::kSource, setup.sources, source_options());
  load_all(setup.config.sinks, Role::kSink, setup.sinks, sink_options());
  problems.sort();
  return setup;
}

void load_rules(const std::string& config_file, Setup& setup, Problems& problems) {
  const auto mode_of = [&](const LoadedSource& source) {
    const auto& core = setup.config.core.redact;
    return redact::parse_mode(source.instance.common.redact.value_or(core))
        .value_or(redact::Mode::kDefault);
  };
  const bool is_wanted =
      setup.config.core.redact != redact::to_string(redact::Mode::kOff) ||
      std::any_of(setup.sources.begin(), setup.sources.end(), [&](const LoadedSource& source) {
        return mode_of(source) != redact::Mode::kOff;
      });
  if (is_wanted) {
    const std::string folder = std::filesystem::path(config_file).parent_path() / "redact.d";
    setup.rules = redact::RuleSet::load(folder, problems);
  }
  for (LoadedSource& source : setup.sources) {
    const redact::Mode mode = mode_of(source);
    source.redactor = std::make_shared<const redact::Redactor>(setup.rules, mode,
                                                               source.instance.common.environment);
    source.redaction = redact::to_string(mode);
    if (mode != redact::Mode::kOff && setup.rules != nullptr)
      source.redaction += setup.rules->fingerprint();
  }
}

}  // namespace scriptorium
