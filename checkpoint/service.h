#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/config.h"
#include "checkpoint/engine.h"
#include "checkpoint/queue.h"
#include "checkpoint/record.h"
#include "checkpoint/spool.h"
#include "core/api/logger.h"

namespace scriptorium::checkpoint {

// The node service: takes requests from the spool and forks a process for each.
// Borrows: the engine and the logger. Threads: one.
class Service {
 public:
  // `records`: absent = none are written.
  Service(Config config, std::string engine_version, Engine& engine, Spool spool,
          std::optional<RecordFolder> records, Logger& log);

  // Returns when `signals`, a signalfd, has SIGTERM or SIGINT. Requests being served are finished
  // by their processes, and what was restored runs on.
  void run(int signals);

 private:
  // The process that serves one request.
  struct Worker {
    Request request;
    pid_t pid = 0;
    UniqueFd report;  // readable: it has reported, or ended
    SteadyTime deadline;
    bool has_reported = false;
    bool cleans_up = false;
  };

  void accept(const SpoolRequest& request);
  // Its directory will say so.
  void interrupt(const Request& request);
  void start_due(SteadyTime now);
  // False: no process can be had for it now.
  bool start(const Request& request, bool cleans_up, SteadyTime now);
  void read_reports(Worker& worker);
  void read_report(Worker& worker, std::string_view text);
  void write_record(Record record);
  void end_late(SteadyTime now);
  std::vector<const Request*> requests(bool with_resumed) const;
  int poll_timeout_ms(SteadyTime now) const;

  Config config_;
  std::string engine_version_;
  Engine& engine_;
  Spool spool_;
  std::optional<RecordFolder> records_;
  Logger& log_;
  RequestQueue queue_;
  std::vector<Request> interrupted_;  // whose directories do not say so yet
  SteadyTime no_start_before_;
  std::vector<Worker> workers_;
  std::uint64_t records_dropped_ = 0;
};

}  // namespace scriptorium::checkpoint
