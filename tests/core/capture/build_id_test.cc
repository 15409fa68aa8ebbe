#include "core/capture/build_id.h"

#include <elf.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "core/base/text.h"
#include "tests/core/capture/readelf.h"

namespace scriptorium {
namespace {

std::optional<std::string> id_of(const std::string& file) {
  return find_build_id([&](std::uint64_t offset, std::size_t bytes) {
    return offset < file.size() ? file.substr(offset, bytes) : std::string{};
  });
}

// An ELF file of notes, in any class and byte order.
struct Made {
  bool is_wide = true;
  bool is_little_endian = true;
  std::uint32_t alignment = 4;

  std::string number(std::uint64_t value, std::size_t size) const {
    std::string text;
    for (std::size_t i = 0; i < size; ++i) text += static_cast<char>(value >> (8 * i));
    if (!is_little_endian) std::reverse(text.begin(), text.end());
    return text;
  }
  std::string word(std::uint64_t value) const { return number(value, is_wide ? 8 : 4); }
  std::string note(const std::string& owner, std::uint32_t type, const std::string& content) const {
    std::string text =
        number(owner.size(), 4) + number(content.size(), 4) + number(type, 4) + owner;
    text.resize((text.size() + alignment - 1) / alignment * alignment);
    text += content;
    text.resize((text.size() + alignment - 1) / alignment * alignment);
    return text;
  }
  std::string header(std::uint32_t type, std::uint64_t offset, std::uint64_t size) const {
    const std::string rest = word(0) + word(0) + word(size) + word(size);
    return is_wide ? number(type, 4) + number(4, 4) + word(offset) + rest + word(alignment)
                   : number(type, 4) + word(offset) + rest + number(4, 4) + word(alignment);
  }
  std::string file(const std::vector<std::string>& segments) const {
    const std::size_t head = is_wide ? sizeof(Elf64_Ehdr) : sizeof(Elf32_Ehdr);
    const std::size_t entry = is_wide ? sizeof(Elf64_Phdr) : sizeof(Elf32_Phdr);
    std::string text = std::string(ELFMAG) + static_cast<char>(is_wide ? 2 : 1) +
                       static_cast<char>(is_little_endian ? 1 : 2) + std::string(10, '\1') +
                       number(ET_EXEC, 2) + number(0, 2) + number(1, 4) + word(0) + word(head) +
                       word(0) + number(0, 4) + number(head, 2) + number(entry, 2) +
                       number(segments.size() + 1, 2) + number(0, 6);
    std::uint64_t offset = head + entry * (segments.size() + 1);
    text += header(PT_LOAD, 0, offset);
    for (const std::string& segment : segments) {
      text += header(PT_NOTE, offset, segment.size());
      offset += segment.size();
    }
    for (const std::string& segment : segments) text += segment;
    return text;
  }
};

const std::string kGnu("GNU\0", 4);
const std::string kId("\x12\x34\xab\x00\xff", 5);

TEST(BuildIdTest, IsWhatReadelfSaysOfAProgramOfThisMachine) {
  const std::string expected =
      test::readelf_build_id(std::filesystem::read_symlink("/proc/self/exe"));
  if (expected.empty()) GTEST_SKIP() << "SKIPPED: no readelf, or this program has no build id";
  std::ifstream self("/proc/self/exe", std::ios::binary);
  std::ostringstream bytes;
  bytes << self.rdbuf();
  EXPECT_EQ(hex_encode(id_of(bytes.str()).value_or("")), expected);
}

TEST(BuildIdTest, IsFoundInEachClassByteOrderAndAlignment) {
  for (const bool is_wide : {false, true}) {
    for (const bool is_little_endian : {false, true}) {
      for (const std::uint32_t alignment : {4U, 8U}) {
        const Made made{is_wide, is_little_endian, alignment};
        const std::string other = made.note("stapsdt", NT_GNU_BUILD_ID, "xyz");
        const std::string abi = made.note(kGnu, NT_GNU_ABI_TAG, std::string(16, 'x'));
        EXPECT_EQ(id_of(made.file({other, abi + made.note(kGnu, NT_GNU_BUILD_ID, kId)})), kId)
            << is_wide << is_little_endian << alignment;
        EXPECT_EQ(id_of(made.file({other, abi})), std::nullopt);
      }
    }
  }
}

TEST(BuildIdTest, IsNothingWhereTheFileIsCutOrDamaged) {
  const Made made;
  const std::string whole = made.file({made.note(kGnu, NT_GNU_BUILD_ID, kId)});
  ASSERT_EQ(id_of(whole), kId);
  for (std::size_t size = 0; size + 4 < whole.size(); ++size)
    EXPECT_EQ(id_of(whole.substr(0, size)), std::nullopt) << size;
  EXPECT_EQ(id_of("#!/bin/sh\nexec sleep 1\n" + whole), std::nullopt);
  for (const std::size_t size : {std::size_t{0}, std::size_t{65}})
    EXPECT_EQ(id_of(made.file({made.note(kGnu, NT_GNU_BUILD_ID, std::string(size, 'x'))})),
              std::nullopt);
  // Sizes and places that add up to more than there is.
  std::string huge = made.note(kGnu, NT_GNU_BUILD_ID, kId);
  huge.replace(0, 8, std::string(8, '\xff'));
  EXPECT_EQ(id_of(made.file({huge})), std::nullopt);
  std::string far = whole;
  far.replace(offsetof(Elf64_Ehdr, e_phoff), 8, std::string(8, '\xff'));
  EXPECT_EQ(id_of(far), std::nullopt);
}

TEST(BuildIdTest, ReadsLittleOfAFileThatSaysItHasManyAndLargeNotes) {
  const Made made;
  std::string file = made.file(std::vector<std::string>(600, "x"));
  for (std::size_t at = 64; at + 56 <= 64 + 601 * 56; at += 56)
    file.replace(at + offsetof(Elf64_Phdr, p_filesz), 8, made.word(std::uint64_t{1} << 40));
  std::size_t reads = 0;
  std::size_t bytes = 0;
  const auto id = find_build_id([&](std::uint64_t offset, std::size_t size) {
    ++reads;
    bytes += size;
    return offset < file.size() ? file.substr(offset, size) : std::string{};
  });
  EXPECT_EQ(id, std::nullopt);
  EXPECT_LE(reads, 18U);
  EXPECT_LE(bytes, std::size_t{256} << 10);
}

}  // namespace
}  // namespace scriptorium
