// A file "script" of slurmctld's spool: its bytes are kept but for one final NUL, and reading it
// stays within bounds.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "core/api/job_script.h"
#include "schedulers/slurm/parse.h"
#include "schedulers/slurm/script.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace scriptorium;
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  SpoolFile script;
  script.name = "script";
  script.bytes = make_bytes(bytes);
  SpoolFile environment;
  environment.name = "environment";
  environment.bytes = make_bytes(std::string(4, '\0'));
  const SpoolEntry entry{"hash.1/job.1", {environment, script}};
  const bool ended = !bytes.empty() && bytes.back() == '\0';
  if ((slurm::assess_entry(entry).state == Assessment::State::kComplete) != ended) std::abort();
  const auto job = slurm::parse_entry(entry);
  if (!job || *job->script != (ended ? bytes.substr(0, size - 1) : bytes)) std::abort();
  if (job->user.verified || job->user.name || job->user.id) std::abort();

  for (const std::vector<std::string>* items :
       {&job->script_info.directives, &job->script_info.modules}) {
    if (items->size() > kMaxScriptItems) std::abort();
    for (const std::string& item : *items) {
      if (item.empty() || item.size() > kMaxScriptItemBytes) std::abort();
    }
  }
  if (job->script_info.software.size() > kMaxScriptItems) std::abort();
  for (const Software& used : job->script_info.software) {
    if (used.kind.empty() || used.name.empty() || used.name.size() > kMaxScriptItemBytes)
      std::abort();
  }
  slurm::is_het_stub(*job->script);
  return 0;
}
