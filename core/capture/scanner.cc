#include "core/capture/scanner.h"

#include <algorithm>
#include <unordered_set>

#include "core/base/path.h"
#include "core/capture/spool_presence.h"

namespace scriptorium {
namespace {

constexpr std::uint64_t kThoroughEvery = 10;

}  // namespace

bool Scanner::take_thorough() { return ++periodic_ % kThoroughEvery == 0 || next_thorough_; }

void Scanner::begin(bool thorough) {
  if (running_) {
    again_ = true;
    return;
  }
  running_ = true;
  failed_ = false;
  next_thorough_ = next_thorough_ && !thorough;
  table_.begin_scan(++number_, thorough);
  context_.report->change([](CaptureStatus& s) { ++s.scans; });
  add_directory("");
  if (!failed_) gaps_.scanned();
}

void Scanner::add_directory(const std::string& path) {
  std::vector<std::uint64_t> numbers;
  list(path, numbers);
  // In ascending order: the directory's own order would look like a count that jumps back and
  // forth.
  std::sort(numbers.begin(), numbers.end());
  gaps_.seen(numbers);
}

// Adds the numbers of entries that were not seen before to `numbers`.
void Scanner::list(const std::string& path, std::vector<std::uint64_t>& numbers) {
  auto names = context_.access.list(path);
  if (!names) {
    if (names.error().kind() != ErrorKind::kVanished) list_failed(path, names.error());
    return;
  }
  // An empty root says nothing about the entries that it had: it may be an unused mount point.
  if (path.empty() && table_.entries().records() > 0 && looks_unused(*names)) failed_ = true;
  std::unordered_set<std::string> seen;
  for (const SpoolName& name : *names) {
    const std::string child = join_path(path, name.name);
    const SpoolPath place = context_.adapter.classify(child);
    if (place.role == SpoolPath::Role::kDirectory && name.is_directory) {
      // The watch comes first, so that it reports what appears after the listing.
      if (!watches_.has_directory(child)) watches_.add_directory(child);
      list(child, numbers);
    } else if (place.role == SpoolPath::Role::kEntryDirectory && name.is_directory) {
      add({std::string(place.entry), name.inode, true}, numbers);
    } else if (place.is_file() && seen.insert(std::string(place.entry)).second) {
      add({std::string(place.entry), 0, place.role == SpoolPath::Role::kEntryFile}, numbers);
    }
  }
}

void Scanner::list_failed(const std::string& path, const Error& error) {
  failed_ = true;
  const std::string directory = path.empty() ? context_.access.root() : path;
  context_.report->note_error("list " + directory + ": " + error.message());
  context_.report->log().error(
      "SPOOL_UNREADABLE",
      "a directory of the spool cannot be listed; give the daemon's user the right to read it",
      {{"source", context_.report->source()},
       {"directory", directory},
       {"reason", error.message()}});
}

void Scanner::add(Item item, std::vector<std::uint64_t>& numbers) {
  if (const auto number = table_.is_known(item.key) ? std::nullopt : new_number(item.key)) {
    numbers.push_back(*number);
    listed_numbers_.assign(*number, *number);
  }
  items_.push_back(std::move(item));
}

std::optional<Scanner::Item> Scanner::take() {
  if (items_.empty()) return std::nullopt;
  Item item = std::move(items_.front());
  items_.pop_front();
  return item;
}

std::optional<Scanner::Finished> Scanner::finish() {
  if (!items_.empty()) return std::nullopt;
  listed_numbers_ = {};
  if (!running_) return std::nullopt;
  running_ = false;
  return Finished{.complete = !failed_, .again = std::exchange(again_, false)};
}

void Scanner::abandon() {
  items_.clear();
  listed_numbers_ = {};
  running_ = false;
  again_ = false;
}

// The number of an entry that was seen before must not be counted again: the low number of a job
// that has been waiting for long would look like a count that has wrapped.
std::optional<std::uint64_t> Scanner::new_number(const std::string& key) const {
  if (!counts_numbers_) return std::nullopt;
  const auto number = context_.adapter.number_of(key);
  if (!number || listed_numbers_.contains(*number) || left_numbers_.contains(*number))
    return std::nullopt;
  return number;
}

void Scanner::count_number(const std::string& key) {
  if (const auto number = new_number(key)) gaps_.seen({&*number, 1});
}

void Scanner::leave(const std::string& key) {
  if (const auto number = context_.adapter.number_of(key)) left_numbers_.assign(*number, *number);
}

}  // namespace scriptorium
