#pragma once

#include <atomic>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "backends/stdout/config.h"
#include "core/api/sink.h"
#include "core/base/file.h"

namespace scriptorium::stdout_sink {

// Writes one JSON event a line. Acknowledged means that write() took the whole line: a pipe's
// reader has not read it yet, and a file is not synced. After a failed write the rest of that line
// is written first, so that a reader that stays sees whole lines only; the event is then written
// again, since its delivery was a retry.
//
// Owns:    nothing; borrows the descriptor.
// Threads: as Sink says; lines of several workers do not mix.
class StdoutSink final : public Sink {
 public:
  // How long a full pipe is waited for, without a byte going out, before its events become retries.
  static constexpr std::chrono::milliseconds kPatience{1000};

  explicit StdoutSink(const StdoutConfig& config, int fd = 1,
                      std::chrono::milliseconds patience = kPatience);

  Result<void> check() override;
  void deliver(std::vector<Delivery> batch) override;
  // Makes a deliver() that waits for a reader return.
  void stop(SteadyTime deadline) override;

 private:
  Result<void> write_line(std::string line);
  Result<void> write_rest();

  const StdoutConfig config_;
  const int fd_;
  const std::chrono::milliseconds patience_;
  std::atomic<bool> stopping_{false};
  std::mutex mutex_;        // held over write(): it is what keeps lines whole
  std::string unfinished_;  // the part of a line that could not be written
};

}  // namespace scriptorium::stdout_sink
