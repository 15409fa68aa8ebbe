#pragma once

#include <memory>
#include <optional>
#include <string>

#include "core/capture/capture.h"
#include "core/daemon/coordinator_watch.h"
#include "core/daemon/free_run.h"
#include "core/daemon/owner_retry.h"
#include "core/daemon/owner_stage.h"
#include "core/daemon/runtime.h"
#include "core/daemon/setup.h"
#include "core/daemon/status_json.h"

namespace scriptorium {

// One running source: an adapter with its capture and owner stage, or a free source with its
// thread.
// Threads: the main thread; status(), captured() and owner_retry() from any.
class SourceRun {
 public:
  // Makes and checks, starts nothing. kInvalidConfig refuses to start. `running`: the one of this
  // name that it is to take over from; null: none.
  static Result<std::unique_ptr<SourceRun>> make(const LoadedSource& source, const Runtime& runtime,
                                                 const SourceRun* running);
  ~SourceRun();
  // Stays the same as long as a source would be made the same.
  static std::string version_of(const LoadedSource& source, const Runtime& runtime);

  void start();
  // False: one of its threads hangs in a call of an archive and still runs; the process must end
  // with _exit().
  bool stop(SteadyTime deadline);
  // A reload replaces it in three steps: make_way(), take_over() of the successor, which takes no
  // time, and the successor's start(). If both capture the same spool in the same way, the
  // successor takes the capture itself, with what the kernel has queued, so that no entry is missed
  // in between.
  void make_way(const SourceRun& successor);
  void take_over(SourceRun& predecessor);
  // For --once: captures everything there is; returns how many entries were still being written.
  std::size_t run_once(const std::stop_token& stop);
  bool owners_pending() const;
  SourceStatus status() const;
  std::uint64_t captured() const;
  void rescan();
  // Null: owners cannot be asked for later.
  OwnerRetry* owner_retry() const noexcept { return retry_.get(); }

  const std::string& name() const noexcept { return name_; }
  const std::string& version() const noexcept { return version_; }

 private:
  SourceRun(const LoadedSource& source, const Runtime& runtime);
  Result<void> make_spool_source(const SourceRun* running);
  Result<OpenedAccess> open_spool_of_adapter() const;
  bool captures_as(const SourceRun& other) const;
  SpoolCapture::Options capture_options() const;
  void make_owner_stage(std::unique_ptr<OwnerResolver> resolver);
  void forget_those_found_later(LastHour::Counts& counts) const;

  const std::string name_;
  const std::string version_;
  const std::string plugin_;
  const SourceConfig common_;
  const Runtime& runtime_;
  const std::shared_ptr<const redact::Redactor> redactor_;
  std::unique_ptr<SpoolAdapter> adapter_;
  std::unique_ptr<SpoolCapture> capture_;
  // For the capture of its predecessor, until take_over() gets that.
  struct Change {
    SpoolCapture::Options options;
    std::unique_ptr<NumberResolver> numbers;
  };
  std::optional<Change> change_;
  std::unique_ptr<OwnerRetry> retry_;  // owners_ calls it
  std::unique_ptr<OwnerStage> owners_;
  std::unique_ptr<CoordinatorWatch> coordinators_;
  std::unique_ptr<FreeRun> free_;
};

}  // namespace scriptorium
