#include "backends/file/config.h"

#include <algorithm>
#include <optional>

#include "core/api/kit/path_option.h"

namespace scriptorium::file {
namespace {

const Schema<FileConfig>& schema() {
  static const Schema<FileConfig> kSchema{
      required(
          "root", &FileConfig::root,
          "absolute path of the archive; created with mode 0750 if only its last part is missing"),
      option("layout", &FileConfig::layout,
             "where the files of a job are below root: \"user-month\", \"sarchive-daily\", "
             "\"xdmod\", or a template with {cluster} {scheduler} {user} {account} {year} {month} "
             "{day} {job_id} {job_name} {array_job_id} {ext}"),
      option("files", &FileConfig::files,
             "what is kept of a job: any of \"script\", \"environment\", \"metadata\" (layout "
             "\"xdmod\": only the script, unless given)"),
      choice("environment_format", &FileConfig::environment_format,
             {{"nul", EnvironmentStyle::kNul},
              {"lines", EnvironmentStyle::kLines},
              {"shell", EnvironmentStyle::kShell}},
             "format of the environment: NUL-ended strings byte for byte, escaped lines, or a "
             "script that bash reads back exactly"),
      choice("acl", &FileConfig::acl,
             {{"required", AclMode::kRequired},
              {"best-effort", AclMode::kBestEffort},
              {"none", AclMode::kNone}},
             "what to do on a file system without access lists: refuse to start, let only the "
             "daemon's user read the files, or use modes only"),
      option("acl_users", &FileConfig::acl_users,
             "users, by name or uid, who may read everything in the archive"),
      option("acl_groups", &FileConfig::acl_groups,
             "groups, by name or gid, that may read everything in the archive"),
      option("owner_may_read", &FileConfig::owner_may_read,
             "let a job's owner read its files, by access list; only an owner whom the scheduler "
             "confirmed"),
      choice("sync", &FileConfig::sync,
             {{"auto", SyncMode::kAuto}, {"file", SyncMode::kFile}, {"batch", SyncMode::kBatch}},
             "how files reach the disk before they count as stored: fsync of each file, or one "
             "syncfs for each batch"),
      integer("min_free_bytes", &FileConfig::min_free_bytes, 0, std::int64_t{1} << 50,
              "bytes to leave free on root's file system, for the journal and the scheduler if "
              "they share it; with less, events wait in the journal"),
  };
  return kSchema;
}

void check_files(const FileConfig& config, const Table& table, Problems& problems) {
  constexpr const char* kAllowed = R"("script", "environment", "metadata")";
  for (auto name = config.files.begin(); name != config.files.end(); ++name) {
    if (std::ranges::none_of(kFileKinds, [&](FileKind k) { return *name == to_string(k); })) {
      problems.add(table, "files", "unknown file \"" + *name + "\"", kAllowed);
    } else if (std::find(config.files.begin(), name, *name) != name) {
      problems.add(table, "files", "\"" + *name + "\" appears twice", kAllowed);
    }
  }
  if (config.files.empty())
    problems.add(table, "files", "the list is empty: nothing would be kept", kAllowed);
}

}  // namespace

std::vector<OptionInfo> options() { return schema().options(); }

FileConfig parse_config(const Table& table, Problems& problems) {
  FileConfig config = schema().parse(table, problems);
  check_absolute_path(table, "root", problems);
  drop_final_slashes(config.root);

  const auto layout = Layout::parse(config.layout);
  if (!layout)
    problems.add(
        table, "layout", layout.error().message(),
        R"("user-month", "sarchive-daily", "xdmod", or a template such as "{user}/{job_id}.{ext}")");

  check_files(config, table, problems);
  if (layout && layout->preset_files() && table.find("files") == nullptr) {
    config.files.clear();
    for (const FileKind k : *layout->preset_files()) config.files.emplace_back(to_string(k));
  }
  for (const FileKind k : kFileKinds) {
    if (std::ranges::find(config.files, to_string(k)) != config.files.end())
      config.kinds.push_back(k);
  }
  if (layout && !layout->has_ext() && config.files.size() > 1) {
    problems.add(table, "layout", "{ext} is missing, and files names more than one file",
                 "a layout with {ext}, or one name in files");
  }

  if (config.acl == AclMode::kNone) {
    if (!config.acl_users.empty())
      problems.add(table, "acl_users", "set, but acl = \"none\" uses no access lists");
    if (!config.acl_groups.empty())
      problems.add(table, "acl_groups", "set, but acl = \"none\" uses no access lists");
  }
  return config;
}

}  // namespace scriptorium::file
