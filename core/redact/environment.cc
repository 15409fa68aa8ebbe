#include "core/redact/environment.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "core/base/text.h"

namespace scriptorium {
namespace {

std::string_view name_of(std::string_view text) noexcept {
  if (text.empty()) return text;
  return text.substr(0, text.find('=', 1));
}

bool kept(std::string_view name, const EnvironmentRule& rule) noexcept {
  const auto matches = [name](const std::string& pattern) { return glob_match(pattern, name); };
  if (rule.keep && std::none_of(rule.keep->begin(), rule.keep->end(), matches)) return false;
  return std::none_of(rule.drop.begin(), rule.drop.end(), matches);
}

}  // namespace

FilteredEnvironment filter_environment(const Bytes& nul_ended, const EnvironmentRule& rule) {
  if (!nul_ended || rule.mode == EnvironmentRule::Mode::kAll) return {nul_ended, 0};
  const std::string_view all = *nul_ended;
  if (rule.mode == EnvironmentRule::Mode::kNone) {
    const auto ended = static_cast<std::uint64_t>(std::count(all.begin(), all.end(), '\0'));
    return {nullptr, ended + (!all.empty() && all.back() != '\0' ? 1 : 0)};
  }
  std::string result;
  std::uint64_t dropped = 0;
  std::size_t run = 0;  // start of the kept strings that are not copied yet
  for (std::size_t at = 0; at < all.size();) {
    const std::size_t nul = all.find('\0', at);
    const std::size_t next = nul == std::string_view::npos ? all.size() : nul + 1;
    if (!kept(name_of(all.substr(at, (nul == std::string_view::npos ? next : nul) - at)), rule)) {
      if (dropped == 0) result.reserve(all.size());
      result.append(all, run, at - run);
      run = next;
      ++dropped;
    }
    at = next;
  }
  if (dropped == 0) return {nul_ended, 0};
  result.append(all, run, all.size() - run);
  return {make_bytes(std::move(result)), dropped};
}

FilteredEnvironment filter_raw_environment(const Bytes& raw, const EnvironmentRule& rule) {
  if (!raw || rule.mode == EnvironmentRule::Mode::kAll) return {raw, 0};
  return {nullptr, 1};
}

}  // namespace scriptorium
