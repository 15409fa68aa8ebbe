#include "schedulers/slurm/site.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <sstream>
#include <utility>

#include "core/base/ascii.h"
#include "core/base/command.h"
#include "core/base/file.h"
#include "core/base/number.h"
#include "core/base/text.h"
#include "schedulers/slurm_client/command.h"

namespace scriptorium::slurm {
namespace {

constexpr std::array kUsualPlaces{"/etc/slurm/slurm.conf", "/etc/slurm-llnl/slurm.conf",
                                  "/usr/local/etc/slurm.conf", "/opt/slurm/etc/slurm.conf"};
constexpr int kMostLevels = 8;
constexpr std::uint64_t kMostBytes = std::uint64_t{4} << 20;

std::string_view trimmed(std::string_view text) { return trim(text, " \t\r"); }

// Standard output of one of Slurm's commands; nothing if it is not there or failed.
std::optional<std::string> ask(const SlurmConfig& config, const std::string& command,
                               std::vector<std::string> arguments, const std::stop_token& stop,
                               SteadyTime deadline) {
  auto program = find_slurm_command(config, command);
  if (!program) return std::nullopt;
  CommandRunner runner(std::size_t{1} << 20);
  auto answer = runner.run(
      {*std::move(program), std::move(arguments), slurm_client::environment(slurm_conf_of(config))},
      stop, deadline);
  if (!answer || answer->status != 0) return std::nullopt;
  return std::move(answer->output);
}

Result<void> read_into(const std::string& file, SiteFacts& facts, int level) {
  if (level > kMostLevels)
    return Error(ErrorKind::kInvalidConfig, file + ": too many levels of Include");
  auto text = read_file(file, kMostBytes);
  if (!text) return text.error();
  std::istringstream lines(*text);
  std::string whole;
  for (std::string line; std::getline(lines, line);) {
    whole += line;
    // slurm.conf(5): a backslash at a line's end continues it.
    if (whole.ends_with('\\')) {
      whole.pop_back();
      continue;
    }
    if (auto included = read_fact(whole, facts)) {
      std::filesystem::path path(*included);
      if (path.is_relative()) path = std::filesystem::path(file).parent_path() / path;
      // One that cannot be read may well be for others (keys); what it would say is then not known.
      static_cast<void>(read_into(path.string(), facts, level + 1));
    }
    whole.clear();
  }
  return {};
}

bool is_number(std::string_view text) { return text.size() <= 10 && is_all_digits(text); }

bool same_directory(const std::string& one, const std::string& other) {
  std::error_code failed;
  if (std::filesystem::path(one).lexically_normal() ==
      std::filesystem::path(other).lexically_normal())
    return true;
  return std::filesystem::equivalent(one, other, failed) && !failed;
}

}  // namespace

std::optional<std::string> read_fact(std::string_view line, SiteFacts& facts) {
  line = trimmed(line.substr(0, line.find('#')));
  if (to_lower(line.substr(0, 7)) == "include" && line.size() > 7 &&
      (line[7] == ' ' || line[7] == '\t')) {
    return std::string(trimmed(line.substr(8)));
  }
  const auto equals = line.find('=');
  if (equals == std::string_view::npos) return std::nullopt;
  const std::string key = to_lower(trimmed(line.substr(0, equals)));
  std::string_view value = trimmed(line.substr(equals + 1));
  if (value.size() >= 2 && value.front() == '"' && value.find('"', 1) != std::string_view::npos) {
    value = value.substr(1, value.find('"', 1) - 1);
  } else {
    value = value.substr(0, value.find_first_of(" \t"));
  }
  if (key == "clustername") facts.cluster = to_lower(value);
  if (key == "statesavelocation") facts.state_directory = std::string(value);
  return std::nullopt;
}

std::string slurm_conf_of(const SlurmConfig& config) {
  if (auto conf = slurm_client::choose_slurm_conf(config.slurm_conf); !conf.empty()) return conf;
  for (const char* place : kUsualPlaces) {
    if (stat_path(place)) return place;
  }
  return {};
}

Result<std::string> find_slurm_command(const SlurmConfig& config, const std::string& command) {
  std::string configured;
  if (!config.squeue.empty())
    configured = (std::filesystem::path(config.squeue).parent_path() / command).string();
  return slurm_client::find_command(configured, command);
}

Result<SiteFacts> read_slurm_conf(const std::string& file) {
  SiteFacts facts;
  if (auto read = read_into(file, facts, 0); !read) return read.error();
  return facts;
}

std::vector<Mismatch> compare_with_site(const SlurmConfig& config, const std::string& cluster,
                                        const std::stop_token& stop, SteadyTime deadline) {
  std::vector<Mismatch> found;
  const std::string conf = slurm_conf_of(config);
  const std::string who = config.slurm_conf.empty() ? "SLURM_CONF" : "slurm_conf";
  SiteFacts facts;
  std::string from = conf;
  if (!conf.empty()) {
    auto read = read_slurm_conf(conf);
    if (!read && read.error().kind() == ErrorKind::kVanished) {
      found.push_back(
          {true, who + ": there is no " + conf +
                     ", so slurmctld cannot be asked for the owners of jobs; correct it"});
      return found;
    }
    if (read) facts = *std::move(read);
  }
  if (!facts.cluster && !facts.state_directory) {
    const auto shown = ask(config, "scontrol", {"show", "config"}, stop, deadline);
    if (!shown) return found;
    std::istringstream lines(*shown);
    for (std::string line; std::getline(lines, line);) static_cast<void>(read_fact(line, facts));
    from = "scontrol show config";
  }
  if (facts.cluster && !facts.cluster->empty() && *facts.cluster != to_lower(cluster)) {
    found.push_back({false, "cluster = \"" + cluster + "\", but Slurm's ClusterName is \"" +
                                printable(*facts.cluster) + "\" (" + from +
                                "); events carry the former"});
  }
  if (facts.state_directory && !same_directory(*facts.state_directory, config.spool)) {
    found.push_back(
        {false,
         "spool = \"" + config.spool + "\", but Slurm's StateSaveLocation is \"" +
             printable(*facts.state_directory, 4096) + "\" (" + from +
             "); unless both are one directory seen from two hosts, no job will be captured"});
  }
  return found;
}

std::vector<std::string> ids_in_text(std::string_view job_id) {
  if (const auto task = job_id.find('_');
      task != std::string_view::npos && is_number(job_id.substr(0, task))) {
    return {std::string(job_id.substr(0, task))};
  }
  const auto plus = job_id.find('+');
  if (plus == std::string_view::npos || !is_number(job_id.substr(0, plus)) ||
      !is_number(job_id.substr(plus + 1)))
    return {};
  // The components of a heterogeneous job have consecutive numbers.
  return {std::to_string(parse_number<std::uint64_t>(job_id.substr(0, plus)).value_or(0) +
                         parse_number<std::uint64_t>(job_id.substr(plus + 1)).value_or(0))};
}

std::vector<std::string> ids_of_script(const SlurmConfig& config, std::string_view job_id,
                                       const std::stop_token& stop, SteadyTime deadline) {
  if (auto ids = ids_in_text(job_id); !ids.empty()) return ids;
  if (!is_number(job_id) || config.resolve == Resolve::kNone) return {};
  const std::string id(job_id);
  // squeue first, as it needs no accounting; it forgets a job MinJobAge after its end.
  auto answer = ask(config, "squeue", {"-h", "-a", "-t", "all", "-j", id, "-O", "ArrayJobID:20"},
                    stop, deadline);
  if (!answer || trimmed(*answer).empty()) {
    answer =
        ask(config, "sacct", {"-n", "-X", "-P", "-D", "-j", id, "-o", "JobID"}, stop, deadline);
  }
  if (!answer) return {};
  std::istringstream lines(*answer);
  for (std::string line; std::getline(lines, line);) {
    const std::string_view first = trimmed(line);
    const std::string_view array = first.substr(0, first.find('_'));
    if (is_number(array) && array != job_id) return {std::string(array)};
  }
  return {};
}

}  // namespace scriptorium::slurm
