#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/image.h"
#include "checkpoint/user_directory.h"
#include "core/base/time.h"

// The images that a user has, for the user's own commands. No job and no service takes part: all is
// read with the caller's rights, by descriptors, and no link in an image's place is followed.
namespace scriptorium::checkpoint {

// A folder in a directory of images.
struct SavedImage {
  std::string directory;  // absolute path
  std::string name;       // "checkpoint", "checkpoint.old"
  std::uint32_t owner = 0;
  Outcome<Manifest> manifest;  // otherwise it is not an image, or not the caller's; root reads any
  std::uint64_t bytes = 0;
  std::optional<Timestamp> made;
  std::string damage;      // why it is not whole, by names and sizes; "" = it seems to be
  std::string resumed_by;  // the job that resumed it last; "" = it was not resumed
  std::string exit_code;   // "" = its program has not ended by itself
  bool waits = false;      // the newest, complete, and not resumed yet

  std::string path() const { return directory + "/" + name; }
};

// A directory that was named, or the one that holds the image that was named.
struct ImagePlace {
  std::string path;  // absolute
  UserDirectory directory;
  std::string only;  // the image that was named; "" = all in the directory
  static Result<ImagePlace> open(const std::string& path);

  // The newest first, as their names say. Those that were not named as well.
  std::vector<SavedImage> images() const;
  // Only what was named.
  std::vector<SavedImage> named_images() const;
  // Those of the directory and of the folders in it.
  std::vector<SavedImage> images_below() const;
};

// Why this node would not resume it, without reading the image: it has ended, is damaged, or is of
// another node or processor.
std::optional<Refusal> why_not_resumed(const SavedImage& image, const Machine& here);

// Which images a user wants to be rid of.
struct PruneRule {
  std::int64_t keep = 1;  // the newest of a directory, unless their programs have ended
  std::optional<Timestamp> made_before;
  bool all = false;  // also those
};
// Pure: for each image of a directory, newest first, why `user` keeps it; "" = it is removed.
std::vector<std::string> why_kept(const std::vector<SavedImage>& images, const PruneRule& rule,
                                  std::uint32_t user);
// The bytes of all files in its folder, also of those that the engine has not made.
std::uint64_t bytes_of(const UserDirectory& directory, const SavedImage& image);
// Removes what is still the same image, and with the newest the mark that it waits. The caller
// holds the directory's lock.
Result<void> remove_image(const UserDirectory& directory, const SavedImage& image);

}  // namespace scriptorium::checkpoint
