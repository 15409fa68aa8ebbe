#pragma once

#include <cstdint>
#include <functional>
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

// The names in a directory of images, as job scripts know them.
inline constexpr const char* kImage = "checkpoint";  // the newest; the one before: checkpoint.old
inline constexpr const char* kSaved = "checkpoint_ok";  // the newest is complete
// In an image's folder.
inline constexpr const char* kExitCode = "exit_code";    // the program has ended by itself
inline constexpr const char* kResumedBy = "resumed_by";  // the job that resumed it last

// Pure. Parsing refuses with "image_damaged".
std::string manifest_text(const Manifest& manifest);
Outcome<Manifest> parse_manifest(std::string_view text);
// Pure: why this machine and engine cannot restore the image.
std::optional<Refusal> mismatch(const Manifest& manifest, const Machine& here,
                                const std::string& engine);

Machine this_machine();

// Hashes the images, *.img, of an open folder and writes them to the disk. As the owner.
Outcome<std::vector<ImageFile>> hash_images(int directory);

// Every image, *.img, of an open folder that is not as the manifest says, in a sentence each, and
// those that are missing. With kSizes, only their sizes are compared. `hashed` is given the number
// of bytes after each part that was hashed, and may be null.
enum class ImageCheck : std::uint8_t { kManifest, kSizes, kAll };
Outcome<std::vector<std::string>> damage_of(
    int directory, const Manifest& manifest, std::uint32_t uid, ImageCheck check,
    const std::function<void(std::uint64_t)>& hashed = nullptr);

// Reads the manifest of an open folder and, but for kManifest, compares every image with it.
// Refuses what does not belong to `uid` alone.
Outcome<Manifest> check_image(int directory, std::uint32_t uid, ImageCheck check);

}  // namespace scriptorium::checkpoint
