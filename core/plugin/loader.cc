#include "core/plugin/loader.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <boost/dll/shared_library.hpp>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <exception>
#include <filesystem>
#include <map>
#include <optional>
#include <string_view>

#include "core/base/accounts.h"
#include "core/base/ascii.h"
#include "core/base/file.h"
#include "core/base/text.h"
#include "core/base/thrown.h"
#include "core/plugin/call_within.h"
#include "core/plugin/elf.h"

namespace scriptorium {
namespace {

constexpr const char* kSymbol = "scriptorium_plugin";
constexpr const char* kRebuild = "rebuild the plugin against this version of Scriptorium";

Error refused(std::string_view file, const std::string& found, const std::string& needed,
              const std::string& remedy) {
  return {ErrorKind::kInvalidConfig,
          std::string{file} + ": found " + found + "; needed " + needed + "; " + remedy};
}

bool is_plugin_name(std::string_view name) {
  if (name.empty() || name.size() > 64 || !is_lower(name[0])) return false;
  return std::all_of(name.begin(), name.end(),
                     [](char c) { return is_lower(c) || is_digit(c) || c == '_' || c == '-'; });
}

bool exists(const std::string& file) {
  struct stat st{};
  return ::lstat(file.c_str(), &st) == 0;
}

Result<std::string> resolve_links(const std::string& path) {
  const std::unique_ptr<char, decltype(&std::free)> resolved{::realpath(path.c_str(), nullptr),
                                                             &std::free};
  if (!resolved) return system_error("resolve " + path, errno);
  return std::string{resolved.get()};
}

std::string folder_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

// True if `owner` is the only member of the group. Most distributions create such a private group
// for each user, with a umask that makes files mode 0664.
bool is_private_group(gid_t group, uid_t owner) {
  const auto found = find_group(group);
  const auto user = find_user(owner);
  return found && *found && user && *user && (*found)->name == (*user)->name &&
         (*user)->gid == group &&
         std::all_of((*found)->members.begin(), (*found)->members.end(),
                     [&](const std::string& m) { return m == (*user)->name; });
}

enum class Place { kItself, kAbove };

// Anyone who can write here can run code as us. A parent folder may be a sticky one of root's such
// as /tmp, because others cannot replace our entries in it. The plugin's own folder may not,
// because others could add NAME.so to it.
Result<void> only_ours(std::string_view plugin_file, const std::string& path, std::string_view what,
                       Place place) {
  struct stat st{};
  if (::stat(path.c_str(), &st) != 0) {
    return refused(plugin_file, system_error(what, errno).message(),
                   std::string{what} + " that can be looked at", "check its permissions");
  }
  const bool others = (st.st_mode & S_IWOTH) != 0;
  const bool group = (st.st_mode & S_IWGRP) != 0 && !is_private_group(st.st_gid, st.st_uid);
  const bool kept_apart = place == Place::kAbove && (st.st_mode & S_ISVTX) != 0 &&
                          (st.st_uid == 0 || st.st_uid == ::geteuid());
  if ((others || group) && !kept_apart) {
    char mode[8];
    std::snprintf(mode, sizeof mode, "%04o", static_cast<unsigned>(st.st_mode & 07777U));
    return refused(plugin_file,
                   std::string{what} +
                       (others ? " that everyone" : " that group " + std::to_string(st.st_gid)) +
                       " may write (" + path + ", mode " + mode + ")",
                   std::string{what} + " that only root or the daemon's user may write",
                   (others ? group ? "chmod go-w " : "chmod o-w " : "chmod g-w ") + path);
  }
  if (st.st_uid != 0 && st.st_uid != ::geteuid()) {
    return refused(
        plugin_file,
        std::string{what} + " that belongs to uid " + std::to_string(st.st_uid) + " (" + path + ")",
        "one of root or of uid " + std::to_string(::geteuid()) + ", who runs this",
        "chown root " + path);
  }
  return {};
}

// Checks the file, its folder and every folder on the path, following links: each of them
// determines which code is loaded.
Result<void> only_ours_on_the_way(std::string_view plugin_file, const std::string& path) {
  std::error_code failed;
  std::deque<std::string> left;
  const auto put_in_front = [&](const std::filesystem::path& parts) {
    auto at = left.begin();
    for (const auto& part : parts.relative_path()) {
      if (!part.empty() && part != ".") at = std::next(left.insert(at, part.string()));
    }
  };
  put_in_front(std::filesystem::absolute(path, failed));
  std::string at;
  if (auto ok = only_ours(plugin_file, "/", "a folder", Place::kAbove); !ok) return ok;
  constexpr int kMostLinks = 40;
  for (int links = 0; !left.empty();) {
    const std::string name = std::move(left.front());
    left.pop_front();
    if (name == "..") {
      at = at.substr(0, at.rfind('/'));
      continue;
    }
    const std::string next = at + "/" + name;
    if (std::filesystem::is_symlink(next, failed)) {
      const auto target = std::filesystem::read_symlink(next, failed);
      if (failed || ++links > kMostLinks) {
        return refused(plugin_file, "a link to a missing file (" + next + ")",
                       "a link to an existing file", "repair the link");
      }
      if (target.is_absolute()) at.clear();
      put_in_front(target);
      continue;
    }
    at = next;
    const bool is_file = left.empty();
    const bool is_folder = left.size() == 1;
    auto ok = only_ours(plugin_file, at, is_file ? "a file" : "a folder",
                        is_file || is_folder ? Place::kItself : Place::kAbove);
    if (!ok) return ok;
  }
  return {};
}

// The dlerror() message, extracted from Boost's sentence.
std::string dl_message(const std::exception& e) {
  std::string text = e.what();
  constexpr std::string_view kMarker = "dlerror system message: ";
  if (const std::size_t at = text.find(kMarker); at != std::string::npos) {
    text.erase(0, at + kMarker.size());
    // Boost closes its bracket, and std::system_error adds ": " and the code's words.
    if (const std::size_t end = text.rfind("): "); end != std::string::npos) {
      text.erase(end);
    } else if (!text.empty() && text.back() == ')') {
      text.pop_back();
    }
  }
  return printable(text, 512);
}

const char* kind_name(PluginKind kind) {
  switch (kind) {
    case PluginKind::kSink: return "sink";
    case PluginKind::kSpoolAdapter: return "spool adapter";
    case PluginKind::kFreeSource: return "free source";
  }
  return nullptr;
}

// Libraries stay open until the process ends, even rejected ones: their static constructors ran and
// may have left pointers behind. The list is leaked so that no destructor closes them at exit.
std::vector<boost::dll::shared_library>& open_libraries() {
  static auto& libraries = *new std::vector<boost::dll::shared_library>();
  return libraries;
}

// `real` is `file` with its links resolved, so that dlopen() opens exactly the file that was
// checked.
Result<const PluginDescriptor*> find_descriptor(const std::string& file,
                                                const std::string& real) try {
  // NOLINTNEXTLINE(bugprone-unused-local-non-trivial-variable)
  boost::dll::shared_library library(real, boost::dll::load_mode::rtld_now);
  open_libraries().push_back(library);
  if (!library.has(kSymbol)) {
    return refused(file, "no symbol " + std::string{kSymbol}, "a plugin's descriptor of that name",
                   "define it in plugin.cc and build with scriptorium_add_plugin()");
  }
  return &library.get<const PluginDescriptor>(kSymbol);
} catch (const std::exception& e) {
  return refused(file, "a library that does not load (" + dl_message(e) + ")",
                 "one whose symbols and libraries all exist",
                 "install what is missing, or rebuild the plugin");
} catch (...) {
  return refused(file, "a library whose start-up code throws (" + thrown_text() + ")",
                 "one that loads", "report it to the plugin's author");
}

// In the order of the descriptor's members: each step reads only members whose presence the earlier
// steps have verified.
Result<void> check_descriptor(const std::string& name, const std::string& file,
                              const PluginDescriptor* d) {
  if (d->abi_version != kPluginAbiVersion) {
    const bool newer = d->abi_version > kPluginAbiVersion;
    return refused(file, "plugin ABI " + std::to_string(d->abi_version),
                   "plugin ABI " + std::to_string(kPluginAbiVersion),
                   newer ? "install the Scriptorium that the plugin was made for, or rebuild the "
                           "plugin against this one"
                         : kRebuild);
  }
  if (d->descriptor_size != sizeof(PluginDescriptor)) {
    return refused(file, "a descriptor of " + std::to_string(d->descriptor_size) + " bytes",
                   std::to_string(sizeof(PluginDescriptor)) + " bytes", kRebuild);
  }
  if (d->build_stamp == nullptr || std::strcmp(d->build_stamp, SCRIPTORIUM_BUILD_STAMP) != 0) {
    return refused(file,
                   "build stamp " + (d->build_stamp == nullptr ? std::string{"none"}
                                                               : printable(d->build_stamp)),
                   "build stamp " SCRIPTORIUM_BUILD_STAMP,
                   "rebuild the plugin with the same compiler and headers as this command");
  }
  const char* kind = kind_name(d->kind);
  if (kind == nullptr) {
    return refused(file, "plugin kind " + std::to_string(static_cast<std::uint32_t>(d->kind)),
                   "1 (sink), 2 (spool adapter) or 3 (free source)",
                   "correct .kind in the plugin's descriptor");
  }
  if (d->name == nullptr || name != d->name) {
    return refused(
        file,
        "a plugin that names itself " +
            (d->name == nullptr ? std::string{"nothing"} : "\"" + printable(d->name) + "\""),
        "\"" + name + "\", as its file",
        "rename the file, or correct .name in the plugin's descriptor");
  }
  const bool sink = d->create_sink != nullptr;
  const bool adapter = d->create_spool_adapter != nullptr;
  const bool free_source = d->create_free_source != nullptr;
  if (sink != (d->kind == PluginKind::kSink) || adapter != (d->kind == PluginKind::kSpoolAdapter) ||
      free_source != (d->kind == PluginKind::kFreeSource)) {
    std::string found;
    for (const auto& [set, word] : {std::pair{sink, "create_sink"},
                                    {adapter, "create_spool_adapter"},
                                    {free_source, "create_free_source"}}) {
      if (set) found += (found.empty() ? "" : " and ") + std::string{word};
    }
    return refused(
        file, (found.empty() ? "no factory" : found) + std::string{" in a plugin of kind "} + kind,
        "exactly the factory of its kind",
        "set .kind and the one create function that belongs to it");
  }
  if (d->options == nullptr || d->check == nullptr || d->summary == nullptr) {
    return refused(file, "a descriptor without options, check or summary", "all three",
                   "set .options, .check and .summary");
  }
  return {};
}

std::vector<std::string> library_names(const std::string& directory) {
  std::vector<std::string> names;
  const std::unique_ptr<DIR, int (*)(DIR*)> dir{::opendir(directory.c_str()), &::closedir};
  if (!dir) return names;
  while (const dirent* entry = ::readdir(dir.get())) {
    const std::string_view file = entry->d_name;
    if (file.size() > 3 && file.ends_with(".so") && file[0] != '.')
      names.emplace_back(file.substr(0, file.size() - 3));
  }
  std::sort(names.begin(), names.end());
  return names;
}

// ---- factories

template <typename T, typename Context>
using Factory = Result<std::unique_ptr<T>> (*)(const Table&, const Context&);

template <typename T, typename Context>
Result<std::unique_ptr<T>> call_factory(Factory<T, Context> factory, const std::string& file,
                                        const Table& table, const Context& context) try {
  auto made = factory(table, context);
  if (!made) return Error{made.error().kind(), file + ": " + made.error().message()};
  if (*made == nullptr) {
    return refused(file, "a factory that returns null for " + table.path, "an instance or an error",
                   "report it to the plugin's author");
  }
  return made;
} catch (...) {
  return refused(file, "a factory that throws for " + table.path + " (" + thrown_text() + ")",
                 "an instance or an error", "report it to the plugin's author");
}

std::string in_words(std::chrono::milliseconds limit) {
  if (limit.count() % 1000 == 0) return std::to_string(limit.count() / 1000) + " s";
  return std::to_string(limit.count()) + " ms";
}

template <typename T, typename Context>
Result<std::unique_ptr<T>> create(const LoadedPlugin& plugin, Factory<T, Context> factory,
                                  const char* needed_kind, const Table& table,
                                  const Context& context, std::chrono::milliseconds limit) {
  if (factory == nullptr) {
    const char* kind = kind_name(plugin.descriptor->kind);
    return refused(plugin.file,
                   "a plugin of kind " + std::string{kind == nullptr ? "unknown" : kind},
                   "one of kind " + std::string{needed_kind} + " for " + table.path,
                   "name another plugin there");
  }
  auto made = call_within(limit, [factory, file = plugin.file, table, context] {
    return call_factory(factory, file, table, context);
  });
  if (made) return *std::move(made);
  return refused(plugin.file,
                 "a factory that did not return within " + in_words(limit) + " for " + table.path,
                 "one that makes its instance at once, without the network",
                 "report it to the plugin's author");
}

}  // namespace

Result<LoadedPlugin> PluginLoader::load(const std::string& name) {
  for (const LoadedPlugin& loaded : loaded_) {
    if (name == loaded.descriptor->name) return loaded;
  }
  if (!is_plugin_name(name)) {
    return refused("plugin \"" + printable(name) + "\"", "a name with other characters",
                   "a lower-case letter, then letters, digits, '_' or '-'",
                   "write the plugin's name without folder and \".so\"");
  }
  std::vector<std::string> there;
  std::string places;
  for (const std::string& directory : directories_) {
    const std::string file = directory + "/" + name + ".so";
    if (exists(file)) return load_file(name, file);
    places += (places.empty() ? "" : ", ") + directory;
    const auto names = library_names(directory);
    there.insert(there.end(), names.begin(), names.end());
  }
  std::sort(there.begin(), there.end());
  there.erase(std::unique(there.begin(), there.end()), there.end());
  std::string found;
  for (const std::string& other : there) found += (found.empty() ? "only " : ", ") + other;
  if (found.empty()) found = "no plugin at all";
  std::string remedy = "install the plugin or set plugin_dirs";
  if (const auto near = did_you_mean(name, there))
    remedy = "did you mean \"" + *near + "\"? Else " + remedy;
  return refused("plugin \"" + name + "\"", found,
                 name + ".so in " + (places.empty() ? "plugin_dirs, which is empty" : places),
                 remedy);
}

Result<LoadedPlugin> PluginLoader::load_file(const std::string& name, const std::string& file) {
  const auto real = resolve_links(file);
  if (!real) {
    return refused(file, "a file that cannot be reached (" + real.error().message() + ")",
                   "a readable shared library", "repair the link or its permissions");
  }
  if (auto ok = only_ours_on_the_way(file, file); !ok) return ok.error();
  if (auto ok = check_elf(*real); !ok)
    return Error{ErrorKind::kInvalidConfig, file + ": " + ok.error().message()};

  const auto descriptor = find_descriptor(file, *real);
  if (!descriptor) return descriptor.error();
  if (auto ok = check_descriptor(name, file, *descriptor); !ok) return ok.error();
  loaded_.push_back({file, *descriptor});
  return loaded_.back();
}

std::vector<PluginLoader::Listed> PluginLoader::list() {
  std::map<std::string, std::vector<std::string>> files;  // by name, in directory order
  for (const std::string& directory : directories_) {
    for (const std::string& name : library_names(directory))
      files[name].push_back(directory + "/" + name + ".so");
  }
  std::vector<Listed> result;
  for (const auto& [name, places] : files) {
    result.push_back({name, places.front(), load(name)});
    for (std::size_t i = 1; i < places.size(); ++i) {
      result.push_back(
          {name, places[i],
           refused(places[i], "a second plugin \"" + name + "\"", "one of each name",
                   "it is not used, as " + places.front() + " comes first; remove one")});
    }
  }
  return result;
}

std::vector<std::string> default_plugin_directories() {
  const auto self = resolve_links("/proc/self/exe");
  const std::string bin = self ? folder_of(*self) : "/usr/bin";
  const std::string prefix = folder_of(bin);
  std::vector<std::string> result{bin + "/plugins"};
  const auto add = [&](const std::string& library_folder) {
    std::string place =
        (library_folder.starts_with('/') ? library_folder
                                         : (prefix == "/" ? "" : prefix) + "/" + library_folder) +
        "/scriptorium/plugins";
    if (std::find(result.begin(), result.end(), place) == result.end())
      result.push_back(std::move(place));
  };
  add(SCRIPTORIUM_INSTALL_LIBDIR);
  add("lib");
  return result;
}

std::vector<std::string> plugin_directories(const std::vector<std::string>& first) {
  std::vector<std::string> result;
  std::vector<std::string> seen;
  const auto add = [&](const std::string& directory) {
    const auto real = resolve_links(directory);
    const std::string key = real ? *real : directory;
    if (std::find(seen.begin(), seen.end(), key) != seen.end()) return;
    seen.push_back(key);
    result.push_back(directory);
  };
  for (const std::string& directory : first) add(directory);
  for (const std::string& directory : default_plugin_directories()) add(directory);
  return result;
}

Result<std::unique_ptr<Sink>> create_sink(const LoadedPlugin& plugin, const Table& table,
                                          const PluginContext& context,
                                          std::chrono::milliseconds limit) {
  return create<Sink>(plugin, plugin.descriptor->create_sink, "sink", table, context, limit);
}

Result<std::unique_ptr<SpoolAdapter>> create_spool_adapter(const LoadedPlugin& plugin,
                                                           const Table& table,
                                                           const PluginContext& context,
                                                           std::chrono::milliseconds limit) {
  return create<SpoolAdapter>(plugin, plugin.descriptor->create_spool_adapter, "spool adapter",
                              table, context, limit);
}

Result<std::unique_ptr<FreeSource>> create_free_source(const LoadedPlugin& plugin,
                                                       const Table& table,
                                                       const PluginContext& context,
                                                       std::chrono::milliseconds limit) {
  return create<FreeSource>(plugin, plugin.descriptor->create_free_source, "free source", table,
                            context, limit);
}

}  // namespace scriptorium
