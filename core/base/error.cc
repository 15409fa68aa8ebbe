#include "core/base/error.h"

#include <cerrno>
#include <system_error>

namespace scriptorium {

const char* to_string(ErrorKind kind) noexcept {
  switch (kind) {
    case ErrorKind::kInvalidConfig: return "invalid config";
    case ErrorKind::kVanished: return "vanished";
    case ErrorKind::kTransient: return "transient";
    case ErrorKind::kPermanent: return "permanent";
    case ErrorKind::kExhausted: return "exhausted";
    case ErrorKind::kCorrupt: return "corrupt";
  }
  return "unknown";
}

Error Error::with_context(std::string_view context) const {
  std::string message;
  message.reserve(context.size() + 2 + message_.size());
  message.append(context).append(": ").append(message_);
  return Error{kind_, std::move(message)};
}

Error system_error(std::string_view what, int code) {
  ErrorKind kind = ErrorKind::kTransient;
  switch (code) {
    case ENOENT:
    case ENOTDIR:
    case ESTALE: kind = ErrorKind::kVanished; break;
    case EMFILE:
    case ENFILE:
    case ENOSPC:
    case EDQUOT:
    case ENOMEM: kind = ErrorKind::kExhausted; break;
    default: break;
  }
  std::string text = std::generic_category().message(code);
  if (!text.empty() && text[0] >= 'A' && text[0] <= 'Z' && (text.size() < 2 || text[1] > 'Z')) {
    text[0] = static_cast<char>(text[0] - 'A' + 'a');
  }
  return Error{kind, std::string(what) + ": " + text};
}

}  // namespace scriptorium
