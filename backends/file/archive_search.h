#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "backends/file/config.h"
#include "backends/file/layout.h"
#include "core/api/sink.h"

namespace scriptorium::file {

// Looks through the archive for the files of one job, for `scriptorium show`: only in directories
// where the layout may have put them, the newest first. Bounded in names and time.
// Owns:    what it found. Borrows the rest for its life. One search an object.
// Threads: one.
class ArchiveSearch {
 public:
  ArchiveSearch(const FileConfig& config, const Layout& layout, std::string_view job_id,
                const Clock& clock);

  // `root` is the open root of the archive.
  void run(int root) { walk(root, "", 0); }

  std::vector<StoredJob> take_jobs() { return std::move(jobs_); }
  std::size_t names_seen() const noexcept { return names_seen_; }
  // Directories that this user may not list or enter.
  std::size_t closed_directories() const noexcept { return closed_; }
  // Names or time were used up before everything was searched.
  bool cut_short() const noexcept { return cut_short_; }

 private:
  using File = std::pair<FileKind, std::string>;  // and its name

  bool ended() const noexcept;
  // False: it cannot be listed.
  bool for_each_name(int directory, const std::function<void(const std::string& name)>& each);
  void walk(int directory, const std::string& path, std::size_t depth);
  void enter(int directory, const std::string& path, const std::string& name, std::size_t depth);
  // The names that match in a directory of directories, the newest first.
  std::vector<std::string> matching(int directory, std::size_t depth);
  void read_files(int directory, const std::string& path);
  void add_job(int directory, const std::string& path, const std::vector<File>& files);

  const FileConfig& config_;
  const Layout& layout_;
  const std::string job_id_;
  const Clock& clock_;
  const Layout::Search search_;
  const SteadyTime deadline_;
  std::vector<StoredJob> jobs_;
  std::size_t names_seen_ = 0;
  std::size_t closed_ = 0;
  bool cut_short_ = false;
};

}  // namespace scriptorium::file
