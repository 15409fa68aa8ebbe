#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/journal/capture_mark.h"
#include "core/journal/mark_index.h"
#include "core/journal/sqlite.h"

namespace scriptorium::journal {

// The rows of `marks` and `positions`, and an index of the capture keys of marks.
// Threads: the writer's. Borrows the connection.
class MarkTable {
 public:
  explicit MarkTable(Connection& connection)
      : put_(connection,
             "INSERT INTO marks(source,entry,device,inode,mtime_ns,size,event_id,file,file_size,"
             "capture_key) VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9,?10) ON CONFLICT(source,entry) DO "
             "UPDATE SET device=?3, inode=?4, mtime_ns=?5, size=?6, event_id=?7, file=?8, "
             "file_size=?9, capture_key=?10"),
        event_id_(connection,
                  "SELECT event_id FROM marks WHERE source=?1 AND entry=?2 AND capture_key=?3"),
        forget_(connection, "DELETE FROM marks WHERE source=?1 AND entry=?2"),
        put_position_(connection,
                      "INSERT INTO positions(source,position) VALUES(?1,?2) ON CONFLICT(source) "
                      "DO UPDATE SET position=?2") {
    Statement rows(connection, "SELECT source, entry, capture_key FROM marks");
    while (rows.step()) index_.put(rows.text(0), rows.text(1), rows.id(2));
    index_.commit();
  }

  void commit() { index_.commit(); }
  void rollback() { index_.rollback(); }

  bool has(std::string_view source, std::string_view capture_key) const {
    return index_.has(source, capture_key);
  }
  // The event that was made of the entry when it had this key.
  std::optional<std::string> event_id(const std::string& source, const std::string& entry,
                                      const std::string& capture_key) {
    std::optional<std::string> found;
    if (event_id_.bind(source, entry, Id{capture_key}).step()) found = event_id_.id(0);
    event_id_.reset();
    return found;
  }
  void put(const std::string& source, const CaptureMark& mark) {
    const FileIdentity& identity = mark.identity;
    put_.run(source, mark.entry, identity.device, identity.inode, identity.mtime_ns, mark.size,
             Id{mark.event_id}, identity.file, identity.size, Id{mark.capture_key});
    index_.put(source, mark.entry, mark.capture_key);
  }
  void forget(const std::string& source, const std::vector<std::string>& entries) {
    for (const std::string& entry : entries) {
      forget_.run(source, entry);
      index_.forget(source, entry);
    }
  }
  void put_position(const std::string& source, const std::string& position) {
    put_position_.run(source, Blob{position});
  }

 private:
  Statement put_, event_id_, forget_, put_position_;
  MarkIndex index_;
};

}  // namespace scriptorium::journal
