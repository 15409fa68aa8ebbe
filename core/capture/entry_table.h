#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "core/api/spool_adapter.h"
#include "core/base/time.h"
#include "core/capture/entry_store.h"
#include "core/capture/inspection_schedule.h"
#include "core/capture/waiting_list.h"
#include "core/journal/capture_mark.h"

namespace scriptorium {

// What capture knows about every entry of one spool, and what follows from each observation. The
// table decides, the caller acts: on(Input) changes the state of one entry and returns the actions
// that follow, in the order in which they are to be carried out.
//
// Each key (the adapter's name of an entry, "hash.1/job.11") has one Entry of three parts:
//
//   record      what was made of the entry's present files: captured whole, captured in part (they
//               may still grow) or ignored on purpose. Retired once the removal has been noticed:
//               from then on it only serves to recognise what was queued, or read, before.
//   inspection  open while the entry, or a later state of it, is not taken: in hand, due at a time,
//               or waiting for room in the journal. Holds the files that were read so far.
//   departure   counted: the entry is gone and was counted, but its removal has not been read yet,
//               so a notification of its appearance is an old one. Ended: the removal has been
//               read, so the next appearance is another entry of the same name.
//
//   input              from                     to
//   DirectoryAppeared  no record                inspection, due after the content's notification
//                                               or, without content notifications, in hand
//                      departure counted        unchanged: the notification is an old one
//   Inspecting         anything                 inspection in hand
//   Inspected, Content inspection               kTake, ignored, or due again
//                      nothing there any more   counted as missed, once everything that was queued
//                                               by then has been read
//   Captured           inspection               record
//   Refused            inspection               waiting for room; beyond the bounds left to a scan
//   Offered            waiting                  kTake, or kInspect where the bytes were let go or
//                                               were not whole
//   Removed            record                   retired, departure ended, its mark is forgotten
//                      waiting without bytes    counted as missed
//   Listed             record, same directory   unchanged (seen by the scan)
//                      record                   kVerify
//                      nothing or in hand       kInspect
//   Timer              due                      kInspect, or kVerify where there is a whole record
//   Drained            departure                forgotten: no old notification can come any more
//
// A mark of the journal makes a record before the first scan. kVerify compares it with the file's
// state, and an entry that is unchanged is not opened.
//
// Pure: no system call; the time comes with the input. Threads: one at a time.
// Memory: about 270 bytes an entry. kHeldBytesLimit bounds the bytes of open inspections (the
// excess is read again from the spool), WaitingList the waiting entries, kDeparturesLimit and
// kRetiredLimit what is remembered of entries that are gone.

struct EntryAction {
  enum class Kind {
    kCountNumber,     // the entry was not known before, so its job number is new
    kReadAtOnce,      // it has just appeared and may go at any time: read it until it is whole
    kInspect,         // read it, then Inspected
    kVerify,          // compare the record with the file, then Verified or kInspect
    kTake,            // parse it and offer it to the journal; `whole`
    kIgnoreEmpty,     // stat it, then Ignored
    kWatch,           // it is incomplete: watch its directory
    kRelease,         // the inspection is over; `keep_watch`: its directory stays watched
    kSetMark,         // the record's identity has changed
    kForgetMark,      // the entry is gone
    kCountMissed,     // `reason`
    kCountIgnored,    // `reason`
    kCountDuplicate,  // it was captured before
    kLeaveToScan,     // too many wait; `first`: since there was room
  };
  Kind kind;
  std::string key;
  std::string reason;
  bool whole = false;
  bool keep_watch = false;
  bool first = false;
};
using EntryActions = std::vector<EntryAction>;

class EntryTable {
 public:
  // How long a notification of structure (a directory, a linked file) waits for the one of content
  // before the entry is inspected.
  static constexpr std::chrono::milliseconds kStructureGrace{300};
  // Bytes of open inspections that are held in memory.
  static constexpr std::uint64_t kHeldBytesLimit = 32U << 20;
  static constexpr std::size_t kDeparturesLimit = 100'000;
  static constexpr std::size_t kRetiredLimit = 4'096;

  struct Options {
    std::chrono::milliseconds incomplete_after{};
    bool content_notifications = false;  // fanotify, whose queue holds even files that are gone
    bool watches_entries = false;        // inotify alone
  };

  // ---- inputs; keys and names are borrowed for the call

