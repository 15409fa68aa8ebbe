#include "core/capture/gap_tracker.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <utility>

namespace scriptorium {
namespace {

constexpr std::size_t kRangesSaved = 200;
constexpr std::size_t kRangesLogged = 10;

std::optional<std::uint64_t> read_number(std::string_view text) {
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return number;
}

void add_range(std::string& text, std::size_t& count, std::uint64_t first, std::uint64_t last) {
  if (++count > kRangesLogged + 1) return;
  if (!text.empty()) text += ", ";
  text += count > kRangesLogged ? "..." : range_text(first, last);
}

}  // namespace

std::string range_text(std::uint64_t first, std::uint64_t last) {
  return first == last ? std::to_string(first) : std::to_string(first) + "-" + std::to_string(last);
}

// ---- ranges ------------------------------------------------------------------------------------------------------

void NumberRanges::add(std::uint64_t first, std::uint64_t last) {
  if (first > last) return;
  auto at = ranges_.upper_bound(first);
  if (at != ranges_.begin()) {
    const auto before = std::prev(at);
    // `before` begins at or below `first`; does it reach or touch it?
    if (before->second >= first || before->second + 1 == first) at = before;
  }
  while (at != ranges_.end() && (at->first <= last || at->first - 1 == last)) {
    first = std::min(first, at->first);
    last = std::max(last, at->second);
    total_ -= at->second - at->first + 1;
    at = ranges_.erase(at);
  }
  ranges_.emplace(first, last);
  total_ += last - first + 1;
}

std::uint64_t NumberRanges::remove(std::uint64_t first, std::uint64_t last) {
  std::uint64_t removed = 0;
  for (const auto& [from, to] : within(first, last)) {
    const auto at = std::prev(ranges_.upper_bound(from));
    const auto [old_first, old_last] = *at;
    ranges_.erase(at);
    if (old_first < from) ranges_.emplace(old_first, from - 1);
    if (to < old_last) ranges_.emplace(to + 1, old_last);
    removed += to - from + 1;
  }
  total_ -= removed;
  return removed;
}

bool NumberRanges::contains(std::uint64_t number) const {
  const auto after = ranges_.upper_bound(number);
  return after != ranges_.begin() && std::prev(after)->second >= number;
}

std::uint64_t NumberRanges::count(std::uint64_t first, std::uint64_t last) const {
  std::uint64_t sum = 0;
  for (const auto& [from, to] : within(first, last)) sum += to - from + 1;
  return sum;
}

std::vector<std::pair<std::uint64_t, std::uint64_t>> NumberRanges::within(std::uint64_t first, std::uint64_t last) const {
  std::vector<std::pair<std::uint64_t, std::uint64_t>> result;
  auto at = ranges_.upper_bound(first);
  if (at != ranges_.begin() && std::prev(at)->second >= first) --at;
  for (; at != ranges_.end() && at->first <= last; ++at)
    result.emplace_back(std::max(first, at->first), std::min(last, at->second));
  return result;
}

// ---- what was seen -----------------------------------------------------------------------------------------------

void GapTracker::seen(std::uint64_t number, SteadyTime now) {
  if (listening_) {
    advance(number, now);
  } else {
    early_.add(number, number);
  }
}

void GapTracker::scanned(SteadyTime now) {
  if (listening_) return;
  listening_ = true;
  const NumberRanges early = std::exchange(early_, {});
  if (early.all().empty()) return;
  if (!highest_) {
    // Nothing is known of the time before: what is not there may have ended long ago.
    highest_ = std::prev(early.all().end())->second;
    changed_ = true;
    return;
  }
  for (const auto& [first, last] : early.all()) {
    if (first <= *highest_) appeared(first, std::min(last, *highest_));
    if (last <= *highest_) continue;
    advance(std::max(first, *highest_ + 1), now);
    highest_ = last;
  }
}

void GapTracker::advance(std::uint64_t number, SteadyTime now) {
  if (!highest_) {
    highest_ = number;
    changed_ = true;
    return;
  }
  if (number <= *highest_) return below(number);
  changed_ = true;
  followers_ = 0;
  if (number - *highest_ > kJump) {
    ++count_changes_;
  } else if (number > *highest_ + 1) {
    pass_over(*highest_ + 1, number - 1, now);
  }
  highest_ = number;
  ahead_without_script_.remove(0, number);
  ahead_part_of_another_.remove(0, number);
}

void GapTracker::pass_over(std::uint64_t first, std::uint64_t last, SteadyTime now) {
  NumberRanges missing;
  missing.add(first, last);
  const auto known = [&](const NumberRanges& ahead, std::uint64_t& counter) {
    for (const auto& [from, to] : ahead.within(first, last)) counter += missing.remove(from, to);
  };
  known(ahead_without_script_, without_script_);
  known(ahead_part_of_another_, part_of_another_);
  for (const auto& [from, to] : missing.all()) gaps_[from] = {to, now, State::kWaiting};
  bound();
}

// What stands in the spool, however low its number, is no news at the start; it only ends a suspicion.
void GapTracker::appeared(std::uint64_t first, std::uint64_t last) {
  std::vector<std::uint64_t> numbers;
  auto gap = gaps_.upper_bound(first);
  if (gap != gaps_.begin()) --gap;
  for (; gap != gaps_.end() && gap->first <= last; ++gap) {
    for (std::uint64_t n = std::max(first, gap->first); n <= std::min(last, gap->second.last); ++n) numbers.push_back(n);
  }
  for (const std::uint64_t number : numbers) below(number);
}

// A number at or below the highest: late, used again, or the first of a count that has wrapped.
void GapTracker::below(std::uint64_t number) {
  if (const auto gap = find(number); gap != gaps_.end()) {
    if (gap->second.state != State::kWaiting) ++late_;
    take_out(gap, number);
    changed_ = true;
    return;
  }
  if (*highest_ - number <= kNear) {
    followers_ = 0;
    return;
  }
  const bool follows = followers_ > 0 && number > follower_ && number - follower_ <= kNear;
  followers_ = follows ? followers_ + 1 : 1;
  follower_ = number;
  if (followers_ < kFollowers) return;
  followers_ = 0;
  ++count_changes_;
  highest_ = number;
  changed_ = true;
}

GapTracker::Gaps::iterator GapTracker::find(std::uint64_t number) {
  const auto after = gaps_.upper_bound(number);
  if (after == gaps_.begin()) return gaps_.end();
  const auto gap = std::prev(after);
  return gap->second.last >= number ? gap : gaps_.end();
}

void GapTracker::take_out(Gaps::iterator gap, std::uint64_t number) {
  const std::uint64_t first = gap->first;
  const Gap whole = gap->second;
  gaps_.erase(gap);
  if (first < number) gaps_[first] = {number - 1, whole.since, whole.state};
  if (number < whole.last) gaps_[number + 1] = whole;
}

void GapTracker::bound() {
  while (gaps_.size() > kRangesKept) {
    const auto oldest = std::min_element(gaps_.begin(), gaps_.end(),
                                         [](const auto& a, const auto& b) { return a.second.since < b.second.since; });
    forgotten_ += oldest->second.last - oldest->first + 1;
    gaps_.erase(oldest);
  }
}

// ---- what the scheduler says -------------------------------------------------------------------------------------

NumberRanges GapTracker::explain(std::span<const NumberUse> uses) {
  NumberRanges with_script;
  for (const NumberUse& use : uses) {
    const bool part = use.kind == NumberUse::Kind::kPartOfAnother;
    if (use.kind == NumberUse::Kind::kOwnEntry) {
      if (find(use.number) != gaps_.end()) with_script.add(use.number, use.number);
    } else if (!highest_ || use.number > *highest_) {
      NumberRanges& ahead = part ? ahead_part_of_another_ : ahead_without_script_;
      if (ahead.size() < kRangesAhead) ahead.add(use.number, use.number);
    } else if (const auto gap = find(use.number); gap != gaps_.end()) {
      take_out(gap, use.number);
      ++(part ? part_of_another_ : without_script_);
      changed_ = true;
    }
  }
  return with_script;
}

GapTracker::Verdict GapTracker::judge(SteadyTime now, bool asks, const std::optional<std::vector<NumberUse>>& answer) {
  NumberRanges with_script;
  if (answer) with_script = explain(*answer);
  Verdict verdict;
  std::size_t suspected = 0;
  NumberRanges to_confirm;
  for (auto& [first, gap] : gaps_) {
    if (answer) gap.asked = true;
    const SteadyTime::duration waited = now - gap.since;
    if (gap.state == State::kWaiting && waited < patience_) continue;
    if (gap.state != State::kConfirmed) {
      for (const auto& [from, to] : with_script.within(first, gap.last)) to_confirm.add(from, to);
    }
    if (gap.state != State::kWaiting || (asks && !answer && waited < kGiveUp)) continue;
    gap.state = State::kSuspected;
    changed_ = true;
    const std::uint64_t unexplained = gap.last - first + 1 - with_script.count(first, gap.last);
    verdict.suspected += unexplained;
    if (unexplained > 0) add_range(verdict.suspected_ranges, suspected, first, gap.last);
  }
  std::size_t confirmed = 0;
  for (const auto& [first, last] : to_confirm.all()) {
    for (std::uint64_t number = first; number <= last; ++number) {
      const auto gap = find(number);
      const SteadyTime since = gap->second.since;
      take_out(gap, number);
      gaps_[number] = {number, since, State::kConfirmed, true};
    }
    verdict.confirmed += last - first + 1;
    add_range(verdict.confirmed_ranges, confirmed, first, last);
    changed_ = true;
  }
  bound();
  return verdict;
}

std::optional<SteadyTime> GapTracker::due() const {
  std::optional<SteadyTime> earliest;
  for (const auto& [first, gap] : gaps_) {
    if (gap.state != State::kWaiting) continue;
    const SteadyTime at = gap.since + (gap.asked ? patience_ : std::min(patience_, kFirstQuestion));
    if (!earliest || at < *earliest) earliest = at;
  }
  return earliest;
}

// ---- telling and keeping -----------------------------------------------------------------------------------------

GapStatus GapTracker::status() const {
  GapStatus status;
  status.without_script = without_script_;
  status.part_of_another = part_of_another_;
  status.late = late_;
  status.count_changes = count_changes_;
  status.forgotten = forgotten_;
  status.suspected = forgotten_;
  status.highest = highest_;
  for (auto it = gaps_.rbegin(); it != gaps_.rend(); ++it) {
    const auto& [first, gap] = *it;
    const std::uint64_t count = gap.last - first + 1;
    if (gap.state == State::kWaiting) {
      status.waiting += count;
      continue;
    }
    const bool confirmed = gap.state == State::kConfirmed;
    (confirmed ? status.confirmed : status.suspected) += count;
    auto& ranges = confirmed ? status.confirmed_ranges : status.ranges;
    if (ranges.size() < GapStatus::kRangesShown) ranges.push_back(range_text(first, gap.last));
  }
  return status;
}

// One line: "1 HIGHEST STATE:FIRST-LAST ...", STATE being w, s or c.
std::string GapTracker::save() const {
  if (!highest_) return {};
  std::string text = "1 " + std::to_string(*highest_);
  std::size_t count = 0;
  for (auto it = gaps_.rbegin(); it != gaps_.rend() && count < kRangesSaved; ++it, ++count) {
    const auto& [first, gap] = *it;
    text.append(gap.state == State::kWaiting ? " w:" : gap.state == State::kSuspected ? " s:" : " c:");
    text.append(std::to_string(first)).append("-").append(std::to_string(gap.last));
  }
  return text;
}

void GapTracker::load(std::string_view text, SteadyTime now) {
  std::vector<std::string_view> words;
  while (!text.empty()) {
    const auto blank = text.find(' ');
    words.push_back(text.substr(0, blank));
    text = blank == std::string_view::npos ? std::string_view{} : text.substr(blank + 1);
  }
  if (words.size() < 2 || words[0] != "1") return;
  highest_ = read_number(words[1]);
  if (!highest_) return;
  for (std::size_t i = 2; i < words.size() && i < kRangesSaved + 2; ++i) {
    const std::string_view word = words[i];
    const auto dash = word.find('-');
    if (word.size() < 5 || word[1] != ':' || dash == std::string_view::npos) continue;
    const auto first = read_number(word.substr(2, dash - 2));
    const auto last = read_number(word.substr(dash + 1));
    if (!first || !last || *first > *last || *last > *highest_ || find(*first) != gaps_.end()) continue;
    const State state = word[0] == 's' ? State::kSuspected : word[0] == 'c' ? State::kConfirmed : State::kWaiting;
    gaps_[*first] = {*last, now, state};
  }
}

}  // namespace scriptorium
