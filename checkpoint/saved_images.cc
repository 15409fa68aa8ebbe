#include "checkpoint/saved_images.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <iterator>
#include <utility>

#include "checkpoint/criu.h"
#include "checkpoint/folder.h"
#include "core/base/number.h"

namespace scriptorium::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kUnknownAge = 1'000'000;

bool may_be_image(std::string_view name) {
  return name == kImage || name.starts_with(std::string(kImage) + ".");
}

// Programs make files and folders of such names as well: those without a manifest are not images.
// A link, or what cannot be opened, may be meant as one.
bool seems_image(const UserDirectory& directory, const std::string& name) {
  struct stat found{};
  if (::fstatat(directory.fd(), name.c_str(), &found, AT_SYMLINK_NOFOLLOW) != 0) return false;
  if (S_ISLNK(found.st_mode)) return true;
  if (!S_ISDIR(found.st_mode)) return false;
  const auto folder = directory.open_folder(name);
  return !folder || folder->has(kManifestFile);
}

// "checkpoint" 0, "checkpoint.old" 1, "checkpoint.old2" 2; others are of unknown age.
std::int64_t age_rank(std::string_view name) {
  if (name == kImage) return 0;
  const std::string old = std::string(kImage) + ".old";
  if (name == old) return 1;
  if (!name.starts_with(old)) return kUnknownAge;
  return parse_number<std::int64_t>(name.substr(old.size())).value_or(kUnknownAge);
}

std::string absolute(const std::string& path) {
  std::error_code error;
  std::string text = fs::absolute(path, error).lexically_normal();
  while (text.size() > 1 && text.ends_with('/')) text.pop_back();
  return text;
}

// Whose image this process may use: root may read any.
std::uint32_t expected_owner(const UserDirectory& folder) {
  const auto stat = stat_fd(folder.fd());
  return ::geteuid() == 0 && stat ? stat->owner : ::geteuid();
}

SavedImage read_image(const UserDirectory& directory, const std::string& path,
                      const std::string& name) {
  SavedImage image;
  image.directory = path;
  image.name = name;
  const auto folder = directory.open_folder(name);
  if (!folder) {
    image.manifest = tl::unexpected(Refusal{"no_image", folder.error().message()});
    return image;
  }
  image.owner = expected_owner(*folder);
  image.manifest = check_image(folder->fd(), image.owner, ImageCheck::kManifest);
  if (!image.manifest) return image;
  for (const ImageFile& file : image.manifest->files) image.bytes += file.bytes;
  image.made = parse_rfc3339(image.manifest->made);
  const auto damage = damage_of(folder->fd(), *image.manifest, image.owner, ImageCheck::kSizes);
  if (!damage)
    image.damage = damage.error().detail;
  else if (!damage->empty())
    image.damage = damage->front();
  image.resumed_by = folder->line(kResumedBy);
  image.exit_code = folder->line(kExitCode);
  image.waits = name == kImage && directory.has(kSaved) && image.damage.empty() &&
                image.resumed_by.empty() && image.exit_code.empty();
  return image;
}

std::vector<SavedImage> images_in(const UserDirectory& directory, const std::string& path,
                                  const std::string& also) {
  std::vector<std::string> names = names_in(directory.fd()).value_or(std::vector<std::string>{});
  std::erase_if(names, [&](const std::string& name) {
    return name != also && (!may_be_image(name) || !seems_image(directory, name));
  });
  std::ranges::sort(names, {},
                    [](const std::string& name) { return std::pair(age_rank(name), name); });
  std::vector<SavedImage> images;
  for (const std::string& name : names) images.push_back(read_image(directory, path, name));
  return images;
}

}  // namespace

Result<ImagePlace> ImagePlace::open(const std::string& path) {
  const std::string whole = absolute(path);
  auto directory = UserDirectory::open(whole);
  if (!directory) return directory.error();
  if (!directory->has(kManifestFile)) return ImagePlace{whole, *std::move(directory), {}};
  const std::string above = fs::path(whole).parent_path();
  directory = UserDirectory::open(above);
  if (!directory) return directory.error();
  return ImagePlace{above, *std::move(directory), fs::path(whole).filename()};
}

