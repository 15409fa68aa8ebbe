#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/request.h"
#include "core/base/file.h"
#include "core/base/result.h"
#include "core/base/time.h"

namespace scriptorium::checkpoint {

// A request as it was read, once, from the descriptor whose owner the kernel named.
struct SpoolRequest {
  std::string file;  // as its owner named it
  std::string kept;  // its name where it waits, for begin(); "" = it is not in the spool any more
  RequestName name;
  FileStat stat;
  std::string text;
  std::string problem;    // why it is not a request that can be served; "" = none
  bool is_begun = false;  // by a process that was ended before its result
};

// The folder into which users' job scripts write requests, by names that they all know. Watched by
// inotify. A request is taken when it is complete: closed after writing and whole, or unchanged for
// a second. It is then moved to a folder in it that only root can enter, so that its name is free
// again: a request that waits must not keep others from writing theirs. There it remains until it
// is removed, and is found by the next start of the service. The process that serves it renames it,
// so that no other one begins it, locks it, and marks it when it has written the result. One that
// cannot be moved is removed, as a job cannot wait until there is room. Threads: one.
class Spool {
 public:
  // Makes the folders if they are missing. kInvalidConfig: another user could replace the folder or
  // its files.
  static Result<Spool> open(const std::string& path);

  int notify_fd() const noexcept { return notify_.get(); }  // readable: call take()
  // The first call also gives what an earlier service has taken and not removed, oldest first,
  // without what is being served or has its result. If a process of the earlier service ends before
  // its result, a later call gives its request. What has a problem need not be removed.
  std::vector<SpoolRequest> take(SteadyTime now);
  // When to call take() at the latest; SteadyTime::max() = when notified.
  SteadyTime next_take() const noexcept { return next_; }
  // For the process that serves a request that was taken: its locked file. Of several processes one
  // gets it.
  UniqueFd begin(const std::string& kept) const;
  // Of such a file, when the result is written. As its owner.
  static void mark_done(int begun) noexcept;
  // Whether begun or not.
  void remove(const std::string& kept) const;

 private:
  struct Pending {
    SteadyTime since;  // of its last change
    FileStat seen;
    bool closed = false;
  };
  Spool(UniqueFd directory, UniqueFd accepted, UniqueFd notify)
      : directory_(std::move(directory)),
        accepted_(std::move(accepted)),
        notify_(std::move(notify)) {}
  void read_notifications(SteadyTime now);
  void add(const std::string& file, SteadyTime now, bool closed);
  std::vector<SpoolRequest> take_accepted();
  std::optional<SpoolRequest> take_complete(const std::string& file, const FileStat& stat,
                                            SteadyTime now, bool is_too_many);

  UniqueFd directory_;
  UniqueFd accepted_;
  UniqueFd notify_;
  std::map<std::string, Pending> pending_;
  bool must_scan_ = true;
  bool is_first_take_ = true;
  std::vector<std::string> served_elsewhere_;  // by processes of an earlier service
  SteadyTime next_ = SteadyTime::min();
};

}  // namespace scriptorium::checkpoint
