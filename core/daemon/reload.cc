#include "core/daemon/reload.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <variant>

#include "core/api/kit/secret_file.h"

namespace scriptorium {
namespace {

void add_text(std::string& out, const Value& value);

void add_text(std::string& out, const Table& table) {
  out += '{';
  for (const TableEntry& entry : table.entries) {
    out.append(entry.key).append("=");
    add_text(out, entry.value);
    const auto* file = std::get_if<std::string>(&entry.value.data);
    if (file != nullptr && entry.key.ends_with("_file")) out += version_of_files({file, 1});
    out += ';';
  }
  out += '}';
}

void add_text(std::string& out, const Value& value) {
  if (const auto* b = std::get_if<bool>(&value.data)) {
    out += *b ? "true" : "false";
  } else if (const auto* i = std::get_if<std::int64_t>(&value.data)) {
    out += std::to_string(*i);
  } else if (const auto* d = std::get_if<double>(&value.data)) {
    out += std::to_string(*d) + "d";
  } else if (const auto* s = std::get_if<std::string>(&value.data)) {
    out += std::to_string(s->size()) + ":" + *s;
  } else if (const auto* list = std::get_if<std::vector<Value>>(&value.data)) {
    out += '[';
    for (const Value& item : *list) {
      add_text(out, item);
      out += ',';
    }
    out += ']';
  } else if (const auto* table = std::get_if<Table>(&value.data)) {
    add_text(out, *table);
  }
}

struct Place {
  std::string sink;
  std::string path;  // ends with '/'
};

std::string as_place(const std::string& directory) {
  std::string path = std::filesystem::path(directory).lexically_normal().string();
  if (!path.ends_with('/')) path += '/';
  return path;
}

// What is wrong with the two; nothing if they are separate.
std::optional<std::string> overlap(const Place& a, const Place& b, const std::string& directory) {
  constexpr const char* kRemedy = "; give each its own directory";
  if (a.path == b.path)
    return "[sink." + a.sink + "] and [sink." + b.sink + "] both write into " + directory + kRemedy;
  const bool b_is_inside = b.path.starts_with(a.path);
  if (!b_is_inside && !a.path.starts_with(b.path)) return std::nullopt;
  const Place& inner = b_is_inside ? b : a;
  const Place& outer = b_is_inside ? a : b;
  return "[sink." + inner.sink + "] writes into a directory within that of [sink." + outer.sink +
         "]: " + inner.path + kRemedy;
}

}  // namespace

std::string fingerprint(const Table& table, const std::string& plugin_file,
                        const std::string& cluster, const std::string& host) {
  std::string text = plugin_file + "|" + cluster + "|" + host + "|";
  add_text(text, table);
  return text;
}

std::vector<std::string> shared_directories(const SinkDirectories& by_sink) {
  std::vector<Place> places;
  std::vector<std::string> found;
  for (const auto& [sink, directories] : by_sink) {
    for (const std::string& directory : directories) {
      Place place{sink, as_place(directory)};
      for (const Place& other : places) {
        if (other.sink == sink) continue;
        if (auto problem = overlap(other, place, directory)) found.push_back(*std::move(problem));
      }
      places.push_back(std::move(place));
    }
  }
  return found;
}

std::vector<std::string> follow_links(std::vector<std::string> directories) {
  for (std::string& directory : directories) {
    std::error_code error;
    std::string path = std::filesystem::weakly_canonical(directory, error).string();
    if (!error) directory = std::move(path);
  }
  return directories;
}

Result<void> DirectoryClaims::claim(const std::string& sink, std::vector<std::string> directories) {
  directories = follow_links(std::move(directories));
  return claimed_.with([&](auto& claimed) -> Result<void> {
    for (const auto& [other, places] : claimed) {
      if (other == sink) continue;
      const auto shared = shared_directories({{other, places}, {sink, directories}});
      if (!shared.empty()) return Error{ErrorKind::kInvalidConfig, shared.front()};
    }
    claimed[sink] = std::move(directories);
    return {};
  });
}

void DirectoryClaims::release(const std::string& sink) {
  claimed_.with([&](auto& claimed) { claimed.erase(sink); });
}

std::optional<std::string> changed_fixed_key(const CoreConfig& running, const CoreConfig& wanted) {
  std::optional<std::string> changed;
  const auto compare = [&](const char* key, auto CoreConfig::* member) {
    if (!changed && running.*member != wanted.*member) changed = key;
  };
  compare("cluster", &CoreConfig::cluster);
  compare("state_dir", &CoreConfig::state_dir);
  compare("host", &CoreConfig::host);
  compare("user", &CoreConfig::user);
  compare("journal_max_bytes", &CoreConfig::journal_max_bytes);
  compare("user_share_percent", &CoreConfig::user_share_percent);
  compare("metrics_listen", &CoreConfig::metrics_listen);
  compare("metrics_socket", &CoreConfig::metrics_socket);
  compare("metrics_textfile", &CoreConfig::metrics_textfile);
  return changed;
}

std::set<std::string> unchanged_instances(const std::vector<InstanceVersion>& running,
                                          const std::vector<InstanceVersion>& wanted) {
  std::set<std::string> unchanged;
  for (const InstanceVersion& instance : wanted) {
    if (std::find(running.begin(), running.end(), instance) != running.end())
      unchanged.insert(instance.first);
  }
  return unchanged;
}

}  // namespace scriptorium
