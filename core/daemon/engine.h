#pragma once

#include <memory>
#include <optional>
#include <string>

#include "core/base/guarded.h"
#include "core/daemon/pipeline.h"
#include "core/daemon/privileges.h"
#include "core/daemon/reload.h"
#include "core/delivery/filler.h"
#include "core/delivery/releaser.h"

namespace scriptorium {

// What a daemon works with: the journal and everything that fills and empties it.
// Owns:    all of it, and the lock of state_dir. Borrows privileges, logger and clock for its life.
// Threads: the main thread; status() and answer() from any.
class Engine {
 public:
  Engine(Setup setup, const Privileges& privileges, Logger& log, const Clock& clock, bool once);

  // Opens everything and starts all but the sources. After an error, call refuse(). False: a sink
  // hangs in a call, and the process must end with _exit().
  Result<void> start();
  bool refuse();
  // Puts a changed configuration in force, as Pipeline::switch_to() does.
  Result<void> switch_to(Setup setup);
  void note_reload(const Result<void>& ended);  // for the status

  // A stop is stop_sources(), then stop_delivery(). False: something hangs in a call, and the
  // process must end with _exit().
  bool stop_sources(SteadyTime deadline);
  bool stop_delivery(SteadyTime deadline);

  const CoreConfig& core() const { return setup_.config.core; }
  const Runtime& runtime() const { return *runtime_; }
  Journal& journal() { return *journal_; }
  Pipeline& pipeline() { return *pipeline_; }
  CrashRecord* crashes() { return crashes_.get(); }  // null: none can be kept

  // The answer to `status`, and to any request (core/daemon/control.h).
  std::string status() const;
  std::string answer(const std::string& request);

 private:
  Result<void> open_journal();
  void open_crash_record();
  void note_mail_status_file();
  Result<Journal::Fill> begin_fill(const std::string& sink, const std::string& from,
                                   const std::string& since);

  Setup setup_;
  const Privileges& privileges_;
  Logger& log_;
  const Clock& clock_;
  const bool once_;
  const SteadyTime begun_ = clock_.steady();
  UniqueFd lock_;
  Archives archives_;  // the journal asks it
  DirectoryClaims claims_;
  std::unique_ptr<Journal> journal_;
  std::unique_ptr<CrashRecord> crashes_;
  std::optional<Runtime> runtime_;
  std::optional<Releaser> releaser_;
  std::optional<Filler> filler_;
  std::optional<Pipeline> pipeline_;
  Guarded<LastReload> last_reload_;
  Guarded<std::string> mail_status_file_;  // "" = no mails are configured
};

}  // namespace scriptorium
