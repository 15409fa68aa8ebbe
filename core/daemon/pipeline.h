#pragma once

#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "core/capture/capture.h"
#include "core/capture/spool_opener.h"
#include "core/daemon/owner_retry.h"
#include "core/daemon/owner_stage.h"
#include "core/daemon/setup.h"
#include "core/delivery/dispatcher.h"

namespace scriptorium {

// What the parts of a running daemon share; lives longer than all of them.
struct Runtime {
  Journal& journal;
  Logger& log;
  const Clock& clock;
  std::string cluster;
  std::string host;
  bool once = false;
  SpoolOpener* opener = nullptr;   // reaches the spools; null: this process does, by its own rights
  CrashRecord* crashes = nullptr;  // null: none can be kept
  const Archives* archives = nullptr;
};

// One running source: an adapter with its capture and owner stage, or a free source with its
// thread. Threads: the main thread; status() from any.
class SourceRun {
 public:
  // Makes and checks, starts nothing. kInvalidConfig refuses to start.
  static Result<std::unique_ptr<SourceRun>> make(const LoadedSource& source,
                                                 const Runtime& runtime);
  ~SourceRun();
  SourceRun(const SourceRun&) = delete;
  SourceRun& operator=(const SourceRun&) = delete;

  void start();
  // False: a thread of it hangs in a sink's call and is left behind; the process must end with
  // _exit.
  bool stop(SteadyTime deadline);
  // Whether it may run beside its successor during a reload. A free source may keep a file of its
  // own, so it may not.
  bool may_overlap() const noexcept { return free_ == nullptr; }
  // For --once: captures all that is there; returns how many entries were still being written.
  std::size_t run_once(const std::stop_token& stop);
  bool owners_pending() const;
  std::string status_json() const;  // one object of "sources" in the status contract
  std::uint64_t captured() const;
  void rescan();
  OwnerRetry* owner_retry() const noexcept {
    return retry_.get();
  }  // null: nobody can be asked later

  const std::string& name() const noexcept { return name_; }
  const std::string& fingerprint() const noexcept { return fingerprint_; }

 private:
  class FreeRun;
  SourceRun(std::string name, std::string fingerprint, std::string plugin);

  const std::string name_;
  const std::string fingerprint_;
  const std::string plugin_;
  Journal* journal_ = nullptr;
  std::unique_ptr<SpoolAdapter> adapter_;
  std::unique_ptr<SpoolCapture> capture_;
  std::unique_ptr<OwnerRetry> retry_;  // which owners_ calls
  std::unique_ptr<OwnerStage> owners_;
  std::unique_ptr<FreeRun> free_;
};

// One running sink with its dispatcher.
class SinkRun {
 public:
  // Makes the instance; registers nothing yet. Its archive() can be read from then on.
  static Result<std::unique_ptr<SinkRun>> make(const LoadedSink& sink, const Runtime& runtime);
  ~SinkRun();
  SinkRun(const SinkRun&) = delete;
  SinkRun& operator=(const SinkRun&) = delete;

  // Calls the sink's start() (kInvalidConfig is returned, anything else logged), registers it with
  // the journal, starts its dispatcher.
  Result<void> start();
  // False: it hangs in a call; its thread is left behind and the process must end with _exit.
  bool stop(SteadyTime deadline);
  bool idle() const;
  // Idle, or waiting for a destination that does not answer: nothing is gained by waiting for it.
  bool at_rest() const;
  void wake();
  Dispatcher::Status dispatcher_status() const;
  std::string status_json(
      const Journal::SinkState& state) const;  // one object of "sinks" in the status contract

  const std::string& name() const noexcept { return name_; }
  const std::string& fingerprint() const noexcept { return fingerprint_; }
  const std::shared_ptr<Sink>& sink() const noexcept { return sink_; }

 private:
  SinkRun(const LoadedSink& sink, std::string fingerprint, const Runtime& runtime);

  const std::string name_;
  const std::string fingerprint_;
  const std::string plugin_;
  const SinkConfig config_;
  const Runtime& runtime_;
  std::shared_ptr<Sink> sink_;  // shared with Archives, from which a fetch may be under way
  std::unique_ptr<Dispatcher> dispatcher_;
};

// How the last reload ended; `when` "" = there was none.
struct LastReload {
  std::string when;
  std::string refused;  // why; "" = it was not
};

// The whole of `status --json`.
std::string render_status(const Journal& journal,
                          const std::vector<std::unique_ptr<SourceRun>>& sources,
                          const std::vector<std::unique_ptr<SinkRun>>& sinks, double uptime_seconds,
                          const LastReload& reload, const std::string& privileges_json);

// What `status` and `owners.status` say of it.
std::string owner_retry_json(const OwnerRetry& retry);

// One object of the answer to `sinks.fills`.
std::string fill_json(const Journal::Fill& fill);

// Two sinks that would write into one another's directories: "sink.a and sink.b both write into
// DIR"; empty = there are none. Links are followed, also above a directory that is not there yet.
std::vector<std::string> shared_directories(
    const std::vector<std::pair<std::string, std::vector<std::string>>>& by_sink);

// A text that is the same as long as an instance's configuration means the same.
std::string fingerprint(const Table& table, const std::string& plugin_file, const Runtime& runtime);

}  // namespace scriptorium
