#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

// What a slurm.conf lacks for jobs that are saved, moved and preempted by a checkpoint. Pure.
namespace scriptorium::checkpoint {

struct ConfigRemark {
  // kNeeded: without it work is lost or nothing is saved. kAdvice: it depends on the site.
  enum class Kind : std::uint8_t { kFine, kNeeded, kAdvice };
  Kind kind = Kind::kFine;
  std::string line;  // as slurm.conf should have it; of kFine: what it has
  std::string why;   // "" = nothing to add
};

// `config`: of `scontrol show config`; `partitions`: of `scontrol show -o partition`.
std::vector<ConfigRemark> check_config(std::string_view config, std::string_view partitions);

// For people, a line for each remark, and with which version of Slurm the tests run.
std::string remarks_text(const std::vector<ConfigRemark>& remarks, std::string_view config);

}  // namespace scriptorium::checkpoint
