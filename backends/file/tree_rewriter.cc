#include "backends/file/tree_rewriter.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "backends/file/job_files.h"
#include "backends/file/job_rewrite.h"
#include "backends/file/marker.h"
#include "backends/file/outcome.h"
#include "core/base/path.h"

namespace scriptorium::file {
namespace {

constexpr std::size_t kMostDepth = 20;  // a layout has at most 16 parts

constexpr std::string_view kNoMetadata = "no metadata beside it";
constexpr std::string_view kNotOurs = "not metadata of an event";
constexpr std::string_view kNotAFile = "a link or special file";
constexpr std::string_view kDiffers = "not what the metadata say";
constexpr std::string_view kUnreadable = "cannot be read";
constexpr std::string_view kRefused = "the rules could not be applied";
constexpr std::string_view kUnfinished = "an interrupted change";
constexpr std::string_view kBeingWritten = "an interrupted write";
constexpr std::string_view kFailed = "could not be replaced";
constexpr std::string_view kInPath = "its directory's name holds what was removed";
constexpr std::string_view kTooDeep = "too many directories";

}  // namespace

class TreeRewriter::Walk {
 public:
  Walk(const Pass& pass, Editor& editor, const TemporaryNames& names)
      : pass_(pass), editor_(editor), names_(names) {}

  Result<Summary> run(int root, const std::string& path) {
    if (auto walked = directory(root, path, 0); !walked) return walked.error();
    return std::move(summary_);
  }

 private:
  // The names of one directory, by what they are.
  struct Names {
    std::set<std::string> metadata;  // may be
    std::set<std::string> others;
    std::set<std::string> unfinished;  // metadata with a change or move that was interrupted
    std::set<std::string> pending;     // all names that are ours alone
    std::vector<std::string> directories;
  };

  bool stopped() const { return pass_.stop.stop_requested(); }

  void leave(const std::string& path, std::string_view reason) {
    ++summary_.left[std::string(reason)];
    editor_.left(path, reason);
  }

  Result<void> directory(int fd, const std::string& path, std::size_t depth) {
    auto names = list(fd, path);
    if (!names) {
      leave(path, kUnreadable);
      return {};
    }
    bool resumed = true;
    for (const std::string& name : names->unfinished) {
      auto done = resume(fd, path, name);
      if (!done) return done.error();
      resumed = resumed && *done;
      if (stopped()) return {};
    }
    if (pass_.apply && resumed && !names->pending.empty()) {
      drop_pending(fd, *names);
      names = list(fd, path);  // a move has changed names
      if (!names) return {};
    }
    for (const std::string& name : names->metadata) {
      if (stopped()) return {};
      if (auto done = event(fd, path, name, *names); !done) return done;
    }
    for (const std::string& name : names->others) leave(join_path(path, name), kNoMetadata);
    return enter(fd, path, names->directories, depth);
  }

  Result<void> enter(int fd, const std::string& path, const std::vector<std::string>& below,
                     std::size_t depth) {
    for (const std::string& name : below) {
      if (stopped()) return {};
      const std::string inner = join_path(path, name);
      if (depth >= kMostDepth) {
        leave(inner, kTooDeep);
        continue;
      }
      auto next = open_directory(fd, name);
      if (!next) {
        leave(inner, kUnreadable);
        continue;
      }
      if (auto walked = directory(next->get(), inner, depth + 1); !walked) return walked;
    }
    return {};
  }

  Result<Names> list(int fd, const std::string& path) {
    Names names;
    auto listed = list_names(fd, [&](const char* name, unsigned char type) {
      sort_in(fd, path, name, type, names);
      return true;
    });
    if (!listed) return listed.error();
    std::ranges::sort(names.directories);
    return names;
  }

  void sort_in(int fd, const std::string& path, const std::string& name, unsigned char type,
               Names& names) {
    if (name == "." || name == "..") return;
    struct stat st{};
    if (type == DT_UNKNOWN && ::fstatat(fd, name.c_str(), &st, AT_SYMLINK_NOFOLLOW) == 0)
      type = S_ISREG(st.st_mode) ? DT_REG : S_ISDIR(st.st_mode) ? DT_DIR : DT_LNK;
    if (type == DT_DIR) {
      if (!name.starts_with('.')) names.directories.push_back(name);
      return;
    }
    if (name == kMarkerName) return;
    if (type != DT_REG) return leave(join_path(path, name), kNotAFile);
    if (TemporaryNames::is_temporary(name)) return stale(fd, path, name);
    if (auto inner = name_of_pending(name)) {
      names.pending.insert(name);
      if (may_be_metadata(*inner)) names.unfinished.insert(*std::move(inner));
    } else if (auto moved = name_of_move_note(name)) {
      names.pending.insert(name);
      names.unfinished.insert(*std::move(moved));
    } else if (may_be_metadata(name)) {
      names.metadata.insert(name);
    } else {
      names.others.insert(name);
    }
  }

