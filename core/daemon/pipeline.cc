#include "core/daemon/pipeline.h"

#include <algorithm>
#include <atomic>
#include <nlohmann/json.hpp>
#include <thread>

#include "core/base/text.h"
#include "core/daemon/reload.h"
#include "core/plugin/call_plugin.h"

namespace scriptorium {
namespace {

// A sink gets at least this long for its orderly end, even after the deadline of a stop.
constexpr std::chrono::milliseconds kLeastStopTime{500};

}  // namespace

// ---- start

Result<void> Pipeline::make_sinks(const std::vector<LoadedSink>& loaded) {
  std::vector<const SinkRun*> all;
  for (const LoadedSink& one : loaded) {
    auto sink = SinkRun::make(one, runtime_);
    if (!sink) return sink.error();
    offer_as_archive(**sink);
    all.push_back(sink->get());
    sinks_.push_back(*std::move(sink));
  }
  return check_directories(all);
}

void Pipeline::offer_as_archive(const SinkRun& sink) {
  archives_.put(sink.name(), sink.may_be_archive() ? sink.sink() : nullptr);
}

Result<void> Pipeline::start_sinks() {
  for (const auto& sink : sinks_) {
    if (auto started = sink->start(); !started) return started;
  }
  return {};
}

Result<void> Pipeline::retire_other_sinks(const std::vector<LoadedSink>& configured) {
  std::vector<std::string> names;
  for (const LoadedSink& sink : configured) names.push_back(sink.instance.name);
  archives_.keep_only(names);
  if (auto retired = runtime_.journal.retire_other_sinks(std::move(names)); !retired)
    return retired;
  for (const Journal::SinkState& sink : runtime_.journal.usage().sinks) {
    if (sink.registered || sink.waiting + sink.dead == 0) continue;
    runtime_.log.warning(
        "SINK_UNKNOWN",
        "events wait for a sink that is not configured; it gets nothing new, and they are kept "
        "until it is configured again or forgotten",
        {{"sink", sink.name},
         {"waiting", sink.waiting},
         {"dead", sink.dead},
         {"command", "scriptorium sinks forget " + printable(sink.name)}});
  }
  return {};
}

Result<void> Pipeline::check_directories(const std::vector<const SinkRun*>& sinks) const {
  SinkDirectories by_sink;
  for (const SinkRun* sink : sinks) {
    by_sink.emplace_back(sink->name(), sink->directories());
  }
  const auto shared = shared_directories(by_sink);
  if (shared.empty()) return {};
  return Error{ErrorKind::kInvalidConfig, shared.front()};
}

Result<void> Pipeline::make_sources(const std::vector<LoadedSource>& loaded) {
  for (const LoadedSource& one : loaded) {
    auto source = SourceRun::make(one, runtime_);
    if (!source) return source.error();
    sources_.push_back(*std::move(source));
  }
  return {};
}

void Pipeline::start_sources() {
  for (const auto& source : sources_) source->start();
}

// ---- reload

template <typename Run, typename Wanted>
Result<Pipeline::Change<Run>> Pipeline::make_changed(
    const std::vector<Wanted>& wanted, const std::vector<std::unique_ptr<Run>>& running) const {
  std::vector<InstanceVersion> before;
  for (const auto& run : running) before.emplace_back(run->name(), run->version());
  std::vector<InstanceVersion> after;
  for (const auto& one : wanted)
    after.emplace_back(one.instance.name, Run::version_of(one, runtime_));
  Change<Run> change;
  change.unchanged = unchanged_instances(before, after);
  for (const auto& one : wanted) {
    if (change.unchanged.contains(one.instance.name)) continue;
    auto made = Run::make(one, runtime_);
    if (!made) return made.error();
    change.made.push_back(*std::move(made));
  }
  return change;
}

template <typename Run>
std::vector<std::unique_ptr<Run>> Pipeline::take_out(std::vector<std::unique_ptr<Run>>& running,
                                                     const std::set<std::string>& unchanged) {
  std::vector<std::unique_ptr<Run>> changed;
  const std::lock_guard lock(mutex_);
  for (auto& run : running) {
    if (!unchanged.contains(run->name())) changed.push_back(std::move(run));
  }
  std::erase(running, nullptr);
  return changed;
}

Pipeline::Switched Pipeline::switch_to(const Setup& setup, std::chrono::seconds patience) {
  auto new_sinks = make_changed(setup.sinks, sinks_);
  if (!new_sinks) return {false, new_sinks.error()};
  auto new_sources = make_changed(setup.sources, sources_);
  if (!new_sources) return {false, new_sources.error()};
  std::vector<const SinkRun*> all;
  for (const auto& sink : new_sinks->made) all.push_back(sink.get());
  for (const auto& sink : sinks_) {
    if (new_sinks->unchanged.contains(sink->name())) all.push_back(sink.get());
  }
  if (auto apart = check_directories(all); !apart) return {false, apart.error()};

  std::optional<Error> refused = replace_sinks(*std::move(new_sinks), patience);
  replace_sources(*std::move(new_sources), patience);
  // A sink that did not start is configured nevertheless: its events wait for it.
  if (auto retired = retire_other_sinks(setup.sinks); !retired && !refused)
    refused = retired.error();
  for (const auto& sink : sinks_) sink->dispatcher().wake();
  for (const auto& source : sources_) source->rescan();
  if (!refused) return {true, std::nullopt};
  return {true,
          Error{ErrorKind::kInvalidConfig, "a changed sink does not start: " + refused->message() +
                                               "; its events wait in the journal"}};
}

// Between the stop of a changed sink and its new start, its events wait in the journal. Returns why
// one did not start.
std::optional<Error> Pipeline::replace_sinks(Change<SinkRun> change,
                                             std::chrono::seconds patience) {
  for (auto& old : take_out(sinks_, change.unchanged)) {
    if (!old->stop(runtime_.clock.steady() + patience)) hanging_sinks_.push_back(std::move(old));
  }
  for (const auto& sink : change.made) offer_as_archive(*sink);
  std::optional<Error> refused;
  for (auto& sink : change.made) {
    if (auto started = sink->start(); !started) {
      refused = started.error();
      continue;
    }
    const std::lock_guard lock(mutex_);
    sinks_.push_back(std::move(sink));
  }
  return refused;
}

// A changed spool source overlaps with its successor, so that no entry is missed in between; an
// entry that both capture becomes one event. A changed free source ends before its successor
// starts.
void Pipeline::replace_sources(Change<SourceRun> change, std::chrono::seconds patience) {
  const auto old_sources = take_out(sources_, change.unchanged);
  const auto stop = [&](SourceRun& source) {
    if (!source.stop(runtime_.clock.steady() + patience)) source_hangs_ = true;
  };
  for (const auto& old : old_sources) {
    if (!old->may_overlap()) stop(*old);
  }
  for (auto& source : change.made) {
    source->start();
    const std::lock_guard lock(mutex_);
    sources_.push_back(std::move(source));
  }
  for (const auto& old : old_sources) stop(*old);
}

// ---- stop

bool Pipeline::stop_sources(SteadyTime deadline) {
  for (const auto& source : sources_) {
    if (!source->stop(deadline)) source_hangs_ = true;
  }
  return !source_hangs_;
}

bool Pipeline::stop_sinks(SteadyTime deadline) {
  const SteadyTime last = std::max(deadline, runtime_.clock.steady() + kLeastStopTime);
  std::atomic<bool> stopped = true;
  {
    // At once, so that one that hangs takes no time from the others.
    std::vector<std::jthread> stops;
    for (const auto* sinks : {&sinks_, &hanging_sinks_}) {
      for (const auto& sink : *sinks) {
        stops.emplace_back([&stopped, &sink = *sink, last] {
          if (!sink.stop(last)) stopped = false;
        });
      }
    }
  }
  return stopped;
}

void Pipeline::clear() {
  sources_.clear();
  sinks_.clear();
  hanging_sinks_.clear();
}

// ---- status

bool Pipeline::sinks_at_rest() const {
  return std::all_of(sinks_.begin(), sinks_.end(), [](const auto& s) { return s->at_rest(); });
}

void Pipeline::add_to(DaemonStatus& status) const {
  const std::lock_guard lock(mutex_);
  for (const auto& source : sources_) status.sources.push_back(source->status());
  for (const auto& sink : sinks_) status.sinks.push_back(sink->status());
}

bool Pipeline::has_sink(const std::string& name) const {
  const std::lock_guard lock(mutex_);
  return std::any_of(sinks_.begin(), sinks_.end(),
                     [&](const auto& sink) { return sink->name() == name; });
}

std::string Pipeline::owners_json(bool ask_now) const {
  using Json = nlohmann::ordered_json;
  Json all = Json::array();
  const std::lock_guard lock(mutex_);
  for (const auto& source : sources_) {
    OwnerRetry* const retry = source->owner_retry();
    if (retry == nullptr) continue;
    Json one = {{"source", source->name()}};
    const std::uint64_t round = ask_now ? retry->ask_now() : 0;
    one.update(Json::parse(owner_retry_json(retry->status())));
    if (ask_now) one["round"] = round;
    all.push_back(std::move(one));
  }
  return all.dump();
}

}  // namespace scriptorium
