#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/daemon/runtime.h"
#include "core/daemon/setup.h"
#include "core/daemon/sink_run.h"
#include "core/daemon/source_run.h"
#include "core/daemon/status_json.h"

namespace scriptorium {

// The running sources and sinks of a daemon.
// Owns:    them. Borrows the runtime and the archives for its life.
// Threads: the main thread. From any: add_to(), has_sink(), retry_owners().
class Pipeline {
 public:
  Pipeline(const Runtime& runtime, Archives& archives) : runtime_(runtime), archives_(archives) {}

  // A start, in this order. Sinks come first, so that an event that is captured finds all its sinks
  // known; all of them are made first, so that they can be read as archives before one starts.
  Result<void> make_sinks(const std::vector<LoadedSink>& loaded);
  Result<void> start_sinks();
  // Sinks that are not configured get nothing that comes from now on.
  Result<void> retire_other_sinks(const std::vector<LoadedSink>& configured);
  Result<void> make_sources(const std::vector<LoadedSource>& loaded);
  void start_sources();

  // Changes what has changed and leaves the rest running; everything new is made before anything
  // old is touched. `patience`: for each call that stops something. An error with which the new
  // configuration is in force all the same says so.
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
  bool sinks_idle() const;
  bool sinks_at_rest() const;  // see SinkRun::at_rest()
  bool owners_pending() const;
  std::uint64_t captured() const;

  void add_to(DaemonStatus& status) const;
  bool has_sink(const std::string& name) const;
  // What each source asks again for owners; `round`: if they are asked now, which round that is.
  struct Retry {
    std::string source;
    OwnerRetry::Status status;
    std::optional<std::uint64_t> round;
  };
  std::vector<Retry> retry_owners(bool ask_now) const;

 private:
  template <typename Run>
  struct Change {
    std::set<std::string> unchanged;
    std::vector<std::unique_ptr<Run>> made;
  };
  template <typename Run, typename Loaded>
  Result<Change<Run>> make_changed(const std::vector<Loaded>& wanted,
                                   const std::vector<std::unique_ptr<Run>>& running) const;
  template <typename Run>
  std::vector<std::unique_ptr<Run>> take_out(std::vector<std::unique_ptr<Run>>& running,
                                             const std::set<std::string>& unchanged);
  Result<void> check_directories(const std::vector<const SinkRun*>& sinks) const;
  std::optional<Error> replace_sinks(Change<SinkRun> change, std::chrono::seconds patience);
  void replace_sources(Change<SourceRun> change, std::chrono::seconds patience);

  const Runtime& runtime_;
  Archives& archives_;
  // Guards the two lists against other threads while the main thread changes them.
  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<SourceRun>> sources_;
  std::vector<std::unique_ptr<SinkRun>> sinks_;
  // Replaced, but a thread of it is still in a call.
  std::vector<std::unique_ptr<SinkRun>> hanging_sinks_;
  bool source_hangs_ = false;
};

}  // namespace scriptorium