std::vector<SavedImage> ImagePlace::images() const { return images_in(directory, path, only); }

std::vector<SavedImage> ImagePlace::named_images() const {
  if (!only.empty()) return {read_image(directory, path, only)};
  return images();
}

std::vector<SavedImage> ImagePlace::images_below() const {
  std::vector<SavedImage> images = named_images();
  if (!only.empty()) return images;
  std::vector<std::string> names = names_in(directory.fd()).value_or(std::vector<std::string>{});
  std::ranges::sort(names);
  for (const std::string& name : names) {
    if (may_be_image(name)) continue;
    const auto folder = directory.open_folder(name);
    if (!folder) continue;
    std::ranges::move(images_in(*folder, path + "/" + name, {}), std::back_inserter(images));
  }
  return images;
}

std::optional<Refusal> why_not_resumed(const SavedImage& image, const Machine& here) {
  if (!image.manifest) return image.manifest.error();
  if (!image.exit_code.empty()) {
    return Refusal{"ended", "the program has ended by itself with exit code " + image.exit_code +
                                "; its image is not restored again"};
  }
  if (!image.damage.empty()) return Refusal{"image_damaged", image.damage};
  return mismatch(*image.manifest, here, kCriuEngine);
}

std::vector<std::string> why_kept(const std::vector<SavedImage>& images, const PruneRule& rule,
                                  std::uint32_t user) {
  std::vector<std::string> reasons;
  std::int64_t newer = 0;
  for (const SavedImage& image : images) {
    const bool is_whole = image.manifest && image.damage.empty();
    const bool is_among_newest = newer < rule.keep;  // a damaged one takes no other's place
    if (is_whole) ++newer;
    std::string reason;
    if (!image.manifest) {
      reason = "it is not an image: " + image.manifest.error().detail;
    } else if (image.owner != user) {
      reason = "it belongs to another user";
    } else if (rule.made_before && (!image.made || *image.made >= *rule.made_before)) {
      reason = "it is not that old";
    } else if (!rule.all && image.exit_code.empty() && is_among_newest) {
      reason = !is_whole     ? "it is damaged: " + image.damage
               : image.waits ? "it waits for its resume"
                             : "it is one of the newest";
      reason += " (--all removes it)";
    }
    reasons.push_back(std::move(reason));
  }
  return reasons;
}

std::uint64_t bytes_of(const UserDirectory& directory, const SavedImage& image) {
  const auto folder = directory.open_folder(image.name);
  if (!folder) return 0;
  std::uint64_t bytes = 0;
  std::error_code error;
  fs::recursive_directory_iterator entry("/proc/self/fd/" + std::to_string(folder->fd()), error);
  for (; !error && entry != fs::recursive_directory_iterator(); entry.increment(error)) {
    if (entry->is_symlink(error) || !entry->is_regular_file(error)) continue;
    const auto size = entry->file_size(error);
    if (!error) bytes += size;
  }
  return bytes;
}

Result<void> remove_image(const UserDirectory& directory, const SavedImage& image) {
  const auto folder = directory.open_folder(image.name);
  if (!folder) return folder.error();
  const auto manifest = check_image(folder->fd(), ::geteuid(), ImageCheck::kManifest);
  if (!manifest || !image.manifest || manifest->sha256 != image.manifest->sha256)
    return Error{ErrorKind::kTransient, "it is another image meanwhile"};
  if (image.name == kImage) directory.remove(kSaved);
  // The manifest last: what is left of an image that is only partly removed can be pruned.
  const auto names = names_in(folder->fd());
  if (!names) return names.error();
  for (const std::string& name : *names) {
    if (name != kManifestFile) folder->remove_tree(name);
  }
  const auto left = names_in(folder->fd());
  if (!left) return left.error();
  if (left->size() > 1)
    return Error{ErrorKind::kTransient, "not all that is in it could be removed"};
  folder->remove(kManifestFile);
  if (::unlinkat(directory.fd(), image.name.c_str(), AT_REMOVEDIR) != 0)
    return system_error("remove its folder", errno);
  return {};
}

}  // namespace scriptorium::checkpoint
