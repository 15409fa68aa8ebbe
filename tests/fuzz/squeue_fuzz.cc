// An answer of squeue to either question: nothing that a user can write between the guards may make a row.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "schedulers/slurm/squeue.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace scriptorium;
  using namespace scriptorium::slurm;
  constexpr std::string_view kNonce = "0123456789abcdef0123456789abcdef";
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);

  if (const auto numbers = parse_numbers(bytes)) {
    std::vector<const QueueRow*> rows;
    for (const QueueRow& row : *numbers) rows.push_back(&row);
    const OwnerAnswer answer = make_answer(rows, {}, {.job_id = 1, .script_mtime_ns = 1795229652LL * 1'000'000'000});
    if (answer.user.verified != (answer.state == OwnerAnswer::State::kFound)) std::abort();
  }
  if (const auto texts = parse_texts(bytes, kNonce)) {
    for (const TextRow& row : *texts) {
      if (row.name && row.name->find(kNonce) != std::string::npos) std::abort();
    }
  }

  // A job's name and account in an honest answer, with a nonce that they do not hold.
  if (bytes.find(kNonce) != std::string_view::npos) return 0;
  const std::string half(bytes.substr(0, size / 2));
  const std::string rest(bytes.substr(size / 2));
  const std::string x(kNonce);
  const std::string row =
      x + "@7" + x + "7" + x + "1002" + x + "100" + x + half + x + "normal" + x + "batch" + x + "/w" + x + rest + x + "$\n";
  // Text and guard together may hold a nonce that neither holds alone; with a random one nobody can aim at that.
  if (half.size() + rest.size() > 0 && (half + x).find(kNonce) != half.size()) return 0;
  if ((rest + x).find(kNonce) != rest.size()) return 0;
  const auto texts = parse_texts(row + row, kNonce);
  if (!texts || texts->size() != 2 || texts->at(1).uid != 1002) std::abort();
  if (texts->at(0).name.value_or("") != (rest == "(null)" ? "" : rest)) std::abort();
  if (texts->at(0).account.value_or("") != (half == "(null)" ? "" : half)) std::abort();
  return 0;
}
