#pragma once

#include <chrono>
#include <string>

#include "core/base/file.h"
#include "core/base/result.h"
#include "core/base/time.h"

namespace scriptorium::catalog {

// The right to change the catalog, for one transaction: an exclusive flock() of lock_file(). Two
// objects exclude each other also within one process. The kernel releases it when the process dies.
class WriterLock {
 public:
  // Waits for at most `patience`, then kTransient. Creates the file, with the directory's group.
  static Result<WriterLock> take(const std::string& root,
                                 std::chrono::milliseconds patience = std::chrono::seconds(10));

 private:
  explicit WriterLock(UniqueFd fd) : fd_(std::move(fd)) {}
  UniqueFd fd_;
};

}  // namespace scriptorium::catalog
