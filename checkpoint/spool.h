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
  std::string kept;  // its name where it waits, for remove(); "" = it is not in the spool any more
  RequestName name;
  FileStat stat;
  std::string text;
  std::string problem;  // why it is not a request that can be served; "" = none
};

// The folder into which users' job scripts write requests, by names that they all know. Watched by
// inotify. A request is taken when it is complete: closed after writing and whole, or unchanged for
// a second. It is then moved to a folder in it that only root can enter, so that its name is free
// again: a request that waits must not keep others from writing theirs. There it remains until it
// is removed, and is found by the next start of the service. One that cannot be moved is removed,
// as a job cannot wait until there is room. Threads: one.
class Spool {
 public:
  // Makes the folders if they are missing. kInvalidConfig: another user could replace the folder or
  // its files.
  static Result<Spool> open(const std::string& path);

  int notify_fd() const noexcept { return notify_.get(); }  // readable: call take()
  // The first call also gives what an earlier process has taken and not removed, oldest first. What
  // has a problem need not be removed.
  std::vector<SpoolRequest> take(SteadyTime now);
  // When to call take() at the latest; SteadyTime::max() = when notified.
  SteadyTime next_take() const noexcept { return next_; }
  // Of several processes that remove a request that was taken, one gets true.
  bool remove(const std::string& kept) const noexcept;

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
  std::vector<SpoolRequest> take_accepted() const;
  std::optional<SpoolRequest> take_complete(const std::string& file, const FileStat& stat,
                                            SteadyTime now, bool is_too_many);

  UniqueFd directory_;
  UniqueFd accepted_;
  UniqueFd notify_;
  std::map<std::string, Pending> pending_;
  bool must_scan_ = true;
  bool is_first_take_ = true;
  SteadyTime next_ = SteadyTime::min();
};

}  // namespace scriptorium::checkpoint
