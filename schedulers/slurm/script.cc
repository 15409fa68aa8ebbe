#include "schedulers/slurm/script.h"

#include <algorithm>

#include "core/api/job_script.h"

namespace scriptorium::slurm {
namespace {

void drop_line(std::string_view& rest) noexcept {
  rest.remove_prefix(std::min(rest.find('\n'), rest.size() - 1) + 1);
}

}  // namespace

bool is_het_stub(std::string_view script) noexcept {
  if (!script.starts_with("#!")) return false;
  drop_line(script);
  while (script.starts_with(kSbatchSyntax.prefix)) drop_line(script);
  return script == "exit 0\n";
}

}  // namespace scriptorium::slurm
