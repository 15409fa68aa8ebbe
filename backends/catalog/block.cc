#include "backends/catalog/block.h"

#include <zstd.h>

#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <utility>
#include <vector>

namespace scriptorium::catalog {
namespace {

constexpr std::size_t kSmallBytes = 16 << 10;
constexpr int kHashLogOfSmall = 12;
constexpr std::size_t kMostKeptBytes = 512 << 10;  // of the buffer of a thread

struct FreeCompressor {
  void operator()(ZSTD_CCtx* context) const noexcept { ZSTD_freeCCtx(context); }
};
struct FreeDecompressor {
  void operator()(ZSTD_DCtx* context) const noexcept { ZSTD_freeDCtx(context); }
};

Error damaged(const std::string& why) { return {ErrorKind::kCorrupt, why}; }

}  // namespace

void put_number(std::string& into, std::uint64_t number) {
  while (number >= 0x80) {
    into += static_cast<char>(number | 0x80);
    number >>= 7;
  }
  into += static_cast<char>(number);
}

std::optional<std::uint64_t> take_number(std::string_view bytes, std::size_t& at) {
  std::uint64_t number = 0;
  for (unsigned shift = 0; shift < 64 && at < bytes.size(); shift += 7) {
    const auto byte = static_cast<unsigned char>(bytes[at++]);
    number |= std::uint64_t{byte & 0x7fU} << shift;
    if (byte < 0x80) return number;
  }
  return std::nullopt;
}

std::string pack_block(const std::vector<std::string_view>& contents, int level,
                       std::string_view prefix) {
  std::size_t size = 16 * (contents.size() + 1);
  for (const std::string_view content : contents) size += content.size();
  std::string raw;
  raw.reserve(size);
  put_number(raw, contents.size());
  for (const std::string_view content : contents) put_number(raw, content.size());
  for (const std::string_view content : contents) raw += content;
  // Creating a context costs more than packing a script.
  thread_local const std::unique_ptr<ZSTD_CCtx, FreeCompressor> context{ZSTD_createCCtx()};
  ZSTD_CCtx_reset(context.get(), ZSTD_reset_session_and_parameters);
  ZSTD_CCtx_setParameter(context.get(), ZSTD_c_compressionLevel, level);
  ZSTD_CCtx_setParameter(context.get(), ZSTD_c_checksumFlag, 1);
  // A table of the usual size takes longer to clear than a small content to pack.
  if (level == kPendingLevel && raw.size() + prefix.size() <= kSmallBytes)
    ZSTD_CCtx_setParameter(context.get(), ZSTD_c_hashLog, kHashLogOfSmall);
  if (!prefix.empty()) ZSTD_CCtx_refPrefix(context.get(), prefix.data(), prefix.size());
  thread_local std::vector<char> kept;
  std::vector<char> large;
  const std::size_t most = ZSTD_compressBound(raw.size());
  std::vector<char>& into = most <= kMostKeptBytes ? kept : large;
  if (into.size() < most) into.resize(most);
  const std::size_t packed =
      ZSTD_compress2(context.get(), into.data(), into.size(), raw.data(), raw.size());
  if (ZSTD_isError(packed) != 0) throw std::bad_alloc();  // nothing else can be wrong
  return {into.data(), packed};
}

std::string pack_ids(const std::vector<std::int64_t>& ids) {
  std::string packed;
  std::uint64_t before = 0;
  for (const std::int64_t id : ids) {
    const auto step =
        static_cast<std::int64_t>(static_cast<std::uint64_t>(id) - std::exchange(before, id));
    put_number(packed,
               (static_cast<std::uint64_t>(step) << 1) ^ static_cast<std::uint64_t>(step >> 63));
  }
  return packed;
}

std::optional<std::vector<std::int64_t>> unpack_ids(std::string_view packed) {
  std::vector<std::int64_t> ids;
  std::uint64_t before = 0;
  for (std::size_t at = 0; at < packed.size();) {
    const auto number = take_number(packed, at);
    if (!number) return std::nullopt;
    before += (*number >> 1) ^ (~(*number & 1) + 1);
    ids.push_back(static_cast<std::int64_t>(before));
  }
  return ids;
}

Result<Block> Block::unpack(std::string_view packed, std::size_t most_bytes,
                            std::string_view prefix) {
  Block block;
  if (auto unpacked = block.unpack_into(packed, most_bytes, prefix); !unpacked)
    return unpacked.error();
  return block;
}

Result<void> Block::unpack_again(std::string_view packed, std::size_t most_bytes) {
  auto unpacked = unpack_into(packed, most_bytes, {});
  if (!unpacked) *this = Block();
  return unpacked;
}

Result<void> Block::unpack_into(std::string_view packed, std::size_t most_bytes,
                                std::string_view prefix) {
  const unsigned long long size = ZSTD_getFrameContentSize(packed.data(), packed.size());
  if (size == ZSTD_CONTENTSIZE_ERROR || size == ZSTD_CONTENTSIZE_UNKNOWN)
    return damaged("not a zstd frame with a size");
  if (size > most_bytes) return damaged("states a size of " + std::to_string(size) + " bytes");
  raw_.resize(size);
  ends_.clear();
  thread_local const std::unique_ptr<ZSTD_DCtx, FreeDecompressor> context{ZSTD_createDCtx()};
  ZSTD_DCtx_reset(context.get(), ZSTD_reset_session_and_parameters);
  if (!prefix.empty()) ZSTD_DCtx_refPrefix(context.get(), prefix.data(), prefix.size());
  const std::size_t got =
      ZSTD_decompressDCtx(context.get(), raw_.data(), raw_.size(), packed.data(), packed.size());
  if (ZSTD_isError(got) != 0) return damaged(std::string("zstd: ") + ZSTD_getErrorName(got));
  if (got != size) return damaged("is shorter than it states");

  std::size_t at = 0;
  const auto count = take_number(raw_, at);
  // Each content has at least one byte of size.
  if (!count || *count > raw_.size()) return damaged("states an impossible number of contents");
  ends_.reserve(*count);
  for (std::uint64_t i = 0; i < *count; ++i) {
    const auto number = take_number(raw_, at);
    if (!number) return damaged("the list of sizes ends early");
    ends_.push_back(*number);
  }
  first_ = at;
  for (std::size_t& end : ends_) {
    if (end > raw_.size() - at) return damaged("a content ends beyond the block");
    at += end;
    end = at;
  }
  if (at != raw_.size()) return damaged("has bytes after its last content");
  return {};
}

}  // namespace scriptorium::catalog
