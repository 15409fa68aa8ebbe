#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "backends/catalog/block.h"
#include "backends/catalog/id_set.h"
#include "backends/catalog/rows.h"
#include "backends/catalog/schema.h"
#include "core/api/kit/sqlite/connection.h"
#include "core/api/query.h"
#include "core/base/result.h"

namespace scriptorium::catalog {

// A row of `jobs` as it is stored; 0 where a column is NULL.
struct RawJob {
  std::int64_t id = 0;
  std::int64_t time = 0;
  std::int64_t script = 0;       // contents.id
  std::int64_t environment = 0;  // contents.id
  std::int64_t flags = 0;
  std::int64_t family = 0;
  // names.id
  std::int64_t cluster = 0;
  std::int64_t scheduler = 0;
  std::int64_t name = 0;
  std::int64_t array_job = 0;
  std::int64_t user = 0;
  std::int64_t uid = 0;
  std::int64_t account = 0;
  std::int64_t partition = 0;
  std::int64_t qos = 0;
  std::int64_t work_dir = 0;
  std::int64_t interpreter = 0;
  std::int64_t directives = 0;
  std::int64_t modules = 0;
  std::int64_t software = 0;
};
// The column with the name that a job has in a field, or with its list of names; nothing for a
// field that is not kept as one name.
std::optional<std::int64_t RawJob::*> name_column(QueryField field);

// A row of `outcomes`: what is no name as JobRow has it, and names.id, 0 where a column is NULL.
struct RawOutcome {
  JobRow row;
  std::int64_t state = 0;
  std::int64_t nodes = 0;
  std::int64_t findings = 0;
};

// What a search reads of one segment, over one read-only connection: rows without their texts, and
// contents through a bounded cache of unpacked blocks. Errors stick to the connection until
// take_error(); damage of single contents goes to `problems`.
// Threads: one at a time.
class SearchReader {
 public:
  static Result<std::unique_ptr<SearchReader>> open(const std::string& root, std::int64_t segment);

  std::int64_t segment() const noexcept { return segment_; }
  sqlite::Connection& db() noexcept { return *db_; }
  RowReader& rows() noexcept { return *rows_; }

  // A read transaction. It must be short, since the writer's -wal grows meanwhile. begin() tells
  // whether somebody committed since the last one; what was cached is then forgotten.
  bool begin();
  void end();

  struct Chunk {
    std::int64_t id = 0;
    std::int64_t newest = 0;
    std::int64_t oldest = 0;
  };
  std::vector<Chunk> chunks();
  // With one or two `owners` only their jobs, and those whose script never came.
  void for_each_job(std::int64_t chunk, const std::optional<std::vector<std::int64_t>>& owners,
                    const std::function<void(const RawJob&)>& use);
  void for_each_job_of_script(std::int64_t content, const std::function<void(const RawJob&)>& use);
  // Newest ids first; environment: contents.id, or 0.
  void for_each_environment(std::int64_t chunk,
                            const std::function<void(std::int64_t job, std::int64_t time,
                                                     std::int64_t environment)>& use);
  std::optional<RawJob> job(std::int64_t id);
  // Jobs of these owners from then to then, and all whose script never came: `most` of them, or
  // fewer if there are no more. In no order; some may be none (is_job()).
  struct TimedJob {
    std::int64_t id = 0;
    std::int64_t time = 0;
  };
  std::vector<TimedJob> jobs_of(const std::vector<std::int64_t>& owners, std::int64_t from,
                                std::int64_t to, std::size_t most);
  RawOutcome outcome(std::int64_t job);
  JobRow with_names(RawOutcome outcome);
  std::string job_id(std::int64_t job);      // as the scheduler writes it
  std::string array_spec(std::int64_t job);  // "" if it has none
  std::string sha256(std::int64_t script);   // in hexadecimal; "" if there is none
  std::string_view name(std::int64_t id);    // until the next call

