// The names below override the C library's; its checking variants of them would get in the way.
#undef _FORTIFY_SOURCE

#include "tests/support/power_cut/power_cut.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <optional>
#include <random>
#include <set>
#include <stdexcept>
#include <utility>

namespace scriptorium::test {
namespace {

constexpr std::size_t kSector = 512;

struct Node {
  bool directory = false;
  std::string bytes;                            // of a file
  std::map<std::string, std::size_t> children;  // of a directory: name -> node
};

struct Step {
  enum class Kind {
    kWrite,
    kTruncate,
    kName,
    kRename,
    kRemove,
    kSync,
    kSyncAll,
    kMark
  } kind = Kind::kMark;
  std::size_t node = 0;       // of a write, truncation or sync; the named one
  std::size_t directory = 0;  // of a name
  std::string name;
  std::size_t to_directory = 0;
  std::string to_name;
  std::uint64_t offset = 0;  // or size
  std::string bytes;

  bool is_data() const { return kind == Kind::kWrite || kind == Kind::kTruncate; }
  bool is_name() const {
    return kind == Kind::kName || kind == Kind::kRename || kind == Kind::kRemove;
  }
};

int raw_fstatat(int directory, const char* path, struct stat* st, int flags) {
  return static_cast<int>(::syscall(SYS_newfstatat, directory, path, st, flags));
}

using Identity = std::pair<std::uint64_t, std::uint64_t>;
Identity identity(const struct stat& st) { return {st.st_dev, st.st_ino}; }

void perform(std::vector<Node>& nodes, const Step& step) {
  switch (step.kind) {
    case Step::Kind::kWrite: {
      std::string& bytes = nodes[step.node].bytes;
      if (bytes.size() < step.offset + step.bytes.size())
        bytes.resize(step.offset + step.bytes.size(), '\0');
      std::memcpy(bytes.data() + step.offset, step.bytes.data(), step.bytes.size());
      break;
    }
    case Step::Kind::kTruncate: nodes[step.node].bytes.resize(step.offset, '\0'); break;
    case Step::Kind::kName: nodes[step.directory].children[step.name] = step.node; break;
    case Step::Kind::kRename: {
      auto& from = nodes[step.directory].children;
      if (const auto found = from.find(step.name);
          found != from.end() && found->second == step.node)
        from.erase(found);
      nodes[step.to_directory].children[step.to_name] = step.node;
      break;
    }
    case Step::Kind::kRemove: {
      auto& from = nodes[step.directory].children;
      if (const auto found = from.find(step.name);
          found != from.end() && found->second == step.node)
        from.erase(found);
      break;
    }
    default: break;
  }
}

void collect(const std::vector<Node>& nodes, std::size_t node, const std::string& path,
             std::set<std::size_t>& above, PowerCut::Disk& disk) {
  if (!above.insert(node).second)
    return;  // a directory that was moved, of which both names are there
  for (const auto& [name, child] : nodes[node].children) {
    const std::string full = path.empty() ? name : path + "/" + name;
    if (nodes[child].directory) {
      disk.directories.push_back(full);
      collect(nodes, child, full, above, disk);
    } else {
      disk.files.emplace(full, nodes[child].bytes);
    }
  }
  above.erase(node);
}

}  // namespace

class PowerCut::Impl {
 public:
  explicit Impl(const std::string& folder) : folder_(folder) {
    nodes_.push_back({.directory = true});
    struct stat st{};
    if (raw_fstatat(AT_FDCWD, folder.c_str(), &st, 0) != 0)
      throw std::runtime_error("no folder " + folder);
    known_[identity(st)] = 0;
    load(folder, 0);
    first_ = nodes_;
  }

