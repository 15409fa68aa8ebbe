#include "core/delivery/filler.h"

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "core/base/fault_point.h"
#include "core/base/pause.h"
#include "core/base/text.h"
#include "core/base/thread_name.h"

namespace scriptorium {
namespace {

constexpr std::size_t kSentAtOnce = 500;
constexpr std::size_t kCountedAtOnce = 5000;
// While so many events wait for a sink, no more are sent to it.
constexpr std::uint64_t kMostWaiting = 10'000;
constexpr std::chrono::milliseconds kStalledPause{250};
constexpr std::uint64_t kMostChangedBytes = 32U << 20;

using State = Journal::Fill::State;

}  // namespace

Result<Journal::Fill> Filler::begin(const std::string& sink, const std::string& archive,
                                    Timestamp since) {
  auto chosen = choose_archive(sink, archive);
  if (!chosen) return chosen.error();
  Journal::Fill fill{.sink = sink, .archive = *std::move(chosen), .since = since};
  for (const Journal::Fill& other : journal_.fills()) {
    const bool is_same =
        other.sink == fill.sink && other.archive == fill.archive && other.since == fill.since;
    if (is_same && other.is_under_way()) return other;
  }
  if (auto stored = journal_.set_fill(fill); !stored) return stored.error();
  begun_.with_notify([](std::uint64_t& count) { ++count; });
  return fill;
}

Result<std::string> Filler::choose_archive(const std::string& sink,
                                           const std::string& archive) const {
  std::vector<std::string> archives = archives_.names();
  std::erase(archives, sink);
  if (!archive.empty()) {
    if (archive == sink) return Error{ErrorKind::kPermanent, "a sink cannot be filled from itself"};
    if (std::find(archives.begin(), archives.end(), archive) == archives.end())
      return no_such_archive(archive);
    return archive;
  }
  if (archives.size() == 1) return archives.front();
  if (archives.empty())
    return Error{ErrorKind::kPermanent,
                 "no other sink is configured that can be read, such as a file tree with script, "
                 "environment and metadata"};
  std::string list;
  for (const std::string& name : archives) list += (list.empty() ? "" : ", ") + name;
  return Error{ErrorKind::kPermanent, "several sinks can be read: " + list + "; say --from"};
}

void Filler::run(const std::stop_token& stop) noexcept {
  name_thread("fill");
  while (!stop.stop_requested()) {
    bool any = false;
    bool progress = false;
    const std::uint64_t begun = begun_.with([](std::uint64_t count) { return count; });
    for (const Journal::Fill& fill : journal_.fills()) {
      if (!fill.is_under_way() || stop.stop_requested()) continue;
      any = true;
      progress = step(fill, stop) || progress;
    }
    if (!any) {
      begun_.wait(stop, [&](std::uint64_t count) { return count != begun; });
    } else if (!progress) {
      pause_for(stop, kStalledPause);
    }
  }
}

bool Filler::step(const Journal::Fill& fill, const std::stop_token& stop) {
  const Journal::Usage usage = journal_.usage();
  const auto sink = std::find_if(usage.sinks.begin(), usage.sinks.end(),
                                 [&](const auto& s) { return s.name == fill.sink; });
  // A fill of a sink that is not configured waits until it is again.
  if (sink == usage.sinks.end() || !sink->registered) return false;
  const bool counting = fill.state == State::kCounting;
  const bool has_room = usage.bytes <= limit_bytes_ / 2 && sink->waiting <= kMostWaiting;
  if (!counting && !has_room) return false;
  const ReadableSink::Query query{.kinds = sink->kinds, .since = fill.since};
  return counting ? count(fill, query) : send(fill, query, kSentAtOnce, stop);
}

std::optional<ReadableSink::Page> Filler::list(const Journal::Fill& fill,
                                               const ReadableSink::Query& query,
                                               std::size_t limit) const {
  auto page = archives_.list(fill.archive, query, fill.position, limit);
  if (page) return *std::move(page);
  report_unreadable(fill, page.error());
  return std::nullopt;
}

void Filler::report_unreadable(const Journal::Fill& fill, const Error& error) const {
  log_.warning(
      "FILL_WAITS",
      "an archive cannot be read, so a sink is not filled from it at present; this is tried again",
      {{"sink", fill.sink}, {"archive", fill.archive}, {"reason", error.message()}});
}

bool Filler::count(const Journal::Fill& fill, const ReadableSink::Query& query) {
  const auto page = list(fill, query, kCountedAtOnce);
  if (!page) return false;
  Journal::Fill next = fill;
  next.position = page->position;
  next.total += page->events.size();
  if (page->end) {
    next.state = State::kFilling;
    next.position.clear();
  }
  return journal_.fill(fill, next, {}).has_value();
}

bool Filler::send(const Journal::Fill& fill, const ReadableSink::Query& query, std::size_t limit,
                  const std::stop_token& stop) {
  auto page = list(fill, query, limit);
  if (!page) return false;
  auto redacted = apply_rules(fill, *page, stop);
  if (!redacted) return false;
  // The position is that of the whole page, so a shorter one is asked for.
  if (redacted->read < page->events.size()) return send(fill, query, redacted->read, stop);
  Journal::Fill next = fill;
  next.position = page->position;
  next.skipped += page->skipped + redacted->refused;
  if (page->end) next.state = State::kDone;
  FAULT_POINT("fill.before");
  if (!journal_.fill(fill, next, std::move(redacted->unchanged), std::move(redacted->changed)))
    return false;
  if (page->end) {
    log_.info("FILL_DONE", "all that the archive holds was sent to a sink",
              {{"sink", fill.sink}, {"archive", fill.archive}, {"events", fill.total}});
  }
  return true;
}

// Nothing: the archive cannot be read now, or a stop.
std::optional<Filler::Redacted> Filler::apply_rules(const Journal::Fill& fill,
                                                    const ReadableSink::Page& page,
                                                    const std::stop_token& stop) const {
  Redacted result;
  const Rules rules = rules_.with([](const Rules& r) { return r; });
  if (!rules) return Redacted{.read = page.events.size(), .unchanged = page.events};
  std::uint64_t bytes = 0;
  for (const auto& locator : page.events) {
    if (stop.stop_requested()) return std::nullopt;
    if (bytes > kMostChangedBytes) return result;
    ++result.read;
    auto event = archives_.fetch_from(fill.archive, *locator);
    if (!event && !is_lost(event.error())) {
      report_unreadable(fill, event.error());
      return std::nullopt;
    }
    if (!event) {  // found out when it is delivered
      result.unchanged.push_back(locator);
      continue;
    }
    auto changed = rules(**event);
    if (!changed) {
      ++result.refused;
      log_.warning("FILL_NOT_REDACTED",
                   "the rules cannot be applied to an event of an archive, so it is not sent",
                   {{"sink", fill.sink},
                    {"archive", fill.archive},
                    {"job_id", printable(locator->job.id, 64)},
                    {"reason", changed.error().message()}});
    } else if (*changed == nullptr) {
      result.unchanged.push_back(locator);
    } else {
      bytes += (*changed)->bytes_size();
      result.changed.push_back(*std::move(changed));
    }
  }
  return result;
}

}  // namespace scriptorium
