#include "core/daemon/system_journal.h"

#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>

#include "core/base/ascii.h"
#include "core/base/file.h"

namespace scriptorium::system_journal {
namespace {

// In the form that gives a value's length, in 64 bits, least significant byte first.
void add_field(std::string& entry, std::string_view name, std::string_view value) {
  entry.append(name) += '\n';
  for (unsigned shift = 0; shift < 64; shift += 8)
    entry += static_cast<char>(std::uint64_t{value.size()} >> shift & 0xFFU);
  entry.append(value) += '\n';
}

}  // namespace

bool has_stream(int fd, const char* journal_stream) {
  if (journal_stream == nullptr) return false;
  const auto stat = stat_fd(fd);
  return stat && std::to_string(stat->device) + ':' + std::to_string(stat->inode) == journal_stream;
}

Result<void> send(std::string_view message, std::string_view message_id,
                  const Logger::Fields& fields, const std::string& socket) {
  std::string entry;
  add_field(entry, "MESSAGE", message);
  add_field(entry, "MESSAGE_ID", message_id);
  add_field(entry, "PRIORITY", "6");
  add_field(entry, "SYSLOG_IDENTIFIER", "scriptorium");
  for (const LogField& field : fields) {
    std::string name = "SCRIPTORIUM_";
    for (const char c : field.key) name += is_lower(c) ? static_cast<char>(c - 'a' + 'A') : c;
    add_field(entry, name, field.value);
  }

  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, socket.c_str(),
              std::min(socket.size(), sizeof address.sun_path - 1));
  const UniqueFd fd(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!fd) return system_error("socket", errno);
  ssize_t sent = 0;
  do {
    sent = ::sendto(fd.get(), entry.data(), entry.size(), MSG_NOSIGNAL,
                    reinterpret_cast<const sockaddr*>(&address), sizeof address);
  } while (sent < 0 && errno == EINTR);
  if (sent < 0) return system_error("the system's journal (" + socket + ")", errno);
  return {};
}

}  // namespace scriptorium::system_journal