  // Below: under mutex_, by the calls themselves.
  std::optional<std::size_t> node_of(int fd) const {
    struct stat st{};
    return raw_fstatat(fd, "", &st, AT_EMPTY_PATH) == 0 ? find(st) : std::nullopt;
  }
  struct Place {
    std::size_t directory;
    std::string name;
    std::optional<std::size_t> node;
  };
  // Where a path leads, if its directory is ours.
  std::optional<Place> place(int directory, const char* path) const {
    std::string text(path);
    while (text.size() > 1 && text.ends_with('/')) text.pop_back();
    const auto slash = text.rfind('/');
    const std::string above = slash == std::string::npos ? "."
                              : slash == 0               ? "/"
                                                         : text.substr(0, slash);
    struct stat st{};
    if (raw_fstatat(directory, above.c_str(), &st, 0) != 0) return std::nullopt;
    const auto parent = find(st);
    if (!parent) return std::nullopt;
    Place result{.directory = *parent,
                 .name = slash == std::string::npos ? text : text.substr(slash + 1),
                 .node = std::nullopt};
    if (raw_fstatat(directory, path, &st, AT_SYMLINK_NOFOLLOW) == 0) result.node = find(st);
    return result;
  }
  void made(const Place& place, const struct stat& st) {
    const std::size_t node = nodes_.size();
    nodes_.push_back({.directory = S_ISDIR(st.st_mode)});
    first_.push_back({.directory = S_ISDIR(st.st_mode)});
    known_[identity(st)] = node;  // an inode's number may have been another file's before
    steps_.push_back({.kind = Step::Kind::kName,
                      .node = node,
                      .directory = place.directory,
                      .name = place.name});
  }
  void note(Step step) { steps_.push_back(std::move(step)); }
  void wrote(int fd, std::uint64_t offset, std::string_view bytes) {
    if (const auto node = node_of(fd); node && !bytes.empty())
      note({.kind = Step::Kind::kWrite,
            .node = *node,
            .offset = offset,
            .bytes = std::string(bytes)});
  }

  std::optional<std::size_t> find(const struct stat& st) const {
    const auto found = known_.find(identity(st));
    return found == known_.end() ? std::nullopt : std::optional(found->second);
  }
  void load(const std::string& path, std::size_t node) {
    for (const auto& entry : std::filesystem::directory_iterator(path)) {
      struct stat st{};
      if (raw_fstatat(AT_FDCWD, entry.path().c_str(), &st, AT_SYMLINK_NOFOLLOW) != 0) continue;
      const std::size_t child = nodes_.size();
      nodes_.push_back({.directory = S_ISDIR(st.st_mode)});
      known_[identity(st)] = child;
      nodes_[node].children[entry.path().filename()] = child;
      if (S_ISDIR(st.st_mode)) {
        load(entry.path(), child);
      } else {
        std::ifstream in(entry.path(), std::ios::binary);
        nodes_[child].bytes.assign(std::istreambuf_iterator<char>(in), {});
      }
    }
  }

