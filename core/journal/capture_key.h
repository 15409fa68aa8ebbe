#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "core/base/result.h"

namespace scriptorium {

// The secret under which the journal recognises what was captured before, whatever a site's rules
// for secrets removed from it then and would remove now. An entry's capture key is HMAC-SHA256
// under this secret of its original id, the event id that it would have if nothing were removed
// from it. Unlike the original id, the key does not let anybody try guesses at what was removed.
//
// The secret is 32 random bytes in DIRECTORY/capture.key, mode 0600, beside the journal whose marks
// it is for. Immutable; any thread.
class CaptureSecret {
 public:
  static constexpr const char* kFileName = "capture.key";
  static constexpr std::size_t kSize = 32;

  // kVanished: there is none; kInvalidConfig, with a remedy: others may read it, or it is not what
  // store() wrote.
  static Result<CaptureSecret> load(const std::string& directory);
  static Result<CaptureSecret> make();                     // a new one, which is not on disk yet
  Result<void> store(const std::string& directory) const;  // on disk when it returns

  // 64 lower-case hexadecimal digits, as an event id.
  std::string key_of(std::string_view original_id) const;

 private:
  explicit CaptureSecret(std::string bytes) : bytes_(std::move(bytes)) {}

  std::string bytes_;
};

}  // namespace scriptorium
