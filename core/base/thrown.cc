#include "core/base/thrown.h"

#include <exception>

#include "core/base/text.h"

namespace scriptorium {

std::string thrown_text() noexcept {
  try {
    throw;
  } catch (const std::exception& thrown) {
    return printable(thrown.what(), 200);
  } catch (...) {
    return "something that is not a std::exception";
  }
}

}  // namespace scriptorium
