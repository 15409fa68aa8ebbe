#include "backends/file/store.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <memory>

#include "backends/file/outcome.h"
#include "core/base/ascii.h"
#include "core/base/fault_point.h"
#include "core/base/number.h"
#include "core/base/random.h"
#include "core/base/text.h"

namespace scriptorium::file {
namespace {

constexpr int kDirectoryFlags = O_RDONLY | O_DIRECTORY | O_CLOEXEC;
constexpr std::string_view kTemporaryMark = ".tmp-";
constexpr std::size_t kTokenDigits = 8;

int openat2_beneath(int root, const char* path) {
  open_how how{};
  how.flags = kDirectoryFlags;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS;
  for (int attempt = 0;; ++attempt) {
    const long fd = ::syscall(SYS_openat2, root, path, &how, sizeof how);
    // EAGAIN: something was renamed meanwhile, and the kernel could not prove that the path stays
    // beneath.
    if (fd >= 0 || (errno != EAGAIN && errno != EINTR) || attempt >= 100)
      return static_cast<int>(fd);
  }
}

// The same for kernels before 5.6 and for sandboxes that do not know openat2: part by part.
int open_part_by_part(int root, std::string_view path) {
  UniqueFd current;
  while (!path.empty()) {
    const std::size_t slash = std::min(path.find('/'), path.size());
    const std::string part(path.substr(0, slash));
    path.remove_prefix(std::min(slash + 1, path.size()));
    const int fd =
        ::openat(current ? current.get() : root, part.c_str(), kDirectoryFlags | O_NOFOLLOW);
    if (fd < 0) {
      // O_DIRECTORY wins over O_NOFOLLOW: a link says ENOTDIR.
      const int code = errno;
      struct stat st{};
      if (code == ENOTDIR &&
          ::fstatat(current ? current.get() : root, part.c_str(), &st, AT_SYMLINK_NOFOLLOW) == 0 &&
          S_ISLNK(st.st_mode)) {
        errno = ELOOP;
      } else {
        errno = code;
      }
      return -1;
    }
    current.reset(fd);
  }
  return current.release();
}

bool lower_hex(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return is_digit(c) || (c >= 'a' && c <= 'f'); });
}

// The token of a temporary name; "" if it is none.
std::string_view token_of(std::string_view name) {
  if (!name.starts_with('.')) return {};
  const auto mark = name.rfind(kTemporaryMark);
  if (mark == std::string_view::npos) return {};
  const std::string_view rest = name.substr(mark + kTemporaryMark.size());
  if (rest.size() < 2 * kTokenDigits + 3 || rest[kTokenDigits] != '-' ||
      rest[2 * kTokenDigits + 1] != '.')
    return {};
  const std::string_view token = rest.substr(kTokenDigits + 1, kTokenDigits);
  const std::string_view number = rest.substr(2 * kTokenDigits + 2);
  if (!lower_hex(rest.substr(0, kTokenDigits)) || !lower_hex(token)) return {};
  if (!is_all_digits(number)) return {};
  return token;
}

struct DirClose {
  void operator()(DIR* d) const noexcept { ::closedir(d); }
};

}  // namespace

Result<UniqueFd> open_directory(int root, const std::string& path) {
  if (path.empty()) {
    const int fd = ::openat(root, ".", kDirectoryFlags);
    if (fd < 0) return file_error(errno);
    return UniqueFd(fd);
  }
  static std::atomic<bool> has_openat2{true};
  int fd = -1;
  if (has_openat2.load(std::memory_order_relaxed)) {
    fd = openat2_beneath(root, path.c_str());
    if (fd < 0 && errno == ENOSYS) has_openat2.store(false, std::memory_order_relaxed);
  }
  if (!has_openat2.load(std::memory_order_relaxed)) fd = open_part_by_part(root, path);
  if (fd < 0) return file_error(errno);
  return UniqueFd(fd);
}

Result<TemporaryNames> TemporaryNames::create() {
  auto token = random_hex(kTokenDigits / 2);
  if (!token) return token.error();
  return TemporaryNames(*std::move(token));
}

std::string TemporaryNames::make(std::string_view name, std::string_view id) {
  std::string digits(id.substr(0, kTokenDigits));
  if (digits.size() < kTokenDigits || !lower_hex(digits)) digits.assign(kTokenDigits, '0');
  std::string result = ".";
  result.append(name).append(kTemporaryMark).append(digits) += '-';
  return result + token_ + '.' + std::to_string(next_.fetch_add(1, std::memory_order_relaxed));
}

bool TemporaryNames::is_ours(std::string_view name) const { return token_of(name) == token_; }
bool TemporaryNames::is_temporary(std::string_view name) { return !token_of(name).empty(); }

