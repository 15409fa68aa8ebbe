#pragma once

#include <chrono>
#include <future>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "core/daemon/runtime.h"
#include "core/daemon/setup.h"
#include "core/daemon/sink_run.h"
#include "core/daemon/source_run.h"
#include "core/daemon/status_json.h"

namespace scriptorium {

// The running sources and sinks of a daemon.
// Owns:    them. Borrows the runtime and the archives for its life.
// Threads: the main thread. From any: add_to(), has_sink(), all_sinks(), owners_json().
class Pipeline {
 public:
  Pipeline(const Runtime& runtime, Archives& archives) : runtime_(runtime), archives_(archives) {}

  // A start calls these in this order. Sinks come first, so that all sinks are registered when an
  // event is captured. All of them are made before one starts, so that they can serve as archives.
  Result<void> make_sinks(const std::vector<LoadedSink>& loaded);
  // Waits for no sink: each starts on a thread of its own, and until it is ready its events wait.
  Result<void> start_sinks();
  // Sinks that are not configured get no new events from now on.
  Result<void> retire_other_sinks(const std::vector<LoadedSink>& configured);
  Result<void> make_sources(const std::vector<LoadedSource>& loaded);
  void start_sources();

  // Replaces the instances that have changed and leaves the others running; on an error nothing has
  // changed. Waits for no sink: what is replaced stops on a thread of its own, and what is new
  // starts once that is done, or hangs for longer than `patience`.
  Result<void> switch_to(const Setup& setup, std::chrono::seconds patience);

  // False: something hangs in a call; the process must end with _exit().
  bool stop_sources(SteadyTime deadline);
  bool stop_sinks(SteadyTime deadline);

  const std::vector<std::unique_ptr<SourceRun>>& sources() const { return sources_; }
  const std::vector<std::unique_ptr<SinkRun>>& sinks() const { return sinks_; }
  bool sinks_at_rest() const;  // see SinkRun::at_rest()
  std::uint64_t settled_events() const;

  void add_to(DaemonStatus& status) const;
  bool has_sink(const std::string& name) const;
  std::vector<std::shared_ptr<Sink>> all_sinks() const;
  // The answer to `owners.status`, and with `ask_now` to `owners.retry`.
  std::string owners_json(bool ask_now) const;

 private:
  template <typename Run>
  struct Change {
    std::set<std::string> unchanged;
    std::vector<std::unique_ptr<Run>> made;
  };
  // What a reload has replaced. Its thread stops all of it, and destroys what has stopped: what is
  // left once it has `ended` hangs in a call.
  struct Retired {
    std::vector<std::unique_ptr<SinkRun>> sinks;
    std::vector<std::unique_ptr<SourceRun>> sources;
    std::promise<void> end_promise;
    std::shared_future<void> ended = end_promise.get_future().share();
    std::jthread thread;

    bool has_ended(SteadyTime by) const {
      return ended.wait_until(by) == std::future_status::ready;
    }
    bool is_done() const { return has_ended({}) && sinks.empty() && sources.empty(); }
  };
  template <typename Run, typename Wanted, typename Make>
  Result<Change<Run>> make_changed(const std::vector<Wanted>& wanted,
                                   const std::vector<std::unique_ptr<Run>>& running,
                                   const Make& make) const;
  template <typename Run>
  std::vector<std::unique_ptr<Run>> exchange(std::vector<std::unique_ptr<Run>>& running,
                                             Change<Run> change);
  Result<void> check_directories(const std::vector<const SinkRun*>& sinks) const;
  void offer_as_archive(const SinkRun& sink);
  std::vector<std::unique_ptr<SourceRun>> replace_sources(Change<SourceRun> change);
  static void stop_in_background(Retired& old, SteadyTime deadline);

  const Runtime& runtime_;
  Archives& archives_;
  // Guards the two lists against other threads while the main thread changes them.
  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<SourceRun>> sources_;
  std::vector<std::unique_ptr<SinkRun>> sinks_;
  std::vector<std::unique_ptr<Retired>> retired_;  // of the main thread alone
};

}  // namespace scriptorium
