// Answers of squeue and sacct about whole jobs, and the import's own position: any bytes are read
// or refused, and what is read becomes an event that is JSON. Nothing that a user can write between
// the guards may make a row.
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "schedulers/usage/accounting.h"
#include "schedulers/usage/job_events.h"
#include "schedulers/usage/queued_jobs.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace scriptorium;
  using namespace scriptorium::usage;
  constexpr std::string_view kGuard = "X";
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  static const FindingOptions options;
  const auto must_be_json = [](const JobView& view) {
    const Event event = job_event("lab", "slurm", view, options);
    if (!nlohmann::json::accept(event_json(event)) || event.id.size() != 64) std::abort();
  };

  if (const auto jobs = parse_sacct(bytes, kGuard)) {
    for (const AccountedJob& job : *jobs) must_be_json(job.view);
  }
  if (auto jobs = parse_queue(bytes, "@X")) {
    for (QueuedJob& job : *jobs) must_be_json(view_of(std::move(job.facts), {}));
  }
  if (const auto cursor = parse_cursor(bytes)) {
    const auto again = parse_cursor(cursor->text());
    if (!again || again->seen != cursor->seen) std::abort();
  }

  // A job's name and directory in an honest answer, with a guard that they do not hold.
  const std::string half(bytes.substr(0, size / 2));
  const std::string rest(bytes.substr(size / 2));
  const std::string x = "@0123456789abcdef0123456789abcdef";
  // Text and guard together may hold a guard that neither holds alone; with a random one nobody can
  // aim at that.
  if ((half + x).find(x) != half.size() || (rest + x).find(x) != rest.size()) return 0;
  std::string row;
  for (const std::string& field : {std::string("7"),
                                   std::string("7"),
                                   std::string("1002"),
                                   std::string("100"),
                                   std::string("alice"),
                                   std::string("chem"),
                                   std::string("chem"),
                                   std::string("batch"),
                                   std::string("normal"),
                                   std::string("2026-11-21T08:00:00"),
                                   std::string("2026-11-21T08:00:00"),
                                   std::string("2026-11-21T09:00:00"),
                                   std::string("3600"),
                                   std::string("00:00:00"),
                                   std::string("120"),
                                   std::string("COMPLETED"),
                                   std::string("0:0"),
                                   std::string("1"),
                                   std::string("4"),
                                   std::string("cpu=4,mem=4G"),
                                   std::string("01:00:00"),
                                   std::string("01:00:00"),
                                   std::string("00:00:00"),
                                   std::string(),
                                   std::string(),
                                   std::string(),
                                   std::string(),
                                   half,
                                   rest}) {
    row += field + x;
  }
  const auto jobs = parse_sacct(row + "\n" + row + "\n", x);
  if (!jobs || jobs->size() != 2 || jobs->at(1).view.facts.user.id != "1002") std::abort();
  if (jobs->at(1).view.facts.job.name.value_or("") != (rest == "(null)" ? "" : rest)) std::abort();
  must_be_json(jobs->front().view);
  return 0;
}
