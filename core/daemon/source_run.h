#pragma once

#include <memory>
#include <string>

#include "core/capture/capture.h"
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
  // Makes and checks, starts nothing. kInvalidConfig refuses to start.
  static Result<std::unique_ptr<SourceRun>> make(const LoadedSource& source,
                                                 const Runtime& runtime);
  ~SourceRun();
  // Stays the same as long as a source would be made the same.
  static std::string version_of(const LoadedSource& source, const Runtime& runtime);

  void start();
  // False: one of its threads hangs in a call of an archive and still runs; the process must end
  // with _exit().
  bool stop(SteadyTime deadline);
  // Whether it may run beside its successor during a reload. A free source may keep a file of its
  // own, so it may not.
  bool may_overlap() const noexcept { return free_ == nullptr; }
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
  Result<void> make_spool_source(const SourceConfig& common);
  Result<OpenedAccess> open_spool_of(const SourceConfig& common) const;
  void make_capture(const SourceConfig& common, OpenedAccess opened, bool resolve_first);
  void make_owner_stage(const SourceConfig& common, std::unique_ptr<OwnerResolver> resolver);

  const std::string name_;
  const std::string version_;
  const std::string plugin_;
  const Runtime& runtime_;
  const std::shared_ptr<const redact::Redactor> redactor_;
  std::unique_ptr<SpoolAdapter> adapter_;
  std::unique_ptr<SpoolCapture> capture_;
  std::unique_ptr<OwnerRetry> retry_;  // owners_ calls it
  std::unique_ptr<OwnerStage> owners_;
  std::unique_ptr<FreeRun> free_;
};

}  // namespace scriptorium
