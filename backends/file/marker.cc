#include "backends/file/marker.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>

#include "backends/file/outcome.h"
#include "backends/file/store.h"
#include "core/base/ascii.h"

namespace scriptorium::file {
namespace {

constexpr std::uint64_t kMaxMarkerBytes = 1U << 20;
constexpr std::string_view kComment = "# An archive of scriptorium. Keep this file.\n";

Error unmarked(const std::string& path) {
  const std::string marker = path + '/' + std::string(kMarkerName);
  return Error{ErrorKind::kTransient, "there is no " + marker +
                                          ", so the file system is probably not mounted; if this "
                                          "directory is the archive: touch " +
                                          marker};
}

}  // namespace

Result<void> require_marker(int root, const std::string& path) {
  struct stat st{};
  if (::fstatat(root, std::string(kMarkerName).c_str(), &st, AT_SYMLINK_NOFOLLOW) == 0) return {};
  return errno == ENOENT ? unmarked(path) : file_error(errno);
}

Result<std::vector<std::string>> read_marker(int root, const std::string& path) {
  const auto text = read_beneath(root, std::string(kMarkerName), kMaxMarkerBytes);
  if (!text && text.error().kind() == ErrorKind::kVanished) return unmarked(path);
  if (!text) return text.error();
  std::vector<std::string> layouts;
  for (std::string_view rest = *text; !rest.empty();) {
    const std::string_view line = take_until(rest, '\n');
    if (!line.empty() && !line.starts_with('#')) layouts.emplace_back(line);
  }
  return layouts;
}

Result<void> add_to_marker(int root, const std::string& path, const std::string& layout,
                           const std::string& temporary) {
  std::vector<std::string> layouts;
  if (require_marker(root, path)) {
    auto known = read_marker(root, path);
    if (!known) return known.error();
    if (std::ranges::count(*known, layout) != 0) return {};
    layouts = *std::move(known);
  }
  layouts.push_back(layout);
  std::string text(kComment);
  for (const std::string& line : layouts) text += line + '\n';
  auto fd = create_file(root, temporary);
  if (!fd) return fd.error();
  auto written = write_fd(fd->get(), text);
  if (written) written = sync_descriptor(fd->get());
  if (written && ::renameat(root, temporary.c_str(), root, std::string(kMarkerName).c_str()) != 0)
    written = file_error(errno);
  if (!written) {
    ::unlinkat(root, temporary.c_str(), 0);
    return written;
  }
  return sync_descriptor(root);
}

Result<bool> is_empty_root(int root) {
  bool empty = true;
  auto listed = list_names(root, [&](const char* name, unsigned char) {
    const std::string_view text = name;
    empty =
        text == "." || text == ".." || text == "lost+found" || TemporaryNames::is_temporary(text);
    return empty;
  });
  if (!listed) return listed.error();
  return empty;
}

}  // namespace scriptorium::file
