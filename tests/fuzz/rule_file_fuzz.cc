// Any bytes as a file of rules: every message is one printable line about a line that exists, and
// a file without problems makes rules that can search.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/text.h"
#include "core/redact/rule_file.h"
#include "core/redact/rule_set.h"

namespace {

void require_of_message(bool holds, const std::string& message) {
  if (holds) return;
  std::cerr << "broken promise of a message: " << message << "\n";
  std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace scriptorium;
  using namespace scriptorium::redact;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto lines = 1 + static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
  Problems problems;
  std::vector<RuleFile> files;
  files.push_back(parse_rule_file(text, "fuzz.toml", problems));
  const auto rules = RuleSet::make(std::move(files), problems);
  for (const Problem& problem : problems.list()) {
    const std::string message = problem.text();
    require_of_message(
        is_utf8(message) && std::none_of(message.begin(), message.end(),
                                         [](char c) { return (c >= 0 && c < 0x20) || c == 0x7F; }),
        message);
    require_of_message(problem.position.line <= lines && !problem.problem.empty(), message);
  }
  if (!problems.empty()) return 0;
  rules->find(Mode::kStrict, Place::kScript, text);
  rules->is_denied(text);
  return 0;
}
