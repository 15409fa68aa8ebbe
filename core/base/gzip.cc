#include "core/base/gzip.h"

#include <zlib.h>

#include <limits>
#include <new>
#include <stdexcept>

namespace scriptorium {

std::string gzip(std::string_view bytes) {
  if (bytes.size() > std::numeric_limits<uInt>::max())
    throw std::length_error("more than 4 GiB for one gzip");
  z_stream stream{};
  // 16 + 15: a gzip header, the largest window.
  if (deflateInit2(&stream, 1, Z_DEFLATED, 16 + 15, 8, Z_DEFAULT_STRATEGY) != Z_OK)
    throw std::bad_alloc();
  std::string result(deflateBound(&stream, bytes.size()), '\0');
  // zlib 1.2 declares its input without const unless ZLIB_CONST is set, but does not write to it.
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(result.data());
  stream.avail_out = static_cast<uInt>(result.size());
  const int code = deflate(&stream, Z_FINISH);
  result.resize(stream.total_out);
  deflateEnd(&stream);
  if (code != Z_STREAM_END)
    throw std::runtime_error("zlib does not end a stream that it has room for");
  result.shrink_to_fit();
  return result;
}

}  // namespace scriptorium