  const std::string folder_;
  std::vector<Node> nodes_;  // only their number and kind once it runs
  std::vector<Node> first_;  // as it was at the start
  std::map<Identity, std::size_t> known_;
  std::vector<Step> steps_;
};

namespace {

std::mutex
    recorder_mutex;  // held over each call on the folder, so that the order noted is the order done
PowerCut::Impl* recorder = nullptr;
std::atomic<bool> recording{false};

// Makes the call, then notes it, in one piece. `note` runs only if the call succeeded.
template <typename Call, typename Note>
auto recorded(Call call, Note note) -> decltype(call()) {
  if (!recording.load(std::memory_order_acquire)) return call();
  const std::lock_guard lock(recorder_mutex);
  if (recorder == nullptr) return call();
  const auto result = call();
  if (result >= 0) {
    const int code = errno;
    note(*recorder, result);
    errno = code;
  }
  return result;
}

int open_recorded(int directory, const char* path, int flags, mode_t mode) {
  const auto call = [&] {
    return static_cast<int>(::syscall(SYS_openat, directory, path, flags, mode));
  };
  if (!recording.load(std::memory_order_acquire) || (flags & (O_CREAT | O_TRUNC)) == 0)
    return call();
  const std::lock_guard lock(recorder_mutex);
  if (recorder == nullptr) return call();
  const auto place = recorder->place(directory, path);
  const int fd = call();
  if (fd < 0 || !place) return fd;
  const int code = errno;
  struct stat st{};
  if (!place->node && raw_fstatat(fd, "", &st, AT_EMPTY_PATH) == 0) recorder->made(*place, st);
  if (place->node && (flags & O_TRUNC) != 0)
    recorder->note({.kind = Step::Kind::kTruncate, .node = *place->node, .offset = 0});
  errno = code;
  return fd;
}

ssize_t write_recorded(int fd, const void* bytes, std::size_t size, std::optional<off_t> at) {
  const auto call = [&] {
    return at ? static_cast<ssize_t>(::syscall(SYS_pwrite64, fd, bytes, size, *at))
              : static_cast<ssize_t>(::syscall(SYS_write, fd, bytes, size));
  };
  if (!recording.load(std::memory_order_acquire)) return call();
  const std::lock_guard lock(recorder_mutex);
  if (recorder == nullptr || !recorder->node_of(fd)) return call();
  const ssize_t n = call();
  if (n <= 0) return n;
  const off_t offset = at ? *at : static_cast<off_t>(::syscall(SYS_lseek, fd, 0, SEEK_CUR)) - n;
  recorder->wrote(fd, static_cast<std::uint64_t>(offset),
                  {static_cast<const char*>(bytes), static_cast<std::size_t>(n)});
  return n;
}

int truncate_recorded(int fd, off_t size) {
  return recorded([&] { return static_cast<int>(::syscall(SYS_ftruncate, fd, size)); },
                  [&](PowerCut::Impl& r, int) {
                    if (const auto node = r.node_of(fd))
                      r.note({.kind = Step::Kind::kTruncate,
                              .node = *node,
                              .offset = static_cast<std::uint64_t>(size)});
                  });
}

int allocate_recorded(int fd, int mode, off_t offset, off_t size) {
  return recorded(
      [&] { return static_cast<int>(::syscall(SYS_fallocate, fd, mode, offset, size)); },
      [&](PowerCut::Impl& r, int) {
        struct stat st{};
        if (const auto node = r.node_of(fd); node && raw_fstatat(fd, "", &st, AT_EMPTY_PATH) == 0)
          r.note({.kind = Step::Kind::kTruncate,
                  .node = *node,
                  .offset = static_cast<std::uint64_t>(st.st_size)});
      });
}

int sync_recorded(long number, int fd) {
  return recorded(
      [&] { return static_cast<int>(::syscall(number, fd)); },
      [&](PowerCut::Impl& r, int) {
        if (const auto node = r.node_of(fd))
          r.note({.kind = number == SYS_syncfs ? Step::Kind::kSyncAll : Step::Kind::kSync,
                  .node = *node});
      });
}

int rename_recorded(int from, const char* old_path, int to, const char* new_path, unsigned flags) {
  const auto call = [&] {
    return static_cast<int>(::syscall(SYS_renameat2, from, old_path, to, new_path, flags));
  };
  if (!recording.load(std::memory_order_acquire)) return call();
  const std::lock_guard lock(recorder_mutex);
  if (recorder == nullptr) return call();
  const auto source = recorder->place(from, old_path);
  const auto target = recorder->place(to, new_path);
  const int result = call();
  if (result != 0 || !source || !target || !source->node) return result;
  recorder->note({.kind = Step::Kind::kRename,
                  .node = *source->node,
                  .directory = source->directory,
                  .name = source->name,
                  .to_directory = target->directory,
                  .to_name = target->name});
  return result;
}

int link_recorded(int from, const char* old_path, int to, const char* new_path, int flags) {
  const auto call = [&] {
    return static_cast<int>(::syscall(SYS_linkat, from, old_path, to, new_path, flags));
  };
  if (!recording.load(std::memory_order_acquire)) return call();
  const std::lock_guard lock(recorder_mutex);
  if (recorder == nullptr) return call();
  const auto source = recorder->place(from, old_path);
  const auto target = recorder->place(to, new_path);
  const int result = call();
  if (result == 0 && source && target && source->node)
    recorder->note({.kind = Step::Kind::kName,
                    .node = *source->node,
                    .directory = target->directory,
                    .name = target->name});
  return result;
}

int unlink_recorded(int directory, const char* path, int flags) {
  const auto call = [&] {
    return static_cast<int>(::syscall(SYS_unlinkat, directory, path, flags));
  };
  if (!recording.load(std::memory_order_acquire)) return call();
  const std::lock_guard lock(recorder_mutex);
  if (recorder == nullptr) return call();
  const auto place = recorder->place(directory, path);
  const int result = call();
  if (result == 0 && place && place->node)
    recorder->note({.kind = Step::Kind::kRemove,
                    .node = *place->node,
                    .directory = place->directory,
                    .name = place->name});
  return result;
}

int mkdir_recorded(int directory, const char* path, mode_t mode) {
  const auto call = [&] { return static_cast<int>(::syscall(SYS_mkdirat, directory, path, mode)); };
  if (!recording.load(std::memory_order_acquire)) return call();
  const std::lock_guard lock(recorder_mutex);
  if (recorder == nullptr) return call();
  const auto place = recorder->place(directory, path);
  const int result = call();
  struct stat st{};
  if (result == 0 && place && raw_fstatat(directory, path, &st, AT_SYMLINK_NOFOLLOW) == 0)
    recorder->made(*place, st);
  return result;
}

}  // namespace

// ---- what was recorded

PowerCut::PowerCut(const std::string& folder) : impl_(std::make_unique<Impl>(folder)) {
  const std::lock_guard lock(recorder_mutex);
  if (recorder != nullptr) throw std::logic_error("a power cut is being recorded already");
  recorder = impl_.get();
  recording = true;
}
PowerCut::~PowerCut() { stop(); }

void PowerCut::stop() {
  const std::lock_guard lock(recorder_mutex);
  if (recorder != impl_.get()) return;
  recorder = nullptr;
  recording = false;
}

void PowerCut::mark(std::string text) {
  const std::lock_guard lock(recorder_mutex);
  impl_->note({.kind = Step::Kind::kMark, .name = std::move(text)});
}

const char* PowerCut::name_of(Loss loss) {
  switch (loss) {
    case Loss::kEverything: return "everything";
    case Loss::kBytes: return "bytes";
    case Loss::kNames: return "names";
    case Loss::kTornWrite: return "half of the last write";
    case Loss::kAny: return "any";
    case Loss::kNothing: return "nothing";
  }
  return "?";
}

std::size_t PowerCut::steps() const { return impl_->steps_.size(); }

std::vector<std::string> PowerCut::marks_until(std::size_t step) const {
  std::vector<std::string> marks;
  for (std::size_t i = 0; i < step; ++i) {
    if (impl_->steps_[i].kind == Step::Kind::kMark) marks.push_back(impl_->steps_[i].name);
  }
  return marks;
}

std::string PowerCut::step_text(std::size_t index) const {
  if (index >= impl_->steps_.size()) return "the end";
  const Step& s = impl_->steps_[index];
  const std::string node = "node " + std::to_string(s.node);
  switch (s.kind) {
    case Step::Kind::kWrite:
      return "write " + node + " " + std::to_string(s.offset) + "+" +
             std::to_string(s.bytes.size());
    case Step::Kind::kTruncate: return "truncate " + node + " " + std::to_string(s.offset);
    case Step::Kind::kName: return "make " + s.name + " (" + node + ")";
    case Step::Kind::kRename: return "rename " + s.name + " to " + s.to_name + " (" + node + ")";
    case Step::Kind::kRemove: return "remove " + s.name + " (" + node + ")";
    case Step::Kind::kSync: return "sync " + node;
    case Step::Kind::kSyncAll: return "syncfs";
    case Step::Kind::kMark: return "mark " + s.name;
  }
  return "?";
}

PowerCut::Disk PowerCut::build(std::size_t until, Loss loss, std::uint64_t seed) const {
  const std::vector<Step>& steps = impl_->steps_;
  // From the end: what was synced after it is safe.
  std::vector<bool> safe(until, false);
  std::set<std::size_t> synced;
  bool all = false;
  std::optional<std::size_t> last_write;
  for (std::size_t i = until; i-- > 0;) {
    const Step& s = steps[i];
    if (s.kind == Step::Kind::kSyncAll) all = true;
    if (s.kind == Step::Kind::kSync) synced.insert(s.node);
    if (s.is_data()) safe[i] = all || synced.contains(s.node);
    if (s.is_name()) {
      safe[i] = all || (synced.contains(s.directory) &&
                        (s.kind != Step::Kind::kRename || synced.contains(s.to_directory)));
    }
    if (s.kind == Step::Kind::kWrite && !safe[i] && !last_write) last_write = i;
  }
  std::mt19937_64 lot(seed);
  std::vector<Node> nodes = impl_->first_;
  for (std::size_t i = 0; i < until; ++i) {
    const Step& s = steps[i];
    if (!s.is_data() && !s.is_name()) continue;
    if (safe[i] || loss == Loss::kNothing) {
      perform(nodes, s);
      continue;
    }
    switch (loss) {
      case Loss::kEverything: break;
      case Loss::kBytes:
        if (s.is_name()) perform(nodes, s);
        break;
      case Loss::kNames:
        if (s.is_data()) perform(nodes, s);
        break;
      case Loss::kTornWrite: {
        if (i != last_write) {
          perform(nodes, s);
          break;
        }
        Step torn = s;
        torn.bytes.resize(torn.bytes.size() / 2);
        perform(nodes, torn);
        break;
      }
      case Loss::kAny: {
        if (s.kind != Step::Kind::kWrite) {
          if (lot() % 2 == 0) perform(nodes, s);
          break;
        }
        for (std::size_t from = 0; from < s.bytes.size();) {
          const std::size_t to =
              std::min(s.bytes.size(), (s.offset + from) / kSector * kSector + kSector - s.offset);
          if (lot() % 2 == 0) {
            Step sector = s;
            sector.offset = s.offset + from;
            sector.bytes = s.bytes.substr(from, to - from);
            perform(nodes, sector);
          }
          from = to;
        }
        break;
      }
      case Loss::kNothing: break;
    }
  }
  Disk disk;
  std::set<std::size_t> above;
  collect(nodes, 0, "", above, disk);
  return disk;
}

std::string PowerCut::missed(const std::function<bool(const std::string&)>& ignore) const {
  const Disk expected = build(steps(), Loss::kNothing, 0);
  Disk found;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(impl_->folder_)) {
    const std::string path = std::filesystem::relative(entry.path(), impl_->folder_);
    if (entry.is_directory()) {
      found.directories.push_back(path);
    } else {
      std::ifstream in(entry.path(), std::ios::binary);
      found.files[path].assign(std::istreambuf_iterator<char>(in), {});
    }
  }
  std::set<std::string> paths;
  for (const auto& [path, bytes] : expected.files) paths.insert(path);
  for (const auto& [path, bytes] : found.files) paths.insert(path);
  for (const std::string& path : paths) {
    if (ignore(path)) continue;
    const auto want = expected.files.find(path);
    const auto have = found.files.find(path);
    if (want == expected.files.end()) return path + " is there and was not recorded";
    if (have == found.files.end()) return path + " was recorded and is not there";
    if (want->second != have->second) return path + " has other bytes than were recorded";
  }
  std::vector<std::string> want = expected.directories;
  std::sort(want.begin(), want.end());
  std::sort(found.directories.begin(), found.directories.end());
  return want == found.directories ? "" : "other directories than were recorded";
}

