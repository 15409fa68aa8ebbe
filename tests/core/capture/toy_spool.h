#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <charconv>
#include <filesystem>
#include <optional>
#include <stdexcept>
#include <string>

#include "core/api/spool_adapter.h"
#include "tests/support/temp_dir.h"

namespace scriptorium::test {

// A scheduler made up for these tests, of Slurm's shape: hash.D/job.N/{environment,script}. A file
// is whole when it ends with NUL, an entry when both are: as with Slurm's, of which the first may
// be read before it is written, and the second after.
class ToyAdapter final : public SpoolAdapter {
 public:
  explicit ToyAdapter(std::string root) : root_(std::move(root)) {}

  std::string scheduler() const override { return "toy"; }
  std::string spool_root() const override { return root_; }

  SpoolPath classify(std::string_view path) const override {
    if (!path.starts_with("hash.")) return {};
    const auto first = path.find('/');
    if (first == std::string_view::npos) return {SpoolPath::Role::kDirectory, {}, {}};
    if (!path.substr(first + 1).starts_with("job.")) return {};
    const auto second = path.find('/', first + 1);
    if (second == std::string_view::npos) return {SpoolPath::Role::kEntryDirectory, path, {}};
    const std::string_view file = path.substr(second + 1);
    if (file != "script" && file != "environment") return {};
    return {SpoolPath::Role::kEntryFile, path.substr(0, second), file};
  }

  std::optional<std::uint64_t> number_of(std::string_view entry) const override {
    std::uint64_t number = 0;
    const auto digits = entry.substr(entry.rfind('.') + 1);
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
    if (error != std::errc{} || end != digits.data() + digits.size()) return std::nullopt;
    return number;
  }

  Assessment assess(const SpoolEntry& entry) const override {
    const SpoolFile* script = entry.file("script");
    if (script == nullptr)
      return {.state = Assessment::State::kIncomplete, .reason = "script missing"};
    const auto whole = [](const SpoolFile& file) { return file.bytes->ends_with('\0'); };
    if (!whole(*script)) return {.state = Assessment::State::kIncomplete, .reason = "script short"};
    if (const SpoolFile* environment = entry.file("environment"); environment != nullptr) {
      if (whole(*environment)) return {.state = Assessment::State::kComplete};
      return {.state = Assessment::State::kIncomplete, .reason = "environment short"};
    }
    return {.state = script->stat.links >= 2 ? Assessment::State::kDuplicate
                                             : Assessment::State::kIncomplete,
            .reason = "environment missing"};
  }

  Result<ParsedJob> parse(const SpoolEntry& entry) const override {
    if (entry.key.ends_with("job.66600")) throw std::runtime_error("the toy broke");
    ParsedJob job;
    job.job.id = entry.key.substr(entry.key.rfind('.') + 1);
    if (const SpoolFile* script = entry.file("script")) {
      std::string bytes = *script->bytes;
      if (!bytes.empty() && bytes.back() == '\0') bytes.pop_back();
      job.script = make_bytes(std::move(bytes));
    }
    if (const SpoolFile* environment = entry.file("environment")) {
      job.environment = environment->bytes;
      job.environment_format = EnvironmentFormat::kNulEnded;
    }
    return job;
  }

 private:
  const std::string root_;
};

// Writes entries with the scheduler's own system calls: mkdir, create, write, close; no rename, no
// fsync.
class ToySpool {
 public:
  ToySpool() : root_(dir_.make_directory("spool")) {}

  const std::string& root() const { return root_; }
  std::string entry(int id) const {
    return root_ + "/hash." + std::to_string(id % 10) + "/job." + std::to_string(id);
  }

  void make_entry(int id) const {
    ::mkdir((root_ + "/hash." + std::to_string(id % 10)).c_str(), 0700);
    if (::mkdir(entry(id).c_str(), 0700) != 0) throw std::runtime_error("mkdir " + entry(id));
  }
  static void write_file(const std::string& path, std::string_view bytes) {
    const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 || ::write(fd, bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size()))
      throw std::runtime_error("write " + path);
    ::close(fd);
  }
  static std::string script(int id) { return "#!/bin/sh\necho job " + std::to_string(id) + "\n"; }
  void submit(int id) const {
    make_entry(id);
    write_file(entry(id) + "/environment", std::string("A=1\0", 4));
    write_file(entry(id) + "/script", script(id) + '\0');
  }
  void remove(int id) const {
    ::unlink((entry(id) + "/environment").c_str());
    ::unlink((entry(id) + "/script").c_str());
    ::rmdir(entry(id).c_str());
  }

 private:
  TempDir dir_;
  const std::string root_;
};

}  // namespace scriptorium::test
