#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/file.h"
#include "core/capture/spool_access.h"

// Packets between daemon and spool opener, with descriptors (unix(7), SCM_RIGHTS); what is in them
// is opener_protocol.h.
namespace scriptorium::opener {

inline constexpr std::size_t kMostDescriptors = kMostOpenedNames;

// False if it was not sent whole. At most kMostDescriptors descriptors, which stay the caller's.
bool send_packet(int socket, std::string_view bytes, const std::vector<int>& descriptors);

struct Packet {
  std::size_t bytes = 0;  // of the buffer
  std::vector<UniqueFd> descriptors;
  bool cut = false;  // descriptors or bytes were left out
};
// Into `buffer`, whose size bounds it. Nothing if the other side has closed, or the socket fails.
std::optional<Packet> receive_packet(int socket, std::string& buffer, bool with_descriptors);

}  // namespace scriptorium::opener
