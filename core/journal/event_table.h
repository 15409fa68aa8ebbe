#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/journal/content_store.h"
#include "core/journal/journal_types.h"
#include "core/journal/sink_row.h"

namespace scriptorium::journal {

// The values of a row of `events` or `unresolved`.
struct StoredEvent {
  std::uint64_t number = 0;  // its sequence or ticket
  std::string id, source, kind, job_id;
  Timestamp captured_at;
  std::uint64_t bytes = 0;  // of its files, before compression
  Content content;
  std::string meta;  // a frame
};
// Without content and metadata.
StoredEvent row_of(std::uint64_t number, const std::string& source, const Event& event);

// The rows of `events`, and what their owners are charged for them. A row that goes releases its
// content. Threads: the writer's. Borrows everything it is given.
class EventTable {
 public:
  EventTable(Connection& connection, Codec& codec, ContentStore& contents);

  void begin();
  void rollback() { count_ = count_before_; }
  std::uint64_t count() const { return count_; }
  std::uint64_t last_seq();
  // By user id, since begin().
  const std::map<std::string, std::int64_t>& charge_changes() const { return charge_changes_; }
  std::map<std::string, std::int64_t> charges();  // all of them, at open

  std::optional<EventSummary> find(std::uint64_t seq);
  std::optional<EventSummary> find(const std::string& id);
  // Of these settlements, in order. Events that are settled together mostly have neighbouring
  // numbers: one statement then finds them all.
  std::vector<EventSummary> find_settled(const std::vector<Settle>& settlements);
  // In order, from the one after `seq`, until `take` returns false.
  void each_after(std::uint64_t seq, const std::function<bool(const EventSummary&)>& take);

  void insert(std::uint64_t seq, const std::string& source, const Event& event,
              const Content& content, SinkId target = 0);
  void insert(const StoredEvent& row, SinkId target = 0);
  // One that only an archive holds.
  void insert_locator(std::uint64_t seq, const Event& event, SinkId target);
  // Keeps only what finds it in its archive. False: the row is gone, or an archive holds it
  // already.
  bool release(std::uint64_t seq, std::string_view locator);
  void remove(std::uint64_t seq);

  // For pruning: rows in (after, upto], at most `limit`, in order.
  struct Prunable {
    EventSummary event;
    Content content;
  };
  std::vector<Prunable> prunable(std::uint64_t after, std::uint64_t upto, std::int64_t limit);
  // Removes these rows, which are all that is in (after, upto], except those in `kept`.
  void prune(std::uint64_t after, std::uint64_t upto, const std::vector<Prunable>& rows,
             const std::set<std::uint64_t>& kept);

 private:
  std::optional<Content> content_of(std::uint64_t seq);
  void release(const Content& content);
  void charge(const std::string& owner, std::int64_t bytes);

  Connection& connection_;
  Codec& codec_;
  ContentStore& contents_;
  Statement find_, in_range_, scan_, insert_, prune_range_, prune_one_, prune_scan_, content_of_,
      release_;
  std::uint64_t count_ = 0, count_before_ = 0;
  std::map<std::string, std::int64_t> charge_changes_;
};

}  // namespace scriptorium::journal
