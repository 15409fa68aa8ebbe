#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace scriptorium::checkpoint {

// Pure: where the next byte would have been written to a file when the image was made, by criu's
// files.img: the largest position of the descriptors that were open for this path. Nothing if it
// was not open, or the text is not such a file. Its format, as criu 3.12 to 4.2 write it: 8 bytes,
// then each entry as a length of 4 bytes and a protobuf message file_entry, whose field 3 is
// reg_file_entry (3: position, 6: path).
std::optional<std::uint64_t> position_in_image(std::string_view files_image, std::string_view path);

}  // namespace scriptorium::checkpoint
