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
// every 15 s. Answers in OpenMetrics if the Accept header asks for it.
//
// Owns:    a Listener, the textfile and a thread that writes it. A client is cut off after 2 s.
// Threads: create and destroy in the main thread; `status` runs in the threads of both.
class MetricsServer {
 public:
  struct Options {
    std::string socket;  // path of the Unix socket, mode 0660
    std::optional<LoopbackAddress> listen;
    std::string textfile;  // "" = none
  };
  using StatusJson = std::function<std::string()>;

  // Binds the addresses; a client that connects before start() waits until then. kInvalidConfig if
  // the socket's path is too long or the port is taken.
  static Result<std::unique_ptr<MetricsServer>> open(Options options, StatusJson status,
                                                     Logger& log);
  // Call once, when everything that `status` covers is running. Served earlier, the metrics would
  // lack sources, and the textfile would keep showing that for 15 s. Writes the textfile.
  void start();
  ~MetricsServer();

  // The whole answer to a whole request head.
  static std::string respond(std::string_view request, const StatusJson& status);

 private:
  MetricsServer(Options options, std::vector<UniqueFd> sockets, StatusJson status, Logger& log);
  void write_textfile() noexcept;

  const Options options_;
  const StatusJson status_;
  Logger& log_;
  bool textfile_failed_ = false;
  Listener listener_;
  std::jthread textfile_thread_;
};

}  // namespace scriptorium
