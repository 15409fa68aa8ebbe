#include "checkpoint/run/criu_files.h"

#include <algorithm>

namespace scriptorium::checkpoint {
namespace {

constexpr std::size_t kMagicBytes = 8;

struct Field {
  std::uint64_t number = 0;
  std::uint64_t value = 0;
  std::string_view bytes;
};

// Takes the bytes of a message one after the other; after an error there are none.
struct Reader {
  std::string_view rest;

  std::uint64_t take_varint() {
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < 64 && !rest.empty(); shift += 7) {
      const auto byte = static_cast<unsigned char>(rest.front());
      rest.remove_prefix(1);
      value |= static_cast<std::uint64_t>(byte & 0x7fU) << shift;
      if ((byte & 0x80U) == 0) return value;
    }
    rest = {};
    return 0;
  }
  std::string_view take(std::uint64_t count) {
    if (count > rest.size()) {
      rest = {};
      return {};
    }
    const std::string_view taken = rest.substr(0, count);
    rest.remove_prefix(count);
    return taken;
  }
  Field take_field() {
    const std::uint64_t tag = take_varint();
    Field field{.number = tag >> 3U};
    switch (tag & 7U) {
      case 0: field.value = take_varint(); break;
      case 1: take(8); break;
      case 2: field.bytes = take(take_varint()); break;
      case 5: take(4); break;
      default: rest = {};
    }
    return field;
  }
};

}  // namespace

std::optional<std::uint64_t> position_in_image(std::string_view files_image,
                                               std::string_view path) {
  std::optional<std::uint64_t> position;
  Reader image{files_image.substr(std::min(kMagicBytes, files_image.size()))};
  while (!image.rest.empty()) {
    std::uint64_t length = 0;
    unsigned shift = 0;
    for (const char byte : image.take(4)) {
      length |= static_cast<std::uint64_t>(static_cast<unsigned char>(byte)) << shift;
      shift += 8;
    }
    Reader entry{image.take(length)};
    while (!entry.rest.empty()) {
      const Field file = entry.take_field();
      if (file.number != 3) continue;
      Reader regular{file.bytes};
      std::uint64_t here = 0;
      bool is_path = false;
      while (!regular.rest.empty()) {
        const Field field = regular.take_field();
        if (field.number == 3) here = field.value;
        if (field.number == 6) is_path = field.bytes == path;
      }
      if (is_path) position = std::max(position.value_or(0), here);
    }
  }
  return position;
}

}  // namespace scriptorium::checkpoint
