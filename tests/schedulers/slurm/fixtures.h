#pragma once

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/api/spool_adapter.h"

namespace scriptorium::slurm::fixtures {

inline std::string fixture_bytes(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw std::runtime_error("cannot read " + path.string());
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

inline std::filesystem::path fixture_path(std::string_view relative) {
  return std::filesystem::path(SCRIPTORIUM_FIXTURES) / relative;
}

inline SpoolFile spool_file(std::string name, std::string bytes, std::uint64_t links = 1,
                            bool truncated = false) {
  SpoolFile file;
  file.name = std::move(name);
  file.stat.size = bytes.size();
  file.stat.links = links;
  file.bytes = make_bytes(std::move(bytes));
  file.truncated = truncated;
  return file;
}

inline SpoolEntry spool_entry(std::string key, std::string environment, std::string script) {
  return {
      std::move(key),
      {spool_file("environment", std::move(environment)), spool_file("script", std::move(script))}};
}

// The file "environment" that slurmctld would write for these strings.
inline std::string environment_file(const std::vector<std::string>& strings) {
  const auto count = static_cast<std::uint32_t>(strings.size());
  std::string bytes(reinterpret_cast<const char*>(&count), sizeof count);
  for (const std::string& s : strings) bytes += s + '\0';
  return bytes;
}

struct RecordedEntry {
  std::string name;  // "01-ordinary"
  std::string key;   // "hash.2/job.42"
  std::string environment;
  std::string script;
};

// Every entry of tests/fixtures/slurm.
inline std::vector<RecordedEntry> recorded_entries() {
  namespace fs = std::filesystem;
  std::vector<RecordedEntry> result;
  const fs::path root = fixture_path("slurm");
  for (const auto& file : fs::recursive_directory_iterator(root)) {
    if (file.path().filename() != "script") continue;
    const fs::path directory = file.path().parent_path();
    const fs::path relative = fs::relative(directory, root);
    const std::string name = relative.begin()->string();
    result.push_back({name, fs::relative(directory, root / name).string(),
                      fixture_bytes(directory / "environment"), fixture_bytes(file.path())});
  }
  std::sort(result.begin(), result.end(),
            [](const auto& a, const auto& b) { return a.name + a.key < b.name + b.key; });
  return result;
}

inline RecordedEntry recorded_entry(std::string_view name) {
  for (RecordedEntry& entry : recorded_entries()) {
    if (entry.name == name) return std::move(entry);
  }
  throw std::runtime_error("no fixture " + std::string(name));
}

}  // namespace scriptorium::slurm::fixtures
