#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/api/spool_adapter.h"

namespace scriptorium::torque::fixtures {

inline constexpr const char* kHost = ".pbshead.cluster.test";

inline std::string bytes_of(std::string_view relative) {
  const std::filesystem::path path =
      std::filesystem::path(SCRIPTORIUM_FIXTURES) / "torque" / relative;
  std::ifstream in(path, std::ios::binary);
  if (!in) throw std::runtime_error("cannot read " + path.string());
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

// "torque-6.1.3.h5/flat/jobs/65" + host + "." + suffix
inline std::string recorded(std::string_view job, std::string_view suffix) {
  return bytes_of(std::string(job) + kHost + "." + std::string(suffix));
}

inline SpoolFile spool_file(std::string name, std::string bytes, std::int64_t mtime_ns = 0) {
  SpoolFile file;
  file.name = std::move(name);
  file.stat.size = bytes.size();
  file.stat.links = 1;
  file.stat.mtime_ns = mtime_ns;
  file.bytes = make_bytes(std::move(bytes));
  return file;
}

// Every recorded record of pbs_server that is not empty.
inline std::vector<std::pair<std::string, std::string>> all_records() {
  namespace fs = std::filesystem;
  std::vector<std::pair<std::string, std::string>> result;
  const fs::path root = fs::path(SCRIPTORIUM_FIXTURES) / "torque";
  for (const auto& entry : fs::recursive_directory_iterator(root)) {
    const std::string path = entry.path().string();
    if (path.find("/torque-") == std::string::npos ||
        !(path.ends_with(".JB") || path.ends_with(".TA")))
      continue;
    std::ifstream in(entry.path(), std::ios::binary);
    std::string bytes{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
    if (!bytes.empty())
      result.emplace_back(fs::relative(entry.path(), root).string(), std::move(bytes));
  }
  return result;
}

}  // namespace scriptorium::torque::fixtures
