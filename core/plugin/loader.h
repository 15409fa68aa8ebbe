#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "core/api/plugin.h"
#include "core/base/result.h"

namespace scriptorium {

// A plugin that passed all checks. Its library stays loaded until the process ends: unloading code
// that a live vtable or callback refers to would crash later, in unrelated code.
struct LoadedPlugin {
  std::string file;
  const PluginDescriptor* descriptor = nullptr;
};

// Finds and checks plugins in a list of directories.
// Threads: the main thread only.
class PluginLoader {
 public:
  // The first directory that has NAME.so is used.
  explicit PluginLoader(std::vector<std::string> directories)
      : directories_(std::move(directories)) {}

  // Checked in this order, and nothing of the library runs before the last file check: the file is
  // there; it, its folder and every folder above belong to root or to us and cannot be written by
  // others or by a group, except that a folder further up may be a sticky one such as /tmp; it is a
  // whole ELF file for this machine (a truncated one would be a SIGBUS in dlopen); it loads; it has
  // the descriptor; ABI version; size; build stamp; name and kind are sane. kInvalidConfig with:
  // file, found, needed, remedy.
  Result<LoadedPlugin> load(const std::string& name);

  // Every NAME.so in the directories, with either the plugin or the reason why it cannot be loaded.
  struct Listed {
    std::string name;
    std::string file;
    Result<LoadedPlugin> plugin;
  };
  std::vector<Listed> list();

  const std::vector<std::string>& directories() const noexcept { return directories_; }

 private:
  Result<LoadedPlugin> load_file(const std::string& name, const std::string& file);

  std::vector<std::string> directories_;
  std::vector<LoadedPlugin> loaded_;
};

// The directories to search: `first` (plugin_dirs of the configuration), then the default places,
// without duplicates.
std::vector<std::string> plugin_directories(const std::vector<std::string>& first);
// The default places: "plugins" beside the executable (in a build folder), then
// ../lib/scriptorium/plugins (when installed).
std::vector<std::string> default_plugin_directories();

inline constexpr std::chrono::seconds kFactoryTimeLimit{30};

// Create the instance within the time limit. A factory that throws, returns null or hangs is
// kInvalidConfig with the plugin's file; after a hang the process must end with _exit
// (call_within.h).
Result<std::unique_ptr<Sink>> create_sink(const LoadedPlugin& plugin, const Table& table,
                                          const PluginContext& context,
                                          std::chrono::milliseconds limit = kFactoryTimeLimit);
Result<std::unique_ptr<SpoolAdapter>> create_spool_adapter(
    const LoadedPlugin& plugin, const Table& table, const PluginContext& context,
    std::chrono::milliseconds limit = kFactoryTimeLimit);
Result<std::unique_ptr<FreeSource>> create_free_source(
    const LoadedPlugin& plugin, const Table& table, const PluginContext& context,
    std::chrono::milliseconds limit = kFactoryTimeLimit);

}  // namespace scriptorium
