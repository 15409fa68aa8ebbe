#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/base/guarded.h"
#include "core/base/result.h"
#include "core/config/config.h"

// Decisions of a start and a reload. They depend only on the configuration and on files.
namespace scriptorium {

// A text that stays the same as long as an instance's configuration means the same. It covers the
// content of files that `..._file` options name, so a new password or certificate is a change.
std::string fingerprint(const Table& table, const std::string& plugin_file,
                        const std::string& cluster, const std::string& host);

// The directories that each sink writes into, by the sink's name.
using SinkDirectories = std::vector<std::pair<std::string, std::vector<std::string>>>;
// A sentence for each pair of sinks that would write into each other's directories. Touches no file
// system, so links count as directories of their own.
std::vector<std::string> shared_directories(const SinkDirectories& by_sink);
// The same directories with links followed, also above one that does not exist yet. Hangs for as
// long as the file system does.
std::vector<std::string> follow_links(std::vector<std::string> directories);

// The directories that running sinks write into, with links followed. A sink claims its own before
// it starts.
// Threads: any. claim() may hang as follow_links() does, and holds up nobody else meanwhile.
class DirectoryClaims {
 public:
  // kInvalidConfig: another sink has claimed one of these, or one above or within.
  Result<void> claim(const std::string& sink, std::vector<std::string> directories);
  void release(const std::string& sink);

 private:
  Guarded<std::map<std::string, std::vector<std::string>>> claimed_;
};

// The first key of the core configuration that differs and needs a restart, if there is one.
std::optional<std::string> changed_fixed_key(const CoreConfig& running, const CoreConfig& wanted);

// The name of a source or sink, and the fingerprint() of its configuration.
using InstanceVersion = std::pair<std::string, std::string>;
// The names of the instances that keep running because nothing about them has changed. All others
// that run are stopped, all others that are wanted are started.
std::set<std::string> unchanged_instances(const std::vector<InstanceVersion>& running,
                                          const std::vector<InstanceVersion>& wanted);

}  // namespace scriptorium
