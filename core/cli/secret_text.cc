#include "core/cli/secret_text.h"

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "core/base/text.h"
#include "core/daemon/status_answer.h"

namespace scriptorium::cli {
namespace {

using status_answer::Json;
using status_answer::member;

constexpr std::size_t kLongestLine = 8192;

template <typename T>
T value_or(const Json& value, const T& otherwise, bool is_valid) {
  return is_valid ? value.get<T>() : otherwise;
}

std::string text_or_nothing(const Json& value) {
  return value_or<std::string>(value, {}, value.is_string());
}

std::vector<Redaction> redactions_of(const Json& event) {
  std::vector<Redaction> redactions;
  for (const Json& json : member(event, "redactions")) {
    Redaction& redaction = redactions.emplace_back();
    redaction.rule = text_or_nothing(member(json, "rule"));
    redaction.where = text_or_nothing(member(json, "where"));
    const Json& count = member(json, "count");
    redaction.count = value_or<std::uint64_t>(count, 1, count.is_number_unsigned());
    const Json& kept = member(json, "kept");
    redaction.kept = value_or<bool>(kept, false, kept.is_boolean());
    for (const Json& line : member(json, "lines")) {
      if (line.is_number_unsigned()) redaction.lines.push_back(line.get<std::uint32_t>());
    }
    for (const Json& name : member(json, "names")) redaction.names.push_back(text_or_nothing(name));
  }
  return redactions;
}

// Those of the site, or the shipped ones where the site's cannot be read.
std::shared_ptr<const redact::RuleSet> rules_beside(const std::string& config_file) {
  const auto directory = std::filesystem::path(config_file).parent_path() / "redact.d";
  Problems problems;
  auto rules = redact::RuleSet::load(directory, problems);
  if (problems.empty()) return rules;
  Problems others;
  rules = redact::RuleSet::load({}, others);
  return others.empty() ? rules : nullptr;
}

}  // namespace

std::string secret_text(const Json& event, const std::string& config_file, redact::Reader reader,
                        const Console& console) {
  const std::vector<Redaction> redactions = redactions_of(event);
  if (redactions.empty()) return {};
  const auto rules = rules_beside(config_file);
  std::string text;
  for (const std::string& line : redact::secret_notice(redactions, rules.get(), reader))
    text += "  " + console.yellow(printable(line, kLongestLine)) + "\n";
  return text;
}

}  // namespace scriptorium::cli
