#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "core/capture/capabilities.h"
#include "core/capture/helper_process.h"
#include "core/capture/spool_access.h"

namespace scriptorium {

// The client of the spool opener. Files and directories that it may write are not trusted, unless
// its uid is 0.
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
// configuration names (read again when an unknown one is asked for), through no symbolic link. A
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
  // Forks it. Of everything that this process holds, it keeps only the capabilities `keep`.
  static Result<std::unique_ptr<SpoolOpener>> start(const OpenerOptions& options,
                                                    CapabilitySet keep);
  ~SpoolOpener();
  SpoolOpener(const SpoolOpener&) = delete;
  SpoolOpener& operator=(const SpoolOpener&) = delete;

  // As open_direct_access(), by the opener's rights. kPermanent: it does not open this root, as the
  // configuration does not call it a spool; kInvalidConfig: it refuses, and says what to correct.
  // The accesses must not outlive this object.
  Result<OpenedAccess> open(const std::string& root, Notifications wanted);

  pid_t pid() const noexcept { return process_.pid(); }
  int pidfd() const noexcept { return process_.pidfd(); }  // readable once it has ended
  CapabilitySet capabilities() const noexcept { return process_.capabilities(); }

 private:
  class Connection;
  class Access;
  explicit SpoolOpener(HelperProcess process);

  const HelperProcess process_;
  std::unique_ptr<Connection> connection_;
};

// By the opener if there is one. A root that the configuration does not call a spool is opened by
// this process's own rights, and `fanotify_problem` is then the opener's refusal.
Result<OpenedAccess> open_spool(SpoolOpener* opener, const std::string& root, Notifications wanted);

}  // namespace scriptorium
