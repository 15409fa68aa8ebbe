#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/api/event.h"
#include "core/journal/capture_mark.h"
#include "core/journal/codec.h"
#include "core/journal/schema.h"
#include "core/journal/sqlite.h"

namespace scriptorium::journal {

// The new journal into which a damaged one is salvaged. Writes in transactions of many events; the
// caller begins the first and commits the last.
class SalvageTarget {
 public:
  explicit SalvageTarget(Connection& db);

  bool has(const std::string& event_id);

  // The row of an event, besides what the event itself says.
  struct EventRow {
    bool unresolved = false;
    std::int64_t number = 0;  // sequence or ticket
    std::string source;
    std::string entry;        // of an unresolved one
    std::int64_t target = 0;  // of any other
    std::string meta;         // the frame, as it was
    std::string blobs;        // where the files' bytes were
  };
  void add_event(const EventRow& row, const Event& event);
  void add_locator(const EventRow& row, const Event& event, std::int64_t bytes);

  struct Sink {
    std::string name, kinds, absences;
    std::int64_t cursor = 0, acknowledged = 0;
    std::optional<std::int64_t> last_success;
    bool sum_matches = false;
  };
  void add_sink(std::int64_t id, const Sink& sink);

  struct Exception {
    std::int64_t sink = 0, seq = 0;
    State state = State::kParked;
    std::string reason;
    std::int64_t attempts = 0, first = 0, last = 0;
  };
  void add_exception(const Exception& exception);  // nothing if its event is not here
  void add_mark(const std::string& source, const CaptureMark& mark);
  void add_position(const std::string& source, const std::string& position);

 private:
  std::int64_t free_number(bool unresolved, std::int64_t wanted);
  std::int64_t add_blob(const EventFile& file, std::uint64_t& stored);
  std::int64_t add_pack(const Event& event, std::uint64_t& stored);
  void count_insert();

  Connection& db_;
  Codec codec_;
  Statement find_blob_, insert_blob_, insert_pack_, add_ref_, find_event_, find_seq_, find_ticket_,
      insert_event_, insert_unresolved_, insert_sink_, insert_exception_, insert_mark_;
  std::uint64_t pending_ = 0;  // events in the open transaction
};

}  // namespace scriptorium::journal
