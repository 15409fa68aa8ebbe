// The smallest source: a folder with one file for each job, FOLDER/4711.job. The submitter moves
// the file there when it is complete.
//
//   [source.inbox]
//   spool = "/srv/inbox"
#include <array>
#include <string>
#include <string_view>

#include "core/api/kit/descriptor.h"

using namespace scriptorium;

namespace {

constexpr std::string_view kEnding = ".job";
constexpr std::array<std::string_view, 1> kFiles{"script"};

struct Config {
  std::string spool;  // so called, the spool opener serves it (privileges.md)
};

const Schema<Config>& schema() {
  static const Schema<Config> kSchema{
      required("spool", &Config::spool, "The folder that jobs are put into; an absolute path."),
  };
  return kSchema;
}

class Inbox final : public SpoolAdapter {
 public:
  explicit Inbox(Config config) : config_(std::move(config)) {}

  std::string scheduler() const override { return "inbox"; }
  std::string spool_root() const override { return config_.spool; }

  // All jobs are in one directory: the entry is the file's name without its ending, and path_of()
  // puts the two together.
  SpoolPath classify(std::string_view path) const override {
    if (path.find('/') != std::string_view::npos || path.size() <= kEnding.size() ||
        !path.ends_with(kEnding))
      return {};
    return {SpoolPath::Role::kEntryFile, path.substr(0, path.size() - kEnding.size()), kFiles[0]};
  }
  std::string path_of(std::string_view entry, std::string_view /*file*/) const override {
    return std::string(entry).append(kEnding);
  }
  std::span<const std::string_view> file_names() const override { return kFiles; }

  // Files are moved in whole; one that is copied in is taken when it is closed.
  Assessment assess(const SpoolEntry& entry) const override {
    const SpoolFile* script = entry.file(kFiles[0]);
    if (script == nullptr || script->bytes->empty()) return {.reason = "script empty"};
    return {.state = Assessment::State::kComplete};
  }

  Result<ParsedJob> parse(const SpoolEntry& entry) const override {
    const SpoolFile* script = entry.file(kFiles[0]);
    if (script == nullptr) return Error(ErrorKind::kVanished, "the job's file is gone");
    ParsedJob parsed;
    parsed.job.id = entry.key;
    parsed.script = script->bytes;  // as it is, every byte
    return parsed;
  }

 private:
  const Config config_;
};

std::vector<OptionInfo> options() { return schema().options(); }

Config read_config(const Table& table, Problems& problems) {
  Config config = schema().parse(table, problems);
  if (!config.spool.empty() && config.spool.front() != '/')
    problems.add(table, "spool", "not an absolute path");
  return config;
}

}  // namespace

extern "C" SCRIPTORIUM_EXPORT const PluginDescriptor scriptorium_plugin =
    spool_adapter_plugin<Inbox, &options, &read_config>("inbox",
                                                        "job scripts that are put into a folder");
