// Any text against the shipped rules and a few more: what is found is in order, without overlap,
// inside the text and on the line that it says, and removing it leaves nothing of a site's word.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/redact/rule_file.h"
#include "core/redact/rule_set.h"

namespace {

using namespace scriptorium;
using namespace scriptorium::redact;

constexpr std::string_view kWord = "hunter2";

void require(bool holds, const char* what) {
  if (holds) return;
  std::cerr << "broken promise: " << what << "\n";
  std::abort();
}

std::shared_ptr<const RuleSet> compile_rules() {
  Problems problems;
  std::vector<RuleFile> files = shipped_rules();
  files.push_back(
      parse_rule_file("words = ['hunter2', 'abcabc']\n"
                      "[[rule]]\nname = 'fuzz-block'\nabout = 'x'\n"
                      "keywords = ['begin']\nregex = '(?s)begin(.*?)end'\n"
                      "multi_line = true\naction = 'flag'\n"
                      "[[rule]]\nname = 'fuzz-line'\nabout = 'x'\n"
                      "keywords = ['pin']\nregex = '^.*pin=(.*)$'\naction = 'drop'\n",
                      "fuzz.toml", problems));
  auto rules = RuleSet::make(std::move(files), problems);
  for (const Problem& problem : problems.list()) std::cerr << problem.text() << "\n";
  require(problems.empty(), "the rules of the fuzzer are good");
  return rules;
}

const std::shared_ptr<const RuleSet>& fuzzed_rules() {
  static const std::shared_ptr<const RuleSet> rules = compile_rules();
  return rules;
}

void check(const RuleSet& rules, Mode mode, Place place, std::string_view text) {
  std::string rest;
  std::size_t end = 0;
  for (const Finding& finding : rules.find(mode, place, text)) {
    require(finding.rule != nullptr && rules.rule(finding.rule->name) == finding.rule,
            "a finding names a rule of the set");
    require(finding.begin >= end && finding.begin < finding.end && finding.end <= text.size(),
            "findings are in order, without overlap, and not empty");
    const std::string_view before = text.substr(0, finding.begin);
    const auto line = 1 + std::count(before.begin(), before.end(), '\n');
    require(finding.line == static_cast<std::uint32_t>(line),
            "a finding's line is that of its first byte");
    if (!finding.kept) {
      rest.append(text, end, finding.begin - end).append("[]");
      end = finding.end;
    }
  }
  rest.append(text, end);
  if (mode == Mode::kFlag) {
    require(rest == text, "nothing is removed where all is only reported");
  } else {
    require(rest.find(kWord) == std::string::npos, "a word of the site is never kept");
  }
}

}  // namespace

// Compiled before the first input, whose time is limited.
extern "C" int LLVMFuzzerInitialize(int*, char***) {
  fuzzed_rules();
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::shared_ptr<const RuleSet>& rules = fuzzed_rules();
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  for (const Mode mode : {Mode::kFlag, Mode::kDefault, Mode::kStrict}) {
    for (const Place place : {Place::kScript, Place::kValue, Place::kText})
      check(*rules, mode, place, text);
  }
  rules->is_denied(text);
  return 0;
}
