#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"

// A block: several contents of one owner and kind, compressed together. Before compression: their
// number and the size of each as LEB128 integers, then their bytes one after another. Compressed:
// one zstd frame with its content size and checksum (RFC 8878). A pending content is packed the
// same way as a block of one, often against the bytes of another one, its prefix: the frame then
// has only what differs, and can only be unpacked with the same prefix.
namespace scriptorium::catalog {

// zstd's. What is sealed while events arrive is packed once more when its segment is finished.
inline constexpr int kPendingLevel = 1;
inline constexpr int kSealedLevel = 3;
inline constexpr int kFinishedLevel = 6;

std::string pack_block(const std::vector<std::string_view>& contents, int level,
                       std::string_view prefix = {});

// One LEB128 integer; the second takes it from `at` on and moves `at` behind it, and gives nothing
// if the bytes end before.
void put_number(std::string& into, std::uint64_t number);
std::optional<std::uint64_t> take_number(std::string_view bytes, std::size_t& at);

// `blocks.ids`: the differences between neighbours as LEB128 integers, the first from 0; their sign
// is the lowest bit.
std::string pack_ids(const std::vector<std::int64_t>& ids);
std::optional<std::vector<std::int64_t>> unpack_ids(std::string_view packed);

// An unpacked block. The views point into it.
class Block {
 public:
  // kCorrupt, with what is wrong, for bytes that pack_block() did not make. Never allocates more
  // than `most_bytes`.
  static Result<Block> unpack(std::string_view packed,
                              std::size_t most_bytes = std::size_t{1} << 30,
                              std::string_view prefix = {});

  // The same into this block, whose memory is used again. After an error it is empty.
  Result<void> unpack_again(std::string_view packed, std::size_t most_bytes);

  std::size_t size() const noexcept { return ends_.size(); }
  std::string_view operator[](std::size_t place) const noexcept {
    const std::size_t begin = place == 0 ? first_ : ends_[place - 1];
    return std::string_view(raw_).substr(begin, ends_[place] - begin);
  }
  // All contents, without separators.
  std::string_view all() const noexcept { return std::string_view(raw_).substr(first_); }

 private:
  Result<void> unpack_into(std::string_view packed, std::size_t most_bytes,
                           std::string_view prefix);

  std::string raw_;
  std::vector<std::size_t> ends_;
  std::size_t first_ = 0;
};

}  // namespace scriptorium::catalog
