#include "core/journal/codec.h"

#include <zstd.h>

#include <new>

namespace scriptorium::journal {
namespace {

// Level 1 needs a fifth less room, but three times as long to write and five times as long to read
// back an event of 2 KB: it spends most of that time on Huffman tables, for which these texts are
// too short.
constexpr int kCompressionLevel = -1;
// More than SQLite can store; a frame that claims a larger size is damaged.
constexpr std::uint64_t kLargestFrame = std::uint64_t{1} << 31;

}  // namespace

struct Codec::Contexts {
  ZSTD_CCtx* compressor = ZSTD_createCCtx();
  ZSTD_DCtx* decompressor = ZSTD_createDCtx();
  Contexts() {
    // Only lack of memory can cause this, and the process cannot continue without it.
    if (compressor == nullptr || decompressor == nullptr) throw std::bad_alloc();
    ZSTD_CCtx_setParameter(compressor, ZSTD_c_compressionLevel, kCompressionLevel);
    ZSTD_CCtx_setParameter(compressor, ZSTD_c_checksumFlag, 1);
  }
  Contexts(const Contexts&) = delete;
  Contexts& operator=(const Contexts&) = delete;
  ~Contexts() {
    ZSTD_freeCCtx(compressor);
    ZSTD_freeDCtx(decompressor);
  }
};

Codec::Codec() : contexts_(std::make_unique<Contexts>()) {}
Codec::~Codec() = default;

std::string_view Codec::compress(std::string_view bytes) {
  const std::size_t bound = ZSTD_compressBound(bytes.size());
  if (buffer_.size() < bound || buffer_.size() > (bound + (1U << 20)) * 2)
    buffer_ = std::string(bound, '\0');
  const std::size_t size = ZSTD_compress2(contexts_->compressor, buffer_.data(), buffer_.size(),
                                          bytes.data(), bytes.size());
  if (ZSTD_isError(size) != 0)
    throw std::bad_alloc();  // the destination is large enough, so only memory was missing
  return {buffer_.data(), size};
}

std::uint64_t Codec::content_size(std::string_view frame) noexcept {
  const unsigned long long size = ZSTD_getFrameContentSize(frame.data(), frame.size());
  return size == ZSTD_CONTENTSIZE_UNKNOWN || size == ZSTD_CONTENTSIZE_ERROR ? 0 : size;
}

Result<std::string> Codec::decompress(std::string_view frame) {
  const unsigned long long size = ZSTD_getFrameContentSize(frame.data(), frame.size());
  if (size == ZSTD_CONTENTSIZE_UNKNOWN || size == ZSTD_CONTENTSIZE_ERROR)
    return Error{ErrorKind::kCorrupt, "no zstd frame"};
  return decompress(frame, size);
}

Result<std::string> Codec::decompress(std::string_view frame, std::uint64_t size) {
  if (size > kLargestFrame || ZSTD_getFrameContentSize(frame.data(), frame.size()) != size) {
    return Error{ErrorKind::kCorrupt,
                 "the zstd frame does not hold " + std::to_string(size) + " bytes"};
  }
  std::string bytes(size, '\0');
  const std::size_t got = ZSTD_decompressDCtx(contexts_->decompressor, bytes.data(), bytes.size(),
                                              frame.data(), frame.size());
  if (ZSTD_isError(got) != 0)
    return Error{ErrorKind::kCorrupt, std::string("zstd: ") + ZSTD_getErrorName(got)};
  if (got != size) return Error{ErrorKind::kCorrupt, "zstd: short frame"};
  return bytes;
}

}  // namespace scriptorium::journal
