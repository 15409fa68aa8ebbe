#pragma once

#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/daemon/runtime.h"
#include "core/daemon/setup.h"
#include "core/daemon/status_json.h"
#include "core/delivery/dispatcher.h"

namespace scriptorium {

// One running sink with its dispatcher.
// Threads: the main thread; stop() also from another while that waits; status() from any.
class SinkRun {
 public:
  // Makes the instance; registers nothing yet. It can be read as an archive from then on.
  static Result<std::unique_ptr<SinkRun>> make(const LoadedSink& sink, const Runtime& runtime);
  SinkRun(const LoadedSink& sink, const Runtime& runtime, std::shared_ptr<Sink> made,
          std::vector<std::string> directories);
  // Stays the same as long as a sink would be made the same.
  static std::string version_of(const LoadedSink& sink, const Runtime& runtime);

  // Registers the sink with the journal: its events wait from now on. Fails only with what the
  // journal says.
  Result<void> register_with_journal();
  // Starts its dispatcher, which starts the sink on a thread of its own, once `after` is ready.
  void start(std::shared_future<void> after = {});
  // For a command that a person waits for: as Dispatcher::await_start(), with kInvalidConfig only.
  Result<void> await_start(SteadyTime deadline);
  // False: it hangs in a call. Its thread still runs, and the process must end with _exit().
  bool stop(SteadyTime deadline);
  // Whether waiting for this sink gains nothing: it is idle, not ready, or its destination does not
  // answer.
  bool at_rest() const;
  std::uint64_t settled_events() const;  // since its start
  SinkStatus status() const;

  const std::string& name() const noexcept { return name_; }
  const std::string& version() const noexcept { return version_; }
  const std::shared_ptr<Sink>& sink() const noexcept { return sink_; }
  // Sink::directories().
  const std::vector<std::string>& directories() const noexcept { return directories_; }
  // Whether other sinks may be filled from it, if it can be read (core/delivery/parts.h).
  bool may_be_archive() const;
  Dispatcher& dispatcher() const noexcept { return *dispatcher_; }  // after start()

 private:
  const std::string name_;
  const std::string version_;
  const std::string plugin_;
  const SinkConfig config_;
  const Runtime& runtime_;
  std::shared_ptr<Sink> sink_;  // shared with Archives, from which a fetch may be under way
  const std::vector<std::string> directories_;
  Journal::SinkId id_ = 0;
  std::unique_ptr<Dispatcher> dispatcher_;
};

}  // namespace scriptorium
