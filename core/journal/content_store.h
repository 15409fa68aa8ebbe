#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/api/event.h"
#include "core/journal/codec.h"
#include "core/journal/sqlite.h"

namespace scriptorium::journal {

// Where an event's bytes are, as its row names it.
struct Content {
  std::string blobs;         // encode_blobs()
  std::int64_t pack = 0;     // its number, 0 = none, or kInArchive
  std::uint64_t stored = 0;  // bytes that the journal grew by for it
  std::string owner;         // whom they are charged to
};

// The files' bytes, as zstd frames: `packs` for the small files of one event, `blobs` for contents
// that events share, with the number of their users. Counts are written once, at the end of a
// transaction, and neighbours that change alike by one statement.
// Threads: the writer's. Borrows the connection and the codec.
class ContentStore {
 public:
  ContentStore(Connection& connection, Codec& codec);

  void begin();
  void rollback() { now_ = before_; }

  Content store(const Event& event);
  void release(const Content& content);  // an event that had it is gone
  // At the end of a transaction: numbers of users, and removal of what has none.
  void write_changes();

 private:
  struct Numbers {
    std::int64_t last_blob = 0, last_pack = 0;
  };
  std::int64_t store_blob(const EventFile& file, std::uint64_t& stored);
  void change_users(std::int64_t first, std::int64_t last, std::int64_t change);
  void write_blob_counts();
  void drop_packs();

  Connection& connection_;
  Codec& codec_;
  Statement find_blob_, insert_blob_, insert_pack_, drop_packs_, drop_blobs_, change_blobs_;
  Numbers now_, before_;
  std::unordered_map<std::int64_t, std::int64_t> user_changes_;  // of this transaction, by blob
  std::vector<std::int64_t> released_packs_;                     // by this transaction
};

}  // namespace scriptorium::journal
