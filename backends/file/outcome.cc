#include "backends/file/outcome.h"

#include <cerrno>
#include <system_error>

namespace scriptorium::file {
namespace {

const char* words(int code) {
  switch (code) {
    case ENOSPC: return "no space left on device";
    case EDQUOT: return "disk quota exceeded";
    case EROFS: return "read-only file system";
    case ESTALE: return "stale file handle";
    case EIO: return "input/output error";
    case EACCES: return "permission denied";
    case EPERM: return "operation not permitted";
    case ENOENT: return "a directory of the path is missing";
    case ENOTDIR: return "a part of the path is not a directory";
    case ELOOP: return "a directory of the path is a symbolic link";
    case EXDEV: return "the path leads out of the archive";
    case EMFILE: return "too many open files";
    case ENFILE: return "too many open files on this machine";
    case EFBIG: return "file too large for the file system or the file size limit";
    case ENAMETOOLONG: return "file name too long for the file system";
    case EMLINK: return "too many directories in one directory";
    case ETIMEDOUT: return "the file server does not answer";
    case EOPNOTSUPP: return "the file system has no access lists";
    case EEXIST: return "a temporary name is taken";
    case ENOMEM: return "out of memory";
    default: return nullptr;
  }
}

std::string text(int code) {
  const char* known = words(code);
  return known != nullptr ? known : "file system error: " + std::generic_category().message(code);
}

}  // namespace

Error file_error(int code) {
  switch (code) {
    case ENAMETOOLONG: return Error{ErrorKind::kPermanent, text(code)};
    case ENOENT:
    case ENOTDIR: return Error{ErrorKind::kVanished, text(code)};
    case ENOSPC:
    case EDQUOT:
    case EMFILE:
    case ENFILE:
    case ENOMEM: return Error{ErrorKind::kExhausted, text(code)};
    default: return Error{ErrorKind::kTransient, text(code)};
  }
}

Error root_error(const std::string& what, int code) {
  std::string message = what + ": " + (code == ENOENT ? "no such directory" : text(code));
  switch (code) {
    case ENOENT: return Error{ErrorKind::kInvalidConfig, message + "; make it, or correct root"};
    case ENOTDIR: return Error{ErrorKind::kInvalidConfig, message + "; correct root"};
    case EACCES:
    case EPERM:
      return Error{ErrorKind::kInvalidConfig,
                   message + "; let the daemon's user write there (chown), or correct root"};
    case EOPNOTSUPP:
      return Error{ErrorKind::kInvalidConfig,
                   message +
                       "; mount it with ACLs, or set acl = \"best-effort\" (files are then "
                       "readable by the daemon's user only)"};
    default: return Error{ErrorKind::kTransient, message};
  }
}

}  // namespace scriptorium::file
