#include "backends/stdout/outcome.h"

#include <cerrno>
#include <system_error>

namespace scriptorium::stdout_sink {

Error write_error(int code) {
  switch (code) {
    case EPIPE: return Error{ErrorKind::kTransient, "nobody reads standard output any more"};
    case EAGAIN: return Error{ErrorKind::kTransient, "standard output is full"};
    case EBADF: return Error{ErrorKind::kTransient, "standard output is closed"};
    case ENOSPC: return Error{ErrorKind::kExhausted, "no space left on device"};
    case EDQUOT: return Error{ErrorKind::kExhausted, "disk quota exceeded"};
    case EIO: return Error{ErrorKind::kTransient, "input/output error"};
    default:
      return Error{ErrorKind::kTransient,
                   "standard output: " + std::generic_category().message(code)};
  }
}

}  // namespace scriptorium::stdout_sink
