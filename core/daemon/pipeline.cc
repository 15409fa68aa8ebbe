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

template <typename Runs>
auto find(Runs& running, const std::string& name) {
  return std::find_if(running.begin(), running.end(),
                      [&](const auto& run) { return run->name() == name; });
}

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
    if (auto registered = sink->register_with_journal(); !registered) return registered;
    sink->start();
  }
  return {};
}

Result<void> Pipeline::retire_other_sinks(const std::vector<LoadedSink>& configured) {
  std::vector<std::string> names;
  for (const LoadedSink& sink : configured) names.push_back(sink.instance.name);
  if (auto retired = runtime_.journal.retire_other_sinks(names); !retired) return retired;
  archives_.keep_only(names);
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
    auto source = SourceRun::make(one, runtime_, nullptr);
    if (!source) return source.error();
    sources_.push_back(*std::move(source));
  }
  return {};
}

void Pipeline::start_sources() {
  for (const auto& source : sources_) source->start();
}

// ---- reload

template <typename Run, typename Wanted, typename Make>
Result<Pipeline::Change<Run>> Pipeline::make_changed(
    const std::vector<Wanted>& wanted, const std::vector<std::unique_ptr<Run>>& running,
    const Make& make) const {
  std::vector<InstanceVersion> before;
  for (const auto& run : running) before.emplace_back(run->name(), run->version());
  std::vector<InstanceVersion> after;
  for (const auto& one : wanted)
    after.emplace_back(one.instance.name, Run::version_of(one, runtime_));
  Change<Run> change;
  change.unchanged = unchanged_instances(before, after);
  for (const auto& one : wanted) {
    if (change.unchanged.contains(one.instance.name)) continue;
    auto made = make(one);
    if (!made) return made.error();
    change.made.push_back(*std::move(made));
  }
  return change;
}

// Puts what was made in the place of all that has changed, and returns that.
template <typename Run>
std::vector<std::unique_ptr<Run>> Pipeline::exchange(std::vector<std::unique_ptr<Run>>& running,
                                                     Change<Run> change) {
  std::vector<std::unique_ptr<Run>> replaced;
  const std::lock_guard lock(mutex_);
  for (auto& run : running) {
    if (!change.unchanged.contains(run->name())) replaced.push_back(std::move(run));
  }
  std::erase(running, nullptr);
  for (auto& run : change.made) running.push_back(std::move(run));
  return replaced;
}

Result<void> Pipeline::switch_to(const Setup& setup, std::chrono::seconds patience) {
  std::erase_if(retired_, [](const auto& old) { return old->is_done(); });
  auto new_sinks = make_changed(
      setup.sinks, sinks_, [&](const LoadedSink& sink) { return SinkRun::make(sink, runtime_); });
  if (!new_sinks) return new_sinks.error();
  auto new_sources = make_changed(setup.sources, sources_, [&](const LoadedSource& source) {
    const auto running = find(sources_, source.instance.name);
    return SourceRun::make(source, runtime_, running == sources_.end() ? nullptr : running->get());
  });
  if (!new_sources) return new_sources.error();
  std::vector<const SinkRun*> all;
  for (const auto& sink : new_sinks->made) all.push_back(sink.get());
  for (const auto& sink : sinks_) {
    if (new_sinks->unchanged.contains(sink->name())) all.push_back(sink.get());
  }
  if (auto apart = check_directories(all); !apart) return apart;
  // These fail only if the journal is damaged, and then the daemon ends.
  for (const auto& sink : new_sinks->made) {
    if (auto registered = sink->register_with_journal(); !registered) return registered;
  }
  if (auto retired = retire_other_sinks(setup.sinks); !retired) return retired;

  // From here on nothing is refused.
  Retired& old = *retired_.emplace_back(std::make_unique<Retired>());
  for (const auto& sink : new_sinks->made) {
    offer_as_archive(*sink);
    sink->start(old.ended);
  }
  old.sinks = exchange(sinks_, *std::move(new_sinks));
  old.sources = replace_sources(*std::move(new_sources));
  stop_in_background(old, runtime_.clock.steady() + patience);
  for (const auto& sink : sinks_) sink->dispatcher().wake();
  for (const auto& source : sources_) source->rescan();
  return {};
}

