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

// The first of them: "5-7, 9".
std::string ranges_text(const NumberRanges& ranges) {
  std::string text;
  std::size_t count = 0;
  for (const auto& [first, last] : ranges.all()) {
    if (!text.empty()) text += ", ";
    if (++count > kRangesLogged) return text + "...";
    text += range_text(first, last);
  }
  return text;
}

}  // namespace

std::string range_text(std::uint64_t first, std::uint64_t last) {
  return first == last ? std::to_string(first) : std::to_string(first) + "-" + std::to_string(last);
}

// ---- ranges

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

std::vector<std::pair<std::uint64_t, std::uint64_t>> NumberRanges::within(
    std::uint64_t first, std::uint64_t last) const {
  std::vector<std::pair<std::uint64_t, std::uint64_t>> result;
  auto at = ranges_.upper_bound(first);
  if (at != ranges_.begin() && std::prev(at)->second >= first) --at;
  for (; at != ranges_.end() && at->first <= last; ++at)
    result.emplace_back(std::max(first, at->first), std::min(last, at->second));
  return result;
}

// ---- what was seen

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
    // An entry that exists, however low its number, is not new here; it only ends a suspicion.
    if (first <= *highest_) appeared(first, std::min(last, *highest_));
    if (last <= *highest_) continue;
    advance(std::max(first, *highest_ + 1), now);
    forget(*highest_ + 1, last);
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
  } else {
    pass_over(*highest_ + 1, number - 1, now);
  }
  // Of a count that has wrapped since: this is another job of that number.
  forget(number, number);
  highest_ = number;
  ahead_without_script_.remove(0, number);
  ahead_part_of_another_.remove(0, number);
}

void GapTracker::pass_over(std::uint64_t first, std::uint64_t last, SteadyTime now) {
  if (first > last) return;
  forget(first, last);
  NumberRanges missing;
  missing.add(first, last);
  const auto known = [&](const NumberRanges& ahead, std::uint64_t& counter) {
    for (const auto& [from, to] : ahead.within(first, last)) counter += missing.remove(from, to);
  };
  known(ahead_without_script_, without_script_);
  known(ahead_part_of_another_, part_of_another_);
  for (const auto& [from, to] : missing.all()) gaps_.assign(from, to, {.since = now});
  bound();
}

bool GapTracker::appeared(std::uint64_t first, std::uint64_t last) {
  const auto parts = gaps_.within(first, last);
  for (const auto& part : parts) {
    if (part.value.state != State::kWaiting) late_ += part.count();
  }
  gaps_.erase(first, last);
  changed_ = changed_ || !parts.empty();
  return !parts.empty();
}