void PowerCut::Disk::write_to(const std::string& folder) const {
  std::filesystem::create_directories(folder);
  for (const std::string& path : directories)
    std::filesystem::create_directory(folder + "/" + path);
  for (const auto& [path, bytes] : files) {
    std::ofstream out(folder + "/" + path, std::ios::binary);
    // Modes are not recorded; the strictest that any of our files has fits all.
    using std::filesystem::perms;
    std::filesystem::permissions(folder + "/" + path, perms::owner_read | perms::owner_write);
    out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    if (!out.flush()) throw std::runtime_error("cannot write " + folder + "/" + path);
  }
}

std::uint64_t PowerCut::Disk::fingerprint() const {
  std::uint64_t sum = 0;
  const auto add = [&](std::string_view text) {
    sum = sum * 0x9e3779b97f4a7c15U + std::hash<std::string_view>{}(text) + 1;
  };
  for (const auto& [path, bytes] : files) {
    add(path);
    add(bytes);
  }
  for (const std::string& path : directories) add(path);
  return sum;
}

std::vector<PowerCutCase> power_cut_cases(const PowerCut& disk, std::size_t most) {
  std::vector<PowerCutCase> cases;
  for (std::size_t step = 0; step <= disk.steps(); ++step) {
    for (const PowerCut::Loss loss : PowerCut::kLosses)
      cases.push_back({.step = step, .loss = loss, .seed = step});
  }
  const char* wish = std::getenv("SCRIPTORIUM_POWER_CUT");
  if ((wish != nullptr && std::string_view(wish) == "all") || cases.size() <= most) return cases;
  const char* given = std::getenv("SCRIPTORIUM_POWER_CUT_SEED");
  const std::uint64_t seed = given == nullptr ? 20261122 : std::strtoull(given, nullptr, 10);
  std::printf(
      "%zu of %zu states, drawn by SCRIPTORIUM_POWER_CUT_SEED=%llu; SCRIPTORIUM_POWER_CUT=all "
      "takes them all\n",
      most, cases.size(), static_cast<unsigned long long>(seed));
  std::mt19937_64 lot(seed);
  std::shuffle(cases.begin(), cases.end(), lot);
  cases.resize(most);
  return cases;
}

}  // namespace scriptorium::test

