#include "core/capture/build_id.h"

#include <elf.h>

#include <algorithm>
#include <cstddef>
#include <string_view>

namespace scriptorium {
namespace {

constexpr std::uint64_t kMostHeaders = 512;
constexpr int kMostNoteSegments = 16;
constexpr std::uint64_t kMostNoteBytes = std::uint64_t{12} << 10;
constexpr std::size_t kMostIdBytes = 64;

// Numbers at places of a text, in the file's own order and width; 0 beyond its end.
struct Numbers {
  std::string_view bytes;
  bool is_wide = false;          // 64 bit
  bool is_little_endian = true;  // of the file

  std::uint64_t get(std::uint64_t offset, std::size_t size) const {
    if (offset > bytes.size() || bytes.size() - offset < size) return 0;
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < size; ++i) {
      const std::size_t place = is_little_endian ? size - 1 - i : i;
      value = value << 8 | static_cast<unsigned char>(bytes[offset + place]);
    }
    return value;
  }
  // Of a member that has another place and size in the two classes.
  std::uint64_t word(std::uint64_t narrow_offset, std::uint64_t wide_offset) const {
    return is_wide ? get(wide_offset, 8) : get(narrow_offset, 4);
  }
  std::uint64_t half(std::uint64_t narrow_offset, std::uint64_t wide_offset) const {
    return get(is_wide ? wide_offset : narrow_offset, 2);
  }
};

std::uint64_t aligned(std::uint64_t size, std::uint64_t alignment) {
  return (size + alignment - 1) / alignment * alignment;
}

// The id among the notes of one segment. Each is a header of three numbers, its owner's name and
// its content, both padded.
std::optional<std::string> id_in_notes(const Numbers& notes, std::uint64_t alignment) {
  constexpr std::uint64_t kHeaderBytes = sizeof(Elf32_Nhdr);
  std::uint64_t at = 0;
  while (at + kHeaderBytes <= notes.bytes.size()) {
    const std::uint64_t name_bytes = notes.get(at, 4);
    const std::uint64_t content_bytes = notes.get(at + 4, 4);
    const std::uint64_t type = notes.get(at + 8, 4);
    const std::uint64_t name_at = at + kHeaderBytes;
    const std::uint64_t content_at = aligned(name_at + name_bytes, alignment);
    const std::uint64_t end = content_at + content_bytes;
    if (end > notes.bytes.size()) return std::nullopt;
    constexpr std::string_view kOwner("GNU\0", 4);
    if (type == NT_GNU_BUILD_ID && notes.bytes.substr(name_at, name_bytes) == kOwner &&
        content_bytes > 0 && content_bytes <= kMostIdBytes)
      return std::string(notes.bytes.substr(content_at, content_bytes));
    at = aligned(end, alignment);
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::string> find_build_id(const ReadAt& read) {
  const std::string start = read(0, sizeof(Elf64_Ehdr));
  if (!start.starts_with(ELFMAG) || start.size() < sizeof(Elf32_Ehdr)) return std::nullopt;
  const char width = start[EI_CLASS];
  const char order = start[EI_DATA];
  if ((width != ELFCLASS32 && width != ELFCLASS64) ||
      (order != ELFDATA2LSB && order != ELFDATA2MSB))
    return std::nullopt;
  Numbers numbers{start, width == ELFCLASS64, order == ELFDATA2LSB};
  const std::uint64_t table =
      numbers.word(offsetof(Elf32_Ehdr, e_phoff), offsetof(Elf64_Ehdr, e_phoff));
  const std::uint64_t count = std::min(
      numbers.half(offsetof(Elf32_Ehdr, e_phnum), offsetof(Elf64_Ehdr, e_phnum)), kMostHeaders);
  const std::uint64_t size = numbers.is_wide ? sizeof(Elf64_Phdr) : sizeof(Elf32_Phdr);
  if (numbers.half(offsetof(Elf32_Ehdr, e_phentsize), offsetof(Elf64_Ehdr, e_phentsize)) != size)
    return std::nullopt;
  const std::string headers = read(table, count * size);
  int left = kMostNoteSegments;
  for (std::uint64_t at = 0; at + size <= headers.size() && left > 0; at += size) {
    numbers.bytes = std::string_view(headers).substr(at, size);
    if (numbers.get(0, 4) != PT_NOTE) continue;
    --left;
    const std::uint64_t bytes =
        numbers.word(offsetof(Elf32_Phdr, p_filesz), offsetof(Elf64_Phdr, p_filesz));
    const std::uint64_t alignment =
        numbers.word(offsetof(Elf32_Phdr, p_align), offsetof(Elf64_Phdr, p_align));
    const std::string notes =
        read(numbers.word(offsetof(Elf32_Phdr, p_offset), offsetof(Elf64_Phdr, p_offset)),
             std::min(bytes, kMostNoteBytes));
    numbers.bytes = notes;
    // Only notes of 8 bytes' alignment are padded to that (gABI); others to 4.
    if (auto id = id_in_notes(numbers, alignment == 8 ? 8 : 4)) return id;
  }
  return std::nullopt;
}

}  // namespace scriptorium