  // A notification: the entry's directory was made, or moved in.
  struct DirectoryAppeared {
    std::string_view key;
    SteadyTime now;
  };
  // A notification: the entry's directory was removed. `is_gone`: it is not there now, which needs
  // to be found out only if needs_proof().
  struct DirectoryRemoved {
    std::string_view key;
    bool is_gone = false;
  };
  // A notification: a file of the entry was made (`appeared`) or written. `unchanged`: the record's
  // file is in the state in which it was captured. `is_record`: it is the scheduler's record file,
  // which alone is not a job that could be missed.
  struct FileChanged {
    std::string_view key;
    std::string_view file;
    bool in_directory = false;  // of the entry's own
    bool appeared = false;
    bool is_record = false;
    bool unchanged = false;
    SteadyTime now;
  };
  struct FileRemoved {
    std::string_view key;
    std::string_view file;
    bool in_directory = false;
    bool unchanged = false;
  };
  // A closed file was read through its notification: add_file() follows, then Content.
  struct ContentArrived {
    std::string_view key;
    bool is_record = false;
    SteadyTime now;
  };
  // All files of the entry that were read have been added.
  struct Content {
    std::string_view key;
    Assessment assessment;  // of content(); not used if there is none
    SteadyTime now;
    Timestamp wall;
  };
  // The closed file is the one that was captured.
  struct CapturedBefore {
    std::string_view key;
  };
  // The engine begins to read the entry; add_file() follows, then Inspected.
  struct Inspecting {
    std::string_view key;
    const char* method = "";
    SteadyTime now;
  };
  struct Inspected {
    Content content;
    bool found = false;
    bool unreadable = false;       // something of it could not be opened
    bool spool_uncertain = false;  // the whole spool may be gone rather than the entry
    std::uint64_t step = 0;        // of the engine: each one reads what is queued
  };
  // A closed file could not be read through its notification.
  struct ReadFailed {
    std::string_view key;
    SteadyTime now;
  };
  // The record's file is as it was captured; `identity` is complete now.
  struct Verified {
    std::string_view key;
    FileIdentity identity;
  };
  struct Ignored {
    std::string_view key;
    FileIdentity identity;
  };
  struct Captured {
    std::string_view key;
    CaptureRecord record;
    bool duplicate = false;  // made_event(): the journal was not given it again
  };
  // The adapter made no event of it. `vanished`: because there is no job; `exists`: its files are
  // there.
  struct Unparsable {
    std::string_view key;
    bool vanished = false;
    bool exists = false;
    std::string message;
  };
  struct Refused {
    std::string_view key;
    bool whole = false;
    bool over_share = false;
    bool asked = true;          // false: not offered, because the journal has refused a smaller one
    std::int64_t mtime_ns = 0;  // by which the journal knows what it has refused; 0 = not offered
    SteadyTime now;
  };
  struct Offered {
    std::string_view key;
  };
  // It waits for room, but no place is left in the list.
  struct NotKept {
    std::string_view key;
  };
  // It waited for room and is gone.
  struct WaitedInVain {
    std::string_view key;
  };
  // A scan has listed it. `counts`: as missed, if it vanishes unread.
  struct Listed {
    std::string_view key;
    std::uint64_t directory_inode = 0;
    bool counts = false;
    SteadyTime now;
  };
  // It was not listed by a whole scan, and is gone.
  struct Unlisted {
    std::string_view key;
  };
  // The earliest inspection follows, if it is due, and no other.
  struct Timer {
    SteadyTime now;
  };
  // `structure`: no notification of structure is queued, and no scan is running; `all`: no
  // notification of content is queued either.
  struct Drained {
    bool structure = false;
    bool all = false;
  };
  using Input = std::variant<DirectoryAppeared, DirectoryRemoved, FileChanged, FileRemoved,
                             ContentArrived, Content, CapturedBefore, Inspecting, Inspected,
                             ReadFailed, Verified, Ignored, Captured, Unparsable, Refused, Offered,
                             NotKept, WaitedInVain, Listed, Unlisted, Timer, Drained>;

  explicit EntryTable(Options options) : options_(options) {}

  // For entries that are inspected from now on.
  void change_incomplete_after(std::chrono::milliseconds after) {
    options_.incomplete_after = after;
  }

  // There is no time to wait: an entry that was last written long ago counts as never completed.
  void expect_no_more() { expects_no_more_ = true; }
  // A mark of an earlier run. Before the first input.
  void restore(const CaptureMark& mark);
  EntryActions on(const Input& input);

