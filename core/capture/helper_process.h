#pragma once

#include <sys/types.h>

#include <functional>
#include <string>

#include "core/base/file.h"
#include "core/base/result.h"
#include "core/capture/capabilities.h"

namespace scriptorium {

struct HelperOptions {
  std::string name;        // of at most 15 bytes, as top shows it: "spool-opener"
  CapabilitySet keep = 0;  // all that it keeps
  // deny_privileged_system_calls(), where the kernel has filters. The spool opener needs them.
  bool deny_system_calls = false;
  // All that it does, in the new process: answers requests on a packet socket until the other side
  // closes.
  std::function<void(int socket)> serve;
};

// A process that keeps rights which this one is about to give up, and the packet socket to it.
// Other processes of its user can neither trace nor dump it. Of what this process had open, it has
// standard error and the socket.
//
// Owns:    the process, which ends when this object does, or when this process ends however it
//          ends.
// Threads: start() while there is no other thread.
class HelperProcess {
 public:
  static Result<HelperProcess> start(const HelperOptions& options);
  HelperProcess(HelperProcess&&) = default;
  HelperProcess& operator=(HelperProcess&&) = delete;
  ~HelperProcess();

  pid_t pid() const noexcept { return pid_; }
  int pidfd() const noexcept { return pidfd_.get(); }  // readable once it has ended
  bool has_ended() const noexcept;
  int socket() const noexcept { return socket_.get(); }
  CapabilitySet capabilities() const noexcept { return capabilities_; }

 private:
  HelperProcess(pid_t pid, UniqueFd pidfd, UniqueFd socket, CapabilitySet capabilities);

  pid_t pid_;
  UniqueFd pidfd_;
  UniqueFd socket_;
  CapabilitySet capabilities_;
};

}  // namespace scriptorium
