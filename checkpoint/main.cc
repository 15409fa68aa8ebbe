#include <unistd.h>

#include <exception>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "checkpoint/check.h"
#include "checkpoint/config.h"
#include "checkpoint/criu.h"
#include "checkpoint/record.h"
#include "checkpoint/service.h"
#include "checkpoint/spool.h"
#include "core/base/accounts.h"
#include "core/base/text.h"
#include "core/config/config_file.h"
#include "core/daemon/log.h"
#include "core/daemon/process.h"

namespace {

using namespace scriptorium;              // NOLINT(google-build-using-namespace)
using namespace scriptorium::checkpoint;  // NOLINT(google-build-using-namespace)

// sysexits.h
constexpr int kExitUsage = 64;
constexpr int kExitUnavailable = 69;
constexpr int kExitNoPermission = 77;
constexpr int kExitConfig = 78;

constexpr const char* kHelp =
    "usage: scriptorium-checkpointd [--config FILE] [check]\n"
    "Saves programs of batch jobs on request, and starts them again in a later job.\n"
    "Runs as root, on each compute node. check: says whether this node can do it. FILE: "
    "/etc/scriptorium/checkpoint.toml\n";

// In place of an engine that does not work here, so that a job is given the reason.
class Unusable final : public Engine {
 public:
  Unusable(std::string name, Refusal why) : name_(std::move(name)), why_(std::move(why)) {}
  std::string name() const override { return name_; }
  Outcome<std::string> probe() override { return tl::unexpected(why_); }
  Outcome<void> dump(pid_t, int, std::uint64_t, AfterDump, SteadyTime) override {
    return tl::unexpected(why_);
  }
  Outcome<pid_t> restore(int, SteadyTime) override { return tl::unexpected(why_); }

 private:
  std::string name_;
  Refusal why_;
};

// What keeps the service from writing records keeps it from nothing else.
std::optional<RecordFolder> open_records(const Config& config, Logger& log) {
  if (config.records.empty()) return std::nullopt;
  const auto group = find_group(config.records_group);
  if (group && !*group) {
    log.info("CHECKPOINT_NO_RECORDS",
             "no archiving daemon is on this node, so nothing is written for it",
             {{"records_group", printable(config.records_group)}});
    return std::nullopt;
  }
  auto folder = group ? RecordFolder::open(config.records, (*group)->gid) : group.error();
  if (folder) return *std::move(folder);
  log.error("CHECKPOINT_RECORDS_UNUSABLE",
            "the archiving daemon will not know of what is done here; jobs are not affected",
            {{"records", printable(config.records)}, {"reason", folder.error().message()}});
  return std::nullopt;
}

int serve_requests(const Config& config) {
  process::prepare();
  const UniqueFd signals = process::open_signals();
  const auto log = make_stderr_logger(LogLevel::kInfo);
  auto spool = Spool::open(config.spool);
  if (!spool) {
    std::cerr << "scriptorium-checkpointd: " << spool.error().message() << "\n";
    return spool.error().kind() == ErrorKind::kInvalidConfig ? kExitConfig : kExitUnavailable;
  }
  std::unique_ptr<Engine> engine = make_criu(config.criu);
  const auto version = engine->probe();
  if (!version) {
    log->error("CHECKPOINT_ENGINE_UNUSABLE",
               "programs can be neither saved nor resumed on this node; requests are refused",
               {{"engine", engine->name()}, {"reason", version.error().detail}});
    engine = std::make_unique<Unusable>(engine->name(), version.error());
  }
  log->info("CHECKPOINT_STARTED", "waiting for requests",
            {{"spool", config.spool},
             {"engine", engine->name()},
             {"engine_version", version ? *version : "unusable"}});
  Service service(config, version ? *version : std::string{}, *engine, *std::move(spool),
                  open_records(config, *log), *log);
  process::notify("READY=1");
  service.run(signals.get());
  return 0;
}

int check(const Config& config) {
  bool is_good = true;
  for (const CheckLine& line : check_lines(node_facts(*make_criu(config.criu)))) {
    std::cout << (line.is_good ? "good     " : "missing  ") << line.text << "\n";
    is_good = is_good && line.is_good;
  }
  std::cout << (is_good ? "Programs can be saved and resumed on this node.\n"
                        : "Programs cannot be saved or resumed on this node.\n");
  return is_good ? 0 : kExitUnavailable;
}

int run(const std::vector<std::string>& arguments) {
  std::string file = kConfigFile;
  bool is_named = false;
  bool checks = false;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] == "--help") {
      std::cout << kHelp;
      return 0;
    }
    if (arguments[i] == "--version") {
      std::cout << "scriptorium-checkpointd " << SCRIPTORIUM_VERSION << "\n";
      return 0;
    }
    if (arguments[i] == "check") {
      checks = true;
      continue;
    }
    if (arguments[i] != "--config" || i + 1 == arguments.size()) {
      std::cerr << "scriptorium-checkpointd: unknown argument \"" << arguments[i] << "\"\n"
                << kHelp;
      return kExitUsage;
    }
    file = arguments[++i];
    is_named = true;
  }
  Problems problems;
  Config config;
  if (is_named || ::access(file.c_str(), F_OK) == 0) {
    const auto text = read_config_file(file, {}, problems);
    if (text) config = parse_config(*text, file, problems);
  }
  problems.sort();
  for (const Problem& problem : problems.list()) std::cerr << problem.text() << "\n";
  if (!problems.empty()) return kExitConfig;
  if (::geteuid() != 0) {
    std::cerr << "scriptorium-checkpointd: needs to be root, to become the owners of jobs\n";
    return kExitNoPermission;
  }
  if (checks) return check(config);
  return serve_requests(config);
}

}  // namespace

int main(int argc, char** argv) try {
  return run({argv + 1, argv + argc});
} catch (const std::exception& e) {
  std::cerr << "scriptorium-checkpointd: " << e.what()
            << "; this is a fault of Scriptorium, please report it\n";
  return 70;
}
