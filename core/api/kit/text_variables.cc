#include "core/api/kit/text_variables.h"

#include <algorithm>
#include <cstdint>
#include <numeric>

#include "core/base/text.h"

namespace scriptorium {
namespace {

// Takes at most n log n time for any input, so hash collisions cannot slow it down.
void drop_repeated(std::vector<Variable>& variables) {
  constexpr std::uint32_t kNone = ~std::uint32_t{0};
  std::vector<std::uint32_t> order(variables.size());
  std::iota(order.begin(), order.end(), 0U);
  const auto shorter_or_less = [&](std::uint32_t a, std::uint32_t b) {
    const std::string_view x = variables[a].name;
    const std::string_view y = variables[b].name;
    if (x.size() != y.size()) return x.size() < y.size();
    const int compared = x.compare(y);
    return compared != 0 ? compared < 0 : a < b;
  };
  std::sort(order.begin(), order.end(), shorter_or_less);
  bool any = false;
  for (std::size_t first = 0, i = 1; i < order.size(); ++i) {
    if (variables[order[i]].name != variables[order[first]].name) {
      first = i;
      continue;
    }
    variables[order[first]].value = variables[order[i]].value;
    order[i] = kNone;
    any = true;
  }
  if (!any) return;
  std::erase(order, kNone);
  std::sort(order.begin(), order.end());
  for (std::size_t i = 0; i < order.size(); ++i) variables[i] = variables[order[i]];
  variables.resize(order.size());
}

}  // namespace

TextVariables text_variables(std::string_view environment) {
  TextVariables result{.list = split_environment(environment), .repaired = {}};
  // NUL and '=' are ASCII characters, so the whole is UTF-8 exactly if every part is.
  if (!is_utf8(environment)) {
    for (Variable& v : result.list) {
      v.name = result.repaired.emplace_back(to_utf8_lossy(v.name));
      v.value = result.repaired.emplace_back(to_utf8_lossy(v.value));
    }
  }
  drop_repeated(result.list);
  return result;
}

}  // namespace scriptorium
