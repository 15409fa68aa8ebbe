// An answer of squeue: nothing that a user can write between the guards may make a row.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "schedulers/slurm/squeue.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace scriptorium;
  using namespace scriptorium::slurm;
  constexpr std::string_view kGuard = "X0123456789abcdef0123456789abcdef";
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);

  if (const auto answer = parse_queue(bytes, kGuard)) {
    std::vector<const QueueRow*> rows;
    for (const QueueRow& row : *answer) rows.push_back(&row);
    const OwnerAnswer owner =
        make_answer(rows, {.job_id = 1, .script_mtime_ns = 1795229652LL * 1'000'000'000});
    if (owner.user.verified != (owner.state == OwnerAnswer::State::kFound)) std::abort();
    for (const QueueRow& row : *answer) {
      if (row.name && row.name->find(kGuard) != std::string::npos) std::abort();
    }
  }

  // A job's name and account in an honest answer, with a guard that they do not hold.
  if (bytes.find(kGuard) != std::string_view::npos) return 0;
  const std::string half(bytes.substr(0, size / 2));
  const std::string rest(bytes.substr(size / 2));
  const std::string x(kGuard);
  const std::string row = "7|7|N/A|1002|100|100|N/A|N/A|0|PD|1|" + half + x + "normal" + x +
                          "batch" + x + "/w" + x + rest + x + "\n";
  // Text and guard together may hold a guard that neither holds alone; with a random one nobody can
  // aim at that.
  if (half.size() + rest.size() > 0 && (half + x).find(kGuard) != half.size()) return 0;
  if ((rest + x).find(kGuard) != rest.size()) return 0;
  const auto answer = parse_queue(row + row, kGuard);
  if (!answer || answer->size() != 2 || answer->at(1).uid != 1002) std::abort();
  if (answer->at(0).name.value_or("") != (rest == "(null)" ? "" : rest)) std::abort();
  if (answer->at(0).account.value_or("") != (half == "(null)" ? "" : half)) std::abort();
  return 0;
}
