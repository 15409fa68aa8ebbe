#include "core/capture/gap_tracker.h"

#include <algorithm>
#include <utility>

#include "core/base/number.h"

namespace scriptorium {
namespace {

constexpr std::size_t kRangesSaved = 200;
constexpr std::size_t kRangesLogged = 10;

// The first few of the ranges: "5-7, 9...".
std::string ranges_text(const NumberRanges& ranges) {
  std::string text;
  std::size_t count = 0;
  for (const auto& range : ranges.all()) {
    if (!text.empty()) text += ", ";
    if (++count > kRangesLogged) return text + "...";
    text += range_text(range.first, range.last);
  }
  return text;
}

}  // namespace

std::string range_text(std::uint64_t first, std::uint64_t last) {
  return first == last ? std::to_string(first) : std::to_string(first) + "-" + std::to_string(last);
}

// ---- numbers that entries have

void GapTracker::seen(std::uint64_t number, SteadyTime now) {
  if (listening_) {
    advance(number, now);
  } else {
    early_.assign(number, number);
  }
}

void GapTracker::scanned(SteadyTime now) {
  if (listening_) return;
  listening_ = true;
  const NumberRanges early = std::exchange(early_, {});
  const auto ranges = early.all();
  if (ranges.empty()) return;
  if (!highest_) {
    // Nothing is known about the past: the jobs of the missing numbers may have ended long ago.
    highest_ = ranges.back().last;
    changed_ = true;
    return;
  }
  for (const auto& range : ranges) {
    // An existing entry with a low number is not a new job, so it only ends a suspicion.
    if (range.first <= *highest_) appeared(range.first, std::min(range.last, *highest_));
    if (range.last <= *highest_) continue;
    advance(std::max(range.first, *highest_ + 1), now);
    forget(*highest_ + 1, range.last);
    highest_ = range.last;
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
    ++counters_.count_changes;
  } else {
    pass_over(*highest_ + 1, number - 1, now);
  }
  // If the count has wrapped since, the number belongs to another job now.
  forget(number, number);
  highest_ = number;
  ahead_without_script_.erase(0, number);
  ahead_part_of_another_.erase(0, number);
}

void GapTracker::pass_over(std::uint64_t first, std::uint64_t last, SteadyTime now) {
  if (first > last) return;
  forget(first, last);
  NumberRanges missing;
  missing.assign(first, last);
  const auto take_out = [&](const NumberRanges& ahead, std::uint64_t& counter) {
    for (const auto& part : ahead.within(first, last))
      counter += missing.erase(part.first, part.last);
  };
  take_out(ahead_without_script_, counters_.without_script);
  take_out(ahead_part_of_another_, counters_.part_of_another);
  for (const auto& gap : missing.all()) gaps_.assign(gap.first, gap.last, {.since = now});
  bound();
}

bool GapTracker::appeared(std::uint64_t first, std::uint64_t last) {
  const auto parts = gaps_.within(first, last);
  for (const auto& part : parts) {
    if (part.value.state != State::kWaiting) counters_.late += part.count();
  }
  gaps_.erase(first, last);
  changed_ = changed_ || !parts.empty();
  return !parts.empty();
}

// A number at or below the highest is late, was used again, or begins a count that has wrapped.
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
  ++counters_.count_changes;
  highest_ = number;
  changed_ = true;
}

void GapTracker::forget(std::uint64_t first, std::uint64_t last) {
  for (const auto& part : gaps_.within(first, last)) {
    if (part.value.state != State::kWaiting) counters_.forgotten += part.count();
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
    counters_.forgotten += range->count();
    gaps_.erase(range->first, range->last);
  }
}

// ---- what the scheduler answers

