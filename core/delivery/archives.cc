#include "core/delivery/archives.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "core/base/fault_point.h"
#include "core/base/pause.h"
#include "core/base/text.h"
#include "core/base/thread_name.h"
#include "core/plugin/call_plugin.h"

namespace scriptorium {
namespace {

using std::chrono::milliseconds;

constexpr std::size_t kReleasedAtOnce = 200;
constexpr std::size_t kFilledAtOnce = 500;
constexpr std::size_t kCountedAtOnce = 5000;
constexpr std::uint64_t kMostFilled =
    10'000;  // events that wait for a sink while more are sent to it
constexpr milliseconds kPause{250};
// After this long, what no archive had is asked for again.
constexpr std::chrono::seconds kAskAgain{30};

Error no_archive(const std::string& name) {
  return Error{ErrorKind::kPermanent, "there is no sink " + printable(name) + " that can be read"};
}

// A file that an archive keeps of no event is left out of the comparison.
bool same_event(const Event& journal, const Event& archived) {
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

// ---- archives

void Archives::put(const std::string& name, std::shared_ptr<Sink> sink) {
  bool readable = false;
  static_cast<void>(call_plugin([&] { readable = sink->readable() != nullptr; }));
  sinks_.with([&](auto& sinks) {
    sinks.erase(name);
    if (readable) sinks.emplace(name, std::move(sink));
  });
}

void Archives::keep_only(const std::vector<std::string>& configured) {
  std::map<std::string, std::shared_ptr<Sink>> removed;  // destroyed outside of the lock
  sinks_.with([&](auto& sinks) {
    for (auto it = sinks.begin(); it != sinks.end();) {
      const bool stays =
          std::find(configured.begin(), configured.end(), it->first) != configured.end();
      const auto here = it++;
      if (!stays) removed.insert(sinks.extract(here));
    }
  });
}

std::vector<std::string> Archives::names() const {
  return sinks_.with([](const auto& sinks) {
    std::vector<std::string> names;
    for (const auto& [name, sink] : sinks) names.push_back(name);
    return names;
  });
}

std::shared_ptr<Sink> Archives::find(const std::string& name) const {
  return sinks_.with([&](const auto& sinks) {
    const auto found = sinks.find(name);
    return found == sinks.end() ? nullptr : found->second;
  });
}

Result<std::shared_ptr<const Event>> Archives::fetch(const Event& locator) const {
  std::optional<Error> gone;
  for (const std::string& name : names()) {
    auto event = fetch_from(name, locator);
    if (event) return event;
    const ErrorKind kind = event.error().kind();
    if (kind == ErrorKind::kPermanent) continue;
    if (kind != ErrorKind::kVanished && kind != ErrorKind::kCorrupt)
      return event.error().with_context(name);
    gone = event.error().with_context(name);
  }
  if (gone) return *gone;
  return Error{ErrorKind::kTransient, "no sink is configured that can be read"};
}

Result<std::shared_ptr<const Event>> Archives::fetch_from(const std::string& name,
                                                          const Event& locator) const {
  const auto sink = find(name);
  if (sink == nullptr) return no_archive(name);
  return call_plugin("the plugin", ErrorKind::kTransient,
                     [&] { return sink->readable()->fetch(locator); });
}

Result<ReadableSink::Page> Archives::list(const std::string& name, const ReadableSink::Query& query,
                                          const std::string& after, std::size_t limit) const {
  const auto sink = find(name);
  if (sink == nullptr) return no_archive(name);
  return call_plugin("the plugin", ErrorKind::kTransient,
                     [&] { return sink->readable()->list(query, after, limit); });
}

// ---- release

Releaser::Releaser(Journal& journal, const Archives& archives, Logger& log,
                   std::uint64_t limit_bytes)
    : journal_(journal), archives_(archives), log_(log), limit_bytes_(limit_bytes) {}
Releaser::~Releaser() = default;

void Releaser::start() {
  thread_.start([this](const std::stop_token& stop) { run(stop); });
}

void Releaser::run(const std::stop_token& stop) noexcept {
  name_thread("release");
  SteadyTime ask_again_at = std::chrono::steady_clock::now() + kAskAgain;
  while (journal_.wait_above(limit_bytes_ / 10 * 8, stop)) {
    const std::uint64_t released = round(stop);
    if (released > 0 && !announced_) {
      announced_ = true;
      log_.warning(
          "JOURNAL_RELEASES",
          "a sink does not keep up and the journal has passed 80 % of its limit; what an archive "
          "holds too is released, "
          "and fetched from the archive once the sink takes events again",
          {{"events", released}, {"bytes", journal_.used_bytes()}, {"limit_bytes", limit_bytes_}});
    }
    if (released == 0) pause_for(stop, kPause);
    if (std::chrono::steady_clock::now() >= ask_again_at) {
      positions_.clear();
      announced_ = false;
      ask_again_at = std::chrono::steady_clock::now() + kAskAgain;
    }
  }
}

bool Releaser::holds(const std::string& archive, const Event& event) const {
  const auto fetched = archives_.fetch_from(archive, event);
  return fetched && same_event(event, **fetched);
}

std::uint64_t Releaser::round(const std::stop_token& stop) {
  std::uint64_t released = 0;
  for (const std::string& archive : archives_.names()) {
    std::uint64_t& position = positions_[archive];
    while (!stop.stop_requested() && journal_.used_bytes() > limit_bytes_ / 10 * 7) {
      const std::uint64_t before = position;
      auto candidates = journal_.releasable(archive, position, kReleasedAtOnce);
      if (!candidates) break;  // the reader of each sink says why
      std::erase_if(*candidates, [&](const Journal::Releasable& c) {
        return stop.stop_requested() || !holds(archive, *c.event);
      });
      if (stop.stop_requested()) return released;
      const std::uint64_t count = candidates->size();
      FAULT_POINT("release.before");
      if (count > 0 && !journal_.release(*candidates)) break;
      released += count;
      if (position == before) break;
    }
  }
  return released;
}

// ---- fill

Filler::Filler(Journal& journal, const Archives& archives, Logger& log, std::uint64_t limit_bytes)
    : journal_(journal), archives_(archives), log_(log), limit_bytes_(limit_bytes) {}
Filler::~Filler() = default;

void Filler::start_thread() {
  thread_.start([this](const std::stop_token& stop) { run(stop); });
}

Result<Journal::Fill> Filler::begin(const std::string& sink, const std::string& archive,
                                    Timestamp since) {
  std::vector<std::string> archives = archives_.names();
  std::erase(archives, sink);
  Journal::Fill fill;
  fill.sink = sink;
  fill.archive = archive;
  fill.since = since;
  if (archive.empty()) {
    if (archives.size() != 1) {
      std::string list;
      for (const std::string& name : archives) list += (list.empty() ? "" : ", ") + name;
      return Error{ErrorKind::kPermanent,
                   archives.empty()
                       ? "no other sink is configured that can be read, such as a file tree "
                         "with script, environment and metadata"
                       : "several sinks can be read: " + list + "; say --from"};
    }
    fill.archive = archives.front();
  } else if (std::find(archives.begin(), archives.end(), archive) == archives.end()) {
    return archive == sink ? Error{ErrorKind::kPermanent, "a sink cannot be filled from itself"}
                           : no_archive(archive);
  }
  for (const Journal::Fill& known : journal_.fills()) {
    const bool same =
        known.sink == fill.sink && known.archive == fill.archive && known.since == fill.since;
    if (same && known.state != Journal::Fill::State::kDone) return known;
  }
  if (auto stored = journal_.set_fill(fill); !stored) return stored.error();
  begun_.with_notify([](std::uint64_t& count) { ++count; });
  return fill;
}

void Filler::run(const std::stop_token& stop) noexcept {
  name_thread("fill");
  std::uint64_t seen = 0;
  while (!stop.stop_requested()) {
    bool any = false;
    bool progress = false;
    seen = begun_.with([](std::uint64_t count) { return count; });
    for (const Journal::Fill& fill : journal_.fills()) {
      if (fill.state == Journal::Fill::State::kDone || stop.stop_requested()) continue;
      any = true;
      progress = step(fill) || progress;
    }
    if (!any) {
      begun_.wait(stop, [&](std::uint64_t count) { return count != seen; });
    } else if (!progress) {
      pause_for(stop, kPause);
    }
  }
}

bool Filler::step(Journal::Fill fill) {
  const Journal::Usage usage = journal_.usage();
  const auto sink = std::find_if(usage.sinks.begin(), usage.sinks.end(),
                                 [&](const auto& s) { return s.name == fill.sink; });
  if (sink == usage.sinks.end() || !sink->registered)
    return false;  // waits until it is configured again
  const ReadableSink::Query query{.kinds = sink->kinds, .since = fill.since};
  const bool counting = fill.state == Journal::Fill::State::kCounting;
  if (!counting && (usage.bytes > limit_bytes_ / 2 || sink->waiting > kMostFilled)) return false;
  auto page =
      archives_.list(fill.archive, query, fill.position, counting ? kCountedAtOnce : kFilledAtOnce);
  if (!page) {
    log_.warning(
        "FILL_WAITS",
        "an archive cannot be read, so a sink is not filled from it at present; this is tried "
        "again",
        {{"sink", fill.sink}, {"archive", fill.archive}, {"reason", page.error().message()}});
    return false;
  }
  fill.position = page->position;
  if (counting) {
    fill.total += page->events.size();
    if (page->end) {
      fill.state = Journal::Fill::State::kFilling;
      fill.position.clear();
    }
    return journal_.set_fill(fill).has_value();
  }
  fill.skipped += page->skipped;
  if (page->end) fill.state = Journal::Fill::State::kDone;
  FAULT_POINT("fill.before");
  auto added = journal_.fill(fill, std::move(page->events));
  if (!added) return false;
  if (page->end) {
    log_.info("FILL_DONE", "all that the archive holds was sent to a sink",
              {{"sink", fill.sink}, {"archive", fill.archive}, {"events", fill.total}});
  }
  return true;
}

}  // namespace scriptorium