  struct BlockRow {
    Block block;
    std::vector<std::int64_t> ids;  // of a block of scripts: as many as contents
  };
  // Null if it is not there any more, or damaged (then it is a problem).
  std::shared_ptr<const BlockRow> block(std::int64_t id);
  // The same, not kept: for a block of which most likely nothing is needed again.
  std::shared_ptr<const BlockRow> scan_block(std::int64_t id);
  void keep_block(std::int64_t id, std::shared_ptr<const BlockRow> block);
  // Whether `contents` still says that this content is there.
  bool is_at(std::int64_t content, std::int64_t block, std::size_t place);
  // Where a content is; block 0: it is pending. Nothing if there is no such content.
  struct Place {
    std::int64_t block = 0;
    std::uint64_t place = 0;
  };
  std::optional<Place> place_of(std::int64_t content);
  // Reads the places of environments from `first` to `last` at once, for place_of().
  void read_places(std::int64_t first, std::int64_t last);
  // Keeps the text alive.
  struct Text {
    std::shared_ptr<const BlockRow> block;
    std::string_view bytes;
  };
  // Empty if it cannot be read, which is a problem.
  std::optional<Text> text(std::int64_t content);
  // The scripts that wait to be sealed, by contents.id. What was unpacked of them is kept for the
  // next question as long as they wait: a search for a text reads them all.
  struct WaitingScript {
    std::int64_t owner = 0;
    std::int64_t newest = 0;
    std::int64_t base = 0;  // 0: none
    std::string packed;
    std::shared_ptr<const BlockRow> unpacked;  // null: not yet
  };
  const std::map<std::int64_t, WaitingScript>& waiting_scripts();
  std::optional<Text> waiting_text(std::int64_t content);
  // The same for one that is probably pending, and is not needed again.
  std::optional<Text> pending_text(std::int64_t content);

  std::uint64_t bytes_unpacked() const noexcept { return bytes_; }
  void add_problem(const std::string& what);
  std::vector<std::string> take_problems();

 private:
  SearchReader(std::int64_t segment, std::unique_ptr<sqlite::Connection> db);
  std::shared_ptr<BlockRow> read_block(std::int64_t id);
  std::shared_ptr<const BlockRow> unpack_waiting(std::int64_t content, int depth);
  // kCorrupt also if it is not pending.
  Result<Block> unpack_pending(std::int64_t content);
  std::shared_ptr<const BlockRow> cached(std::int64_t key);
  void keep(std::int64_t key, std::shared_ptr<const BlockRow> block);
  void forget();

  std::int64_t segment_;
  std::unique_ptr<sqlite::Connection> db_;
  std::unique_ptr<RowReader> rows_;
  sqlite::Statement version_;
  sqlite::Statement chunks_;
  sqlite::Statement chunk_jobs_;
  sqlite::Statement script_jobs_;
  sqlite::Statement environments_;
  sqlite::Statement job_;
  sqlite::Statement owned_jobs_;
  sqlite::Statement jobs_alone_;
  sqlite::Statement outcome_;
  sqlite::Statement job_id_;
  sqlite::Statement array_spec_;
  sqlite::Statement sha_;
  sqlite::Statement block_;
  sqlite::Statement block_ids_;
  sqlite::Statement place_;
  sqlite::Statement places_;
  sqlite::Statement pending_;
  sqlite::Statement waiting_scripts_;
  std::int64_t seen_version_ = -1;
  // Unpacked blocks, the latest used first; a pending content has its negative id.
  struct Cached {
    std::int64_t key;
    std::shared_ptr<const BlockRow> block;
  };
  std::list<Cached> recent_;
  std::unordered_map<std::int64_t, std::list<Cached>::iterator> by_key_;
  std::size_t cached_bytes_ = 0;
  std::shared_ptr<BlockRow> scanned_;  // its memory is used again if nobody else has it
  std::vector<std::pair<std::int64_t, Place>> known_places_;  // by content
  std::map<std::int64_t, WaitingScript> waiting_;
  bool has_read_waiting_ = false;
  std::size_t waiting_bytes_ = 0;  // unpacked
  std::uint64_t bytes_ = 0;
  std::vector<std::string> problems_;
};

}  // namespace scriptorium::catalog
