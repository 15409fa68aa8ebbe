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
  while (journal_.wait_above(limit_bytes_ / 10 * 8, stop)) {
    const std::uint64_t released = release_from_all(stop);
    if (released > 0 && !announced_) {
      announced_ = true;
      log_.warning(
          "JOURNAL_RELEASES",
          "a sink does not keep up and the journal has passed 80 % of its limit; what an archive "
          "holds too is released, and fetched from the archive once the sink takes events again",
          {{"events", released}, {"bytes", journal_.used_bytes()}, {"limit_bytes", limit_bytes_}});
    }
    if (released == 0) pause_for(stop, kIdlePause);
    if (std::chrono::steady_clock::now() >= start_over_at) {
      positions_.clear();
      announced_ = false;
      start_over_at = std::chrono::steady_clock::now() + kStartOverAfter;
    }
  }
}

std::uint64_t Releaser::release_from_all(const std::stop_token& stop) {
  std::uint64_t released = 0;
  for (const std::string& archive : archives_.names()) released += release_from(archive, stop);
  return released;
}

// Releases events until 70 % are in use, the archive's candidates are exhausted, or a stop.
std::uint64_t Releaser::release_from(const std::string& archive, const std::stop_token& stop) {
  std::uint64_t released = 0;
  std::uint64_t& position = positions_[archive];
  while (!stop.stop_requested() && journal_.used_bytes() > limit_bytes_ / 10 * 7) {
    const std::uint64_t before = position;
    auto candidates = journal_.releasable(archive, position, kReleasedAtOnce);
    if (!candidates) break;  // the dispatchers, which read too, log why
    std::erase_if(*candidates, [&](const Journal::Releasable& c) {
      return stop.stop_requested() || !holds(archive, *c.event);
    });
    if (stop.stop_requested()) break;
    FAULT_POINT("release.before");
    if (!candidates->empty() && !journal_.release(*candidates)) break;
    released += candidates->size();
    if (position == before) break;
  }
  return released;
}

bool Releaser::holds(const std::string& archive, const Event& event) const {
  const auto fetched = archives_.fetch_from(archive, event);
  return fetched && is_same_event(event, **fetched);
}

}  // namespace scriptorium
