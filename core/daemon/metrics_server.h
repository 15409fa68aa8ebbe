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
#include "core/config/config.h"
#include "core/daemon/listener.h"

namespace scriptorium {

// Serves the daemon's metrics: by HTTP (GET /metrics) on a Unix socket and, if configured, on
// loopback, and as a file for node_exporter's textfile collector, which is replaced as a whole
// every 15 s. OpenMetrics where the Accept header asks for it.
//
// Owns:    the sockets and their files, a Listener, and a thread for the textfile. A client is cut
//          off after 2 s.
// Threads: create and destroy in the main thread; `status` runs in the two threads above.
class MetricsServer {
 public:
  struct Options {
    std::string socket;  // path of the Unix socket, mode 0660
    std::optional<LoopbackAddress> listen;
    std::string textfile;  // "" = none
  };
  using StatusJson = std::function<std::string()>;

  // Binds the addresses; a client that connects now is answered after start(). kInvalidConfig if
  // the socket's path is too long or the port is taken.
  static Result<std::unique_ptr<MetricsServer>> open(Options options, StatusJson status,
                                                     Logger& log);
  // Call once, when everything that `status` covers is running. Served earlier, the metrics would
  // lack sources, and the textfile would keep showing that for 15 s. Writes the textfile.
  void start();
  ~MetricsServer();
  MetricsServer(const MetricsServer&) = delete;
  MetricsServer& operator=(const MetricsServer&) = delete;

  // The whole answer to a whole request head.
  static std::string respond(std::string_view request, const StatusJson& status);

 private:
  MetricsServer(Options options, std::vector<UniqueFd> sockets, StatusJson status, Logger& log);
  void run_textfile(const std::stop_token& stop) noexcept;
  void write_textfile() noexcept;

  const Options options_;
  std::vector<UniqueFd> sockets_;  // until start()
  const StatusJson status_;
  Logger& log_;
  bool textfile_failed_ = false;
  std::unique_ptr<Listener> listener_;
  std::jthread textfile_thread_;
};

}  // namespace scriptorium