  // Adds or replaces a file that was read; an inspection is open.
  void add_file(std::string_view key, SpoolFile file, SteadyTime now);
  // From here on a scan with this number lists the entries. A thorough one verifies every record.
  void begin_scan(std::uint32_t number, bool thorough);
  void listed_with(std::string_view key, std::uint64_t directory_inode);

  // ---- questions

  // Of an open inspection; null without. Valid until the next input about this key.
  const Inspection* inspection(std::string_view key) const;
  // Null if there is none of an existing entry; valid until the next input.
  const CaptureRecord* record(std::string_view key) const;
  // The record of the event that was made of the entry with this capture key: of its present files,
  // or of files that are gone and may still have notifications in the queue. Null if there is none;
  // valid until the next input.
  const CaptureRecord* made_event(std::string_view key, const PackedCaptureKey& capture_key) const;
  bool is_known(std::string_view key) const {
    return record(key) != nullptr || inspection(key) != nullptr;
  }
  bool is_empty(std::string_view key) const;  // nothing at all is known about it
  // DirectoryRemoved::is_gone makes a difference.
  bool needs_proof(std::string_view key) const;
  // The entry was taken, so a record file that is written again says nothing new.
  bool is_settled(std::string_view key) const;
  // This very state of the file was captured whole. The whole identity must agree: a file system
  // may give a removed script's inode to the next entry while its clock has not moved on. Taken
  // again, perhaps when the entry's other files have gone, it would be an incomplete event with the
  // id of the whole one.
  bool was_captured(std::string_view key, const FileIdentity& identity) const;
  bool may_hold_more() const { return store_.held_bytes() <= kHeldBytesLimit; }
  // True if a record is of another device than this.
  bool any_on_other_device(std::uint64_t device) const;
  std::vector<std::string> open_keys() const;
  std::vector<std::string> unlisted(std::uint32_t scan) const;  // records that this scan missed
  std::optional<SteadyTime> next_due() const;
  WaitingList& waiting() { return waiting_; }
  const WaitingList& waiting() const { return waiting_; }
  const EntryStore& entries() const { return store_; }

 private:
  using Node = EntryStore::Node;
  using Departure = Entry::Departure;

  void handle(const DirectoryAppeared& in);
  void handle(const DirectoryRemoved& in);
  void handle(const FileChanged& in);
  void handle(const FileRemoved& in);
  void handle(const ContentArrived& in);
  void handle(const Content& in);
  void handle(const CapturedBefore& in);
  void handle(const Inspecting& in);
  void handle(const Inspected& in);
  void handle(const ReadFailed& in);
  void handle(const Verified& in);
  void handle(const Ignored& in);
  void handle(const Captured& in);
  void handle(const Unparsable& in);
  void handle(const Refused& in);
  void handle(const Offered& in);
  void handle(const NotKept& in);
  void leave_to_scan(Node& node);
  void handle(const WaitedInVain& in);
  void handle(const Listed& in);
  void handle(const Unlisted& in);
  void handle(const Timer& in);
  void handle(const Drained& in);

  void act(EntryAction::Kind kind, const Node& node, std::string reason = {}) {
    actions_.push_back({kind, node.first, std::move(reason)});
  }
  void take(const Node& node, bool whole);
  // Null if the entry has no open inspection, or no record() respectively.
  Node* inspected(std::string_view key);
  Node* recorded(std::string_view key);

  Inspection& open(Node& node, const char* method, SteadyTime now);
  void close(Node& node, bool keep_watch = false);
  void remember(Node& node, CaptureRecord record);
  void forget(Node& node);
  void miss(Node& node, std::string reason, Departure departure);
  void ignore(Node& node, FileIdentity identity);
  void ignore_content(Node& node);
  void move_to(Node& node, Inspection::Phase phase);
  void schedule(Node& node, SteadyTime now, SteadyTime at);
  void inspect_again(Node& node, SteadyTime now);
  void vanished(Node& node, const Inspected& in);
  void judge(Node& node, const Content& in);
  void judge_unsettled(Node& node, const Content& in);
  void judge_incomplete(Node& node, const Content& in);

  Options options_;
  EntryStore store_;
  InspectionSchedule schedule_;  // of the inspections that are due
  WaitingList waiting_;
  std::uint32_t scan_ = 0;
  bool thorough_ = true;
  bool expects_no_more_ = false;
  EntryActions actions_;  // of the input that is being handled
};

}  // namespace scriptorium
