#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "core/base/file.h"
#include "core/capture/spool_access.h"

// The protocol between daemon and spool opener: one packet a request, one packet an answer (several
// for a long list), in the byte order of the machine, between two processes of one program. The
// opener trusts nothing that it reads.
namespace scriptorium::opener {

inline constexpr std::uint32_t kMagic = 0x4E504F53;  // "SOPN"
inline constexpr std::size_t kMostPathBytes = 4095;  // PATH_MAX without its NUL
inline constexpr std::size_t kMostRoots = 64;
inline constexpr std::uint32_t kMostLeftOut = 4096;  // directories, until kLeaveNothingOut
// A packet must fit into the socket's buffer, whose default is 208 KiB.
inline constexpr std::size_t kMostAnswerBytes = std::size_t{48} * 1024;

enum class Operation : std::uint32_t {
  kOpenRoot = 1,  // path: absolute. argument: 1 inotify, 2 fanotify. Answer: number = the root,
                  // Strings, descriptors
  kCloseRoot,     // forgets the root and its two descriptors
  kStat,          // Answer: FileStat
  kList,          // Answer: any number of kMore and then kDone, each with Names
  kOpen,          // Answer: one descriptor, for reading
  kWatch,         // argument: the mask of inotify. Answer: number = the watch
  kMark,          // the root's file system, on the root's fanotify descriptor
  kListOpen,  // as kList; the last answer brings the descriptors of the names that are `opened`, in
              // their order
  kLeaveOut,  // path: absolute, outside the root. Its files' notifications need not come any more
  kLeaveNothingOut,
};

inline constexpr std::uint32_t kWantInotify = 1;
inline constexpr std::uint32_t kWantFanotify = 2;

struct Request {
  std::uint32_t magic = kMagic;
  std::uint32_t sequence = 0;  // comes back in the answer
  std::uint32_t operation = 0;
  std::uint32_t root = 0;  // as kOpenRoot has answered
  std::uint32_t argument = 0;
  // Size of the path that follows: relative to the root unless said otherwise, without NUL.
  std::uint32_t path_bytes = 0;
};
static_assert(sizeof(Request) == 24 && std::is_trivially_copyable_v<Request>);

enum class Outcome : std::uint32_t { kDone, kMore, kError };

struct Answer {
  std::uint32_t magic = kMagic;
  std::uint32_t sequence = 0;
  std::uint32_t outcome = 0;
  std::uint32_t error_kind = 0;   // with kError; its text follows
  std::int32_t number = 0;        // of a root or a watch
  std::uint32_t descriptors = 0;  // of kOpenRoot: kWantInotify | kWantFanotify; else their number
  std::uint32_t payload_bytes = 0;
};
static_assert(sizeof(Answer) == 28 && std::is_trivially_copyable_v<Answer>);

// One name of a list; `bytes` of it follow.
struct Name {
  std::uint64_t inode = 0;
  std::uint16_t bytes = 0;
  std::uint8_t is_directory = 0;
  std::uint8_t opened = 0;
  std::array<std::uint8_t, 4> zero{};
};
static_assert(sizeof(Name) == 16 && std::is_trivially_copyable_v<Name>);

// Appends the bytes of a plain struct.
template <typename T>
void append(std::string& to, const T& value) {
  static_assert(std::is_trivially_copyable_v<T>);
  to.append(reinterpret_cast<const char*>(&value), sizeof value);
}

// Takes a plain struct from the front; false, and nothing taken, if there is too little.
template <typename T>
[[nodiscard]] bool take(std::string_view& from, T& value) {
  static_assert(std::is_trivially_copyable_v<T>);
  if (from.size() < sizeof value) return false;
  from.copy(reinterpret_cast<char*>(&value), sizeof value);
  from.remove_prefix(sizeof value);
  return true;
}

// Texts of an answer: their length as 32 bits, then their bytes.
inline void append_text(std::string& to, std::string_view text) {
  append(to, static_cast<std::uint32_t>(text.size()));
  to.append(text);
}
[[nodiscard]] inline bool take_text(std::string_view& from, std::string& text) {
  std::uint32_t size = 0;
  if (!take(from, size) || from.size() < size) return false;
  text = from.substr(0, size);
  from.remove_prefix(size);
  return true;
}

// ---- packets on the socket, with descriptors (unix(7), SCM_RIGHTS)

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
