#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "backends/file/layout.h"
#include "backends/file/tree_leaves.h"
#include "core/api/event.h"
#include "core/api/query.h"
#include "core/base/file.h"
#include "core/base/result.h"

// The jobs of one directory of a tree, put together from the files of their events.
namespace scriptorium::file {

// The names of a job's metadata in its directory.
struct JobFiles {
  std::string metadata;              // of the job.script event; "" if only others are there
  std::vector<std::string> records;  // of other events
};
struct LeafJob {
  JobRow row;
  JobFiles files;
};

struct LeafRead {
  std::vector<LeafJob> jobs;
  std::vector<std::string> problems;  // what could not be read
  bool finished = true;               // false: `ended` said so, and `jobs` is not to be used
};
// Memory: a row for each job, without the modules of LOADEDMODULES.
LeafRead read_leaf(const Layout& layout, int root, const Leaf& leaf, const Wanted& wanted,
                   const std::function<bool()>& ended);

// One job of a directory, read when it is needed.
// Owns: the directory's descriptor, and what was read.
class OpenJob {
 public:
  // kVanished: it is not there any more.
  static Result<OpenJob> open(int root, const Leaf& leaf, const JobFiles& files);

  // The row with the modules that its environment names.
  JobRow whole_row();
  // The event with its bytes, without those that are not kept or not what was stored; null if there
  // is none.
  std::shared_ptr<const Event> event();
  const std::vector<std::shared_ptr<const Event>>& later() const noexcept { return later_; }
  const std::vector<std::string>& problems() const noexcept { return problems_; }

 private:
  Bytes read(std::string_view file);

  UniqueFd directory_;
  std::string path_;
  std::string metadata_;
  std::optional<Event> event_;
  JobRow row_;
  std::vector<std::shared_ptr<const Event>> later_;
  std::vector<std::string> problems_;
};

}  // namespace scriptorium::file
