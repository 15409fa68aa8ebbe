#include "schedulers/slurm/script.h"

#include <algorithm>
#include <vector>

#include "core/api/job_script.h"

namespace scriptorium::slurm {
namespace {

using namespace std::literals;

constexpr DirectiveSyntax kSyntax{.prefix = "#SBATCH"};

void drop_line(std::string_view& rest) noexcept {
  rest.remove_prefix(std::min(rest.find('\n'), rest.size() - 1) + 1);
}

}  // namespace

ScriptInfo read_script_info(std::string_view script) {
  return scriptorium::read_script_info(script, kSyntax);
}

std::optional<std::string> job_name_directive(std::string_view script) {
  std::optional<std::string> name;  // the last one wins, as with every option of sbatch
  std::size_t lines = 0;
  for_each_directive(script, kSyntax, [&](std::string_view text) {
    if (text.size() > kMaxScriptItemBytes) return true;
    const std::vector<std::string> words = split_directive(text);
    for (std::size_t i = 0; i < words.size(); ++i) {
      const std::string_view word = words[i];
      if (word == "hetjob" || word == "packjob")
        return false;  // what follows is for the next component
      if (word.starts_with("--job-name=")) {
        name = std::string(word.substr("--job-name="sv.size()));
      } else if ((word == "-J" || word == "--job-name") && i + 1 < words.size()) {
        name = words[++i];
      } else if (word.starts_with("-J")) {
        name = std::string(word.substr(2));
      }
    }
    return ++lines < kMaxScriptItems;
  });
  if (name && (name->empty() || name->size() > 1024)) return std::nullopt;  // Slurm's own limit
  return name;
}

bool is_het_stub(std::string_view script) noexcept {
  if (!script.starts_with("#!")) return false;
  drop_line(script);
  while (script.starts_with(kSyntax.prefix)) drop_line(script);
  return script == "exit 0\n";
}

}  // namespace scriptorium::slurm