  // What a process left that died while it wrote; it may hold a whole script.
  void stale(int fd, const std::string& path, const std::string& name) {
    if (!pass_.apply || !pass_.exclusive || names_.is_ours(name) ||
        ::unlinkat(fd, name.c_str(), 0) != 0)
      return leave(join_path(path, name), kBeingWritten);
    ++summary_.removed;
  }

  // Brings to its end what an earlier pass began, if that got so far that it takes effect. False:
  // not possible now, and its files must stay for the next pass.
  Result<bool> resume(int fd, const std::string& path, const std::string& name) {
    if (!pass_.apply) {
      leave(join_path(path, name), kUnfinished);
      return false;
    }
    const auto problem = [&](const Error& error) -> Result<bool> {
      if (error.kind() == ErrorKind::kExhausted) return error;
      leave(join_path(path, name), kFailed);
      return false;
    };
    auto after = prepared_change(fd, name);
    if (!after) return problem(after.error());
    if (*after) {
      auto before = read_metadata(fd, name);
      if (!before) return problem(before.error());
      if (auto noted = editor_.replacing(join_path(path, name), *before, **after, true); !noted)
        return noted.error();
      if (auto done = finish_change(fd, name, *before, **after); !done)
        return problem(done.error());
      ++summary_.resumed;
    }
    if (auto moved = finish_move(fd, name); !moved) return problem(moved.error());
    return true;
  }

  // What is left of changes that never took effect.
  static void drop_pending(int fd, const Names& names) {
    for (const std::string& name : names.pending) ::unlinkat(fd, name.c_str(), 0);
  }

  Result<void> event(int fd, const std::string& path, const std::string& name, Names& names) {
    const std::string whole = join_path(path, name);
    auto metadata = read_metadata(fd, name);
    if (!metadata) {
      if (metadata.error().kind() != ErrorKind::kVanished)
        leave(whole, metadata.error().kind() == ErrorKind::kCorrupt ? kNotOurs : kUnreadable);
      return {};
    }
    auto stored = read_contents(fd, name, *std::move(metadata), false);
    ++summary_.events;
    if (!stored) {
      for (const FileKind kind : {FileKind::kScript, FileKind::kEnvironment}) {
        for (const std::string& content : content_names(name, kind)) names.others.erase(content);
      }
      leave(whole, stored.error().kind() == ErrorKind::kCorrupt ? kDiffers : kUnreadable);
      return {};
    }
    for (const StoredContent& content : stored->contents) names.others.erase(content.name);
    auto after = editor_.edit(whole, stored->event);
    if (!after) {
      leave(whole, kRefused);
      return {};
    }
    if (*after == nullptr) return {};
    return change(fd, path, *stored, **after);
  }

  Result<void> change(int fd, const std::string& path, const StoredEvent& stored,
                      const Event& after) {
    const std::string whole = join_path(path, stored.metadata);
    const auto problem = [&](const Error& error) -> Result<void> {
      // The disk is full: the next event would fail as well.
      if (error.kind() == ErrorKind::kExhausted) return error;
      leave(whole, kFailed);
      return {};
    };
    const auto prevented = obstacle(fd, stored);
    if (!prevented) return problem(prevented.error());
    if (*prevented) {
      leave(whole, **prevented);
      return {};
    }
    ++summary_.changed;
    if (!pass_.apply) return {};
    if (auto prepared = prepare_change(fd, stored, after); !prepared) {
      --summary_.changed;
      return problem(prepared.error());
    }
    if (auto noted = editor_.replacing(whole, stored.event, after, false); !noted) return noted;
    auto finished = finish_change(fd, stored.metadata, stored.event, after);
    if (!finished) return problem(finished.error());
    if (auto moved = finish_move(fd, stored.metadata); !moved) return problem(moved.error());
    if (stored.event.job.name != after.job.name && stored.event.job.name &&
        path.find(safe_value(*stored.event.job.name)) != std::string::npos)
      leave(path, kInPath);
    return {};
  }

  const Pass& pass_;
  Editor& editor_;
  const TemporaryNames& names_;
  Summary summary_;
};

Result<RewritableSink::Summary> TreeRewriter::rewrite(const Pass& pass, Editor& editor) {
  const std::string& directory = pass.directory.empty() ? root_ : pass.directory;
  const UniqueFd root(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!root) {
    const int code = errno;
    return Error{
        ErrorKind::kInvalidConfig,
        directory + ": " + (code == ENOENT ? "no such directory" : file_error(code).message())};
  }
  return Walk(pass, editor, names_).run(root.get(), directory);
}

}  // namespace scriptorium::file
