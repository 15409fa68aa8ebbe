#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "core/api/logger.h"
#include "core/base/file.h"
#include "core/base/result.h"
#include "core/base/time.h"
#include "core/config/config.h"
#include "core/daemon/metrics.h"

namespace scriptorium {

// Gives the daemon's metrics away: by HTTP (GET /metrics) on a Unix socket and, if asked for, on
// loopback, and as a file for node_exporter's textfile collector, replaced as a whole every 15 s.
// OpenMetrics where the Accept header asks for it.
//
// Owns:    the sockets and their files, one thread; one client at a time, cut off after 2 s.
// Threads: make and destroy in the main thread; `status` runs in the server's.
class MetricsServer {
 public:
  struct Options {
    std::string socket;  // path of the Unix socket, mode 0660
    std::optional<LoopbackAddress> listen;
    std::string textfile;  // "" = none
  };
  using StatusJson = std::function<std::string()>;

  // Takes the addresses; who connects now is answered after start(). kInvalidConfig if the socket's
  // path is too long or the port is taken.
  static Result<std::unique_ptr<MetricsServer>> open(Options options, StatusJson status,
                                                     Logger& log, const Clock& clock);
  // Once, when everything that `status` tells of runs: what is given away before would lack what
  // comes with that, and the file would keep showing it for 15 s.
  void start();
  ~MetricsServer();
  MetricsServer(const MetricsServer&) = delete;
  MetricsServer& operator=(const MetricsServer&) = delete;

  // The whole answer to a whole request head; for tests.
  static std::string respond(std::string_view request, const StatusJson& status);

 private:
  MetricsServer(Options options, std::vector<UniqueFd> listeners, UniqueFd wake, StatusJson status,
                Logger& log, const Clock& clock);
  void run(const std::stop_token& stop) noexcept;
  void serve(int client) const;
  void write_textfile();

  const Options options_;
  const std::vector<UniqueFd> listeners_;
  const UniqueFd wake_;
  const StatusJson status_;
  Logger& log_;
  const Clock& clock_;
  bool textfile_failed_ = false;
  std::jthread thread_;
};

}  // namespace scriptorium
