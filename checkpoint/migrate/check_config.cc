#include "checkpoint/migrate/check_config.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include "checkpoint/run/notices.h"
#include "checkpoint/run/options.h"
#include "core/base/ascii.h"
#include "core/base/number.h"
#include "core/base/text.h"

namespace scriptorium::checkpoint {
namespace {

using Kind = ConfigRemark::Kind;

constexpr std::string_view kTriedVersion = "22.05";
constexpr int kLeastJobAge = 60;
constexpr int kUsualJobAge = 300;  // Slurm's default
constexpr int kShortKillWait = 30;

std::string config_value(std::string_view config, std::string_view name) {
  std::string value = value_of(config, name, '\n');
  return value == "(null)" ? std::string{} : value;
}

bool has_name(std::string_view list, std::string_view name) {
  while (!list.empty()) {
    if (trim(take_until(list, ',')) == name) return true;
  }
  return false;
}

// "300 sec"
int seconds_of(const std::string& value) {
  std::string_view rest = value;
  return parse_number<int>(take_until(rest, ' ')).value_or(0);
}

// "22.05.8" as 2205.
int version_of(std::string_view text) {
  const auto year = parse_number<int>(take_until(text, '.'));
  const auto month = parse_number<int>(take_until(text, '.'));
  return year.value_or(0) * 100 + month.value_or(0);
}

// The option that sends the signal of a job when it is preempted, and where it is written. Slurm's
// RELEASE_NOTES of 19.05 and 23.02.
struct SignalOption {
  int since;
  std::string_view place;
  std::string_view name;
};
constexpr std::array<SignalOption, 2> kSignalOptions{
    {{2302, "PreemptParameters", "send_user_signal"},
     {1905, "SlurmctldParameters", "preempt_send_user_signal"}}};

std::string with_name(const std::string& list, std::string_view name) {
  return (list.empty() ? "" : list + ",") + std::string(name);
}

class ConfigCheck {
 public:
  ConfigCheck(std::string_view config, std::string_view partitions)
      : config_(config), partitions_(partitions) {}

  std::vector<ConfigRemark> run() {
    check_requeue();
    check_processes();
    if (has_preemption()) {
      check_signal();
      check_partitions();
    } else {
      add(Kind::kAdvice, "PreemptType=preempt/partition_prio",
          "no job is preempted now; docs/preempt.md has the rest");
    }
    check_times();
    return std::move(remarks_);
  }

 private:
  std::string value(std::string_view name) const { return config_value(config_, name); }
  void add(Kind kind, std::string line, std::string why = {}) {
    remarks_.push_back({kind, std::move(line), std::move(why)});
  }
  void require(bool is_so, const std::string& name, const std::string& wanted,
               const std::string& why) {
    if (is_so) return add(Kind::kFine, name + "=" + value(name));
    add(Kind::kNeeded, name + "=" + wanted, why);
  }
  bool has_preemption() const {
    const std::string type = value("PreemptType");
    return !type.empty() && type != "preempt/none";
  }

  void check_requeue() {
    const std::string codes = value("RequeueExit");
    require(has_exit_code(codes, kExitRunAgain), "RequeueExit",
            with_name(codes, std::to_string(kExitRunAgain)),
            "a job that was saved ends with 99, and would not run again");
    if (value("JobRequeue") == "0") {
      add(Kind::kAdvice, "JobRequeue=1",
          "only jobs that were submitted with --requeue run again after they were saved");
    }
  }

  void check_processes() {
    require(value("ProctrackType") == "proctrack/cgroup", "ProctrackType", "proctrack/cgroup",
            "scriptorium-checkpointd finds a job's processes by its control group, and a resumed "
            "program would outlive scancel");
  }

  void check_signal() {
    const int version = version_of(value("SLURM_VERSION"));
    const auto* const option = std::ranges::find_if(
        kSignalOptions, [&](const SignalOption& each) { return version >= each.since; });
    if (option == kSignalOptions.end()) {
      return add(Kind::kNeeded, "Slurm 19.05 or later",
                 "this version cannot send a job's own signal when the job is preempted");
    }
    const std::string place(option->place);
    require(has_name(value(place), option->name), place, with_name(value(place), option->name),
            "a job that is preempted gets SIGTERM and not its own signal, so it is not saved");
  }

  void check_partitions() {
    const bool by_qos = value("PreemptType") == "preempt/qos";
    for (std::string_view rest = partitions_; !rest.empty();) {
      const std::string_view line = take_until(rest, '\n');
      const std::string name = value_of(line, "PartitionName", ' ');
      std::string mode = value_of(line, "PreemptMode", ' ');
      if (name.empty() || mode == "OFF") continue;
      const std::string partition = "PartitionName=" + name;
      if (mode.empty()) mode = value("PreemptMode");
      if (mode.find("REQUEUE") == std::string::npos) {
        add(Kind::kNeeded, partition + " PreemptMode=REQUEUE",
            "its jobs are preempted by " + mode + ", and would not run again elsewhere");
      } else if (by_qos) {
        continue;  // the time of grace is of the QOS
      } else if (value_of(line, "GraceTime", ' ') == "0") {
        add(Kind::kNeeded, partition + " GraceTime=300",
            "its jobs are killed at once when they are preempted; it must be longer than the "
            "longest save");
      } else {
        add(Kind::kFine,
            partition + " PreemptMode=" + mode + " GraceTime=" + value_of(line, "GraceTime", ' '),
            "it must be longer than the longest save");
      }
    }
    if (by_qos) {
      add(Kind::kAdvice, "sacctmgr modify qos NAME set GraceTime=300 PreemptMode=requeue",
          "for each QOS whose jobs are preempted; it was not looked at here");
    }
  }

  void check_times() {
    if (const int age = seconds_of(value("MinJobAge")); age < kLeastJobAge) {
      add(Kind::kAdvice, "MinJobAge=" + std::to_string(kUsualJobAge),
          "Slurm forgets jobs " + std::to_string(age) +
              " s after their end; scriptorium-migrate may then not say how one ended");
    }
    if (const int wait = seconds_of(value("KillWait")); wait < kShortKillWait) {
      add(Kind::kAdvice, "KillWait=" + std::to_string(kShortKillWait),
          "after its time limit a job has " + std::to_string(wait) +
              " s; users must ask for their signal early enough to be saved before");
    }
  }

  std::string_view config_;
  std::string_view partitions_;
  std::vector<ConfigRemark> remarks_;
};

}  // namespace

std::vector<ConfigRemark> check_config(std::string_view config, std::string_view partitions) {
  return ConfigCheck(config, partitions).run();
}

std::string remarks_text(const std::vector<ConfigRemark>& remarks, std::string_view config) {
  std::string text;
  for (const ConfigRemark& remark : remarks) {
    text += remark.kind == Kind::kFine     ? "fine    "
            : remark.kind == Kind::kNeeded ? "needed  "
                                           : "advice  ";
    text += printable(remark.line, 300);
    if (!remark.why.empty()) text += ": " + remark.why;
    text += '\n';
  }
  const std::string version = config_value(config, "SLURM_VERSION");
  text += "This is Slurm " + printable(version, 40) +
          (version.starts_with(kTriedVersion)
               ? ", with which the tests run.\n"
               : ". The tests run with " + std::string(kTriedVersion) +
                     "; what differs in other versions is from their documentation alone.\n");
  return text;
}

}  // namespace scriptorium::checkpoint
