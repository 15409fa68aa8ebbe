#include "core/journal/capture_key.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>

#include "core/base/fault_point.h"
#include "core/base/file.h"
#include "core/base/random.h"
#include "core/base/sha256.h"
#include "core/base/text.h"

namespace scriptorium {
namespace {

std::string path_in(const std::string& directory) {
  return directory + "/" + CaptureSecret::kFileName;
}

Error refused(const std::string& path, const std::string& why) {
  return {ErrorKind::kInvalidConfig, path + ": " + why};
}

}  // namespace

Result<CaptureSecret> CaptureSecret::load(const std::string& directory) {
  const std::string path = path_in(directory);
  // Not blocking, in case it is a pipe.
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!fd && errno == ENOENT) return Error{ErrorKind::kVanished, path + ": is missing"};
  if (!fd) return refused(path, system_error("open", errno).message());
  const auto stat = stat_fd(fd.get());
  if (!stat) return stat.error();
  if (!stat->is_regular()) return refused(path, "found no regular file; move it away");
  if ((stat->mode & (S_IRWXG | S_IRWXO)) != 0)
    return refused(path, "others than its owner may read or change it; chmod 600 " + path);
  auto bytes = read_fd(fd.get(), kSize + 1);
  if (!bytes) return bytes.error();
  if (bytes->size() != kSize) {
    return refused(path, "found " + std::to_string(stat->size) + " bytes, needed " +
                             std::to_string(kSize) +
                             "; restore it, or remove it, so that a new one is made");
  }
  return CaptureSecret(*std::move(bytes));
}

Result<CaptureSecret> CaptureSecret::make() {
  const auto digits = random_hex(kSize);
  if (!digits) return digits.error();
  return CaptureSecret(*hex_decode(*digits));
}

Result<void> CaptureSecret::store(const std::string& directory) const {
  FAULT_POINT("journal.before_key");
  return replace_file(path_in(directory), bytes_, 0600);
}

std::string CaptureSecret::key_of(std::string_view original_id) const {
  return hmac_sha256_hex(bytes_, original_id);
}

}  // namespace scriptorium
