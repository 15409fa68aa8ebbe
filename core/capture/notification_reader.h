#pragma once

#include <sys/fanotify.h>
#include <sys/inotify.h>
#include <sys/types.h>

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/file.h"
#include "core/capture/spool_access.h"

namespace scriptorium {

// A change of a watched directory, as inotify reports it (inotify(7)).
struct StructureEvent {
  enum class Kind {
    kOverflow,    // the kernel's queue ran over: some events are lost
    kWatchEnded,  // no more events of this watch
    kUnmounted,
    kSelfGone,  // the watched directory itself was removed or renamed
    kAppeared,  // `name` was made or moved in
    kGone,      // `name` was removed or moved out
    kWritten,   // `name` was closed after writing
  };
  Kind kind = Kind::kWritten;
  int watch = -1;
  bool is_directory = false;
  bool moved = false;
  std::string name;
  std::uint64_t end = 0;  // bytes of notifications that were ever read, this one the last
};

// A file that was closed after writing, as fanotify reports it (fanotify(7)): the descriptor is
// that very file, whatever became of its name.
struct ContentEvent {
  UniqueFd fd;  // none with `overflow`
  pid_t writer = 0;
  bool overflow = false;
};

// Pure, of the bytes of one read(). `before`: bytes that were read earlier.
std::vector<StructureEvent> parse_structure(std::string_view bytes, std::uint64_t before);
// Takes over all descriptors in the bytes, so the caller may stop half way.
std::vector<ContentEvent> parse_content(std::string_view bytes);

// Reads both queues of a spool's notifications.
//
// Owns:    the buffers and the structure events that were read and not yet taken. Borrows access.
// Threads: the capture thread.
// Limits:  descriptors that one read of fanotify opens: a quarter of all that the process may have,
//          so that none is ever missing. Structure events in hand: kStructureMost.
class NotificationReader {
 public:
  explicit NotificationReader(SpoolAccess& access);

  // Reads everything that is queued. Under load, more structure arrives while content is taken than
  // one read can hold. `at_once` is called for each event as it is read.
  void read_structure(const std::function<void(const StructureEvent&)>& at_once);
  bool has_structure() const { return !structure_.empty(); }
  std::size_t structure_count() const { return structure_.size(); }
  StructureEvent take_structure();
  // An event is handled when it has been taken and the next one is asked about.
  std::uint64_t structure_taken() const { return taken_; }
  // What has been read, and what is in the kernel's queue at this moment.
  std::uint64_t structure_end() const;

  struct ContentBatch {
    enum class Trouble { kNone, kNoDescriptors, kFailed };
    std::vector<ContentEvent> events;
    std::size_t bytes = 0;  // 0 = the queue is empty, or could not be read
    Trouble trouble = Trouble::kNone;
  };
  std::size_t queued_content() const;  // bytes
  // `queued`: bytes that are known to be queued. Dropped events are noticed by comparing with it.
  ContentBatch read_content(std::size_t queued);
  bool is_small(std::size_t queued) const { return queued < content_buffer_.size() / 4; }

 private:
  static constexpr std::size_t kEventsARead = 170;
  static constexpr std::size_t kEventsAReadLeast = 4;
  static constexpr std::size_t kStructureMost = 50'000;

  bool is_short_of_descriptors() const;

  SpoolAccess& access_;
  const std::uint64_t descriptor_limit_;
  const std::size_t events_a_read_;
  std::deque<StructureEvent> structure_;
  std::uint64_t read_ = 0;   // bytes, ever
  std::uint64_t taken_ = 0;  // likewise
  alignas(inotify_event) std::array<char, 65536> structure_buffer_;
  alignas(fanotify_event_metadata)
      std::array<char, kEventsARead * sizeof(fanotify_event_metadata)> content_buffer_;
};

}  // namespace scriptorium
