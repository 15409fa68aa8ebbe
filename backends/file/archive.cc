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

#include "backends/file/job_files.h"
#include "backends/file/marker.h"
#include "backends/file/outcome.h"
#include "backends/file/store.h"
#include "core/base/ascii.h"
#include "core/base/text.h"

namespace scriptorium::file {
namespace {

constexpr std::uint64_t kMaxRecordBytes = 64U << 20;
// Records opened in one call of list(), so that one that leaves most of them out comes back all the
// same.
constexpr std::size_t kMaxOpened = 5'000;

// Names of one directory that are kept for the next calls.
constexpr std::size_t kNamesAhead = 20'000;

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

Result<std::vector<Layout>> Archive::former_layouts(int root) const {
  auto texts = read_marker(root, config_.root);
  if (!texts) return texts.error();
  std::vector<Layout> layouts;
  for (const std::string& text : *texts) {
    if (text == config_.layout) continue;
    // One that is no longer understood was written by a later version.
    if (auto layout = Layout::parse(text)) layouts.push_back(*std::move(layout));
  }
  return layouts;
}

// ---- one event

Result<std::shared_ptr<const Event>> Archive::fetch(const Event& locator) {
  auto root = open_root();
  if (!root) return root.error();
  auto event = fetch_at_place(root->get(), layout_, locator);
  if (event || event.error().kind() != ErrorKind::kVanished) return event;
  if (!locator.user.verified && locator.user.name) {
    event = fetch_at_claimed_owner(root->get(), locator);
    if (event || event.error().kind() != ErrorKind::kVanished) return event;
  }
  const auto former = former_layouts(root->get());
  if (!former) return former.error();
  for (const Layout& layout : *former) {
    event = fetch_at_place(root->get(), layout, locator);
    if (event || event.error().kind() != ErrorKind::kVanished) return event;
  }
  event = fetch_elsewhere(root->get(), layout_, locator);
  for (const Layout& layout : *former) {
    if (event || event.error().kind() != ErrorKind::kVanished) break;
    event = fetch_elsewhere(root->get(), layout, locator);
  }
  return event;
}

Result<std::shared_ptr<const Event>> Archive::fetch_at_claimed_owner(int root,
                                                                     const Event& locator) const {
  Event owned = locator;
  owned.user.verified = true;
  const Place place = layout_.place(owned);
  auto directory = open_directory(root, place.directory());
  if (!directory) return directory.error();
  return fetch_at(directory->get(), place, locator);
}

Result<std::shared_ptr<const Event>> Archive::fetch_at_place(int root, const Layout& layout,
                                                             const Event& locator) const {
  const Place place = layout.place(locator);
  auto directory = open_directory(root, place.directory());
  if (!directory) return directory.error();
  return fetch_at(directory->get(), place, locator);
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
    return complete(directory, name, *std::move(event), locator);
  }
  return not_there(locator);
}

Result<std::shared_ptr<const Event>> Archive::complete(int directory, const std::string& metadata,
                                                       Event event, const Event& locator) const {
  if (event.id != locator.id) {
    // As it was before, for a sink that is still to get that.
    event.id = locator.id;
    event.user = locator.user;
    event.replaces.reset();
  }
  auto stored = read_contents(directory, metadata, std::move(event), false);
  if (!stored) return stored.error().with_context(metadata);
  for (const EventFile& file : stored->event.files) {
    const bool is_kept =
        file.name == to_string(FileKind::kScript) || file.name == to_string(FileKind::kEnvironment);
    if (is_kept && file.bytes == nullptr)
      return Error{ErrorKind::kVanished, metadata + ": its " + file.name + " is not there"};
  }
  return std::make_shared<const Event>(std::move(stored->event));
}

Result<std::shared_ptr<const Event>> Archive::fetch_elsewhere(int root, const Layout& layout,
                                                              const Event& locator) const {
  const Layout::Search search = layout.search(locator);
  const std::string ending = layout.place(locator).endings[kMetadata];
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
        if (!next && (next.error().kind() == ErrorKind::kVanished || !layout.can_name(depth, name)))
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
      found = complete(fd, name, *std::move(event), locator);
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
  // The largest first.
  std::vector<std::string> take() {
    std::vector<std::string> sorted;
    sorted.reserve(names_.size());
    for (; !names_.empty(); names_.pop()) sorted.push_back(names_.top());
    return sorted;
  }

 private:
  const std::size_t limit_;
  std::priority_queue<std::string> names_;
};

class Archive::Walk {
 public:
  // `layouts`: all that the tree has had.
  Walk(std::vector<Layout> layouts, const Query& query, const std::string& after, std::size_t limit,
       Ahead& ahead)
      : layouts_(std::move(layouts)),
        query_(query),
        after_(split_path(after)),
        limit_(std::max<std::size_t>(limit, 1)),
        ahead_(ahead) {
    for (const Layout& layout : layouts_) {
      const std::size_t depth = layout.directory_depth();
      endings_.push_back({depth, layout.endings()[kMetadata]});
      endings_.push_back({depth, ".json" + layout.after_record()});
      depth_ = std::max(depth_, depth);
    }
    page_.position = after;
  }

