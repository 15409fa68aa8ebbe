#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "checkpoint/request.h"
#include "core/base/file.h"
#include "core/base/result.h"
#include "core/base/time.h"

namespace scriptorium::checkpoint {

// A request as it was read, once, from the descriptor whose owner the kernel named.
struct SpoolRequest {
  std::string file;
  RequestName name;
  uid_t uid = 0;
  std::string text;
  std::string problem;  // why it is not a request that can be served; "" = none
};

// The folder that every user may write into, sticky as /tmp. A request is taken when it is
// complete: closed after writing, or unchanged for a second. It is removed at once. Threads: one.
class Spool {
 public:
  // Makes the folder if it is missing. kInvalidConfig: another user could replace it or its files.
  static Result<Spool> open(const std::string& path);

  int notify_fd() const noexcept { return notify_.get(); }  // readable: call take()
  std::vector<SpoolRequest> take(SteadyTime now);
  // When to call take() at the latest; SteadyTime::max() = when notified.
  SteadyTime next_take() const noexcept { return next_; }

 private:
  struct Pending {
    SteadyTime since;  // of its last change
    FileStat seen;
    bool closed = false;
  };
  Spool(UniqueFd directory, UniqueFd notify)
      : directory_(std::move(directory)), notify_(std::move(notify)) {}
  void read_notifications(SteadyTime now);
  void scan(SteadyTime now);
  bool add(const std::string& file, SteadyTime now, bool closed);
  SpoolRequest read(const std::string& file, const RequestName& name) const;

  UniqueFd directory_;
  UniqueFd notify_;
  std::map<std::string, Pending> pending_;
  bool must_scan_ = true;
  SteadyTime next_ = SteadyTime::min();
};

}  // namespace scriptorium::checkpoint
