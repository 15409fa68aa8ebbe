#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "backends/file/config.h"
#include "backends/file/layout.h"
#include "core/api/searchable.h"
#include "core/base/file.h"

namespace scriptorium::file {

// Answers queries from a tree by reading its metadata: the newest directories first, as far as the
// layout names dates, and only those of the user, the time and the job that a query asks for. All
// of one such part are read before any of its jobs is returned, since its names have no order in
// time. So a deadline that is shorter than that gives no hits, and a tree without dates in its path
// is read as a whole. Scripts and environments are not read: a query for what only they hold is
// refused.
//
// Owns:    nothing between calls; borrows config, layout and clock. The root is opened for each.
// Threads: any, several at once.
// Memory:  a row for each job of a directory, and for each hit.
// Fails:   kInvalidConfig for a query that needs texts, modules or families; kTransient for a root
//          that cannot be read. What else cannot be read is a problem of the
//          answer, and left out.
class TreeSearch final : public Searchable {
 public:
  TreeSearch(const FileConfig& config, const Layout& layout, const Clock& clock)
      : config_(config), layout_(layout), clock_(clock) {}

  Speed speed() const noexcept override { return Speed::kScan; }
  Result<Answer> search(const Request& request) override;
  Result<std::vector<Record>> get(const Selector& selector, const Visibility& visibility,
                                  std::size_t limit) override;
  // kInvalidConfig: a tree has no families.
  Result<std::vector<JobRow>> family(std::uint64_t family, const Visibility& visibility,
                                     std::optional<Timestamp> before, std::size_t limit) override;

 private:
  class Scan;

  Result<UniqueFd> open_root() const;
  Result<std::vector<Record>> get_id(const Selector& selector, const Visibility& visibility,
                                     std::size_t limit) const;

  const FileConfig& config_;
  const Layout& layout_;
  const Clock& clock_;
};

// The place of a job in the order of answers: newest first, then by its key.
struct ScanPosition {
  std::int64_t time = 0;
  std::string key;  // cluster, scheduler and id, each ended by NUL, and the event id

  static ScanPosition of(const JobRow& job);
  // From `next` of an answer; nothing if it is none.
  static std::optional<ScanPosition> from_text(std::string_view text);
  std::string text() const;
  bool operator==(const ScanPosition&) const = default;
  // Comes earlier in an answer.
  bool operator<(const ScanPosition& other) const {
    return time != other.time ? time > other.time : key < other.key;
  }
};

}  // namespace scriptorium::file