// A number at or below the highest: late, used again, or the first of a count that has wrapped.
void GapTracker::below(std::uint64_t number) {
  if (appeared(number, number)) return;
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

void GapTracker::forget(std::uint64_t first, std::uint64_t last) {
  for (const auto& part : gaps_.within(first, last)) {
    if (part.value.state != State::kWaiting) forgotten_ += part.count();
  }
  gaps_.erase(first, last);
}

void GapTracker::bound() {
  if (gaps_.size() <= kRangesKept) return;
  auto oldest = gaps_.all();
  const auto most = oldest.begin() + static_cast<std::ptrdiff_t>(gaps_.size() - kRangesKept);
  std::nth_element(oldest.begin(), most, oldest.end(),
                   [](const auto& a, const auto& b) { return a.value.since < b.value.since; });
  for (auto range = oldest.begin(); range != most; ++range) {
    forgotten_ += range->count();
    gaps_.erase(range->first, range->last);
  }
}

// ---- what the scheduler says

NumberRanges GapTracker::explain(std::span<const NumberUse> uses) {
  NumberRanges with_script;
  for (const NumberUse& use : uses) {
    const bool ahead = !highest_ || use.number > *highest_;
    const bool part = use.kind == NumberUse::Kind::kPartOfAnother;
    const Gap* const gap = gaps_.find(use.number);
    if (use.kind == NumberUse::Kind::kOwnEntry) {
      // Ahead of the count, only what was passed over a moment ago, just before the count began
      // elsewhere, is meant.
      if (gap != nullptr && (!ahead || gap->state == State::kWaiting))
        with_script.add(use.number, use.number);
    } else if (ahead) {
      NumberRanges& known = part ? ahead_part_of_another_ : ahead_without_script_;
      if (known.size() < kRangesAhead) known.add(use.number, use.number);
    } else if (gap != nullptr) {
      gaps_.erase(use.number, use.number);
      ++(part ? part_of_another_ : without_script_);
      changed_ = true;
    }
  }
  return with_script;
}

NumberResolver::Question GapTracker::question(std::size_t most) const {
  NumberResolver::Question question;
  bool few = true;
  for (const auto& range : gaps_.all()) {
    if (range.value.state != State::kWaiting) continue;
    question.since = std::max(question.since, range.value.since);
    few = few && range.count() + question.numbers.size() <= most;
    for (std::uint64_t number = range.first; few && number <= range.last; ++number)
      question.numbers.push_back(number);
  }
  if (!few) question.numbers.clear();
  return question;
}

GapTracker::Verdict GapTracker::judge(SteadyTime now, bool asks,
                                      const std::optional<std::vector<NumberUse>>& answer) {
  NumberRanges with_script;
  if (answer) with_script = explain(*answer);
  Verdict verdict;
  NumberRanges suspected;
  NumberRanges confirmed;
  for (const auto& range : gaps_.all()) {
    Gap gap = range.value;
    gap.asked = gap.asked || answer;
    const SteadyTime::duration waited = now - gap.since;
    const bool waits = gap.state == State::kWaiting &&
                       (waited < patience_ || (asks && !answer && waited < kGiveUp));
    const bool news = gap.state == State::kWaiting && !waits;
    if (news) gap.state = State::kSuspected;
    gaps_.assign(range.first, range.last, gap);
    if (waits || gap.state == State::kConfirmed) continue;
    if (news) suspected.add(range.first, range.last);
    changed_ = changed_ || news;
    for (const auto& [from, to] : with_script.within(range.first, range.last)) {
      suspected.remove(from, to);
      confirmed.add(from, to);
      gaps_.assign(from, to, {.since = gap.since, .state = State::kConfirmed, .asked = true});
      changed_ = true;
    }
  }
  bound();
  verdict.suspected = suspected.total();
  verdict.suspected_ranges = ranges_text(suspected);
  verdict.confirmed = confirmed.total();
  verdict.confirmed_ranges = ranges_text(confirmed);
  return verdict;
}

std::optional<SteadyTime> GapTracker::due() const {
  std::optional<SteadyTime> earliest;
  for (const auto& range : gaps_.all()) {
    const Gap& gap = range.value;
    if (gap.state != State::kWaiting) continue;
    const SteadyTime at = gap.since + (gap.asked ? patience_ : std::min(patience_, kFirstQuestion));
    if (!earliest || at < *earliest) earliest = at;
  }
  return earliest;
}

// ---- telling and keeping

GapStatus GapTracker::status() const {
  GapStatus status;
  status.without_script = without_script_;
  status.part_of_another = part_of_another_;
  status.late = late_;
  status.count_changes = count_changes_;
  status.forgotten = forgotten_;
  status.suspected = forgotten_;
  status.highest = highest_;
  const auto all = gaps_.all();
  for (auto range = all.rbegin(); range != all.rend(); ++range) {
    const Gap& gap = range->value;
    const std::uint64_t count = range->count();
    if (gap.state == State::kWaiting) {
      status.waiting += count;
      continue;
    }
    const bool confirmed = gap.state == State::kConfirmed;
    (confirmed ? status.confirmed : status.suspected) += count;
    auto& ranges = confirmed ? status.confirmed_ranges : status.ranges;
    if (ranges.size() < GapStatus::kRangesShown)
      ranges.push_back(range_text(range->first, range->last));
  }
  return status;
}

// One line: "1 HIGHEST STATE:FIRST-LAST ...", STATE being w, s or c.
std::string GapTracker::save() const {
  if (!highest_) return {};
  std::string text = "1 " + std::to_string(*highest_);
  std::size_t count = 0;
  const auto all = gaps_.all();
  for (auto range = all.rbegin(); range != all.rend() && count < kRangesSaved; ++range, ++count) {
    const State state = range->value.state;
    text.append(state == State::kWaiting ? " w:" : state == State::kSuspected ? " s:" : " c:");
    text.append(std::to_string(range->first)).append("-").append(std::to_string(range->last));
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
    if (!first || !last || *first > *last || *last > *highest_) continue;
    const State state = word[0] == 's'   ? State::kSuspected
                        : word[0] == 'c' ? State::kConfirmed
                                         : State::kWaiting;
    gaps_.assign(*first, *last, {.since = now, .state = state});
  }
}

}  // namespace scriptorium
