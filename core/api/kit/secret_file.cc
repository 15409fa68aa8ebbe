#include "core/api/kit/secret_file.h"

#include <fcntl.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <optional>

#include "core/base/file.h"
#include "core/base/text.h"

namespace scriptorium {
namespace {

constexpr std::uint64_t kSecretLimit = std::uint64_t{64} << 10;

// "" for a credential's name if systemd set no $CREDENTIALS_DIRECTORY.
std::string path_of(const std::string& file) {
  if (file.find('/') != std::string::npos) return file;
  const char* folder =
      std::getenv("CREDENTIALS_DIRECTORY");  // NOLINT(concurrency-mt-unsafe): nobody sets it
  if (folder == nullptr || *folder == '\0') return {};
  return std::string(folder) + "/" + file;
}

// The problem with the mode, up to the path to be changed.
std::optional<std::string> open_to_others(const FileStat& stat) {
  if ((stat.mode & 0006U) == 0) return std::nullopt;
  std::array<char, 8> octal{};
  const auto end =
      std::to_chars(octal.data(), octal.data() + octal.size(), stat.mode & 07777U, 8).ptr;
  return "every user of this machine may " +
         std::string((stat.mode & 0004U) != 0 ? "read" : "write") + " it (mode 0" +
         std::string(octal.data(), end) + "); run: chmod 600 ";
}

}  // namespace

Result<Secret> read_secret(const std::string& file) {
  const auto refuse = [&](const std::string& why) {
    return Error{ErrorKind::kInvalidConfig, "secret file " + printable(file) + ": " + why};
  };
  if (file.empty()) return Error{ErrorKind::kInvalidConfig, "secret file: no name is given"};
  if (file.find('\0') != std::string::npos) return refuse("the name holds a NUL byte");
  const std::string path = path_of(file);
  if (path.empty()) {
    return refuse(
        "a name without '/' means a systemd credential, but $CREDENTIALS_DIRECTORY is not set; "
        "give an absolute path, or add LoadCredential=" +
        printable(file) + ":/path/to/file to the service");
  }
  if (path.front() != '/')
    return refuse("must be an absolute path, or a name without '/' for a systemd credential");
  // O_NONBLOCK: a FIFO must not block the start; it is refused below.
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
  if (!fd) return refuse(system_error("cannot be opened", errno).message());
  const auto stat = stat_fd(fd.get());
  if (!stat) return refuse(stat.error().message());
  if (!stat->is_regular()) return refuse("is not a regular file");
  if (const auto open_to = open_to_others(*stat)) return refuse(*open_to + printable(path, 4096));
  auto bytes = read_fd(fd.get(), kSecretLimit + 1, stat->size);
  if (!bytes) return refuse(bytes.error().message());
  if (bytes->size() > kSecretLimit) return refuse("is larger than 64 KiB, so hardly a secret");
  if (!bytes->empty() && bytes->back() == '\n') {
    bytes->pop_back();
    if (!bytes->empty() && bytes->back() == '\r') bytes->pop_back();
  }
  if (bytes->empty()) return refuse("is empty");
  if (bytes->find('\0') != std::string::npos)
    return refuse("holds a NUL byte, which no password or token has");
  return Secret(*std::move(bytes));
}

std::string version_of_files(std::span<const std::string> files) {
  std::string version;
  for (const std::string& file : files) {
    if (file.empty()) continue;
    version += file;
    if (const auto stat = stat_path(path_of(file))) {
      version += ' ' + std::to_string(stat->device) + '.' + std::to_string(stat->inode) + '.' +
                 std::to_string(stat->size) + '.' + std::to_string(stat->mtime_ns);
    }
    version += '\n';
  }
  return version;
}

}  // namespace scriptorium
