#include "core/api/kit/search/field_glob.h"

#include "core/base/ascii.h"

namespace scriptorium {
namespace {

template <typename Equal>
bool glob(std::string_view pattern, std::string_view value, Equal equal) noexcept {
  std::size_t p = 0;
  std::size_t v = 0;
  std::size_t star = std::string_view::npos;  // the last one met
  std::size_t resume = 0;                     // what it matches ends before this byte
  while (v < value.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resume = v;
    } else if (p < pattern.size() && equal(pattern[p], value[v])) {
      ++p;
      ++v;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      v = ++resume;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

}  // namespace

bool glob_in_any_case(std::string_view pattern, std::string_view value) noexcept {
  return glob(pattern, value, [](char a, char b) { return to_lower(a) == to_lower(b); });
}

bool glob_in_case(std::string_view pattern, std::string_view value) noexcept {
  return glob(pattern, value, [](char a, char b) { return a == b; });
}

}  // namespace scriptorium
