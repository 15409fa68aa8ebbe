// Asks for owners afterwards, as core does, for the test against a real Slurm: `slurm-late-owners
// SLURM_CONF`, with a line "JOB MTIME" in nanoseconds for each job on standard input. Prints a JSON
// object for each.
#include <chrono>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "schedulers/slurm/source.h"

namespace {

class StandardError final : public scriptorium::Logger {
 public:
  void log(scriptorium::LogLevel level, std::string_view id, std::string_view sentence,
           const Fields& fields) noexcept override {
    static_cast<void>(level);
    std::cerr << id << ": " << sentence;
    for (const auto& field : fields) std::cerr << ' ' << field.key << '=' << field.value;
    std::cerr << '\n';
  }
};

const char* word(scriptorium::OwnerAnswer::State state) {
  using State = scriptorium::OwnerAnswer::State;
  if (state == State::kFound) return "found";
  return state == State::kUnknown ? "unknown" : "not asked";
}

}  // namespace

int main(int argc, char** argv) {
  using namespace scriptorium;
  if (argc != 2) return 2;
  StandardError log;
  const Clock& clock = system_clock();
  slurm::SlurmSource source({.spool = "/nonexistent", .slurm_conf = argv[1]},
                            {"slurm", "lab", log, clock});
  const auto resolver = source.make_late_owner_resolver();
  std::vector<Event> events;
  std::vector<std::int64_t> times;
  std::string job;
  for (std::int64_t mtime = 0; std::cin >> job >> mtime;) {
    events.push_back({.job = {.id = job}});
    times.push_back(mtime);
  }
  std::vector<OwnerQuery> queries;
  for (std::size_t i = 0; i < events.size(); ++i) {
    queries.push_back({.event = &events[i],
                       .script_mtime_ns = times[i],
                       .entry_unchanged = {},
                       .since = clock.steady()});
  }
  const auto answers = resolver->resolve(queries, {}, clock.steady() + std::chrono::seconds(60));
  if (!answers) {
    std::cerr << answers.error().message() << '\n';
    return 1;
  }
  for (std::size_t i = 0; i < queries.size(); ++i) {
    const OwnerAnswer& answer = answers->at(i);
    nlohmann::json line{{"job", events[i].job.id},
                        {"state", word(answer.state)},
                        {"verified", answer.user.verified}};
    line["uid"] = answer.user.id.value_or("");
    line["gid"] = answer.user.group_id.value_or("");
    line["name"] = answer.user.name.value_or("");
    line["group"] = answer.user.group_name.value_or("");
    std::cout << line.dump() << '\n';
  }
  return 0;
}
