#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>

namespace scriptorium::delivery {

// Decides which batch may be handed to a sink next, and counts what the sink has in hand.
// - In order (Sink::batches_under_way() above 1): batches are handed over one after the other, in
//   the journal's order. A refused batch keeps its place and goes before those behind it.
// - A suspect of a crash is handed over with nothing else in hand.
// A batch passes through: line_up() when it is read (in order only), take(), handed_over() when
// deliver() has returned, settled(). Pure. Threads: none; the dispatcher keeps it under its lock.
class HandOverOrder {
 public:
  HandOverOrder() = default;
  explicit HandOverOrder(bool in_order) : in_order_(in_order) {}

  struct Request {
    std::optional<std::uint64_t> place;  // Batch::place
    bool suspect = false;
    std::size_t events = 0;
  };

  bool is_in_order() const { return in_order_; }
  // Takes a place for a batch that begins with this sequence; nothing if no order is kept.
  std::optional<std::uint64_t> line_up(std::uint64_t first_sequence);
  void line_up_again(const std::optional<std::uint64_t>& place);
  void leave(const std::optional<std::uint64_t>& place);  // without being handed over
  bool has_waiting_batches() const { return !places_.empty(); }
  // Whether the batch at this place may probe a closed gate. In order, only the first may, once
  // everything in hand has come back: an earlier batch may be among it that is to be tried again.
  bool may_probe(const std::optional<std::uint64_t>& place) const;
  // Whether a refused batch may take new events along: in order, only if they come directly after
  // it.
  bool may_extend() const { return !in_order_ || (places_.size() <= 1 && in_hand_ == 0); }

  // While a suspect waits, workers that keep no order hand over nothing else, or it would wait for
  // ever. In order it is served when its place comes.
  void begin_suspect_wait() { ++suspects_waiting_; }
  void end_suspect_wait() { --suspects_waiting_; }

  // True: the batch may be handed over now, and counts as in hand.
  bool take(const Request& request);
  // It was taken, but not handed over after all.
  void withdraw(const Request& request);
  // Sink::deliver() has returned; the sink may still settle later.
  void handed_over(const Request& request);
  // All of it is settled, or given up at a stop.
  void settled(const Request& request);

  std::uint64_t events_in_hand() const { return in_hand_; }
  std::size_t calls_under_way() const { return calls_; }  // of Sink::deliver()

 private:
  bool is_first(std::uint64_t place) const { return !places_.empty() && *places_.begin() == place; }

  bool in_order_ = false;
  std::set<std::uint64_t> places_;  // of batches that were read and are to be handed over (again)
  bool handing_over_ = false;
  bool suspect_in_hand_ = false;
  std::size_t suspects_waiting_ = 0;
  std::size_t calls_ = 0;
  std::uint64_t in_hand_ = 0;
};

}  // namespace scriptorium::delivery
