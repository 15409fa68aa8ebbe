#include "schedulers/slurm/coordinators.h"

#include <string>
#include <utility>

#include "core/base/ascii.h"
#include "core/base/command.h"
#include "schedulers/slurm/site.h"
#include "schedulers/slurm_client/command.h"
#include "schedulers/slurm_client/text.h"

namespace scriptorium::slurm {

Result<std::vector<AccountCoordinators>> parse_coordinators(std::string_view answer) {
  std::vector<AccountCoordinators> list;
  while (!answer.empty()) {
    std::string_view line = take_until(answer, '\n');
    if (line.find('|') == std::string_view::npos) return slurm_client::odd_answer("sacctmgr");
    AccountCoordinators account{.account = std::string(take_until(line, '|')), .users = {}};
    if (account.account.empty() || line.find('|') != std::string_view::npos)
      return slurm_client::odd_answer("sacctmgr");
    while (!line.empty()) account.users.emplace_back(take_until(line, ','));
    if (!account.users.empty()) list.push_back(std::move(account));
  }
  return list;
}

Result<KnownCoordinators> ask_coordinators(const SlurmConfig& config, const std::stop_token& stop,
                                           SteadyTime deadline) {
  auto program = find_slurm_command(config, "sacctmgr");
  if (!program || config.resolve == Resolve::kNone) return KnownCoordinators{};
  CommandRunner runner;
  const auto answer = runner.run(
      {.program = *std::move(program),
       .arguments = {"-n", "-P", "show", "accounts", "withcoord", "format=Account,Coordinators"},
       .environment = slurm_client::environment(slurm_conf_of(config)),
       .input = {}},
      stop, deadline);
  if (!answer) return answer.error();
  if (answer->status == 0) {
    auto list = parse_coordinators(answer->output);
    if (!list) return list.error();
    return KnownCoordinators{*std::move(list)};
  }
  if (slurm_client::says_no_accounting(answer->error)) return KnownCoordinators{};
  return exit_error("sacctmgr", *answer);
}

}  // namespace scriptorium::slurm