// ---- in front of the C library

#define IN_FRONT extern "C" __attribute__((visibility("default")))

using scriptorium::test::allocate_recorded;
using scriptorium::test::link_recorded;
using scriptorium::test::mkdir_recorded;
using scriptorium::test::open_recorded;
using scriptorium::test::rename_recorded;
using scriptorium::test::sync_recorded;
using scriptorium::test::truncate_recorded;
using scriptorium::test::unlink_recorded;
using scriptorium::test::write_recorded;

#define MODE_OF(flags)                                           \
  mode_t mode = 0;                                               \
  if (((flags) & (O_CREAT | (O_TMPFILE & ~O_DIRECTORY))) != 0) { \
    va_list list;                                                \
    va_start(list, flags);                                       \
    mode = va_arg(list, mode_t);                                 \
    va_end(list);                                                \
  }

IN_FRONT int open(const char* path, int flags, ...) {
  MODE_OF(flags)
  return open_recorded(AT_FDCWD, path, flags, mode);
}
IN_FRONT int open64(const char* path, int flags, ...) {
  MODE_OF(flags)
  return open_recorded(AT_FDCWD, path, flags, mode);
}
IN_FRONT int openat(int directory, const char* path, int flags, ...) {
  MODE_OF(flags)
  return open_recorded(directory, path, flags, mode);
}
IN_FRONT int openat64(int directory, const char* path, int flags, ...) {
  MODE_OF(flags)
  return open_recorded(directory, path, flags, mode);
}
IN_FRONT ssize_t write(int fd, const void* bytes, size_t size) {
  return write_recorded(fd, bytes, size, std::nullopt);
}
IN_FRONT ssize_t pwrite(int fd, const void* bytes, size_t size, off_t at) {
  return write_recorded(fd, bytes, size, at);
}
IN_FRONT ssize_t pwrite64(int fd, const void* bytes, size_t size, off64_t at) {
  return write_recorded(fd, bytes, size, at);
}
IN_FRONT int ftruncate(int fd, off_t size) noexcept { return truncate_recorded(fd, size); }
IN_FRONT int ftruncate64(int fd, off64_t size) noexcept { return truncate_recorded(fd, size); }
IN_FRONT int fallocate(int fd, int mode, off_t at, off_t size) {
  return allocate_recorded(fd, mode, at, size);
}
IN_FRONT int fallocate64(int fd, int mode, off64_t at, off64_t size) {
  return allocate_recorded(fd, mode, at, size);
}
IN_FRONT int posix_fallocate(int fd, off_t at, off_t size) {
  return allocate_recorded(fd, 0, at, size) == 0 ? 0 : errno;
}
IN_FRONT int posix_fallocate64(int fd, off64_t at, off64_t size) {
  return allocate_recorded(fd, 0, at, size) == 0 ? 0 : errno;
}
IN_FRONT int fsync(int fd) { return sync_recorded(SYS_fsync, fd); }
IN_FRONT int fdatasync(int fd) { return sync_recorded(SYS_fdatasync, fd); }
IN_FRONT int syncfs(int fd) noexcept { return sync_recorded(SYS_syncfs, fd); }
IN_FRONT int rename(const char* from, const char* to) noexcept {
  return rename_recorded(AT_FDCWD, from, AT_FDCWD, to, 0);
}
IN_FRONT int renameat(int from, const char* old_path, int to, const char* new_path) noexcept {
  return rename_recorded(from, old_path, to, new_path, 0);
}
IN_FRONT int renameat2(int from, const char* old_path, int to, const char* new_path,
                       unsigned flags) noexcept {
  return rename_recorded(from, old_path, to, new_path, flags);
}
IN_FRONT int link(const char* from, const char* to) noexcept {
  return link_recorded(AT_FDCWD, from, AT_FDCWD, to, 0);
}
IN_FRONT int linkat(int from, const char* old_path, int to, const char* new_path,
                    int flags) noexcept {
  return link_recorded(from, old_path, to, new_path, flags);
}
IN_FRONT int unlink(const char* path) noexcept { return unlink_recorded(AT_FDCWD, path, 0); }
IN_FRONT int unlinkat(int directory, const char* path, int flags) noexcept {
  return unlink_recorded(directory, path, flags);
}
IN_FRONT int rmdir(const char* path) noexcept {
  return unlink_recorded(AT_FDCWD, path, AT_REMOVEDIR);
}
IN_FRONT int mkdir(const char* path, mode_t mode) noexcept {
  return mkdir_recorded(AT_FDCWD, path, mode);
}
IN_FRONT int mkdirat(int directory, const char* path, mode_t mode) noexcept {
  return mkdir_recorded(directory, path, mode);
}