  Result<Page> run(int root) {
    auto done = directory(root, 0, !after_.empty());
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

  bool can_name(std::size_t depth, const std::string& name) const {
    return std::ranges::any_of(layouts_, [&](const Layout& layout) {
      return depth < layout.directory_depth() && layout.can_name(depth, name);
    });
  }
  bool has_records(std::size_t depth) const {
    return std::ranges::count(endings_, depth, &RecordEnding::depth) != 0;
  }
  bool is_record(std::size_t depth, std::string_view name) const {
    return std::ranges::any_of(endings_, [&](const RecordEnding& ending) {
      return ending.depth == depth && name.ends_with(ending.text);
    });
  }

  // Its records first, then its directories. True: everything below was gone through. `on_path`:
  // `after_` leads to or through this directory.
  Result<bool> directory(int fd, std::size_t depth, bool on_path) {
    const bool is_below = on_path && depth + 1 < after_.size();
    if (has_records(depth) && !is_below) {
      auto done = records(fd, depth, on_path ? after_.back() : std::string{});
      if (!done || !*done) return done;
    }
    if (depth == depth_) return true;
    std::vector<std::string> names;
    auto listed = for_each_name(fd, [&](const char* name, unsigned char type) {
      if ((!is_below || name >= after_[depth]) && is_directory(fd, name, type))
        names.emplace_back(name);
    });
    if (!listed) return listed.error();
    std::ranges::sort(names);
    for (const std::string& name : names) {
      auto next = open_directory(fd, name);
      if (!next && next.error().kind() == ErrorKind::kVanished) continue;
      if (!next && !can_name(depth, name)) {
        ++page_.skipped;  // lost+found, say
        continue;
      }
      if (!next) return cannot_be_read(path() + name, next.error());
      path_.push_back(name);
      auto done = directory(next->get(), depth + 1, is_below && name == after_[depth]);
      path_.pop_back();
      if (!done || !*done) return done;
    }
    return true;
  }

  // Its records after `last`, whose names an earlier call may have read.
  Result<bool> records(int fd, std::size_t depth, const std::string& last) {
    if (ahead_.directory != path() || ahead_.last != last)
      ahead_ = {.directory = path(), .last = last, .names = {}};
    while (true) {
      if (ahead_.names.empty()) {
        if (ahead_.complete) return true;
        SmallestNames smallest(kNamesAhead);
        auto listed = for_each_name(fd, [&](const char* name, unsigned char) {
          if (name > ahead_.last && is_record(depth, name)) smallest.add(name);
        });
        if (!listed) return listed.error();
        ahead_.names = smallest.take();
        ahead_.complete = ahead_.names.size() < kNamesAhead;
        continue;
      }
      if (page_.events.size() >= limit_ || opened_ >= kMaxOpened) return false;
      if (auto taken = record(fd, ahead_.names.back()); !taken) return taken.error();
      ahead_.last = std::move(ahead_.names.back());
      ahead_.names.pop_back();
      page_.position = ahead_.directory + ahead_.last;
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

  struct RecordEnding {
    std::size_t depth;
    std::string text;
  };

  const std::vector<Layout> layouts_;
  std::vector<RecordEnding> endings_;
  const Query& query_;
  const std::vector<std::string> after_;
  const std::size_t limit_;
  Ahead& ahead_;
  std::size_t depth_ = 0;
  std::vector<std::string> path_;
  std::size_t opened_ = 0;
  Page page_;
};

Result<ReadableSink::Page> Archive::list(const Query& query, const std::string& after,
                                         std::size_t limit) {
  auto root = open_root();
  if (!root) return root.error();
  auto layouts = former_layouts(root->get());
  if (!layouts) return layouts.error();
  layouts->push_back(layout_);
  Ahead ahead = ahead_.with([](Ahead& kept) { return std::exchange(kept, {}); });
  // Only of use to the call that continues there: another may be of a listing that began later.
  if (after.empty() || ahead.directory + ahead.last != after) ahead = {};
  auto page = Walk(*std::move(layouts), query, after, limit, ahead).run(root->get());
  ahead_.with([&](Ahead& kept) { kept = std::move(ahead); });
  return page;
}

}  // namespace scriptorium::file
