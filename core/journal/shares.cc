#include "core/journal/shares.h"

#include <algorithm>
#include <utility>

#include "core/journal/event_row.h"

namespace scriptorium::journal {
namespace {

using std::chrono::minutes;
using std::chrono::seconds;

// An event that is not larger, before compression, may use the last fifth of the journal.
constexpr std::uint64_t kSmallBytes = 64U << 10;
// Without an answer for this long, the owner counts as unknown.
constexpr seconds kAnswerPatience{120};
// An entry that was not offered again for this long has left the spool.
constexpr minutes kForgetAfter{15};
constexpr minutes kSweepPause{1};
constexpr std::size_t kMostEntries = 50'000;

}  // namespace

Shares::Shares(std::uint64_t max_bytes, std::int64_t user_share_percent)
    : large_until_(large_until(max_bytes)),
      share_bytes_(user_share_percent >= 100
                       ? UINT64_MAX
                       : max_bytes * static_cast<std::uint64_t>(user_share_percent) / 100) {}

// A user who holds nothing may always have one event, however large.
bool Shares::over(const Held& held, const std::string& owner, std::uint64_t bytes) const {
  std::uint64_t held_bytes = 0;
  if (const auto it = held.charges.find(owner); it != held.charges.end()) held_bytes += it->second;
  if (const auto it = claims_.find(owner); it != claims_.end()) held_bytes += it->second;
  return held_bytes > 0 && held_bytes + bytes > share_bytes_;
}

// All that has no owner yet could belong to the user who already holds the most.
bool Shares::must_ask(const Held& held, const Entry& entry, bool can_ask, SteadyTime now) const {
  const std::uint64_t most = held.largest + held.unclaimed;
  return can_ask && now - entry.first < kAnswerPatience && most > 0 &&
         most + entry.bytes > share_bytes_;
}

Admission Shares::decide(const Held& held, const std::string& source, const Event& event,
                         const std::optional<CaptureMark>& mark, bool can_ask, SteadyTime now) {
  const std::uint64_t bytes = event.bytes_size();
  const Admission room =
      bytes > kSmallBytes && held.used >= large_until_ ? Admission::kFull : Admission::kTaken;
  if (share_bytes_ == UINT64_MAX) return room;
  const auto found = entries_.find({source, event.id});
  const bool verified = event.user.verified && event.user.id;
  if (found == entries_.end()) {
    Entry fresh{.bytes = bytes, .first = now};
    if (verified ? !over(held, *event.user.id, bytes) : !must_ask(held, fresh, can_ask, now))
      return room;
  }
  forget_old(now);
  auto it = found;
  if (it == entries_.end()) {
    if (entries_.size() >= kMostEntries && !make_place()) return Admission::kFull;
    Entry fresh{.source = source,
                .key = mark ? mark->entry : "",
                .bytes = bytes,
                .mark = mark,
                .first = now};
    fresh.mtime_ns = mark ? mark->identity.mtime_ns : 0;
    it = entries_.emplace(std::pair(source, event.id), std::move(fresh)).first;
    if (mark) by_key_[{source, mark->entry}] = event.id;
  }
  Entry& entry = it->second;
  entry.last = now;
  if (verified) {
    if (!entry.owner) answered_.push_back(it->first);
    entry.owner = *event.user.id;
    names_[*event.user.id] = event.user.name.value_or("");
  }
  const bool waits = entry.owner ? !entry.owner->empty() && over(held, *entry.owner, bytes)
                                 : must_ask(held, entry, can_ask, now);
  entry.refused = waits;
  if (!waits) return room;
  if (!entry.owner && !entry.question) {
    entry.question = std::make_shared<const Event>(for_owner(event));
    ++asking_[source];
  }
  return Admission::kOverShare;
}

void Shares::taken(const std::string& source, const std::string& event_id, SteadyTime now) {
  const auto it = entries_.find({source, event_id});
  if (it == entries_.end()) return;
  const Entry& entry = it->second;
  if (entry.owner && !entry.owner->empty() &&
      claimed_.try_emplace(event_id, Claim{*entry.owner, entry.bytes, now}).second) {
    claims_[*entry.owner] += entry.bytes;
  }
  erase(it);
}

void Shares::charged(const std::string& event_id) {
  const auto it = claimed_.find(event_id);
  if (it == claimed_.end()) return;
  release(it->second);
  claimed_.erase(it);
}

void Shares::release(const Claim& claim) {
  const auto it = claims_.find(claim.owner);
  if (it == claims_.end()) return;
  it->second -= std::min(it->second, claim.bytes);
  if (it->second == 0) claims_.erase(it);
}

void Shares::erase(Entries::iterator entry) {
  if (entry->second.question) --asking_[entry->second.source];
  const auto key = by_key_.find({entry->second.source, entry->second.key});
  if (key != by_key_.end() && key->second == entry->first.second) by_key_.erase(key);
  entries_.erase(entry);
}

bool Shares::refuses(const Held& held, const std::string& source, const CaptureMark& mark,
                     SteadyTime now) {
  const auto id = by_key_.find({source, mark.entry});
  if (id == by_key_.end()) return false;
  const auto it = entries_.find({source, id->second});
  if (it == entries_.end() || it->second.mtime_ns != mark.identity.mtime_ns) return false;
  Entry& entry = it->second;
  entry.last = now;
  if (!entry.owner) return entry.question != nullptr && must_ask(held, entry, true, now);
  return !entry.owner->empty() && over(held, *entry.owner, entry.bytes);
}

std::vector<Unresolved> Shares::questions(const std::string& source, std::size_t limit,
                                          SteadyTime now) const {
  std::vector<const Entry*> asked;
  for (auto it = entries_.lower_bound({source, ""});
       it != entries_.end() && it->first.first == source; ++it) {
    if (it->second.question && now - it->second.first < kAnswerPatience)
      asked.push_back(&it->second);
  }
  std::sort(asked.begin(), asked.end(),
            [](const Entry* a, const Entry* b) { return a->first < b->first; });
  if (asked.size() > limit) asked.resize(limit);
  std::vector<Unresolved> result;
  result.reserve(asked.size());
  for (const Entry* entry : asked)
    result.push_back({.ticket = 0, .event = entry->question, .mark = entry->mark});
  return result;
}

std::size_t Shares::question_count(const std::string& source) const {
  const auto it = asking_.find(source);
  return it == asking_.end() ? 0 : it->second;
}

void Shares::answer(const std::string& source, const std::string& event_id, const User& user) {
  const auto it = entries_.find({source, event_id});
  if (it == entries_.end() || !std::exchange(it->second.question, nullptr)) return;
  --asking_[source];
  it->second.owner = user.verified && user.id ? *user.id : "";
  if (it->second.owner->empty()) return;
  names_[*it->second.owner] = user.name.value_or("");
  answered_.push_back(it->first);
}

std::vector<OverShare> Shares::waiting(const Held& held, SteadyTime now) const {
  std::map<std::string, OverShare> by_owner;
  for (const auto& [id, entry] : entries_) {
    if (!entry.refused || now - entry.last > kForgetAfter) continue;
    const std::string owner = entry.owner.value_or("");
    OverShare& over_share = by_owner[owner];
    over_share.user_id = owner;
    ++over_share.waiting;
    over_share.waiting_bytes += entry.bytes;
  }
  std::vector<OverShare> result;
  for (auto& [owner, over_share] : by_owner) {
    if (const auto it = names_.find(owner); it != names_.end()) over_share.user = it->second;
    if (const auto it = held.charges.find(owner); it != held.charges.end())
      over_share.bytes = it->second;
    result.push_back(std::move(over_share));
  }
  return result;
}

// One user's entries must not keep out the others': the last one that is known to wait for its
// user's share is forgotten, and asked for again when it is offered again. False: there is none.
bool Shares::make_place() {
  while (!answered_.empty()) {
    const auto it = entries_.find(answered_.back());
    answered_.pop_back();
    if (it == entries_.end() || !it->second.refused || it->second.owner.value_or("").empty())
      continue;
    erase(it);
    return true;
  }
  return false;
}

void Shares::forget_old(SteadyTime now) {
  if (now < next_sweep_) return;
  next_sweep_ = now + kSweepPause;
  std::erase_if(answered_, [&](const auto& key) { return !entries_.contains(key); });
  for (auto it = entries_.begin(); it != entries_.end();) {
    const auto entry = it++;
    if (now - entry->second.last > kForgetAfter) erase(entry);
  }
  std::erase_if(claimed_, [&](const auto& claimed) {
    if (now - claimed.second.since <= kForgetAfter) return false;
    release(claimed.second);
    return true;
  });
}

}  // namespace scriptorium::journal
