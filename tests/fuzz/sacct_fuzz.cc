// An answer of sacct: whatever it holds, an owner comes only from rows of this submission that
// agree.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "schedulers/slurm/sacct.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace scriptorium;
  using namespace scriptorium::slurm;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  constexpr std::int64_t kSubmitted = 1795359443;
  const std::vector<std::uint64_t> ids{1, 3, 4, 5, 10};
  const auto rows = parse_sacct(bytes, ids);
  if (!rows) {
    if (rows.error().kind() != ErrorKind::kTransient) std::abort();
    return 0;
  }
  if (!bytes.empty() && bytes.back() != '\n') std::abort();
  for (const std::uint64_t id : ids) {
    const OwnerAnswer owner =
        accounted_owner(*rows, {.job_id = id, .script_mtime_ns = kSubmitted * 1'000'000'000});
    if (owner.user.verified != (owner.state == OwnerAnswer::State::kFound)) std::abort();
    bool fits = false;
    bool agree = true;
    for (const QueueRow& row : *rows) {
      if (row.array_job_id != id ||
          (row.submitted != kSubmitted && row.submitted != kSubmitted - 1))
        continue;
      fits = true;
      if (owner.user.id != std::to_string(row.uid)) agree = false;
    }
    if (owner.user.verified && (!fits || !agree)) std::abort();
  }
  return 0;
}