Result<UniqueFd> create_file(int directory, const std::string& name) {
  const int fd = ::openat(directory, name.c_str(),
                          O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
  if (fd < 0) return file_error(errno);
  return UniqueFd(fd);
}

Result<Renamed> rename_into_place(int directory, const std::string& from, const std::string& to) {
  if (const int code = FAULT_ERROR("file.rename")) return file_error(code);
  if (::renameat2(directory, from.c_str(), directory, to.c_str(), RENAME_NOREPLACE) == 0)
    return Renamed::kDone;
  if (errno == EEXIST) return Renamed::kTaken;
  if (errno != EINVAL && errno != ENOSYS) return file_error(errno);
  // NFS and others have no such rename. A hard link does not replace anything either; directories
  // cannot have one.
  if (::linkat(directory, from.c_str(), directory, to.c_str(), 0) != 0)
    return errno == EEXIST ? Result<Renamed>(Renamed::kTaken) : file_error(errno);
  static_cast<void>(::unlinkat(directory, from.c_str(), 0));
  return Renamed::kDone;
}

Result<Found> inspect(int directory, const std::string& name, uid_t owner) {
  struct stat st{};
  if (::fstatat(directory, name.c_str(), &st, AT_SYMLINK_NOFOLLOW) != 0) {
    if (errno == ENOENT) return Found{};
    return file_error(errno);
  }
  if (!S_ISREG(st.st_mode) || st.st_uid != owner) return Found{Found::Kind::kOther, 0};
  return Found{Found::Kind::kFile, static_cast<std::uint64_t>(st.st_size)};
}

Result<std::string> read_beneath(int directory, const std::string& name, std::uint64_t limit) {
  const UniqueFd fd(
      ::openat(directory, name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  if (!fd) return file_error(errno == ELOOP ? ENOENT : errno);
  struct stat st{};
  if (::fstat(fd.get(), &st) != 0) return file_error(errno);
  if (!S_ISREG(st.st_mode)) return file_error(ENOENT);
  return read_fd(fd.get(), limit, static_cast<std::uint64_t>(st.st_size));
}

Result<void> sync_descriptor(int fd) {
  if (const int code = FAULT_ERROR("file.fsync")) return file_error(code);
  if (::fsync(fd) != 0) return file_error(errno);
  return {};
}

Result<void> sync_file_system(int fd) {
  if (const int code = FAULT_ERROR("file.fsync")) return file_error(code);
  if (::syncfs(fd) != 0) return file_error(errno);
  return {};
}

bool sync_reports_errors() {
  utsname name{};
  if (::uname(&name) != 0) return false;
  std::string_view release = name.release;  // "6.1.0-13-amd64"
  const int major = take_number<int>(release).value_or(0);
  if (release.starts_with('.')) release.remove_prefix(1);
  const int minor = take_number<int>(release).value_or(0);
  return major > 5 || (major == 5 && minor >= 8);
}

bool is_local(int fd) {
  struct statfs fs{};
  if (::fstatfs(fd, &fs) != 0) return false;
  switch (static_cast<std::uint32_t>(fs.f_type)) {
    case 0xef53:      // ext2, ext3, ext4
    case 0x58465342:  // xfs
    case 0x9123683e:  // btrfs
    case 0xf2f52010:  // f2fs
    case 0x2fc12fc1:  // zfs
    case 0x01021994:  // tmpfs
      return true;
    default: return false;
  }
}

Result<void> list_names(int directory,
                        const std::function<bool(const char* name, unsigned char type)>& each) {
  const int copy = ::openat(directory, ".", kDirectoryFlags);
  if (copy < 0) return file_error(errno);
  const std::unique_ptr<DIR, DirClose> stream(::fdopendir(copy));
  if (stream == nullptr) {
    const int code = errno;
    ::close(copy);
    return file_error(code);
  }
  while (true) {
    errno = 0;
    const dirent* entry = ::readdir(stream.get());
    if (entry == nullptr) break;
    if (!each(entry->d_name, entry->d_type)) return {};
  }
  if (errno != 0) return file_error(errno);
  return {};
}

std::uint64_t remove_stale(int directory, const TemporaryNames& names) {
  std::uint64_t removed = 0;
  static_cast<void>(list_names(directory, [&](const char* name, unsigned char) {
    if (!TemporaryNames::is_temporary(name) || names.is_ours(name)) return true;
    // Another process that still lives and writes here loses only one attempt: its rename fails,
    // and it tries again.
    if (::unlinkat(directory, name, 0) == 0 ||
        (errno == EISDIR && ::unlinkat(directory, name, AT_REMOVEDIR) == 0))
      ++removed;
    return true;
  }));
  return removed;
}

}  // namespace scriptorium::file
