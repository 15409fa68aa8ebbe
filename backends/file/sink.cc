#include "backends/file/sink.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <map>
#include <utility>

#include "backends/file/outcome.h"
#include "core/base/accounts.h"
#include "core/base/fault_point.h"
#include "core/base/number.h"
#include "core/base/path.h"
#include "core/base/text.h"

namespace scriptorium::file {
namespace {

constexpr unsigned kMaxSlots = 10'000;
constexpr std::size_t kMaxKnown = 65'536;
// Descriptors that one batch may hold open; the usual limit of a process is 1024.
constexpr std::size_t kMaxOpen = 384;
// From this many files on, two syncfs calls cost less than an fsync of each (README, "What a batch
// costs").
constexpr std::size_t kBatchSyncFrom = 6;
constexpr std::uint64_t kMaxMetadataBytes = 16U << 20;
constexpr std::uint64_t kMaxShownBytes = 64U << 20;
constexpr std::size_t kMaxFound = 100;
// A number that is free may follow one that is taken only where something was moved away.
constexpr unsigned kFreeSlotsPassed = 8;
constexpr std::size_t kMaxNamesLookedAt = 2'000'000;

constexpr mode_t kFileMode = 0640;
constexpr mode_t kDirectoryMode = 0750;

std::size_t index_of(FileKind kind) { return static_cast<std::size_t>(kind); }

std::optional<uid_t> verified_uid(const Event& event) {
  if (!event.user.verified || !event.user.id) return std::nullopt;
  const auto uid = parse_number<uid_t>(*event.user.id);
  return uid == static_cast<uid_t>(-1) ? std::nullopt : uid;
}

// An event that is no job script is one file, its record, whatever is kept of scripts.
const std::vector<FileKind>& kinds_of(const Event& event, const FileConfig& config) {
  static const std::vector<FileKind> kRecord{FileKind::kMetadata};
  return event.kind == "job.script" ? config.kinds : kRecord;
}

bool lacks_bytes(const Event& event) {
  return std::ranges::any_of(event.files,
                             [](const EventFile& file) { return file.bytes == nullptr; });
}

// Whether the JSON that event_json() wrote has a member "id" of this value. A quote within a string
// is escaped, so the pattern cannot stand inside of one.
bool has_id(std::string_view json, std::string_view id) {
  constexpr std::string_view kKey = "\"id\"";
  for (auto at = json.find(kKey); at != std::string_view::npos;
       at = json.find(kKey, at + kKey.size())) {
    std::string_view rest = json.substr(at + kKey.size());
    rest.remove_prefix(std::min(rest.find_first_not_of(" :"), rest.size()));
    if (rest.starts_with('"') && rest.substr(1).starts_with(id) &&
        rest.substr(1 + id.size()).starts_with('"'))
      return true;
  }
  return false;
}

// The event's id in such JSON: the only "id" of 64 digits.
std::string event_id_of(std::string_view json) {
  constexpr std::string_view kKey = "\"id\"";
  for (auto at = json.find(kKey); at != std::string_view::npos;
       at = json.find(kKey, at + kKey.size())) {
    std::string_view rest = json.substr(at + kKey.size());
    rest.remove_prefix(std::min(rest.find_first_not_of(" :"), rest.size()));
    if (rest.size() > 65 && rest[0] == '"' && rest[65] == '"' && hex_decode(rest.substr(1, 64)))
      return std::string(rest.substr(1, 64));
  }
  return {};
}

}  // namespace

struct FileSink::Directory {
  UniqueFd fd;
  std::string path;      // below the root
  dev_t device = 0;      // an administrator may mount another file system below the root
  bool changed = false;  // a name was added, or was found and may not be durable yet
};

struct FileSink::Item {
  struct File {
    Bytes bytes;
    std::string temporary;  // "" = none is there
    UniqueFd fd;            // open until it is synced
  };
  Delivery* delivery = nullptr;
  std::string id;  // of the event
  Place place;
  std::array<std::optional<File>, 3> files;  // by FileKind; nothing = this event has none
  std::optional<uid_t> reader;
  std::shared_ptr<Directory> directory;
  unsigned slot = 1;
  std::vector<FileKind> missing;  // in that slot, when we looked
  bool found_again = false;
  std::optional<Error> error;
};

struct FileSink::Batch {
  int root = -1;
  const Prepared* prepared = nullptr;
  std::vector<Item> items;
  std::map<std::string, std::shared_ptr<Directory>> directories;
  std::unordered_set<std::string> to_sync;  // directories above, whose entries may not be durable
  std::size_t open_files = 0;
  bool one_sync = false;
};

Result<std::unique_ptr<FileSink>> FileSink::create(FileConfig config,
                                                   const PluginContext& context) {
  auto layout = Layout::parse(config.layout);
  if (!layout) return layout.error().with_context("layout");
  auto names = TemporaryNames::create();
  if (!names) return names.error();
  return std::unique_ptr<FileSink>(
      new FileSink(std::move(config), *std::move(layout), *std::move(names), context));
}

FileSink::FileSink(FileConfig config, Layout layout, TemporaryNames names,
                   const PluginContext& context)
    : config_(std::move(config)),
      layout_(std::move(layout)),
      names_(std::move(names)),
      instance_(context.name),
      log_(context.log),
      clock_(context.clock) {}

bool FileSink::needs_access_lists() const noexcept {
  return config_.acl != AclMode::kNone &&
         (config_.owner_may_read || !config_.acl_users.empty() || !config_.acl_groups.empty());
}

// ---- start
// ----------------------------------------------------------------------------------------------------------

Result<UniqueFd> FileSink::open_root() const {
  // A link here is the administrator's own.
  UniqueFd fd(::open(config_.root.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd) return root_error("root " + config_.root, errno);
  return fd;
}

Result<void> FileSink::make_root(const Readers& readers) {
  if (::access(config_.root.c_str(), F_OK) == 0) return {};
  if (errno != ENOENT) return root_error("root " + config_.root, errno);
  const auto slash = config_.root.rfind('/');
  const std::string above = slash == 0 ? "/" : config_.root.substr(0, slash);
  const UniqueFd parent(::open(above.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!parent) return root_error("directory of root " + above, errno);
  Prepared prepared;
  prepared.readers = readers;
  prepared.access_lists = needs_access_lists();
  auto made = make_directory(prepared, parent.get(), config_.root.substr(slash + 1), std::nullopt);
  if (!made && prepared.access_lists && config_.acl == AclMode::kBestEffort) {
    prepared.access_lists = false;
    made = make_directory(prepared, parent.get(), config_.root.substr(slash + 1), std::nullopt);
  }
  if (!made) return made.error().with_context("make root " + config_.root);
  if (auto synced = sync_descriptor(parent.get()); !synced)
    return synced.error().with_context("directory of root " + above);
  return {};
}

Result<FileSink::Prepared> FileSink::probe(int directory, Readers readers) {
  Prepared prepared;
  const std::string name = names_.make("probe", "");
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
  prepared.access_lists = needs_access_lists();
  prepared.readers = std::move(readers);
  if (prepared.access_lists) {
    if (const int code = set_access(fd->get(), AclTarget::kFile, prepared.readers, ::geteuid());
        code != 0) {
      if (code != EOPNOTSUPP) return root_error("access list in root " + config_.root, code);
      if (config_.acl == AclMode::kRequired) return root_error("root " + config_.root, code);
      prepared.access_lists = false;
    }
  }
  const bool can = sync_reports_errors();
  prepared.batch_sync = can && (config_.sync == SyncMode::kBatch ||
                                (config_.sync == SyncMode::kAuto && is_local(directory)));
  return prepared;
}

Result<void> FileSink::check() {
  auto readers = resolve_readers(config_.acl_users, config_.acl_groups);
  if (!readers) return readers.error();
  std::string where = config_.root;
  if (::access(where.c_str(), F_OK) != 0 && errno == ENOENT) {
    // start() will make it; until then its parent tells.
    const auto slash = where.rfind('/');
    where = slash == 0 ? "/" : where.substr(0, slash);
  }
  const UniqueFd fd(::open(where.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd)
    return root_error((where == config_.root ? "root " : "directory of root ") + where, errno);
  if (::faccessat(fd.get(), ".", W_OK | X_OK, AT_EACCESS) != 0)
    return root_error("write in " + where, errno);
  const auto probed = probe(fd.get(), *std::move(readers));
  if (!probed) return probed.error().with_context("write test in " + where);
  if (where != config_.root || !probed->access_lists) return {};
  const Readers missing = not_admitted(fd.get(), probed->readers);
  struct stat st{};
  // start() gives way to them where it can.
  if (missing.empty() || ::fstat(fd.get(), &st) != 0 || st.st_uid == ::geteuid()) return {};
  return Error{
      ErrorKind::kTransient,
      "root " + config_.root +
          " is not ours and does not let in those whom acl_users and acl_groups name; run: " +
          setfacl_line(missing, config_.root)};
}

Result<void> FileSink::start() {
  prepared_.with([](std::shared_ptr<const Prepared>& p) { p.reset(); });
  auto prepared = prepare();
  if (!prepared) return prepared.error();
  if (config_.owner_may_read && (*prepared)->access_lists && !layout_.begins_with_user()) {
    log_.info("FILE_OWNERS_NEED_A_WAY",
              "The layout does not begin with {user}, so owners may read their files but reach "
              "them only if "
              "the directories above are opened to them by hand",
              {{"sink", instance_}, {"layout", config_.layout}});
  }
  return {};
}

Result<std::shared_ptr<const FileSink::Prepared>> FileSink::prepare() {
  const std::lock_guard lock(prepare_mutex_);
  if (auto known = prepared_.with([](const std::shared_ptr<const Prepared>& p) { return p; }))
    return known;
  auto readers = resolve_readers(config_.acl_users, config_.acl_groups);
  if (!readers) return readers.error();
  if (auto made = make_root(*readers); !made) return made.error();
  auto root = open_root();
  if (!root) return root.error();
  if (::faccessat(root->get(), ".", W_OK | X_OK, AT_EACCESS) != 0)
    return root_error("write in root " + config_.root, errno);
  auto probed = probe(root->get(), *std::move(readers));
  if (!probed) return probed.error();
  if (needs_access_lists() && !probed->access_lists && !said_no_access_lists_.exchange(true)) {
    log_.warning(
        "FILE_NO_ACCESS_LISTS",
        "The file system has no access lists; files are readable by the daemon's user only",
        {{"sink", instance_}, {"root", config_.root}});
  }
  if (probed->access_lists) admit_readers(root->get(), probed->readers);
  std::shared_ptr<const Prepared> result = std::make_shared<const Prepared>(*std::move(probed));
  prepared_.with([&](std::shared_ptr<const Prepared>& p) { p = result; });
  return result;
}

// A root that was there before us, such as one made by hand: without a way through it nobody
// reaches what is below.
void FileSink::admit_readers(int root, const Readers& readers) {
  const Readers missing = not_admitted(root, readers);
  if (missing.empty() || admit(root, missing) == 0 || said_readers_shut_out_.exchange(true)) return;
  log_.warning(
      "FILE_READERS_CANNOT_ENTER",
      "The root of the archive does not let in those whom acl_users and acl_groups name, and its "
      "list is not ours to change",
      {{"sink", instance_}, {"root", config_.root}, {"run", setfacl_line(missing, config_.root)}});
}

// ---- directories
// ----------------------------------------------------------------------------------------------------

Result<void> FileSink::grant(const Prepared& prepared, int fd, AclTarget target,
                             std::optional<uid_t> reader) const {
  int code = 0;
  if (prepared.access_lists) {
    code = set_access(fd, target, prepared.readers, reader);
  } else {
    mode_t mode = target == AclTarget::kFile ? kFileMode : kDirectoryMode;
    // Who asked for access lists and cannot have them gets less, never more.
    if (needs_access_lists()) mode &= 0700U;
    if (::fchmod(fd, mode) != 0) code = errno;
  }
  if (code != 0) return file_error(code);
  return {};
}

Result<UniqueFd> FileSink::make_directory(const Prepared& prepared, int parent,
                                          const std::string& name, std::optional<uid_t> reader) {
  const auto open_made = [&](const std::string& made) -> Result<UniqueFd> {
    auto fd = open_directory(parent, made);
    if (!fd) return fd.error();
    if (auto granted = grant(prepared, fd->get(), AclTarget::kDirectory, reader); !granted)
      return granted.error();
    return fd;
  };
  // Under another name until its access list is whole.
  const std::string temporary = names_.make(name, "");
  if (::mkdirat(parent, temporary.c_str(), 0700) != 0) return file_error(errno);
  auto fd = open_made(temporary);
  if (!fd) {
    ::unlinkat(parent, temporary.c_str(), AT_REMOVEDIR);
    return fd.error();
  }
  if (::renameat2(parent, temporary.c_str(), parent, name.c_str(), RENAME_NOREPLACE) == 0)
    return fd;
  const int code = errno;
  ::unlinkat(parent, temporary.c_str(), AT_REMOVEDIR);
  if (code == EEXIST) return open_directory(parent, name);  // another worker was faster
  if (code != EINVAL && code != ENOSYS) return file_error(code);
  // No such rename here (NFS). Mode 0700 keeps it closed until the list is set.
  if (::mkdirat(parent, name.c_str(), 0700) != 0)
    return errno == EEXIST ? open_directory(parent, name) : Result<UniqueFd>(file_error(errno));
  return open_made(name);
}

// A directory that was there before us, for instance from a time before owner_may_read. One with a
// list of its own was made so on purpose, or belongs to an earlier user of that name: then we only
// say what follows from it.
void FileSink::admit_owner(const Prepared& prepared, int directory, const std::string& path,
                           uid_t reader) {
  struct stat st{};
  if (::fstat(directory, &st) != 0 || st.st_uid == reader) return;
  const auto granted = user_grant(directory, reader);
  if (!granted || *granted == Grant::kGranted) return;
  if (*granted == Grant::kPlain && st.st_uid == prepared.owner &&
      set_access(directory, AclTarget::kDirectory, prepared.readers, reader) == 0)
    return;
  log_.warning("FILE_OWNER_CANNOT_ENTER",
               "A job's owner cannot enter the directory of its files: it has an access list that "
               "does not name the owner",
               {{"sink", instance_}, {"directory", path}, {"uid", reader}});
}

Result<UniqueFd> FileSink::open_or_make(Batch& batch, int parent, const std::string& name,
                                        const std::string& path, std::optional<uid_t> reader) {
  auto fd = open_directory(parent, name);
  if (!fd && fd.error().kind() == ErrorKind::kVanished) {
    struct stat st{};
    // Something else of that name: say so, do not try to make it.
    if (::fstatat(parent, name.c_str(), &st, AT_SYMLINK_NOFOLLOW) == 0)
      return file_error(S_ISLNK(st.st_mode) ? ELOOP : ENOTDIR);
    fd = make_directory(*batch.prepared, parent, name, reader);
  }
  if (!fd) {
    if (fd.error().kind() == ErrorKind::kTransient || fd.error().kind() == ErrorKind::kVanished) {
      log_.warning("FILE_DIRECTORY_BLOCKED",
                   "A directory of the archive cannot be opened or made; its events wait",
                   {{"sink", instance_},
                    {"directory", config_.root + '/' + path},
                    {"reason", fd.error().message()}});
    }
    return fd;
  }
  if (reader && batch.prepared->access_lists)
    admit_owner(*batch.prepared, fd->get(), path, *reader);
  return fd;
}

Result<std::shared_ptr<FileSink::Directory>> FileSink::open_place(Batch& batch, const Item& item) {
  const std::string path = item.place.directory();
  if (const auto found = batch.directories.find(path); found != batch.directories.end())
    return found->second;
  auto directory = std::make_shared<Directory>();
  directory->path = path;
  if (known_.with([&](const auto& known) { return known.contains(path); })) {
    auto fd = open_directory(batch.root, path);
    if (fd) {
      directory->fd = *std::move(fd);
    } else if (fd.error().kind() != ErrorKind::kVanished) {
      return fd.error();
    } else {
      // Somebody removed it meanwhile: make it again below, and trust nothing above it.
      known_.with([](auto& known) { known.clear(); });
    }
  }
  if (!directory->fd) {
    auto fd = open_directory(batch.root, "");
    if (!fd) return fd.error();
    std::string walked;
    for (std::size_t i = 0; i < item.place.directories.size(); ++i) {
      const std::string& name = item.place.directories[i];
      walked += (walked.empty() ? "" : "/") + name;
      auto next = open_or_make(batch, fd->get(), name, walked,
                               i >= item.place.owned_from ? item.reader : std::nullopt);
      if (!next) return next.error();
      fd = std::move(next);
    }
    directory->fd = *std::move(fd);
    // The process before us may have died between making a name and syncing it.
    directory->changed = true;
    // A directory's own name stands in the one above it.
    for (std::string p = path;
         !p.empty() && !known_.with([&](const auto& known) { return known.contains(p); });) {
      p = parent_of(p);
      batch.to_sync.insert(p);
    }
    stale_removed_ += remove_stale(directory->fd.get(), names_);
  }
  struct stat st{};
  if (::fstat(directory->fd.get(), &st) != 0) return file_error(errno);
  directory->device = st.st_dev;
  batch.directories.emplace(path, directory);
  return directory;
}

// ---- files
// ----------------------------------------------------------------------------------------------------------

void FileSink::make_item(Item& item, Delivery& delivery) const {
  const Event& event = delivery.event();
  item.delivery = &delivery;
  item.id = event.id;
  item.place = layout_.place(event);
  if (config_.owner_may_read) item.reader = verified_uid(event);
  // Nothing lies here that could be moved: else core would have read the bytes from here.
  if (event.replaces && lacks_bytes(event)) return;
  for (const FileKind kind : kinds_of(event, config_)) {
    Item::File file;
    if (kind == FileKind::kMetadata) {
      file.bytes = make_bytes(
          event_json(event, {.script_text = false, .environment = false, .indent = 2}) + '\n');
    } else {
      const EventFile* from = event.file(to_string(kind));
      if (from == nullptr) continue;
      if (from->bytes == nullptr) {
        item.error = Error{ErrorKind::kPermanent, "the event came without the bytes of its " +
                                                      std::string(to_string(kind))};
        return;
      }
      file.bytes = from->bytes;
      if (kind == FileKind::kEnvironment && config_.environment_format != EnvironmentStyle::kNul) {
        file.bytes = make_bytes(
            render_environment(*from->bytes, event.environment_format, config_.environment_format));
      }
    }
    item.files[index_of(kind)] = std::move(file);
  }
}

Result<void> FileSink::write_temporary(Batch& batch, Item& item, FileKind kind, bool keep_open) {
  Item::File& file = *item.files[index_of(kind)];
  const std::string name = names_.make(item.place.name(kind, 1), item.id);
  auto fd = create_file(item.directory->fd.get(), name);
  if (!fd) return fd.error();
  file.temporary = name;
  FAULT_POINT("file.temp_created");
  if (auto granted = grant(*batch.prepared, fd->get(), AclTarget::kFile, item.reader); !granted)
    return granted.error();
  if (const int code = FAULT_ERROR("file.write")) return file_error(code);
  std::string_view rest = *file.bytes;
  while (!rest.empty()) {
    const ssize_t n = ::write(fd->get(), rest.data(), rest.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return file_error(errno);
    rest.remove_prefix(static_cast<std::size_t>(n));
  }
  FAULT_POINT("file.written");
  if (keep_open) {
    file.fd = *std::move(fd);
    ++batch.open_files;
  }
  return {};
}

Result<FileSink::Slot> FileSink::examine(const Batch& batch, const Item& item,
                                         unsigned slot) const {
  Slot result;
  const int directory = item.directory->fd.get();
  const uid_t owner = batch.prepared->owner;
  std::array<Found, 3> found;
  bool anything = false;
  const auto& kinds = kinds_of(item.delivery->event(), config_);
  for (const FileKind kind : kinds) {
    auto looked = look_at(directory, item.place.name(kind, slot), owner);
    if (!looked) return looked.error();
    found[index_of(kind)] = *looked;
    if (looked->kind == Found::Kind::kOther) {
      result.other = true;
      return result;
    }
    anything = anything || looked->kind == Found::Kind::kFile;
    if (looked->kind == Found::Kind::kNothing && item.files[index_of(kind)])
      result.missing.push_back(kind);
  }
  if (!anything) return result;

  const auto same_bytes = [&](FileKind kind) -> Result<bool> {
    const std::string& wanted = *item.files[index_of(kind)]->bytes;
    if (found[index_of(kind)].size != wanted.size()) return false;
    auto bytes = read_beneath(directory, item.place.name(kind, slot), wanted.size() + 1);
    if (!bytes)
      return bytes.error().kind() == ErrorKind::kVanished ? Result<bool>(false) : bytes.error();
    return *bytes == wanted;
  };

  if (item.files[index_of(FileKind::kMetadata)] &&
      found[index_of(FileKind::kMetadata)].kind == Found::Kind::kFile) {
    auto json =
        read_beneath(directory, item.place.name(FileKind::kMetadata, slot), kMaxMetadataBytes);
    if (!json && json.error().kind() != ErrorKind::kVanished) return json.error();
    // Its own: what stands beside it is left as it is, whatever a person did to it since.
    if (!json || !has_id(*json, item.id)) result.other = true;
    return result;
  }
  for (const FileKind kind : kinds) {
    if (found[index_of(kind)].kind != Found::Kind::kFile) continue;
    auto same = item.files[index_of(kind)] ? same_bytes(kind) : Result<bool>(false);
    if (!same) return same.error();
    if (!*same) {
      result.other = true;
      return result;
    }
  }
  return result;
}

// From the item's slot on, the first that is its own or free.
Result<void> FileSink::find_slot(const Batch& batch, Item& item) const {
  for (; item.slot <= kMaxSlots; ++item.slot) {
    auto examined = examine(batch, item, item.slot);
    if (!examined) return examined.error();
    if (examined->other) continue;
    item.missing = std::move(examined->missing);
    return {};
  }
  return Error{ErrorKind::kTransient, "too many files of one name"};
}

Result<void> FileSink::put_in_place(Batch& batch, Item& item, Names names) {
  const int directory = item.directory->fd.get();
  // In the second step only what gets its name then; else all, for what is found again may not be
  // safe yet.
  if (names != Names::kMetadata || !item.missing.empty()) item.directory->changed = true;
  // Each turn after the first found a name taken since we looked, by another event of this batch
  // for instance.
  for (unsigned turn = 0; turn < kMaxSlots; ++turn) {
    if (turn > 0) {
      if (auto found = find_slot(batch, item); !found) return found.error();
    }
    bool taken = false;
    for (const FileKind kind : item.missing) {
      const bool metadata = kind == FileKind::kMetadata;
      if (metadata ? names == Names::kContents : names == Names::kMetadata && turn == 0) continue;
      if (metadata && turn > 0) {
        if (auto synced = sync_descriptor(directory); !synced) return synced.error();
      }
      Item::File& file = *item.files[index_of(kind)];
      if (file.temporary.empty()) {
        // Its first copy went to a slot that then turned out to be another's, or it was there when
        // we first looked.
        if (auto written = write_temporary(batch, item, kind, true); !written)
          return written.error();
        if (auto synced = sync_descriptor(file.fd.get()); !synced) return synced.error();
        file.fd.reset();
      }
      auto renamed = rename_into_place(directory, file.temporary, item.place.name(kind, item.slot));
      if (!renamed) return renamed.error();
      if (*renamed == Renamed::kTaken) {
        taken = true;
        break;
      }
      file.temporary.clear();
      FAULT_POINT("file.renamed");
    }
    if (!taken) return {};
  }
  return Error{ErrorKind::kTransient, "names were taken by others again and again"};
}

void FileSink::drop_temporaries(Item& item) {
  for (auto& file : item.files) {
    if (!file) continue;
    file->fd.reset();
    if (file->temporary.empty()) continue;
    ::unlinkat(item.directory->fd.get(), file->temporary.c_str(), 0);
    file->temporary.clear();
  }
}

// ---- owners that become known later
// ----------------------------------------------------------------------------------

// The files of the same event where they lie as long as nobody knew whose they are.
FileSink::Item FileSink::replaced_item(const Item& item) const {
  Event before = item.delivery->event();
  before.id = *before.replaces;
  before.user = {};
  Item result;
  result.delivery = item.delivery;
  result.id = before.id;
  result.place = layout_.place(before);
  for (std::size_t i = 0; i < item.files.size(); ++i) {
    if (item.files[i]) result.files[i].emplace().bytes = item.files[i]->bytes;
  }
  return result;
}

// Sets slot and what is missing there; false if it is not there.
Result<bool> FileSink::find_replaced(const Batch& batch, Item& item) const {
  const bool has_record = item.files[index_of(FileKind::kMetadata)].has_value();
  unsigned free = 0;
  for (item.slot = 1; item.slot <= kMaxSlots && free < kFreeSlotsPassed; ++item.slot) {
    auto examined = examine(batch, item, item.slot);
    if (!examined) return examined.error();
    item.missing = std::move(examined->missing);
    const auto files =
        std::ranges::count_if(item.files, [](const auto& file) { return file.has_value(); });
    const bool nothing =
        !examined->other && static_cast<std::ptrdiff_t>(item.missing.size()) == files;
    free = nothing ? free + 1 : 0;
    // Equal bytes beside no record may be another event that is being written.
    const bool no_record = has_record && std::ranges::count(item.missing, FileKind::kMetadata) > 0;
    if (!examined->other && !nothing && !no_record) return true;
  }
  return false;
}

// Where the owner is no part of the path: access lists and record change, names stay. False: it
// lies elsewhere, or not here.
Result<bool> FileSink::replace_in_place(Batch& batch, Item& item) {
  Item before = replaced_item(item);
  if (before.place.directory() != item.place.directory() || before.place.stem != item.place.stem)
    return false;
  before.directory = item.directory;
  const auto found = find_replaced(batch, before);
  if (!found) return found.error();
  if (!*found) return false;
  const int directory = item.directory->fd.get();
  for (const FileKind kind : kFileKinds) {
    if (kind == FileKind::kMetadata || !item.files[index_of(kind)] ||
        std::ranges::count(before.missing, kind) > 0)
      continue;
    const std::string name = item.place.name(kind, before.slot);
    const UniqueFd fd(
        ::openat(directory, name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
    if (!fd) return file_error(errno);
    if (auto granted = grant(*batch.prepared, fd.get(), AclTarget::kFile, item.reader); !granted)
      return granted.error();
    if (auto synced = sync_descriptor(fd.get()); !synced) return synced.error();
  }
  if (item.files[index_of(FileKind::kMetadata)]) {
    if (auto written = write_temporary(batch, item, FileKind::kMetadata, true); !written)
      return written.error();
    Item::File& record = *item.files[index_of(FileKind::kMetadata)];
    if (auto synced = sync_descriptor(record.fd.get()); !synced) return synced.error();
    const std::string name = item.place.name(FileKind::kMetadata, before.slot);
    if (::renameat(directory, record.temporary.c_str(), directory, name.c_str()) != 0)
      return file_error(errno);
    record.temporary.clear();
  }
  FAULT_POINT("file.replaced");
  item.directory->changed = true;
  item.slot = before.slot;
  return true;
}

// Now that the same event is safe at its owner's. The record goes last, and only once the other
// names are gone for good: as long as it stands, a later attempt finds what is left.
Result<void> FileSink::remove_replaced(const Batch& batch, const Item& item) const {
  Item before = replaced_item(item);
  if (before.place.directory() == item.place.directory() && before.place.stem == item.place.stem)
    return {};
  auto fd = open_directory(batch.root, before.place.directory());
  if (!fd) return fd.error().kind() == ErrorKind::kVanished ? Result<void>{} : fd.error();
  before.directory = std::make_shared<Directory>();
  before.directory->fd = *std::move(fd);
  const int directory = before.directory->fd.get();
  const auto found = find_replaced(batch, before);
  if (!found) return found.error();
  if (!*found)
    return sync_descriptor(
        directory);  // perhaps removed by an attempt that did not come to its end
  const auto remove = [&](FileKind kind) -> Result<void> {
    if (!item.files[index_of(kind)] || std::ranges::count(before.missing, kind) > 0) return {};
    if (::unlinkat(directory, before.place.name(kind, before.slot).c_str(), 0) != 0 &&
        errno != ENOENT)
      return file_error(errno);
    return {};
  };
  for (const FileKind kind : {FileKind::kScript, FileKind::kEnvironment}) {
    if (auto removed = remove(kind); !removed) return removed;
  }
  if (auto synced = sync_descriptor(directory); !synced) return synced;
  FAULT_POINT("file.replaced_contents_removed");
  if (auto removed = remove(FileKind::kMetadata); !removed) return removed;
  return sync_descriptor(directory);
}

// ---- batches
// --------------------------------------------------------------------------------------------------------

void FileSink::sync_data(Batch& batch) {
  const auto waiting = [](const Item& item) {
    return !item.error && std::ranges::any_of(
                              item.files, [](const auto& f) { return f && !f->temporary.empty(); });
  };
  if (std::ranges::none_of(batch.items, waiting)) return;
  if (batch.one_sync) {
    const auto synced = sync_file_systems(batch);
    for (Item& item : batch.items) {
      if (!synced && waiting(item)) item.error = synced.error();
    }
    return;
  }
  // All of it is on its way before we wait for the first: an fsync then finds its data written, and
  // on a journalling file system the first one commits for all.
  for (const Item& item : batch.items) {
    for (const auto& file : item.files) {
      if (file && file->fd)
        static_cast<void>(::sync_file_range(file->fd.get(), 0, 0, SYNC_FILE_RANGE_WRITE));
    }
  }
  for (Item& item : batch.items) {
    for (auto& file : item.files) {
      if (!file || !file->fd || item.error) continue;
      if (auto synced = sync_descriptor(file->fd.get()); !synced) item.error = synced.error();
      file->fd.reset();
    }
  }
}

// The one of the root, and any that is mounted below it and was written to.
Result<void> FileSink::sync_file_systems(const Batch& batch) {
  std::map<dev_t, int> devices;
  for (const auto& entry : batch.directories)
    devices.emplace(entry.second->device, entry.second->fd.get());
  for (const auto& entry : devices) {
    if (auto synced = sync_file_system(entry.second); !synced) return synced.error();
  }
  return {};
}

void FileSink::sync_names(Batch& batch) {
  if (std::ranges::none_of(
          batch.items, [](const Item& item) { return !item.error && item.directory != nullptr; }))
    return;
  std::optional<Error> above;
  std::map<std::string, Error> failed;
  if (batch.one_sync) {
    if (auto synced = sync_file_systems(batch); !synced) above = synced.error();
  } else {
    for (const auto& [path, directory] : batch.directories) {
      if (!directory->changed) continue;
      if (auto synced = sync_descriptor(directory->fd.get()); !synced)
        failed.emplace(path, synced.error());
    }
    for (const std::string& path : batch.to_sync) {
      auto fd = open_directory(batch.root, path);
      const Result<void> synced = fd ? sync_descriptor(fd->get()) : Result<void>(fd.error());
      if (!synced) above = synced.error();
    }
  }
  FAULT_POINT("file.dir_synced");
  for (Item& item : batch.items) {
    if (item.error || item.directory == nullptr) continue;
    if (above) item.error = *above;
    if (const auto found = failed.find(item.directory->path); found != failed.end())
      item.error = found->second;
  }
  if (above) return;
  known_.with([&](auto& known) {
    if (known.size() + batch.directories.size() + batch.to_sync.size() > kMaxKnown) known.clear();
    for (const auto& entry : batch.directories) {
      if (!failed.contains(entry.first)) known.insert(entry.first);
    }
    known.insert(batch.to_sync.begin(), batch.to_sync.end());
  });
}

// Takes as many of the batch as its descriptors allow, and brings them to an end.
void FileSink::deliver_some(std::vector<Delivery>& deliveries, std::size_t& next, int root,
                            const Prepared& prepared) {
  Batch batch;
  batch.root = root;
  batch.prepared = &prepared;
  const std::size_t rest = deliveries.size() - next;
  batch.one_sync = prepared.batch_sync && (config_.sync == SyncMode::kBatch ||
                                           rest * config_.kinds.size() >= kBatchSyncFrom);
  batch.items.reserve(rest);

  for (; next < deliveries.size() && batch.directories.size() + batch.open_files < kMaxOpen;
       ++next) {
    Item& item = batch.items.emplace_back();
    make_item(item, deliveries[next]);
    const bool nothing =
        std::ranges::none_of(item.files, [](const auto& f) { return f.has_value(); });
    if (item.error || nothing) continue;
    auto directory = open_place(batch, item);
    if (!directory) {
      item.error = directory.error();
      continue;
    }
    item.directory = *std::move(directory);
    if (item.delivery->event().replaces) {
      const auto replaced = replace_in_place(batch, item);
      if (!replaced) item.error = replaced.error();
      if (!replaced || *replaced) continue;
    }
    if (auto found = find_slot(batch, item); !found) {
      item.error = found.error();
      continue;
    }
    item.found_again = item.missing.empty();
    for (const FileKind kind : item.missing) {
      if (auto written = write_temporary(batch, item, kind, !batch.one_sync); !written) {
        item.error = written.error();
        break;
      }
    }
  }

  sync_data(batch);
  FAULT_POINT("file.synced");
  const auto put_all_in_place = [&](Names names) {
    for (Item& item : batch.items) {
      if (item.error || item.directory == nullptr) continue;
      if (auto placed = put_in_place(batch, item, names); !placed) item.error = placed.error();
    }
  };
  // POSIX lets the names of one directory reach the disk in any order, and where the metadata
  // stands the event is whole.
  const bool in_two_steps = std::ranges::any_of(batch.items, [](const Item& item) {
    return !item.error && item.missing.size() > 1 && item.missing.back() == FileKind::kMetadata;
  });
  if (in_two_steps) {
    put_all_in_place(Names::kContents);
    // Each directory by itself: waiting once more for all that others have written to the file
    // system would cost far more.
    for (const auto& entry : batch.directories) {
      if (!std::exchange(entry.second->changed, false)) continue;
      const auto synced = sync_descriptor(entry.second->fd.get());
      for (Item& item : batch.items) {
        if (!synced && !item.error && item.directory == entry.second) item.error = synced.error();
      }
    }
  }
  put_all_in_place(in_two_steps ? Names::kMetadata : Names::kAll);
  for (Item& item : batch.items) {
    if (item.directory != nullptr) drop_temporaries(item);
  }
  sync_names(batch);
  for (Item& item : batch.items) {
    if (item.error || item.directory == nullptr || !item.delivery->event().replaces) continue;
    if (auto removed = remove_replaced(batch, item); !removed) {
      item.error = removed.error();
    } else {
      ++replaced_;
    }
  }
  FAULT_POINT("file.before_ack");

  for (Item& item : batch.items) {
    if (!item.error) {
      ++(item.found_again ? found_again_ : stored_);
      if (!item.found_again && item.slot > 1) ++suffixed_;
      item.delivery->acknowledge();
    } else if (item.error->kind() == ErrorKind::kPermanent) {
      item.delivery->reject(item.error->message());
    } else {
      item.delivery->retry(item.error->message());
    }
  }
}

void FileSink::deliver(std::vector<Delivery> batch) {
  const auto refuse = [&](const std::string& reason) {
    for (Delivery& d : batch) d.retry(reason);
  };
  const auto prepared = prepare();
  if (!prepared) return refuse(prepared.error().message());
  const auto root = open_root();
  if (!root) return refuse(root.error().message());
  if (!leaves_room(root->get(), batch))
    return refuse("less than min_free_bytes would be free on root's file system");
  for (std::size_t next = 0; next < batch.size();)
    deliver_some(batch, next, root->get(), **prepared);
}

// With all that is written for this batch, which is at most about its own size and some blocks for
// each file.
bool FileSink::leaves_room(int root, const std::vector<Delivery>& batch) const {
  if (config_.min_free_bytes <= 0) return true;
  struct statvfs disk{};
  if (::fstatvfs(root, &disk) != 0) return true;  // if it has no room, writing says so
  constexpr std::uint64_t kBlocksOfAFile = 8192;
  std::uint64_t needed = static_cast<std::uint64_t>(config_.min_free_bytes);
  for (const Delivery& d : batch)
    needed += d.event().bytes_size() + kBlocksOfAFile * config_.kinds.size();
  return static_cast<std::uint64_t>(disk.f_bavail) * disk.f_frsize >= needed;
}

// ---- looking back
// ---------------------------------------------------------------------------------------------------

Result<std::vector<StoredJob>> FileSink::find(std::string_view job_id) {
  auto root = open_root();
  if (!root) {
    // An owner may pass through the root, but not list it.
    UniqueFd passed(::open(config_.root.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    if (passed) root = std::move(passed);
  }
  if (!root) return root.error();
  const Layout::Search search = layout_.search(job_id);
  std::vector<StoredJob> jobs;
  std::size_t looked_at = 0;
  std::size_t closed = 0;  // directories that we may not list or enter
  const SteadyTime deadline = clock_.steady() + std::chrono::seconds{20};
  bool cut_short = false;

  struct DirClose {
    void operator()(DIR* d) const noexcept { ::closedir(d); }
  };
  const auto for_each_name = [&](int fd, auto&& each) {
    const int copy = ::openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const std::unique_ptr<DIR, DirClose> stream(copy < 0 ? nullptr : ::fdopendir(copy));
    if (stream == nullptr) {
      if (copy >= 0) ::close(copy);
      ++closed;
      return false;
    }
    while (const dirent* entry = ::readdir(stream.get())) {
      ++looked_at;
      if (looked_at > kMaxNamesLookedAt || (looked_at % 4096 == 0 && clock_.steady() > deadline))
        cut_short = true;
      if (cut_short || jobs.size() >= kMaxFound) break;
      const std::string_view name = entry->d_name;
      if (!name.starts_with('.')) each(std::string(name));
    }
    return true;
  };

  const auto read_names = [&](int fd, const std::string& path) {
    std::map<std::string, std::vector<std::pair<FileKind, std::string>>> by_stem;
    for_each_name(fd, [&](const std::string& name) {
      if (const auto match = search.match(name, config_.kinds))
        by_stem[match->stem].emplace_back(match->kind, name);
    });
    for (auto& [stem, files] : by_stem) {
      if (jobs.size() >= kMaxFound) return;
      StoredJob job;
      bool of_another = false;
      std::ranges::sort(files);
      for (const auto& [kind, name] : files) {
        auto bytes = read_beneath(fd, name, kMaxShownBytes);
        if (!bytes) continue;  // a directory or pipe of that name, or gone by now
        if (kind == FileKind::kMetadata) {
          job.event_id = event_id_of(*bytes);
          // The name alone may match by accident, where no fixed text stands around {job_id}.
          of_another = !has_id(*bytes, job_id) && safe_value(job_id) == job_id;
        }
        const std::string location = config_.root + '/' + (path.empty() ? "" : path + '/') + name;
        if (job.location.empty()) job.location = location;
        job.files.push_back({to_string(kind), location, make_bytes(*std::move(bytes))});
      }
      if (!job.files.empty() && !of_another) jobs.push_back(std::move(job));
    }
  };

  const auto walk = [&](const auto& self, int fd, const std::string& path,
                        std::size_t depth) -> void {
    if (cut_short || jobs.size() >= kMaxFound) return;
    if (depth == search.directories.size()) return read_names(fd, path);
    const auto enter = [&](const std::string& name) {
      const auto next = open_directory(fd, name);
      if (!next && next.error().kind() != ErrorKind::kVanished) ++closed;
      if (next) self(self, next->get(), path.empty() ? name : path + '/' + name, depth + 1);
    };
    const Layout::Search::Pattern& pattern = search.directories[depth];
    if (pattern.exact) return enter(*pattern.exact);
    std::vector<std::string> names;
    const bool listed = for_each_name(fd, [&](const std::string& name) {
      if (glob_match(pattern.glob, name)) names.push_back(name);
    });
    if (!listed && depth == 0 && layout_.begins_with_user()) {
      if (const auto we = find_user(::geteuid()); we && *we)
        names.push_back(safe_value((*we)->name));
    }
    std::ranges::sort(names, std::greater{});  // the newest first, where a date stands there
    for (const std::string& name : names) enter(name);
  };
  walk(walk, root->get(), "", 0);
  if (jobs.empty() && closed > 0) {
    log_.warning("FILE_NOT_ALL_SEARCHED",
                 "This user may not read all of the archive, and the job is not in the rest",
                 {{"sink", instance_},
                  {"root", config_.root},
                  {"closed_directories", static_cast<std::uint64_t>(closed)}});
  }
  if (jobs.empty() && cut_short) {
    return Error{ErrorKind::kTransient, config_.root + ": not found among the first " +
                                            std::to_string(looked_at) +
                                            " names, and the search ended there"};
  }
  return jobs;
}

std::string FileSink::status_json() const {
  return "{\"stored\":" + std::to_string(stored_) +
         ",\"found_again\":" + std::to_string(found_again_) +
         ",\"suffixed\":" + std::to_string(suffixed_) +
         ",\"replaced\":" + std::to_string(replaced_) +
         ",\"stale_temporaries_removed\":" + std::to_string(stale_removed_) + "}";
}

}  // namespace scriptorium::file