NumberRanges GapTracker::explain(std::span<const NumberUse> uses) {
  NumberRanges with_script;
  for (const NumberUse& use : uses) {
    const bool ahead = !highest_ || use.number > *highest_;
    const bool part = use.kind == NumberUse::Kind::kPartOfAnother;
    const Gap* const gap = gaps_.find(use.number);
    if (use.kind == NumberUse::Kind::kOwnEntry) {
      // A gap ahead of the count remains from a count that has since begun elsewhere. The answer is
      // about that gap only if it was passed over a moment ago.
      if (gap != nullptr && (!ahead || gap->state == State::kWaiting))
        with_script.assign(use.number, use.number);
    } else if (ahead) {
      NumberRanges& ahead_of_count = part ? ahead_part_of_another_ : ahead_without_script_;
      if (ahead_of_count.size() < kRangesAhead) ahead_of_count.assign(use.number, use.number);
    } else if (gap != nullptr) {
      gaps_.erase(use.number, use.number);
      ++(part ? counters_.part_of_another : counters_.without_script);
      changed_ = true;
    }
  }
  return with_script;
}

NumberResolver::Question GapTracker::question(std::size_t most) const {
  NumberResolver::Question question;
  bool fits = true;
  for (const auto& range : gaps_.all()) {
    if (range.value.state != State::kWaiting) continue;
    question.since = std::max(question.since, range.value.since);
    fits = fits && range.count() + question.numbers.size() <= most;
    for (std::uint64_t number = range.first; fits && number <= range.last; ++number)
      question.numbers.push_back(number);
  }
  if (!fits) question.numbers.clear();
  return question;
}

GapTracker::Verdict GapTracker::judge(SteadyTime now, bool asks,
                                      const std::optional<std::vector<NumberUse>>& answer) {
  NumberRanges with_script;
  if (answer) with_script = explain(*answer);
  NumberRanges suspected;
  NumberRanges confirmed;
  for (const auto& range : gaps_.all()) {
    Gap gap = range.value;
    gap.asked = gap.asked || answer;
    const SteadyTime::duration waited = now - gap.since;
    const bool waits = gap.state == State::kWaiting &&
                       (waited < patience_ || (asks && !answer && waited < kGiveUp));
    const bool becomes_suspected = gap.state == State::kWaiting && !waits;
    if (becomes_suspected) gap.state = State::kSuspected;
    gaps_.assign(range.first, range.last, gap);
    if (waits || gap.state == State::kConfirmed) continue;
    if (becomes_suspected) suspected.assign(range.first, range.last);
    changed_ = changed_ || becomes_suspected;
    for (const auto& part : with_script.within(range.first, range.last)) {
      suspected.erase(part.first, part.last);
      confirmed.assign(part.first, part.last);
      gaps_.assign(part.first, part.last,
                   {.since = gap.since, .state = State::kConfirmed, .asked = true});
      changed_ = true;
    }
  }
  bound();
  return {.suspected = suspected.total(),
          .confirmed = confirmed.total(),
          .suspected_ranges = ranges_text(suspected),
          .confirmed_ranges = ranges_text(confirmed)};
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

// ---- reporting and saving

GapStatus GapTracker::status() const {
  GapStatus status = counters_;
  status.suspected = status.forgotten;
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

// One line: "1 HIGHEST STATE:FIRST-LAST ...", newest range first. STATE is w, s or c.
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
  const auto next_word = [&text] {
    const std::string_view word = text.substr(0, text.find(' '));
    text.remove_prefix(std::min(word.size() + 1, text.size()));
    return word;
  };
  if (next_word() != "1") return;
  highest_ = parse_number<std::uint64_t>(next_word());
  for (std::size_t i = 0; highest_ && !text.empty() && i < kRangesSaved; ++i) {
    std::string_view word = next_word();
    if (word.size() < 5 || word[1] != ':') continue;
    const State state = word[0] == 's'   ? State::kSuspected
                        : word[0] == 'c' ? State::kConfirmed
                                         : State::kWaiting;
    word.remove_prefix(2);
    const auto first = take_number<std::uint64_t>(word);
    if (!first || !word.starts_with('-')) continue;
    const auto last = parse_number<std::uint64_t>(word.substr(1));
    if (last && *last <= *highest_) gaps_.assign(*first, *last, {.since = now, .state = state});
  }
}

}  // namespace scriptorium
