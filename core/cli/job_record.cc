#include "core/cli/job_record.h"

#include <utility>

#include "core/base/text.h"
#include "core/cli/common.h"
#include "core/cli/exit_codes.h"
#include "core/cli/job_text.h"

namespace scriptorium::cli {

std::optional<Searchable::Record> find_record(const OpenStores& stores, const JobName& name,
                                              Console& console, int& code) {
  constexpr std::size_t kMostOfOneName = 10;
  auto asked = query::get_fastest(stores.list(), {.id = name.id, .cluster = name.cluster}, {},
                                  kMostOfOneName);
  const int refused = say_refusals(asked.refused, console);
  if (asked.answer.empty()) {
    code = asked.store == nullptr ? refused
           : name.of_range        ? int{kExitNoInput}
                                  : fail(console,
                                         "no searchable sink has job " + name_text(name) +
                                             "; one that was just submitted may still be on its way",
                                         kExitNoInput);
    return std::nullopt;
  }
  if (asked.answer.size() > 1) {
    console.err << "scriptorium: " << asked.answer.size() << " jobs are called " << name_text(name)
                << "; this is the newest, of " << local_time(asked.answer.front().job.time) << "\n";
  }
  for (const std::string& problem : asked.answer.front().problems)
    console.err << "scriptorium: job " << name_text(name) << ": " << printable(problem, 1024)
                << "\n";
  return std::move(asked.answer.front());
}

}  // namespace scriptorium::cli
