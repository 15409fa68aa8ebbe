#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/engine.h"

// An image's manifest, checkpoint/manifest.json, which says what the image is and where it can be
// restored. It belongs to the user, as the image does, so it protects against damage, not against
// its owner: an image is restored with its owner's rights only.
namespace scriptorium::checkpoint {

struct ImageFile {
  std::string name;
  std::uint64_t bytes = 0;
  std::string sha256;
  bool operator==(const ImageFile&) const = default;
};

// What a machine must have for an image that was made on it.
struct Machine {
  std::string node;
  std::string kernel;
  std::string cpu_model;
  std::vector<std::string> cpu_flags;
};

struct Manifest {
  std::string job;
  std::string engine;
  std::string engine_version;
  Machine machine;
  std::string node_only;  // why it can be restored on this node only; "" = on any
  std::string made;       // RFC 3339
  std::uint64_t processes = 0;
  std::vector<ImageFile> files;
  std::string sha256;  // of the text that was parsed
};
inline constexpr const char* kManifestFile = "manifest.json";

// Pure. Parsing refuses with "image_damaged".
std::string manifest_text(const Manifest& manifest);
Outcome<Manifest> parse_manifest(std::string_view text);
// Pure: why this machine and engine cannot restore the image.
std::optional<Refusal> mismatch(const Manifest& manifest, const Machine& here,
                                const std::string& engine);

Machine this_machine();

// Hashes the images, *.img, of an open folder and writes them to the disk. As the owner.
Outcome<std::vector<ImageFile>> hash_images(int directory);

// Reads the manifest of an open folder and, with kAll, compares every image with it. Refuses what
// does not belong to `uid` alone.
enum class ImageCheck : std::uint8_t { kManifest, kAll };
Outcome<Manifest> check_image(int directory, std::uint32_t uid, ImageCheck check);

}  // namespace scriptorium::checkpoint
