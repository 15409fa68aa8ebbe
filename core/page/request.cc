#include "core/page/request.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "core/base/random.h"
#include "core/base/sha256.h"
#include "core/base/text.h"
#include "core/page/templates.h"

namespace scriptorium::page {
namespace {

constexpr std::string_view kCookie = "scriptorium";

std::optional<std::string> decoded(std::string_view text, bool plus_is_blank) {
  std::string bytes;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%') {
      const auto byte = hex_decode(text.substr(i + 1, 2));
      if (!byte || byte->size() != 1) return std::nullopt;
      bytes += *byte;
      i += 2;
    } else {
      bytes += plus_is_blank && text[i] == '+' ? ' ' : text[i];
    }
  }
  return bytes;
}

// The part before `end`, which it is taken from `text` with.
std::string_view cut(std::string_view& text, char end) {
  const std::string_view part = text.substr(0, text.find(end));
  text.remove_prefix(std::min(text.size(), part.size() + 1));
  return part;
}

// Without a hint by the time that it takes.
bool is_same_secret(std::string_view a, std::string_view b) {
  return sha256_hex(a) == sha256_hex(b);
}

Gate::Admitted nobody(Response answer, std::string reason, bool closes) {
  return {.answer = std::move(answer), .reason = std::move(reason), .closes = closes};
}

}  // namespace

std::string Target::query_value(std::string_view name) const {
  const auto found =
      std::find_if(query.begin(), query.end(), [&](const auto& one) { return one.first == name; });
  return found == query.end() ? std::string{} : found->second;
}

bool Target::has_query(std::string_view name) const { return !query_values(name).empty(); }

std::vector<std::string> Target::query_values(std::string_view name) const {
  std::vector<std::string> values;
  for (const auto& [key, value] : query) {
    if (key == name) values.push_back(value);
  }
  return values;
}

std::optional<Target> parse_target(std::string_view target) {
  if (!target.starts_with('/')) return std::nullopt;
  target.remove_prefix(1);
  Target parsed;
  std::string_view path = cut(target, '?');
  while (!path.empty()) {
    auto part = decoded(cut(path, '/'), false);
    if (!part || part->empty() || *part == "." || *part == "..") return std::nullopt;
    parsed.path.push_back(*std::move(part));
  }
  while (!target.empty()) {
    std::string_view value = cut(target, '&');
    auto name = decoded(cut(value, '='), true);
    auto text = decoded(value, true);
    if (!name || !text) return std::nullopt;
    parsed.query.emplace_back(*std::move(name), *std::move(text));
  }
  return parsed;
}

std::string way_to_first_page(std::string_view target) {
  const std::string_view path = target.substr(0, target.find('?'));
  std::string way;
  for (auto slashes = std::count(path.begin(), path.end(), '/'); slashes > 1; --slashes)
    way += "../";
  return way;
}

bool is_for_programs(std::string_view target) { return target.starts_with("/api/"); }

Response json_response(const nlohmann::ordered_json& json, unsigned status) {
  return {.status = status,
          .type = "application/json",
          .body = json.dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace),
          .headers = {}};
}

std::string percent_encoded(std::string_view bytes) {
  std::string text;
  for (const char c : bytes) {
    const bool is_plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                          (c >= '0' && c <= '9') || c == '-' || c == '.' || c == '_' || c == '~';
    if (is_plain) {
      text += c;
    } else {
      std::array<char, 4> escape{};
      std::snprintf(escape.data(), escape.size(), "%%%02X", static_cast<unsigned char>(c));
      text += escape.data();
    }
  }
  return text;
}

// ---- behind a web server

Gate::Admitted ProxyGate::admit(const Head& head) {
  if (!head.peer || std::find(proxies_.begin(), proxies_.end(), *head.peer) == proxies_.end()) {
    return nobody(plain_page(403, words("not_the_proxy"), head.target),
                  "a connection of uid " + (head.peer ? std::to_string(*head.peer) : "?") +
                      ", which is not in serve.proxy_users",
                  true);
  }
  if (head.users.size() != 1 || head.users.front().empty()) {
    return nobody(
        plain_page(403, words("no_login"), head.target),
        std::to_string(head.users.size()) + " headers X-Remote-User instead of one with a name",
        true);
  }
  return {.login = std::string(head.users.front())};
}

// ---- for one person

Result<std::unique_ptr<KeyGate>> KeyGate::create(std::string login, std::string host) {
  constexpr std::size_t kSecretBytes = 32;
  auto key = random_hex(kSecretBytes);
  auto cookie = random_hex(kSecretBytes);
  if (!key || !cookie) return (key ? cookie : key).error();
  return std::unique_ptr<KeyGate>(
      new KeyGate(std::move(login), std::move(host), *std::move(key), *std::move(cookie)));
}

Gate::Admitted KeyGate::admit(const Head& head) {
  if (head.hosts.size() != 1 || head.hosts.front() != host_)
    return nobody(plain_page(403, words("wrong_host"), head.target), "", true);
  for (std::string_view cookies : head.cookies) {
    while (!cookies.empty()) {
      std::string_view value = cut(cookies, ';');
      while (value.starts_with(' ')) value.remove_prefix(1);
      if (cut(value, '=') == kCookie && is_same_secret(value, cookie_)) return {.login = login_};
    }
  }
  const auto target = parse_target(head.target);
  const std::string key = target ? target->query_value("key") : std::string{};
  if (key_.empty() || !is_same_secret(key, key_)) {
    return nobody(plain_page(403, words(key.empty() ? "not_yours" : "key_used"), head.target), "",
                  true);
  }
  key_.clear();
  Response answer{.status = 303, .body = {}};
  answer.headers = {
      {"Location", "/"},
      {"Set-Cookie", std::string(kCookie) + "=" + cookie_ + "; HttpOnly; SameSite=Strict; Path=/"}};
  return nobody(std::move(answer), "", false);
}

}  // namespace scriptorium::page
