#include "core/capture/opener_protocol.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <array>
#include <cerrno>
#include <cstring>

namespace scriptorium::opener {

bool send_packet(int socket, std::string_view bytes, const std::vector<int>& descriptors) {
  iovec part{const_cast<char*>(bytes.data()), bytes.size()};  // NOLINT: sendmsg reads it only
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kMostDescriptors * sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (!descriptors.empty()) {
    message.msg_control = control.data();
    message.msg_controllen = CMSG_SPACE(descriptors.size() * sizeof(int));
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(descriptors.size() * sizeof(int));
    std::memcpy(CMSG_DATA(header), descriptors.data(), descriptors.size() * sizeof(int));
  }
  ssize_t sent = 0;
  do {
    sent = ::sendmsg(socket, &message, MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  return sent == static_cast<ssize_t>(bytes.size());
}

std::optional<Packet> receive_packet(int socket, std::string& buffer, bool with_descriptors) {
  iovec part{buffer.data(), buffer.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kMostDescriptors * sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  // Without room for them, the kernel closes descriptors that the client sends uninvited.
  if (with_descriptors) {
    message.msg_control = control.data();
    message.msg_controllen = control.size();
  }
  ssize_t received = 0;
  do {
    received = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  } while (received < 0 && errno == EINTR);
  if (received < 0) return std::nullopt;
  if (received == 0) {
    // An empty packet looks like the end.
    pollfd closed{socket, POLLIN, 0};
    if (::poll(&closed, 1, 0) < 0 || (closed.revents & (POLLHUP | POLLERR)) != 0)
      return std::nullopt;
  }
  Packet packet;
  packet.bytes = static_cast<std::size_t>(received);
  packet.cut = (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); with_descriptors && header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof fd);
      packet.descriptors.emplace_back(fd);
    }
  }
  return packet;
}

}  // namespace scriptorium::opener
