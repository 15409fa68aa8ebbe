#include "core/delivery/releaser.h"

#include <chrono>

#include "core/base/fault_point.h"
#include "core/base/pause.h"
#include "core/base/thread_name.h"

namespace scriptorium {
namespace {

constexpr std::size_t kReleasedAtOnce = 200;
constexpr std::chrono::milliseconds kIdlePause{250};
// How often events that no archive held before are looked for again.
constexpr std::chrono::seconds kStartOverAfter{30};

// Both events are the same in everything that an archive keeps. It may lack the bytes of files
// other than script and environment.
bool is_same_event(const Event& journal, const Event& archived) {
  if (journal.id != archived.id || journal.files.size() != archived.files.size()) return false;
  for (std::size_t i = 0; i < journal.files.size(); ++i) {
    const EventFile& a = journal.files[i];
    const EventFile& b = archived.files[i];
    const bool needs_bytes = a.name == "script" || a.name == "environment";
    if (a.name != b.name || a.size != b.size || a.sha256 != b.sha256 ||
        (needs_bytes && b.bytes == nullptr))
      return false;
  }
  const JsonOptions without_texts{.script_text = false, .environment = false};
  return event_json(journal, without_texts) == event_json(archived, without_texts);
}

}  // namespace

void Releaser::run(const std::stop_token& stop) noexcept {
  name_thread("release");
  SteadyTime start_over_at = std::chrono::steady_clock::now() + kStartOverAfter;
  while (journal_.wait_for_release(limit_bytes_ / 10 * 8, stop) && !stop.stop_requested()) {
    std::uint64_t released = 0;
    if (journal_.used_bytes() > limit_bytes_ / 10 * 8) {
      const Goal room{.is_reached = [&] { return journal_.used_bytes() <= limit_bytes_ / 10 * 7; },
                      .concerns = [](const Event&) { return true; }};
      released += release(room, positions_, stop);
    }
    released += release_of_users(stop);
    if (released > 0 && !announced_) {
      announced_ = true;
      log_.warning(
          "JOURNAL_RELEASES",
          "a sink does not keep up, and the journal has passed 80 % of its limit or holds "
          "a full share of a user; what an archive holds too is released, and fetched "
          "from the archive once the sink takes events again",
          {{"events", released}, {"bytes", journal_.used_bytes()}, {"limit_bytes", limit_bytes_}});
    }
    if (released == 0) pause_for(stop, kIdlePause);
    if (std::chrono::steady_clock::now() >= start_over_at) {
      positions_.clear();
      share_positions_.clear();
      announced_ = false;
      start_over_at = std::chrono::steady_clock::now() + kStartOverAfter;
    }
  }
}

// Of the users whose entries wait because of their share, until 70 % of it are in use.
std::uint64_t Releaser::release_of_users(const std::stop_token& stop) {
  const auto over_share = [&] {
    std::set<std::string> users;
    for (const Journal::OverShare& user : journal_.over_share()) {
      if (!user.user_id.empty() && user.bytes > journal_.user_share_bytes() / 10 * 7)
        users.insert(user.user_id);
    }
    return users;
  };
  std::set<std::string> users = over_share();
  if (users != share_users_) share_positions_.clear();
  share_users_ = users;
  const Goal shares{.is_reached =
                        [&] {
                          users = over_share();
                          return users.empty();
                        },
                    .concerns =
                        [&](const Event& event) {
                          return event.user.verified && users.contains(event.user.id.value_or(""));
                        }};
  return release(shares, share_positions_, stop);
}

// Until the goal is reached, the archives' candidates are exhausted, or a stop.
std::uint64_t Releaser::release(const Goal& goal, Positions& positions,
                                const std::stop_token& stop) {
  std::uint64_t released = 0;
  for (const std::string& archive : archives_.names()) {
    std::uint64_t& position = positions[archive];
    while (!stop.stop_requested() && !goal.is_reached()) {
      const std::uint64_t before = position;
      auto candidates = journal_.releasable(archive, position, kReleasedAtOnce);
      if (!candidates) break;  // the dispatchers, which read too, log why
      std::erase_if(*candidates, [&](const Journal::Releasable& c) {
        return stop.stop_requested() || !goal.concerns(*c.event) || !holds(archive, c);
      });
      if (stop.stop_requested()) break;
      FAULT_POINT("release.before");
      if (!candidates->empty() && !journal_.release(*candidates)) break;
      released += candidates->size();
      if (position == before) break;
    }
  }
  return released;
}

bool Releaser::holds(const std::string& archive, const Journal::Releasable& candidate) const {
  const Event& event = *candidate.event;
  const auto fetched =
      archives_.fetch_from(archive, candidate.owned != nullptr ? *candidate.owned : event);
  if (!fetched) return false;
  if (candidate.owned == nullptr) return is_same_event(event, **fetched);
  Event before = **fetched;
  before.id = event.id;
  before.user = event.user;
  before.replaces.reset();
  return is_same_event(event, before);
}

}  // namespace scriptorium
