#include "backends/file/root.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <utility>

#include "backends/file/marker.h"
#include "backends/file/outcome.h"
#include "core/base/path.h"

namespace scriptorium::file {
namespace {

UniqueFd open_listable(const std::string& path) {
  return UniqueFd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
}

std::string directory_above(const std::string& path) {
  const std::string above = parent_of(path);
  return above.empty() ? "/" : above;
}

}  // namespace

Result<UniqueFd> Root::open() const {
  // A link here is the administrator's own.
  UniqueFd fd = open_listable(access_.config().root);
  if (!fd) return root_error("root " + access_.config().root, errno);
  return fd;
}

Result<UniqueFd> Root::open_or_pass() const {
  auto root = open();
  if (root) return root;
  UniqueFd passed(::open(access_.config().root.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!passed) return root.error();
  return passed;
}

Result<void> Root::require_tree(int root) const {
  return require_marker(root, access_.config().root);
}

Result<void> Root::expect_tree() const {
  if (acknowledged_ == 0) return {};
  const std::string& path = access_.config().root;
  const UniqueFd root = open_listable(path);
  if (root) {
    const auto empty = is_empty_root(root.get());
    if (!empty || !*empty) return {};  // what cannot be listed is found out by the next steps
  } else if (errno != ENOENT) {
    return {};
  }
  return Error{ErrorKind::kTransient,
               "there is no archive in " + path + ", but this sink has stored " +
                   std::to_string(acknowledged_) +
                   " events: is its file system mounted? If it is to begin again there: mkdir -p " +
                   path + " && touch " + path + '/' + std::string(kMarkerName)};
}

Result<void> Root::make(const Readers& readers) {
  if (::access(access_.config().root.c_str(), F_OK) == 0) return {};
  if (errno != ENOENT) return root_error("root " + access_.config().root, errno);
  const std::string above = directory_above(access_.config().root);
  const UniqueFd parent = open_listable(above);
  if (!parent) return root_error("directory of root " + above, errno);
  const std::string name = access_.config().root.substr(access_.config().root.rfind('/') + 1);
  Prepared prepared;
  prepared.readers = readers;
  prepared.access_lists = access_.needs_lists();
  auto made = access_.make_directory(prepared, parent.get(), name, std::nullopt);
  if (!made && prepared.access_lists && access_.config().acl == AclMode::kBestEffort) {
    prepared.access_lists = false;
    made = access_.make_directory(prepared, parent.get(), name, std::nullopt);
  }
  if (!made) return made.error().with_context("make root " + access_.config().root);
  if (auto synced = sync_descriptor(parent.get()); !synced)
    return synced.error().with_context("directory of root " + above);
  return {};
}

Result<bool> Root::probe_access_lists(int fd, const Readers& readers) const {
  if (!access_.needs_lists()) return false;
  const int code = set_access(fd, AclTarget::kFile, readers, ::geteuid());
  if (code == 0) return true;
  if (code != EOPNOTSUPP) return root_error("access list in root " + access_.config().root, code);
  if (access_.config().acl == AclMode::kRequired)
    return root_error("root " + access_.config().root, code);
  return false;
}

Result<Prepared> Root::probe(int directory, Readers readers) {
  Prepared prepared;
  const std::string name = access_.names().make("probe", "");
  auto fd = create_file(directory, name);
  if (!fd) return fd.error();
  struct Remove {
    int directory;
    const std::string& name;
    ~Remove() { ::unlinkat(directory, name.c_str(), 0); }
  } remove{directory, name};
  struct stat st{};
  if (::fstat(fd->get(), &st) != 0) return file_error(errno);
  prepared.owner = st.st_uid;
  if (auto written = write_fd(fd->get(), "x"); !written) return written.error();
  const auto lists = probe_access_lists(fd->get(), readers);
  if (!lists) return lists.error();
  prepared.access_lists = *lists;
  prepared.readers = std::move(readers);
  prepared.batch_sync =
      sync_reports_errors() && (access_.config().sync == SyncMode::kBatch ||
                                (access_.config().sync == SyncMode::kAuto && is_local(directory)));
  return prepared;
}

Result<void> Root::check() {
  auto readers = resolve_readers(access_.config().acl_users, access_.config().acl_groups);
  if (!readers) return readers.error();
  std::string where = access_.config().root;
  // start() will make it; until then its parent shows whether it can.
  if (::access(where.c_str(), F_OK) != 0 && errno == ENOENT) where = directory_above(where);
  const UniqueFd fd = open_listable(where);
  if (!fd)
    return root_error((where == access_.config().root ? "root " : "directory of root ") + where,
                      errno);
  if (::faccessat(fd.get(), ".", W_OK | X_OK, AT_EACCESS) != 0)
    return root_error("write in " + where, errno);
  const auto probed = probe(fd.get(), *std::move(readers));
  if (!probed) return probed.error().with_context("write test in " + where);
  if (where != access_.config().root || !probed->access_lists) return {};
  const Readers missing = not_admitted(fd.get(), probed->readers);
  struct stat st{};
  // In a root of ours start() lets them in.
  if (missing.empty() || ::fstat(fd.get(), &st) != 0 || st.st_uid == ::geteuid()) return {};
  return Error{
      ErrorKind::kTransient,
      "root " + access_.config().root +
          " is not ours and does not let in those whom acl_users and acl_groups name; run: " +
          setfacl_line(missing, access_.config().root)};
}

Result<std::shared_ptr<const Prepared>> Root::prepare() {
  const std::lock_guard lock(preparing_);
  if (auto known = prepared_.with([](const std::shared_ptr<const Prepared>& p) { return p; }))
    return known;
  auto readers = resolve_readers(access_.config().acl_users, access_.config().acl_groups);
  if (!readers) return readers.error();
  if (auto expected = expect_tree(); !expected) return expected.error();
  if (auto made = make(*readers); !made) return made.error();
  auto root = open();
  if (!root) return root.error();
  if (::faccessat(root->get(), ".", W_OK | X_OK, AT_EACCESS) != 0)
    return root_error("write in root " + access_.config().root, errno);
  auto probed = probe(root->get(), *std::move(readers));
  if (!probed) return probed.error();
  if (access_.needs_lists() && !probed->access_lists &&
      logged_.allows("lists", std::chrono::steady_clock::now())) {
    access_.log().warning(
        "FILE_NO_ACCESS_LISTS",
        "The file system has no access lists; files are readable by the daemon's user only",
        {{"sink", access_.instance()}, {"root", access_.config().root}});
  }
  if (probed->access_lists) access_.admit_readers(root->get(), probed->readers);
  const FileConfig& config = access_.config();
  auto marked =
      add_to_marker(root->get(), config.root, config.layout, access_.names().make("tree", ""));
  if (!marked) return marked.error();
  std::shared_ptr<const Prepared> result = std::make_shared<const Prepared>(*std::move(probed));
  prepared_.with([&](std::shared_ptr<const Prepared>& p) { p = result; });
  return result;
}

// What is written is at most about the batch's own size and some blocks for each file.
bool Root::leaves_room(int root, const std::vector<Delivery>& batch) const {
  if (access_.config().min_free_bytes <= 0) return true;
  struct statvfs disk{};
  if (::fstatvfs(root, &disk) != 0) return true;  // if it has no room, writing fails
  constexpr std::uint64_t kBlocksOfAFile = 8192;
  auto needed = static_cast<std::uint64_t>(access_.config().min_free_bytes);
  for (const Delivery& d : batch)
    needed += d.event().bytes_size() + kBlocksOfAFile * access_.config().kinds.size();
  return static_cast<std::uint64_t>(disk.f_bavail) * disk.f_frsize >= needed;
}

}  // namespace scriptorium::file
