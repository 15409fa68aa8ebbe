#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "backends/catalog/rows.h"
#include "backends/catalog/segments.h"
#include "backends/catalog/store_contents.h"
#include "core/api/readable_sink.h"
#include "core/api/sink.h"

namespace scriptorium::catalog {

// The events of one segment, opened for one call.
class EventReader {
 public:
  static Result<std::unique_ptr<EventReader>> open(const std::string& root, std::int64_t segment);

  sqlite::Connection& db() noexcept { return *db_; }
  RowReader& rows() noexcept { return rows_; }
  // The events of a job as they were delivered, with the bytes of script and environment, each held
  // against its size and sha256. kCorrupt if they differ.
  Result<Event> submission(const JobEntry& entry);
  Result<Event> record(std::int64_t content);  // without bytes
  // The records of later events, in the order in which they arrived.
  Result<std::vector<std::int64_t>> later_records(std::int64_t job);
  std::optional<std::int64_t> later_record(std::int64_t job, std::string_view event_id);
  ContentReader& contents() noexcept { return contents_; }

 private:
  explicit EventReader(ConnectionPtr db);

  ConnectionPtr db_;
  RowReader rows_;
  ContentReader contents_;
  sqlite::Statement later_;
  sqlite::Statement later_one_;
};

// Gives back what the catalog holds. Nothing is believed but what agrees with the record's own
// sizes and hashes.
// Owns:    nothing between calls: each opens the files that it needs.
// Threads: any.
class Archive final : public ReadableSink {
 public:
  explicit Archive(std::string root) : root_(std::move(root)) {}

  Result<std::shared_ptr<const Event>> fetch(const Event& locator) override;
  // In the order of segments and of jobs; the later events of a segment after its submissions.
  Result<Page> list(const Query& query, const std::string& after, std::size_t limit) override;
  // For `scriptorium show`: every row with this id, the newest first. Fails only if a segment
  // cannot be read and no other one has it.
  Result<std::vector<StoredJob>> find(std::string_view job_id);

 private:
  class Listing;
  // Segments, the newest first.
  Result<std::vector<SegmentInfo>> segments() const;
  Result<std::shared_ptr<const Event>> fetch_from(std::int64_t id, const Event& locator);
  Result<void> find_in(std::int64_t id, std::string_view job_id, std::vector<StoredJob>& found);

  const std::string root_;
};

}  // namespace scriptorium::catalog
