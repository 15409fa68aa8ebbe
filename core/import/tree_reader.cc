#include "core/import/tree_reader.h"

#include <algorithm>
#include <map>
#include <utility>

#include "core/base/file.h"

namespace scriptorium::import {
namespace {

// Allows USER/YYYY/MM below some folders of the site's own, and bounds a tree of any depth.
constexpr unsigned kDeepest = 16;

std::string joined(const std::string& folder, const std::string& name) {
  return folder.empty() ? name : folder + "/" + name;
}

std::string_view kind_of(const Error& error) {
  if (error.message() == "a symbolic link stands in the way") return "symbolic link";
  if (error.message() == "not a regular file") return "not a regular file";
  return error.kind() == ErrorKind::kVanished ? "vanished" : "unreadable";
}

}  // namespace

// The files of one job in one folder.
struct TreeReader::Group {
  TreePath path;                    // if the archiver's own naming scheme matched
  std::string script, environment;  // names in the folder; "" = none
  std::vector<std::pair<std::string, std::string>>
      spool;  // name in the folder, and name within the adapter's entry
  std::string spool_entry;
};

Result<bool> TreeReader::walk(const Visitor& visitor) {
  auto names = access_.list("");
  if (!names) return names.error();
  return folder("", *std::move(names), 0, visitor);
}

bool TreeReader::folder(const std::string& path, std::vector<SpoolName> names, unsigned depth,
                        const Visitor& visitor) {
  std::map<std::string, Group> groups;
  std::vector<std::string> folders;
  for (SpoolName& name : names) {
    const std::string whole = joined(path, name.name);
    if (name.is_directory) {
      folders.push_back(std::move(name.name));
      continue;
    }
    TreePath found = classify(options_.format, whole);
    if (found.role != TreePath::Role::kForeign) {
      Group& group = groups[found.entry];
      (found.role == TreePath::Role::kScript ? group.script : group.environment) =
          std::move(name.name);
      group.path = std::move(found);
      continue;
    }
    const SpoolPath spool = adapter_ != nullptr && options_.format == TreeFormat::kSarchive
                                ? adapter_->classify(name.name)
                                : SpoolPath{};
    if (!spool.is_file()) {
      visitor.foreign(whole);
      continue;
    }
    // The adapter's key contains no '/', so it cannot equal an entry of the other kind.
    Group& group = groups["/" + std::string(spool.entry)];
    group.spool_entry = std::string(spool.entry);
    std::string file(spool.file);
    group.spool.emplace_back(std::move(name.name), std::move(file));
  }
  names = {};
  for (const auto& [key, group] : groups) {
    if (!take(path, group, visitor)) return false;
  }
  groups.clear();
  std::sort(folders.begin(), folders.end());
  for (const std::string& name : folders) {
    const std::string below = joined(path, name);
    if (depth + 1 >= kDeepest) {
      visitor.skip(below, "too deep",
                   "folders nested more than " + std::to_string(kDeepest) + " levels deep");
      continue;
    }
    auto inside = access_.list(below);
    if (!inside) {
      visitor.skip(below, "unreadable", inside.error().message());
      continue;
    }
    if (!folder(below, *std::move(inside), depth + 1, visitor)) return false;
  }
  return true;
}

bool TreeReader::take(const std::string& folder, const Group& group, const Visitor& visitor) {
  FoundJob found;
  if (!group.spool.empty()) {
    AdapterJob job;
    job.entry.key = group.spool_entry;
    for (const auto& [name, file_name] : group.spool) {
      auto file = read(joined(folder, name), file_name, visitor);
      if (!file) return true;
      job.entry.files.push_back(*std::move(file));
    }
    found.path = joined(folder, group.spool.front().first);
    found.stat = job.entry.files.front().stat;
    job.period = period_of_folder(found.path);
    found.job = std::move(job);
    return visitor.job(std::move(found));
  }
  if (group.script.empty()) {
    visitor.skip(joined(folder, group.environment), "no script",
                 "an environment without a script beside it");
    return true;
  }
  found.path = joined(folder, group.script);
  auto script = read(found.path, "script", visitor);
  if (!script) return true;
  if (script->bytes->empty() || *script->bytes == std::string_view("\0", 1)) {
    visitor.skip(found.path, "empty script", "an archiver that was cut short leaves such");
    return true;
  }
  TreeJob job;
  job.path = group.path;
  found.stat = script->stat;
  job.script = *std::move(script);
  // A job whose environment cannot be read is imported without it; the event says that it is
  // missing.
  if (!group.environment.empty()) {
    Visitor of_environment = visitor;
    of_environment.skip = [&](const std::string& path, std::string_view kind,
                              const std::string& why) {
      visitor.skip(path, "environment left out: " + std::string(kind), why);
    };
    job.environment = read(joined(folder, group.environment), "environment", of_environment);
  }
  found.job = std::move(job);
  return visitor.job(std::move(found));
}

std::optional<SpoolFile> TreeReader::read(const std::string& path, const std::string& name,
                                          const Visitor& visitor) {
  const auto skip = [&](std::string_view kind, const std::string& why) {
    visitor.skip(path, kind, why);
    return std::nullopt;
  };
  auto fd = access_.open(path);
  if (!fd) return skip(kind_of(fd.error()), fd.error().message());
  const auto before = stat_fd(fd->get());
  if (!before) return skip("unreadable", before.error().message());
  auto bytes = read_fd(fd->get(), options_.max_file_bytes, before->size);
  if (!bytes) return skip("unreadable", bytes.error().message());
  const auto after = stat_fd(fd->get());
  if (!after || after->mtime_ns != before->mtime_ns || after->size != before->size)
    return skip("being written",
                "it changed while it was read; import again once the archiver has stopped");
  SpoolFile file;
  file.name = name;
  file.stat = *after;
  file.truncated = after->size > bytes->size();
  file.bytes = make_bytes(*std::move(bytes));
  return file;
}

}  // namespace scriptorium::import
