#include "backends/file/archive.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <optional>
#include <queue>
#include <utility>
#include <vector>

#include "backends/file/environment.h"
#include "backends/file/outcome.h"
#include "backends/file/store.h"
#include "core/base/ascii.h"
#include "core/base/sha256.h"
#include "core/base/text.h"

namespace scriptorium::file {
namespace {

constexpr std::uint64_t kMaxRecordBytes = 64U << 20;
constexpr std::uint64_t kMaxFileBytes = std::uint64_t{1} << 30;
// Records opened in one call of list(), so that one that leaves most of them out comes back all the
// same.
constexpr std::size_t kMaxOpened = 5'000;

constexpr std::size_t kMetadata = static_cast<std::size_t>(FileKind::kMetadata);

// Calls each(name, type) for the names in a directory that do not begin with a dot.
Result<void> for_each_name(int directory,
                           const std::function<void(const char*, unsigned char)>& each) {
  return list_names(directory, [&](const char* name, unsigned char type) {
    if (*name != '.') each(name, type);
    return true;
  });
}

bool is_directory(int directory, const char* name, unsigned char type) {
  if (type != DT_UNKNOWN) return type == DT_DIR;
  struct stat st{};
  return ::fstatat(directory, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode);
}

std::vector<std::string> split_path(std::string_view path) {
  std::vector<std::string> parts;
  while (!path.empty()) parts.emplace_back(take_until(path, '/'));
  return parts;
}

// Whether this is the event, or the one that took its place when its owner became known.
bool holds(const Event& stored, const Event& locator) {
  return stored.id == locator.id || stored.replaces == locator.id;
}

Error not_there(const Event& locator) {
  return Error{ErrorKind::kVanished, "no record with the id " + locator.id + " is in the archive"};
}

Error cannot_be_read(const std::string& directory, const Error& error) {
  return error.with_context("directory " + directory);
}

// What was delivered cannot be reconstructed from what is there.
Error differs(const std::string& name) {
  return Error{ErrorKind::kCorrupt, name + ": not what was stored"};
}

}  // namespace

bool Archive::keeps_whole_events() const noexcept {
  return std::ranges::all_of(
      kFileKinds, [&](FileKind kind) { return std::ranges::count(config_.kinds, kind) == 1; });
}

Result<UniqueFd> Archive::open_root() const {
  UniqueFd fd(::open(config_.root.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  // A root that is missing was not mounted: its events have not vanished.
  if (!fd) return Error{ErrorKind::kTransient, root_error("root " + config_.root, errno).message()};
  return fd;
}

// ---- one event

Result<std::shared_ptr<const Event>> Archive::fetch(const Event& locator) {
  auto root = open_root();
  if (!root) return root.error();
  const Place place = layout_.place(locator);
  auto directory = open_directory(root->get(), place.directory());
  if (directory) {
    auto event = fetch_at(directory->get(), place, locator);
    if (event || event.error().kind() != ErrorKind::kVanished) return event;
  } else if (directory.error().kind() != ErrorKind::kVanished) {
    return directory.error();
  }
  return fetch_elsewhere(root->get(), locator);
}

Result<std::shared_ptr<const Event>> Archive::fetch_at(int directory, const Place& place,
                                                       const Event& locator) const {
  unsigned missing = 0;
  for (unsigned slot = 1; slot <= kMaxSlots && missing < kFreeSlotsPassed; ++slot) {
    const std::string name = place.name(FileKind::kMetadata, slot);
    auto json = read_beneath(directory, name, kMaxRecordBytes);
    if (!json) {
      if (json.error().kind() != ErrorKind::kVanished) return json.error();
      ++missing;
      continue;
    }
    missing = 0;
    auto event = event_from_json(*json);
    if (!event || !holds(*event, locator)) continue;
    return complete(directory, name.substr(0, name.size() - place.endings[kMetadata].size()),
                    *std::move(event), locator);
  }
  return not_there(locator);
}

Result<std::shared_ptr<const Event>> Archive::complete(int directory, const std::string& stem,
                                                       Event event, const Event& locator) const {
  if (event.id != locator.id) {
    // As it was before, for a sink that is still to get that.
    event.id = locator.id;
    event.user = locator.user;
    event.replaces.reset();
  }
  const std::array<std::string, 3> endings = layout_.endings();
  for (EventFile& file : event.files) {
    const auto kind =
        std::ranges::find_if(kFileKinds, [&](FileKind k) { return file.name == to_string(k); });
    if (kind == kFileKinds.end() || *kind == FileKind::kMetadata) continue;
    const std::string name = stem + endings[static_cast<std::size_t>(*kind)];
    auto bytes = read_beneath(directory, name, kMaxFileBytes);
    if (!bytes) return bytes.error();
    if (*kind == FileKind::kEnvironment) {
      auto original =
          parse_environment(*bytes, event.environment_format, config_.environment_format);
      if (!original) return differs(name);
      bytes = *std::move(original);
    }
    if (bytes->size() != file.size || sha256_hex(*bytes) != file.sha256) return differs(name);
    file.bytes = make_bytes(*std::move(bytes));
  }
  return std::make_shared<const Event>(std::move(event));
}

Result<std::shared_ptr<const Event>> Archive::fetch_elsewhere(int root,
                                                              const Event& locator) const {
  const Layout::Search search = layout_.search(locator);
  const std::string ending = layout_.place(locator).endings[kMetadata];
  const auto is_candidate = [&](std::string_view name) {
    if (!name.ends_with(ending)) return false;
    const std::string_view body = name.substr(0, name.size() - ending.size());
    return search.stem.empty() || glob_match(search.stem, body) ||
           glob_match(search.stem + ".*", body);
  };
  std::optional<Result<std::shared_ptr<const Event>>> found;
  const auto walk = [&](const auto& self, int fd, const std::string& path,
                        std::size_t depth) -> Result<void> {
    std::vector<std::string> names;
    const bool leaf = depth == search.directories.size();
    if (!leaf && search.directories[depth].exact) {
      names.push_back(*search.directories[depth].exact);
    } else {
      auto listed = for_each_name(fd, [&](const char* name, unsigned char) {
        if (leaf ? is_candidate(name) : glob_match(search.directories[depth].glob, name))
          names.emplace_back(name);
      });
      if (!listed) return listed;
    }
    for (const std::string& name : names) {
      if (!leaf) {
        auto next = open_directory(fd, name);
        if (!next &&
            (next.error().kind() == ErrorKind::kVanished || !layout_.can_name(depth, name)))
          continue;
        if (!next) return cannot_be_read(path + name, next.error());
        if (auto below = self(self, next->get(), path + name + '/', depth + 1); !below || found)
          return below;
        continue;
      }
      auto json = read_beneath(fd, name, kMaxRecordBytes);
      if (!json && json.error().kind() == ErrorKind::kVanished) continue;
      if (!json) return json.error();
      auto event = event_from_json(*json);
      if (!event || !holds(*event, locator)) continue;
      found = complete(fd, name.substr(0, name.size() - ending.size()), *std::move(event), locator);
      return {};
    }
    return {};
  };
  if (auto walked = walk(walk, root, "", 0); !walked) return walked.error();
  if (!found) return not_there(locator);
  return *std::move(found);
}

// ---- all of them

// The smallest names, in order, so that a directory of any size takes bounded memory.
class Archive::SmallestNames {
 public:
  explicit SmallestNames(std::size_t limit) : limit_(limit) {}
  void add(std::string name) {
    if (names_.size() == limit_ && name >= names_.top()) return;
    names_.push(std::move(name));
    if (names_.size() > limit_) names_.pop();
  }
  std::vector<std::string> take() {
    std::vector<std::string> sorted;
    sorted.reserve(names_.size());
    for (; !names_.empty(); names_.pop()) sorted.push_back(names_.top());
    std::ranges::reverse(sorted);
    return sorted;
  }

 private:
  const std::size_t limit_;
  std::priority_queue<std::string> names_;
};

class Archive::Walk {
 public:
  Walk(const Layout& layout, const Query& query, const std::string& after, std::size_t limit)
      : layout_(layout),
        query_(query),
        after_(split_path(after)),
        depth_(layout.directory_depth()),
        limit_(std::max<std::size_t>(limit, 1)) {
    script_ending_ = layout.endings()[kMetadata];
    record_ending_ = ".json" + layout.after_record();
    page_.position = after;
  }

  Result<Page> run(int root) {
    auto done = directory(root, 0, after_.size() == depth_ + 1);
    if (!done) return done.error();
    page_.end = *done;
    return std::move(page_);
  }

 private:
  std::string path() const {
    std::string path;
    for (const std::string& part : path_) path += part + '/';
    return path;
  }

  // True: everything below was gone through. `on_path`: `after_` leads through this directory.
  Result<bool> directory(int fd, std::size_t depth, bool on_path) {
    if (depth == depth_) return records(fd, on_path);
    std::vector<std::string> names;
    auto listed = for_each_name(fd, [&](const char* name, unsigned char type) {
      if ((!on_path || name >= after_[depth]) && is_directory(fd, name, type))
        names.emplace_back(name);
    });
    if (!listed) return listed.error();
    std::ranges::sort(names);
    for (const std::string& name : names) {
      auto next = open_directory(fd, name);
      if (!next && next.error().kind() == ErrorKind::kVanished) continue;
      if (!next && !layout_.can_name(depth, name)) {
        ++page_.skipped;  // lost+found, say
        continue;
      }
      if (!next) return cannot_be_read(path() + name, next.error());
      path_.push_back(name);
      auto done = directory(next->get(), depth + 1, on_path && name == after_[depth]);
      path_.pop_back();
      if (!done || !*done) return done;
    }
    return true;
  }

  Result<bool> records(int fd, bool on_path) {
    std::string last = on_path ? after_.back() : std::string{};
    while (true) {
      SmallestNames smallest(limit_);
      auto listed = for_each_name(fd, [&](const char* name, unsigned char) {
        const std::string_view text = name;
        if (text > last && (text.ends_with(script_ending_) || text.ends_with(record_ending_)))
          smallest.add(std::string(text));
      });
      if (!listed) return listed.error();
      const std::vector<std::string> names = smallest.take();
      for (const std::string& name : names) {
        if (page_.events.size() >= limit_ || opened_ >= kMaxOpened) return false;
        if (auto taken = record(fd, name); !taken) return taken.error();
        last = name;
        page_.position = path() + name;
      }
      if (names.size() < limit_) return true;
    }
  }

  Result<void> record(int fd, const std::string& name) {
    struct stat st{};
    ++opened_;
    if (::fstatat(fd, name.c_str(), &st, AT_SYMLINK_NOFOLLOW) != 0)
      return errno == ENOENT ? Result<void>{} : file_error(errno);
    if (!S_ISREG(st.st_mode)) return {};
    auto json = read_beneath(fd, name, kMaxRecordBytes);
    if (!json) return json.error().kind() == ErrorKind::kVanished ? Result<void>{} : json.error();
    auto event = event_from_json(*json);
    if (!event || event->id.size() != 64 || !hex_decode(event->id)) {
      ++page_.skipped;
      return {};
    }
    if (event->time.nanoseconds < query_.since.nanoseconds) return {};
    const bool wanted =
        query_.kinds.empty() || std::ranges::any_of(query_.kinds, [&](const std::string& pattern) {
          return pattern == event->kind || glob_match(pattern, event->kind);
        });
    if (wanted) page_.events.push_back(std::make_shared<const Event>(*std::move(event)));
    return {};
  }

  const Layout& layout_;
  const Query& query_;
  const std::vector<std::string> after_;
  const std::size_t depth_;
  const std::size_t limit_;
  std::string script_ending_, record_ending_;
  std::vector<std::string> path_;
  std::size_t opened_ = 0;
  Page page_;
};

Result<ReadableSink::Page> Archive::list(const Query& query, const std::string& after,
                                         std::size_t limit) {
  auto root = open_root();
  if (!root) return root.error();
  return Walk(layout_, query, after, limit).run(root->get());
}

}  // namespace scriptorium::file
