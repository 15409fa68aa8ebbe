#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/daemon/runtime.h"
#include "core/daemon/setup.h"
#include "core/daemon/sink_run.h"
#include "core/daemon/source_run.h"
#include "core/daemon/status_json.h"

namespace scriptorium {

// The running sources and sinks of a daemon.
// Owns:    them. Borrows the runtime and the archives for its life.
// Threads: the main thread. From any: add_to(), has_sink(), owners_json().
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

  // Replaces the instances that have changed and leaves the others running. Everything new is made
  // before anything old is stopped. `patience`: the time for each call that stops something. There
  // may be an error although the new configuration is in force.
  struct Switched {
    bool in_force = false;
    std::optional<Error> error;
  };
  Switched switch_to(const Setup& setup, std::chrono::seconds patience);

  // False: something hangs in a call; the process must end with _exit().
  bool stop_sources(SteadyTime deadline);
  bool stop_sinks(SteadyTime deadline);
  void clear();

  const std::vector<std::unique_ptr<SourceRun>>& sources() const { return sources_; }
  const std::vector<std::unique_ptr<SinkRun>>& sinks() const { return sinks_; }
  bool sinks_at_rest() const;  // see SinkRun::at_rest()

  void add_to(DaemonStatus& status) const;
  bool has_sink(const std::string& name) const;
  // The answer to `owners.status`, and with `ask_now` to `owners.retry`.
  std::string owners_json(bool ask_now) const;

 private:
  template <typename Run>
  struct Change {
    std::set<std::string> unchanged;
    std::vector<std::unique_ptr<Run>> made;
  };
  template <typename Run, typename Wanted>
  Result<Change<Run>> make_changed(const std::vector<Wanted>& wanted,
                                   const std::vector<std::unique_ptr<Run>>& running) const;
  template <typename Run>
  std::vector<std::unique_ptr<Run>> take_out(std::vector<std::unique_ptr<Run>>& running,
                                             const std::set<std::string>& unchanged);
  Result<void> check_directories(const std::vector<const SinkRun*>& sinks) const;
  void offer_as_archive(const SinkRun& sink);
  std::optional<Error> replace_sinks(Change<SinkRun> change, std::chrono::seconds patience);
  void replace_sources(Change<SourceRun> change, std::chrono::seconds patience);

  const Runtime& runtime_;
  Archives& archives_;
  // Guards the two lists against other threads while the main thread changes them.
  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<SourceRun>> sources_;
  std::vector<std::unique_ptr<SinkRun>> sinks_;
  // Replaced, but with a thread that is still in a call.
  std::vector<std::unique_ptr<SinkRun>> hanging_sinks_;
  bool source_hangs_ = false;
};

}  // namespace scriptorium
