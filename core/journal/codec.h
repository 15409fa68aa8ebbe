#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "core/base/result.h"

namespace scriptorium::journal {

// zstd frames with a content checksum. Keeps its working memory. Threads: one at a time.
class Codec {
 public:
  Codec();
  ~Codec();
  Codec(const Codec&) = delete;
  Codec& operator=(const Codec&) = delete;

  std::string_view compress(std::string_view bytes);  // valid until the next call
  // kCorrupt if the frame is damaged, or holds another number of bytes than `size`.
  Result<std::string> decompress(std::string_view frame, std::uint64_t size);
  Result<std::string> decompress(std::string_view frame);
  // The frame's uncompressed size in bytes; 0 if it is not a frame.
  static std::uint64_t content_size(std::string_view frame) noexcept;

 private:
  struct Contexts;
  std::unique_ptr<Contexts> contexts_;
  std::string buffer_;
};

}  // namespace scriptorium::journal
