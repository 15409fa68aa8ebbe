#include "core/capture/mount_table.h"

#include <fcntl.h>
#include <poll.h>

#include <algorithm>
#include <array>

#include "core/base/number.h"

namespace scriptorium {
namespace {

constexpr const char* kMountInfo = "/proc/self/mountinfo";

// The kernel writes a blank as "\040", and so every byte that would end a field.
std::string unescape(std::string_view text) {
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto digit = [&](std::size_t at) { return static_cast<unsigned>(text[at] - '0'); };
    if (text[i] == '\\' && i + 3 < text.size() && digit(i + 1) < 4 && digit(i + 2) < 8 &&
        digit(i + 3) < 8) {
      result += static_cast<char>(digit(i + 1) * 64 + digit(i + 2) * 8 + digit(i + 3));
      i += 3;
    } else {
      result += text[i];
    }
  }
  return result;
}

bool is_at_or_above(std::string_view directory, std::string_view path) {
  if (directory == "/") return true;
  return path.starts_with(directory) &&
         (path.size() == directory.size() || path[directory.size()] == '/');
}

}  // namespace

MountTable::MountTable() : changes_(::open(kMountInfo, O_RDONLY | O_CLOEXEC)) {}

bool MountTable::changed() const {
  if (!changes_) return false;
  pollfd fd{changes_.get(), POLLPRI, 0};
  return ::poll(&fd, 1, 0) > 0;
}

std::optional<std::uint64_t> MountTable::mount_of(std::string_view path) {
  const UniqueFd file(::open(kMountInfo, O_RDONLY | O_CLOEXEC));
  if (!file) return std::nullopt;
  // The table of a host with many containers is large, but smaller than this.
  auto text = read_fd(file.get(), std::uint64_t{16} << 20, 0);
  if (!text) return std::nullopt;
  return scriptorium::mount_of(*text, path);
}

// A line: "36 35 98:0 /root/of/the/mount /mount/point rw,... - ext4 ...". Later lines cover earlier
// ones.
std::optional<std::uint64_t> mount_of(std::string_view mountinfo, std::string_view path) {
  std::optional<std::uint64_t> found;
  std::size_t longest = 0;
  while (!mountinfo.empty()) {
    const std::string_view line = mountinfo.substr(0, mountinfo.find('\n'));
    mountinfo.remove_prefix(std::min(line.size() + 1, mountinfo.size()));
    std::array<std::string_view, 5> fields;
    std::string_view rest = line;
    for (std::string_view& field : fields) {
      field = rest.substr(0, rest.find(' '));
      rest.remove_prefix(std::min(field.size() + 1, rest.size()));
    }
    const auto number = parse_number<std::uint64_t>(fields[0]);
    if (!number || fields[4].empty()) continue;
    const std::string point = unescape(fields[4]);
    if (!is_at_or_above(point, path) || point.size() < longest) continue;
    longest = point.size();
    found = number;
  }
  return found;
}

}  // namespace scriptorium
