#include "core/journal/content_store.h"

#include <algorithm>
#include <utility>

#include "core/base/fault_point.h"
#include "core/journal/event_row.h"

namespace scriptorium::journal {

ContentStore::ContentStore(Connection& connection, Codec& codec)
    : connection_(connection),
      codec_(codec),
      find_blob_(connection, "SELECT id FROM blobs WHERE sha256=?1"),
      insert_blob_(connection, "INSERT INTO blobs(id,sha256,refs,size,data) VALUES(?1,?2,1,?3,?4)"),
      insert_pack_(connection, "INSERT INTO packs(id,data) VALUES(?1,?2)"),
      drop_packs_(connection, "DELETE FROM packs WHERE id>=?1 AND id<=?2"),
      drop_blobs_(connection, "DELETE FROM blobs WHERE id>=?1 AND id<=?2 AND refs<=?3"),
      change_blobs_(connection, "UPDATE blobs SET refs=refs+?3 WHERE id>=?1 AND id<=?2"),
      now_{.last_blob = connection.integer("SELECT max(id) FROM blobs").value_or(0),
           .last_pack = connection.integer("SELECT max(id) FROM packs").value_or(0)} {}

void ContentStore::begin() {
  before_ = now_;
  user_changes_.clear();
  released_packs_.clear();
}

Content ContentStore::store(const Event& event) {
  std::vector<std::int64_t> blobs;
  Content content;
  for (const EventFile& file : event.files) {
    if (file.bytes == nullptr) {
      blobs.push_back(kNoBytes);
    } else if (belongs_in_pack(file)) {
      blobs.push_back(kInPack);
    } else {
      blobs.push_back(store_blob(file, content.stored));
    }
  }
  content.blobs = encode_blobs(blobs);
  if (std::find(blobs.begin(), blobs.end(), kInPack) != blobs.end()) {
    content.pack = ++now_.last_pack;
    const std::string_view frame = codec_.compress(pack_bytes(event));
    content.stored += frame.size();
    insert_pack_.run(content.pack, Large{frame});
  }
  FAULT_POINT("journal.after_blob");
  return content;
}

std::int64_t ContentStore::store_blob(const EventFile& file, std::uint64_t& stored) {
  const std::string key = content_key(file);
  if (const auto found = find_blob_.first(Blob{key})) {
    ++user_changes_[*found];
    return *found;
  }
  const std::int64_t blob = ++now_.last_blob;
  const std::string_view frame = codec_.compress(*file.bytes);
  stored += frame.size();
  insert_blob_.run(blob, Blob{key}, file.bytes->size(), Large{frame});
  return blob;
}

void ContentStore::release(const Content& content) {
  for (const std::int64_t blob : decode_blobs(content.blobs)) {
    if (blob > 0) --user_changes_[blob];
  }
  if (content.pack > 0) released_packs_.push_back(content.pack);
}

void ContentStore::write_changes() {
  write_blob_counts();
  drop_packs();
}

void ContentStore::write_blob_counts() {
  std::vector<std::pair<std::int64_t, std::int64_t>> changes(user_changes_.begin(),
                                                             user_changes_.end());
  std::erase_if(changes, [](const auto& change) { return change.second == 0; });
  std::sort(changes.begin(), changes.end());
  for (auto from = changes.begin(); from != changes.end() && connection_.ok();) {
    // Neighbours that change alike, such as those of events that leave one after the other.
    auto to = from;
    while (to + 1 != changes.end() && (to + 1)->first == to->first + 1 &&
           (to + 1)->second == from->second)
      ++to;
    change_users(from->first, to->first, from->second);
    from = to + 1;
  }
}

// Each of the contents first to last has `change` more users; those left without any go.
void ContentStore::change_users(std::int64_t first, std::int64_t last, std::int64_t change) {
  if (change < 0) {
    FAULT_POINT("journal.before_blob_delete");
    drop_blobs_.run(first, last, -change);
    if (!connection_.ok() || connection_.changes() > last - first) return;
  }
  change_blobs_.run(first, last, change);
}

void ContentStore::drop_packs() {
  // The packs of events that leave one after the other are neighbours.
  std::sort(released_packs_.begin(), released_packs_.end());
  for (auto from = released_packs_.begin(); from != released_packs_.end() && connection_.ok();) {
    auto to = from;
    while (to + 1 != released_packs_.end() && *(to + 1) == *to + 1) ++to;
    FAULT_POINT("journal.before_blob_delete");
    drop_packs_.run(*from, *to);
    from = to + 1;
  }
}

}  // namespace scriptorium::journal
