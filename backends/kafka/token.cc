#include "backends/kafka/token.h"

#include <nlohmann/json.hpp>

#include "core/base/text.h"

namespace scriptorium::kafka {
namespace {

constexpr std::int64_t kUnknownLifetimeMs = 300'000;

// The second of three parts, in the base64 of URLs without padding.
std::string claims_of(std::string_view token) {
  const std::size_t first = token.find('.');
  if (first == std::string_view::npos) return {};
  const std::size_t second = token.find('.', first + 1);
  if (second == std::string_view::npos) return {};
  std::string text(token.substr(first + 1, second - first - 1));
  for (char& c : text) {
    if (c == '-') c = '+';
    if (c == '_') c = '/';
  }
  while (text.size() % 4 != 0) text += '=';
  return base64_decode(text).value_or("");
}

}  // namespace

Token read_token(std::string_view text, Timestamp now) {
  Token token{.expires_at_ms = now.nanoseconds / 1'000'000 + kUnknownLifetimeMs,
              .principal = "scriptorium"};
  const auto claims = nlohmann::json::parse(claims_of(text), nullptr, false);
  if (!claims.is_object()) return token;
  if (const auto exp = claims.find("exp"); exp != claims.end() && exp->is_number()) {
    // Years beyond what librdkafka can count are as good as for ever.
    const double seconds = exp->get<double>();
    if (seconds > 0 && seconds < 1e12)
      token.expires_at_ms = static_cast<std::int64_t>(seconds * 1000);
  }
  if (const auto sub = claims.find("sub");
      sub != claims.end() && sub->is_string() && !sub->get_ref<const std::string&>().empty()) {
    token.principal = sub->get<std::string>();
  }
  return token;
}

}  // namespace scriptorium::kafka
