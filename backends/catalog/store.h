#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "backends/catalog/config.h"
#include "backends/catalog/frequent_words.h"
#include "backends/catalog/ingest.h"
#include "backends/catalog/regroup.h"
#include "backends/catalog/segments.h"
#include "backends/catalog/store_families.h"
#include "core/api/event.h"
#include "core/api/logger.h"
#include "core/base/result.h"
#include "core/base/time.h"

namespace scriptorium::catalog {

// What became of one event of a batch.
struct Stored {
  enum class Kind { kStored, kFoundAgain, kFailed } kind = Kind::kFailed;
  std::optional<Error> error;  // of kFailed; kPermanent: it can never be stored
};

// The writer of a catalog: brings batches of events to their segments, begins new segments, and
// finishes old ones step by step.
//
// Disk:    when put() returns, what is stored would survive a power cut. A batch is one transaction
//          in each segment that it touches, usually the newest alone, and one in catalog.db before
//          if there is a new family.
// Fails:   an event of which any part cannot be written is kFailed, and nothing of it is stored.
//          After an error the connection of that segment is opened again by the next batch.
//          A damaged old segment is left out, as if its jobs were not there: what belongs to them
//          gets rows of its own.
// Threads: put(), tidy() and close() from any thread, one at a time; figures() from any.
class Store {
 public:
  // `instance`: the sink's name, for messages.
  Store(const CatalogConfig& config, std::string instance, Logger& log, const Clock& clock);
  ~Store();

  // Makes what is missing of the root.
  Result<void> start();
  std::vector<Stored> put(const std::vector<const Event*>& events);
  // What need not be done before the events are acknowledged: sealing what is due, and a step of
  // finishing an old segment. An error is returned once; the next call tries again.
  Result<void> tidy();
  // From now on, put() takes events whose script or environment is lost, too.
  void take_incomplete() { takes_incomplete_ = true; }
  // Moves every -wal into its database and closes all. put() opens them again.
  void close();

  struct Figures {
    std::uint64_t jobs = 0;
    std::uint64_t segments = 0;
    std::uint64_t pending_bytes = 0;
    std::uint64_t longest_commit_us = 0;
  };
  Figures figures() const;

 private:
  // A segment that is not the newest.
  struct Older {
    SegmentInfo info;
    SegmentWriter::Range range;
    std::uint64_t jobs = 0;
    std::uint64_t pending_bytes = 0;
    std::uint64_t batch = 0;  // that used it last
    std::unique_ptr<SegmentWriter> writer;
    bool examined = false;  // the members above are known
    bool finished = false;  // everything is sealed and merged
    // The blocks that are still to be united, the next one last.
    std::optional<std::vector<Regrouping>> to_unite;
    std::unique_ptr<FrequentWordsWriter> frequent;  // while they are written
    bool damaged = false;
  };
  struct Found {
    SegmentWriter* segment = nullptr;
    JobEntry entry;
  };
  class Batch;

  Result<void> open();
  Result<void> load_segments();
  Result<void> begin_segment();
  bool is_segment_due() const;
  // The open writer of an old segment; null if it is damaged.
  Result<SegmentWriter*> use(Older& older);
  void note_damage(Older& older, const Error& error);
  void close_idle();
  // The rows of a job id, cluster and scheduler, in the newest segment first.
  Result<std::vector<Found>> find(const Event& event, std::string_view job_id);
  Result<SegmentWriter*> put_one(const Event& event, Stored& result);
  Result<SegmentWriter*> put_submission(const Event& event, Stored& result);
  Result<SegmentWriter*> put_later(const Event& event, Stored& result);
  Result<void> tidy_newest();
  Result<void> finish_one();
  // One step towards the end of an old segment; true: it is finished.
  Result<bool> finish_step(Older& older, SegmentWriter& segment);
  // Unites blocks for a moment; true: there are no more.
  static bool unite_blocks(Older& older, sqlite::Connection& db);
  void forget_after_error();
  void note_figures();

  const CatalogConfig& config_;
  const std::string instance_;
  Logger& log_;
  const Clock& clock_;
  bool takes_incomplete_ = false;
  // A batch is one change of the files: held over their input and output on purpose.
  std::mutex writing_;
  ConnectionPtr catalog_;
  FileId catalog_file_;
  std::unique_ptr<Families> families_;
  std::int64_t catalog_version_ = -1;
  SegmentInfo newest_info_;
  std::unique_ptr<SegmentWriter> newest_;
  std::vector<Older> older_;  // the newest first
  std::uint64_t batches_ = 0;

  std::atomic<std::uint64_t> jobs_{0};
  std::atomic<std::uint64_t> segments_{0};
  std::atomic<std::uint64_t> pending_bytes_{0};
  std::atomic<std::uint64_t> longest_commit_us_{0};
};

}  // namespace scriptorium::catalog
