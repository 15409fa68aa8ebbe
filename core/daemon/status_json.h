#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "core/capture/capture_status.h"
#include "core/daemon/owner_retry.h"
#include "core/daemon/owner_stage.h"
#include "core/delivery/dispatcher.h"
#include "core/journal/journal.h"

// `status --json`: what the parts of a daemon report, and the text made of it. Fields are only ever
// added. Pure.
namespace scriptorium {

// What a plugin says of itself.
struct PluginStatus {
  std::string json;  // "" = nothing
  std::optional<std::string> thrown;
};

struct FreeSourceStatus {
  std::uint64_t captured = 0;
  redact::Tally redactions;  // in them, by rule
  std::optional<std::string> last_error;
  PluginStatus own;
};

struct SpoolSourceStatus {
  struct Owners {
    OwnerStage::Status status;
    std::uint64_t waiting = 0;
    std::optional<OwnerRetry::Status> later;
  };
  CaptureStatus capture;
  std::optional<Owners> owners;
};

struct SourceStatus {
  std::string name;
  std::string plugin;
  std::variant<SpoolSourceStatus, FreeSourceStatus> kind;
};

struct SinkStatus {
  std::string name;
  std::string plugin;
  Dispatcher::Status dispatcher;
  PluginStatus own;
  // The oldest call into the sink, to deliver or to read what it stored.
  std::optional<CallWatch::Call> call_under_way;
};

// How the last reload ended; `when` "" = there was none.
struct LastReload {
  std::string when;
  std::string refused;  // why; "" = it was not
};

struct DaemonStatus {
  Timestamp now;
  SteadyTime steady_now;
  double uptime_seconds = 0;
  LastReload last_reload;
  std::string privileges_json;
  std::vector<SourceStatus> sources;
  Journal::Usage journal;
  std::vector<Journal::Fill> fills;
  std::vector<SinkStatus> sinks;  // of this run; the journal may know more
  std::string mail_json;          // MailConfig::status_file(); "" = none
};
std::string status_json(const DaemonStatus& status);

// One object of `owners.status`, and "later" in the status.
std::string owner_retry_json(const OwnerRetry::Status& status);
// One object of the answer to `sinks.fill`, and "fill" in the status.
std::string fill_json(const Journal::Fill& fill);

}  // namespace scriptorium