// One after the other, so that each pauses as briefly as can be.
std::vector<std::unique_ptr<SourceRun>> Pipeline::replace_sources(Change<SourceRun> change) {
  std::vector<std::unique_ptr<SourceRun>> replaced;
  for (auto& made : change.made) {
    SourceRun& source = *made;
    change.unchanged.insert(source.name());
    const auto running = find(sources_, source.name());
    if (running != sources_.end()) (*running)->make_way(source);
    {
      const std::lock_guard lock(mutex_);
      if (running == sources_.end()) {
        sources_.push_back(std::move(made));
      } else {
        source.take_over(**running);
        replaced.push_back(std::exchange(*running, std::move(made)));
      }
    }
    source.start();
  }
  change.made.clear();
  for (auto& removed : exchange(sources_, std::move(change)))
    replaced.push_back(std::move(removed));
  return replaced;
}

void Pipeline::stop_in_background(Retired& old, SteadyTime deadline) {
  old.thread = std::jthread([&old, deadline] {
    const auto stop_all = [deadline](auto& runs) {
      std::vector<std::jthread> stops;
      for (auto& run : runs) {
        stops.emplace_back([&run, deadline] {
          if (run->stop(deadline)) run.reset();
        });
      }
    };
    stop_all(old.sinks);
    stop_all(old.sources);
    std::erase(old.sinks, nullptr);
    std::erase(old.sources, nullptr);
    old.end_promise.set_value();
  });
}

// ---- stop

bool Pipeline::stop_sources(SteadyTime deadline) {
  bool stopped = true;
  for (const auto& source : sources_) stopped = source->stop(deadline) && stopped;
  return stopped;
}

bool Pipeline::stop_sinks(SteadyTime deadline) {
  const SteadyTime last = std::max(deadline, runtime_.clock.steady() + kLeastStopTime);
  std::atomic<bool> stopped = true;
  {
    // At once, so that one that hangs takes no time from the others.
    std::vector<std::jthread> stops;
    const auto stop_all = [&](const std::vector<std::unique_ptr<SinkRun>>& sinks) {
      for (const auto& sink : sinks) {
        stops.emplace_back([&stopped, &sink = *sink, last] {
          if (!sink.stop(last)) stopped = false;
        });
      }
    };
    stop_all(sinks_);
    for (const auto& retired : retired_) {
      if (!retired->has_ended(last)) {
        stopped = false;
        continue;
      }
      stop_all(retired->sinks);
      if (!retired->sources.empty()) stopped = false;
    }
  }
  return stopped;
}

// ---- status

std::uint64_t Pipeline::settled_events() const {
  std::uint64_t sum = 0;
  for (const auto& sink : sinks_) sum += sink->settled_events();
  return sum;
}

bool Pipeline::sinks_at_rest() const {
  return std::all_of(sinks_.begin(), sinks_.end(), [](const auto& s) { return s->at_rest(); });
}

void Pipeline::add_to(DaemonStatus& status) const {
  const std::lock_guard lock(mutex_);
  for (const auto& source : sources_) status.sources.push_back(source->status());
  for (const auto& sink : sinks_) status.sinks.push_back(sink->status());
}

std::vector<std::shared_ptr<Sink>> Pipeline::all_sinks() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<Sink>> all;
  for (const auto& sink : sinks_) all.push_back(sink->sink());
  return all;
}

bool Pipeline::has_sink(const std::string& name) const {
  const std::lock_guard lock(mutex_);
  return find(sinks_, name) != sinks_.end();
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
