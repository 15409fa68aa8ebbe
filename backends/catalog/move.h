#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "backends/catalog/config.h"
#include "backends/catalog/segments.h"
#include "core/api/event.h"
#include "core/api/maintained_sink.h"
#include "core/base/result.h"
#include "core/base/time.h"

namespace scriptorium::catalog {

// What changes events on their way. It belongs to one move.
class MoveEditor {
 public:
  MoveEditor() = default;
  MoveEditor(const MoveEditor&) = delete;
  MoveEditor& operator=(const MoveEditor&) = delete;
  virtual ~MoveEditor() = default;
  // What the event becomes; null: it stays as it is.
  virtual std::shared_ptr<const Event> edit(const Event& event) = 0;
  // What they became is committed. An error ends the move, which the next one continues.
  virtual Result<void> stored(
      const std::vector<std::pair<std::shared_ptr<const Event>, std::shared_ptr<const Event>>>&
          changes) = 0;
};

struct Moved {
  std::uint64_t events = 0;
  std::vector<MaintainedSink::Finding> lost;
  bool finished = false;  // false: stopped
};

// Makes a segment's rows, blocks and index once more: its events go through the same door as new
// ones into the newest segment, and its file is removed, or kept under kDamagedEnding if something
// was lost. Everything that a repair, a compaction or a redaction needs follows from it: nothing
// is copied but events, so no damage, no garbage and no trace of what was redacted comes along.
//
// Beside a running daemon: it takes turns with it by the WriterLock, batch by batch. While the
// segment is_leaving(), searches leave it out, and say so. Events that are delivered once more
// meanwhile are stored once, since each is looked for by its id. After a crash at any point the
// next call continues. What an editor began, only a call with the same editor may continue: changed
// events have other ids, so what they were before would be stored beside them.
Result<Moved> move_segment(const CatalogConfig& config, const Clock& clock, std::int64_t segment,
                           const MaintainedSink::Control& control, MoveEditor* editor = nullptr);

// Of a file of a segment that something could not be read from: "segments/000003.db.damaged" and,
// if it had one, "segments/000003.db.damaged-wal".
inline constexpr std::string_view kDamagedEnding = ".damaged";

}  // namespace scriptorium::catalog
