#include "core/plugin/elf.h"

#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>

#include "core/base/file.h"
#include "core/base/text.h"

namespace scriptorium {
namespace {

using Header = ElfW(Ehdr);
using Segment = ElfW(Phdr);
using Section = ElfW(Shdr);

Error refused(const std::string& found, const std::string& needed, const std::string& remedy) {
  return {ErrorKind::kInvalidConfig, "found " + found + "; needed " + needed + "; " + remedy};
}

template <typename T>
std::optional<T> read_at(int fd, std::uint64_t offset) {
  T result;
  char* into = reinterpret_cast<char*>(&result);
  for (std::size_t have = 0; have < sizeof(T);) {
    const ssize_t got =
        ::pread(fd, into + have, sizeof(T) - have, static_cast<off_t>(offset + have));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return std::nullopt;
    have += static_cast<std::size_t>(got);
  }
  return result;
}

// The end of a part of the file; nothing if the sum overflows.
std::optional<std::uint64_t> end_of(std::uint64_t offset, std::uint64_t size) {
  std::uint64_t end = 0;
  if (__builtin_add_overflow(offset, size, &end)) return std::nullopt;
  return end;
}

// Compares the headers of one file with its size.
class ElfCheck {
 public:
  ElfCheck(int fd, std::uint64_t size) : fd_(fd), size_(size) {}

  Result<void> run() const {
    if (size_ < sizeof(Header)) return not_a_library();
    const auto header = read_at<Header>(fd_, 0);
    if (!header) return truncated(sizeof(Header));
    if (std::memcmp(header->e_ident, ELFMAG, SELFMAG) != 0) return not_a_library();
    if (auto same = right_machine(*header); !same) return same;
    if (header->e_type != ET_DYN) {
      return refused("an ELF file of type " + std::to_string(header->e_type),
                     "a shared library (ELF type 3)",
                     "link the plugin with scriptorium_add_plugin()");
    }
    if (auto whole = segments(*header); !whole) return whole;
    return sections(*header);
  }

 private:
  static Error not_a_library() {
    return refused("a file that is not an ELF library", "a shared library",
                   "build or install the plugin again");
  }
  Error truncated(std::optional<std::uint64_t> needed) const {
    return refused(
        "a truncated library of " + std::to_string(size_) + " bytes",
        needed ? "at least " + std::to_string(*needed) + " bytes" : std::string{"intact headers"},
        "build or install the plugin again");
  }

  // Our own executable has the class and byte order that this machine loads.
  static Result<void> right_machine(const Header& header) {
    const UniqueFd self{::open("/proc/self/exe", O_RDONLY | O_CLOEXEC)};
    const auto own = self ? read_at<Header>(self.get(), 0) : std::nullopt;
    if (!own) return {};  // dlopen() makes the same comparison, with a less helpful message
    const auto text = [](const Header& h) {
      return "class " + std::to_string(h.e_ident[EI_CLASS]) + ", byte order " +
             std::to_string(h.e_ident[EI_DATA]) + ", machine " + std::to_string(h.e_machine);
    };
    if (header.e_ident[EI_CLASS] == own->e_ident[EI_CLASS] &&
        header.e_ident[EI_DATA] == own->e_ident[EI_DATA] && header.e_machine == own->e_machine) {
      return {};
    }
    return refused("a library for another machine (ELF " + text(header) + ")", text(*own),
                   "build the plugin on this machine");
  }

  Result<void> inside(std::uint64_t offset, std::uint64_t size) const {
    const auto end = end_of(offset, size);
    if (!end || *end > size_) return truncated(end);
    return {};
  }

  Result<void> segments(const Header& header) const {
    if (header.e_phentsize != sizeof(Segment) || header.e_phnum == 0) return not_a_library();
    if (auto ok = inside(header.e_phoff, std::uint64_t{header.e_phnum} * sizeof(Segment)); !ok)
      return ok;
    for (std::uint64_t i = 0; i < header.e_phnum; ++i) {
      const auto segment = read_at<Segment>(fd_, header.e_phoff + i * sizeof(Segment));
      if (!segment) return truncated(std::nullopt);
      if (auto ok = inside(segment->p_offset, segment->p_filesz); !ok) return ok;
    }
    return {};
  }

  // Sections are not mapped, but they are at the end of the file, so this detects truncation.
  Result<void> sections(const Header& header) const {
    if (header.e_shoff == 0 || header.e_shnum == 0) return {};
    if (header.e_shentsize != sizeof(Section)) return not_a_library();
    if (auto ok = inside(header.e_shoff, std::uint64_t{header.e_shnum} * sizeof(Section)); !ok)
      return ok;
    for (std::uint64_t i = 0; i < header.e_shnum; ++i) {
      const auto section = read_at<Section>(fd_, header.e_shoff + i * sizeof(Section));
      if (!section) return truncated(std::nullopt);
      if (section->sh_type == SHT_NOBITS || section->sh_type == SHT_NULL) continue;
      if (auto ok = inside(section->sh_offset, section->sh_size); !ok) return ok;
    }
    return {};
  }

  int fd_;
  std::uint64_t size_;
};

}  // namespace

Result<void> check_elf(const std::string& file) {
  // O_NONBLOCK: a FIFO with the plugin's name must not block us.
  const UniqueFd fd{::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (!fd) {
    return refused("a file that cannot be read (" + system_error("open", errno).message() + ")",
                   "a readable shared library", "chmod a+r it");
  }
  const auto stat = stat_fd(fd.get());
  if (!stat) return Error{ErrorKind::kInvalidConfig, stat.error().message()};
  if (!stat->is_regular())
    return refused("something that is not a regular file", "a shared library",
                   "put the plugin's library there");
  return ElfCheck(fd.get(), stat->size).run();
}

}  // namespace scriptorium
