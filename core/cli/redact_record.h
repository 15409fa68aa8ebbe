#pragma once

#include <string>
#include <vector>

#include "core/api/event.h"
#include "core/base/file.h"
#include "core/base/result.h"

namespace scriptorium::cli {

// The record of what was removed from an archive: a line of JSON for each event. No secret, no hash
// of one.
class RedactionRecord {
 public:
  // Appends to the file, which is made with mode 0600. `by_whom`: user_running_this().
  static Result<RedactionRecord> open(const std::string& file, std::string by_whom);

  // Returns once the line would survive a power cut.
  Result<void> add(const std::string& path, const std::string& job_id,
                   const std::vector<Redaction>& removed, bool resumed);
  const std::string& file() const noexcept { return file_; }

 private:
  RedactionRecord(UniqueFd fd, std::string file, std::string by_whom)
      : fd_(std::move(fd)), file_(std::move(file)), by_whom_(std::move(by_whom)) {}

  UniqueFd fd_;
  std::string file_;
  std::string by_whom_;
};

// "alice", or "root (alice)" if sudo says who that is.
std::string user_running_this();

}  // namespace scriptorium::cli
