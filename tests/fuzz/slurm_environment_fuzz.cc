// A file "environment" of slurmctld's spool: what is whole must come out byte for byte, and no
// shorter file of it may count as whole.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "schedulers/slurm/parse.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace scriptorium;
  using State = slurm::EnvironmentShape::State;
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  const auto shape = slurm::environment_shape(bytes);
  if (shape.strings > shape.count) std::abort();
  if (shape.state == State::kWhole && size > 4 &&
      slurm::environment_shape(std::string_view(bytes).substr(0, size - 1)).state !=
          State::kShort) {
    std::abort();
  }

  SpoolFile environment;
  environment.name = "environment";
  environment.bytes = make_bytes(bytes);
  SpoolFile script;
  script.name = "script";
  script.bytes = make_bytes(std::string("#!/bin/sh\n\0", 11));
  const SpoolEntry entry{"hash.1/job.1", {environment, script}};
  const bool complete = slurm::assess_entry(entry).state == Assessment::State::kComplete;
  if (complete != (shape.state != State::kShort)) std::abort();
  const auto job = slurm::parse_entry(entry);
  if (!job) std::abort();
  const bool parsed = job->environment_format == EnvironmentFormat::kNulEnded;
  if (parsed != (shape.state == State::kWhole) || parsed != job->problems.empty()) std::abort();
  if (*job->environment != (parsed ? bytes.substr(4) : bytes)) std::abort();
  if (parsed && split_environment(*job->environment).size() != shape.count) std::abort();
  return 0;
}
