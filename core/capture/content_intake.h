#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <cstdint>
#include <stop_token>

#include "core/capture/action_runner.h"
#include "core/capture/capture_options.h"
#include "core/capture/content_locator.h"
#include "core/capture/foreign_filter.h"
#include "core/capture/notification_reader.h"

namespace scriptorium {

// Takes the closed files that fanotify tells of: what is the scheduler's goes into the table, the
// rest is dropped as early as possible.
// Threads: the capture thread.
class ContentIntake {
 public:
  ContentIntake(const ActionRunner::Parts& parts, ActionRunner& runner)
      : parts_(parts), runner_(runner), locator_(parts.access, parts.adapter, parts.presence) {}

  void take(const ContentEvent& event, const std::stop_token& stop);
  // What was learnt of other mounts, and of directories that are not the spool's, may have changed.
  void forget_mounts() { locator_.forget_mounts(); }
  void forget_foreign() { foreign_.forget(); }

 private:
  void take_file(int fd, const std::stop_token& stop);
  void read(int fd, const ContentLocator::Place& place, FileStat stat, const std::stop_token& stop);

  const ActionRunner::Parts parts_;
  ActionRunner& runner_;
  ContentLocator locator_;
  ForeignFilter foreign_{parts_.access};
  const pid_t own_pid_ = ::getpid();
  std::uint64_t own_writes_ = 0;
};

}  // namespace scriptorium
