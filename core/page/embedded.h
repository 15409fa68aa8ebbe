#pragma once

#include <span>
#include <string_view>

namespace scriptorium::page {

// A file of core/page/assets or core/page/templates; CMake makes embedded.cc of them.
struct Embedded {
  std::string_view name;
  std::string_view bytes;
};
std::span<const Embedded> embedded_files();

}  // namespace scriptorium::page
