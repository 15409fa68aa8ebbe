// A job record of pbs_server, XML or binary, and the entry that it is part of: no bytes may lead a
// reader out of them, the script comes back as it was, and an owner is believed only where the
// record is one that pbs_server could have written.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "schedulers/torque/parse.h"
#include "schedulers/torque/record.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace scriptorium;
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  const auto record = torque::read_record(bytes);
  if (record) {
    std::size_t sum = record->job_id.size() + record->file_prefix.size();
    for (const torque::Attribute& a : record->attributes) {
      sum += a.value.size();
      for (const auto format : {torque::Record::Format::kXml, torque::Record::Format::kBinary}) {
        const std::string environment = torque::guess_environment(a.value, format);
        if (environment.size() > a.value.size() + 1 ||
            (!environment.empty() && environment.back() != '\0'))
          std::abort();
      }
    }
    if (sum > size) std::abort();  // no reference is longer written out than written down
  }

  SpoolFile script;
  script.name = "SC";
  script.bytes = make_bytes("#!/bin/sh\n#PBS -N x\n");
  script.stat.size = script.bytes->size();
  SpoolFile file;
  file.name = "JB";
  file.stat.size = size;
  file.bytes = make_bytes(bytes);
  const SpoolEntry entry{"65.pbshead.cluster.test", {script, file}};
  if ((torque::assess_entry(entry).state == Assessment::State::kComplete) != record.has_value())
    std::abort();
  const auto job = torque::parse_entry(entry);
  if (!job || *job->script != *script.bytes || job->job.id.empty()) std::abort();
  if (job->user.verified) {
    if (!record || !record->regular || record->count("Job_Owner") != 1 || !job->user.name ||
        job->user.name->empty())
      std::abort();
    if (job->user.name->find_first_of("/\n\0 ", 0, 4) != std::string::npos) std::abort();
  }
  if (size > 0 && job->mixed_files.size() != 1) std::abort();
  return 0;
}
