#include "core/redact/expression.h"

#include <re2/re2.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <utility>

#include "core/redact/placeholder.h"

namespace scriptorium::redact {
namespace {

// Text after a secret that is searched again, because the end of one secret's surroundings may be
// the beginning of another's ("a=1;b=2"). The limit keeps the time linear for expressions that
// match far beyond the secret.
constexpr std::size_t kMostSearchedAgain = 64;

re2::StringPiece piece(std::string_view text) noexcept { return {text.data(), text.size()}; }

std::unique_ptr<re2::RE2> compile(const std::string& expression, const Rule& rule,
                                  std::string_view key, Problems& problems) {
  re2::RE2::Options options(re2::RE2::Quiet);
  options.set_encoding(re2::RE2::Options::EncodingLatin1);
  auto compiled = std::make_unique<re2::RE2>(piece(expression), options);
  if (compiled->ok()) return compiled;
  const auto line = rule.lines.find(key);
  problems.add({.position = {rule.file, line == rule.lines.end() ? 0 : line->second},
                .key = "rule." + rule.name + "." + std::string(key),
                .problem = "the expression does not compile: " + compiled->error(),
                .allowed = "the syntax of RE2, without look-around and back references",
                .given = options_detail::quote(expression)});
  return nullptr;
}

}  // namespace

double entropy_of(std::string_view text) noexcept {
  std::array<std::uint32_t, 256> counts{};
  for (const char c : text) ++counts[static_cast<unsigned char>(c)];
  double sum = 0;
  for (const std::uint32_t count : counts) {
    if (count > 0) sum += count * std::log2(count);
  }
  const auto size = static_cast<double>(text.size());
  return text.empty() ? 0 : std::log2(size) - sum / size;
}

struct Expression::Compiled {
  std::unique_ptr<re2::RE2> expression;
  std::vector<std::unique_ptr<re2::RE2>> allow;
  int groups = 0;
};

Expression::Expression(Expression&&) noexcept = default;
Expression::~Expression() = default;

Expression::Expression(const Rule& rule, Problems& problems)
    : rule_(&rule), compiled_(std::make_unique<Compiled>()) {
  compiled_->expression = compile(rule.expression, rule, "regex", problems);
  for (const std::string& allow : rule.allow)
    compiled_->allow.push_back(compile(allow, rule, "allow", problems));
  if (!compiled_->expression) return;
  compiled_->groups = compiled_->expression->NumberOfCapturingGroups();
}

bool Expression::is_secret(std::string_view text) const {
  if (text.empty() || is_placeholder(text)) return false;
  if (rule_->entropy > 0 && entropy_of(text) < rule_->entropy) return false;
  return std::none_of(compiled_->allow.begin(), compiled_->allow.end(), [&](const auto& allow) {
    return re2::RE2::PartialMatch(piece(text), *allow);
  });
}

void Expression::find(std::string_view text, std::size_t& budget,
                      std::vector<SecretRange>& found) const {
  const int groups = compiled_->groups + 1;  // the first is the whole match
  std::vector<re2::StringPiece> matched(static_cast<std::size_t>(groups));
  std::size_t at = 0;
  while (at < text.size()) {
    const std::size_t cost = at == 0 ? 0 : text.size() - at;
    if (cost > budget) {
      found.push_back({at, text.size()});
      return;
    }
    budget -= cost;
    if (!compiled_->expression->Match(piece(text), at, text.size(), re2::RE2::UNANCHORED,
                                      matched.data(), groups))
      return;
    const auto offset = [&](const char* data) {
      return static_cast<std::size_t>(data - text.data());
    };
    const std::size_t match_end = offset(matched[0].data()) + matched[0].size();
    const auto secret =
        std::find_if(matched.begin() + std::min(compiled_->groups, 1), matched.end(),
                     [](const re2::StringPiece& group) { return group.data() != nullptr; });
    std::size_t next = match_end;
    if (secret != matched.end() && !secret->empty()) {
      const SecretRange range{offset(secret->data()), offset(secret->data()) + secret->size()};
      if (is_secret(text.substr(range.begin, range.end - range.begin))) found.push_back(range);
      if (match_end - range.end <= kMostSearchedAgain) next = range.end;
    }
    at = std::max(next, at + 1);
  }
}

}  // namespace scriptorium::redact
