#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/time.h"
#include "core/capture/capture_context.h"
#include "core/capture/entry_table.h"
#include "core/capture/gap_watch.h"
#include "core/capture/watch_list.h"

namespace scriptorium {

// Lists the spool, watches the directories that it finds, and hands out the entries one by one, so
// that notifications are read in between. Says when the next scan is due, and reports the job
// numbers of new entries.
//
// Threads: the capture thread. Borrows everything for its life.
class Scanner {
 public:
  struct Item {
    std::string key;
    std::uint64_t directory_inode = 0;
    bool counts = false;  // as missed, if it vanishes unread
  };

  Scanner(const CaptureContext& context, EntryTable& table, WatchList& watches, GapWatch& gaps,
          std::chrono::seconds interval)
      : context_(context), table_(table), watches_(watches), gaps_(gaps), interval_(interval) {}

  // ---- when
  SteadyTime next() const { return next_; }
  void plan(SteadyTime now) { next_ = now + interval_; }
  void change_interval(std::chrono::seconds interval) { interval_ = interval; }
  void no_later_than(SteadyTime at) { next_ = std::min(next_, at); }
  // The next periodic scan verifies every record.
  void make_next_thorough() { next_thorough_ = true; }
  // For a scan that begins because next() is reached. A scan that only compares inodes of
  // directories does not notice a directory that was removed and made again with the same inode, so
  // every tenth is thorough.
  bool take_thorough();

  // ---- a scan
  bool is_running() const { return running_; }
  bool has_items() const { return !items_.empty(); }
  std::uint32_t number() const { return number_; }
  // Lists the whole spool. If a scan is running, which may have passed the change already, another
  // one follows it instead.
  void begin(bool thorough);
  // A directory has appeared: its entries are handed out, too.
  void add_directory(const std::string& path);
  std::optional<Item> take();
  // To be called when take() has given out everything.
  struct Finished {
    bool complete = false;  // every directory could be listed
    bool again = false;     // another scan was asked for meanwhile
  };
  std::optional<Finished> finish();
  void abandon();

  // ---- job numbers
  // An entry was not known before: its number is new, unless a listing has reported it already.
  void count_number(const std::string& key);
  // The entry is left to a later scan, and its number is not new when that finds it.
  void leave(const std::string& key);
  void forget_left() { left_numbers_ = {}; }
  void ignore_numbers() { counts_numbers_ = false; }

 private:
  void list(const std::string& path, std::vector<std::uint64_t>& numbers);
  void list_failed(const std::string& path, const Error& error);
  void add(Item item, std::vector<std::uint64_t>& numbers);
  std::optional<std::uint64_t> new_number(const std::string& key) const;

  const CaptureContext& context_;
  EntryTable& table_;
  WatchList& watches_;
  GapWatch& gaps_;
  std::chrono::seconds interval_;
  std::deque<Item> items_;
  NumberRanges listed_numbers_;  // of the entries that came into items_ since it was empty
  NumberRanges left_numbers_;
  bool counts_numbers_ = true;
  bool running_ = false;
  bool again_ = false;
  bool failed_ = false;
  bool next_thorough_ = false;
  std::uint32_t number_ = 0;
  std::uint64_t periodic_ = 0;
  SteadyTime next_;
};

}  // namespace scriptorium
