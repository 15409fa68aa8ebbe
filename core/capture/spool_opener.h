#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "core/capture/capabilities.h"
#include "core/capture/spool_access.h"

namespace scriptorium {

// Who asks the spool opener: what it may write is not believed. uid 0 is believed everything.
struct OpenerClient {
  uid_t uid = 0;
  std::vector<gid_t> groups;
};

struct OpenerOptions {
  // Absolute. Only the directories that a [source.NAME] of it calls its `spool`, and what is
  // beneath them, are opened.
  std::string config_file;
  OpenerClient client;
};

// The spool opener's loop: answers requests on a packet socket until the other side is closed. It
// opens for reading, lists, watches and marks, nothing else; and only below the spools that the
// configuration names (read anew when an unknown one is asked for), through no symbolic link. A
// configuration that the client may write, or a spool that it may exchange for another directory,
// is refused. A malformed request is answered with an error and changes nothing.
void serve_spool(int socket, const OpenerOptions& options) noexcept;

// The process that keeps the rights to reach a spool while everything else gives them up, and the
// daemon's way to ask it.
//
// Owns:    the process, which ends when this object does, or when this process ends however it
//          ends.
// Threads: start() while there is no other thread; open() and the accesses that it makes from any.
//          One request is answered at a time.
// Fails:   kTransient for every request once the process is gone: watch pidfd() for that, and end.
class SpoolOpener {
 public:
  // Forks it. It keeps of `keep`, and of everything else that this process holds, the capabilities
  // only.
  static Result<std::unique_ptr<SpoolOpener>> start(const OpenerOptions& options,
                                                    CapabilitySet keep);
  ~SpoolOpener();
  SpoolOpener(const SpoolOpener&) = delete;
  SpoolOpener& operator=(const SpoolOpener&) = delete;

  // As open_direct_access(), by the opener's rights. kPermanent: it does not open this root, as the
  // configuration calls it no spool; kInvalidConfig: it refuses to, and says what to mend. The
  // accesses must not outlive this object.
  Result<OpenedAccess> open(const std::string& root, Notifications wanted);

  pid_t pid() const noexcept { return pid_; }
  int pidfd() const noexcept { return pidfd_.get(); }  // readable once it has ended
  CapabilitySet capabilities() const noexcept { return capabilities_; }

 private:
  class Connection;
  class Access;
  SpoolOpener(pid_t pid, UniqueFd pidfd, UniqueFd socket, CapabilitySet capabilities);

  const pid_t pid_;
  const UniqueFd pidfd_;
  const CapabilitySet capabilities_;
  std::unique_ptr<Connection> connection_;
};

// By the opener if there is one. A root that the configuration calls no spool is opened by this
// process's own rights, and `fanotify_problem` then says what the opener said.
Result<OpenedAccess> open_spool(SpoolOpener* opener, const std::string& root, Notifications wanted);

}  // namespace scriptorium
