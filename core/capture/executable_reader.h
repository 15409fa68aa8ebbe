#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "core/api/executables.h"
#include "core/base/result.h"
#include "core/capture/capabilities.h"
#include "core/capture/helper_process.h"

namespace scriptorium {

// The right without which a user sees only the files of their own processes: CAP_SYS_PTRACE.
extern const CapabilitySet kExecutableCapabilities;

// ---- the protocol, between two processes of one program: one packet a request, one an answer

struct ProcessKey {
  std::uint32_t pid = 0;
  std::uint32_t zero = 0;
  std::uint64_t start_ticks = 0;

  auto operator<=>(const ProcessKey&) const = default;
};
inline constexpr std::size_t kMostExecutableBytes = 4096;  // of an answer

struct ExecutableAnswer {
  ProcessKey process;
  Executable executable;
};
std::string to_packet(const ExecutableAnswer& answer);
std::optional<ExecutableAnswer> parse_executable_answer(std::string_view packet);

// The executable reader's loop: answers each request, in any order, until the other side closes.
// It touches no file itself: a child does that for each request, at most four at a time. One that
// takes longer than `deadline` is killed, and its request answered with "not known". A child that
// waits for a file server in a way that nothing interrupts stays; while there are four of those,
// every request is answered in this way at once.
void serve_executables(int socket, std::chrono::milliseconds deadline) noexcept;

// ---- the daemon's side

// The process that keeps CAP_SYS_PTRACE while everything else gives it up. Once it has ended, what
// is asked for has no answer.
class ExecutableReader final : public Executables {
 public:
  static constexpr std::chrono::milliseconds kDeadline{5000};
  // Forks it; see HelperProcess.
  static Result<std::unique_ptr<ExecutableReader>> start(
      CapabilitySet keep, std::chrono::milliseconds deadline = kDeadline);
  explicit ExecutableReader(HelperProcess process) : process_(std::move(process)) {}

  const HelperProcess& process() const noexcept { return process_; }
  std::optional<Executable> find(std::uint32_t pid, std::uint64_t start_ticks) override;

 private:
  void receive();
  void ask(const ProcessKey& process);

  const HelperProcess process_;
  std::mutex mutex_;  // guards all below
  // What was asked and not yet fetched; nothing while there is no answer.
  std::map<ProcessKey, std::optional<Executable>> asked_;
  std::string buffer_ = std::string(kMostExecutableBytes, '\0');
};

}  // namespace scriptorium
