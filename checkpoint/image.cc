#include "checkpoint/image.h"

#include <fcntl.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <nlohmann/json.hpp>

#include "checkpoint/folder.h"
#include "checkpoint/processes.h"
#include "core/base/ascii.h"
#include "core/base/file.h"
#include "core/base/sha256.h"
#include "core/daemon/process.h"

namespace scriptorium::checkpoint {
namespace {

using Json = nlohmann::json;

constexpr int kFormat = 1;
// Its owner can write it, so this bounds the memory that reading it takes.
constexpr std::uint64_t kMostManifest = 4U << 20;
constexpr std::size_t kChunk = 64U << 10;
constexpr int kReadFlags = O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK;

tl::unexpected<Refusal> damaged(std::string detail) {
  return tl::unexpected(Refusal{"image_damaged", std::move(detail)});
}

Outcome<std::vector<std::string>> image_names(int directory) {
  auto names = names_in(directory);
  if (!names) return damaged(names.error().message());
  std::erase_if(*names, [](const std::string& name) { return !name.ends_with(".img"); });
  std::ranges::sort(*names);
  return *std::move(names);
}

// `uid`: whose file it must be; absent: anybody's. kSizes: not hashed.
Outcome<ImageFile> read_image(int directory, const std::string& name, std::optional<uid_t> uid,
                              ImageCheck check = ImageCheck::kAll,
                              const std::function<void(std::uint64_t)>& hashed = nullptr) {
  const UniqueFd file(::openat(directory, name.c_str(), kReadFlags));
  if (!file) return damaged(system_error(name, errno).message());
  const auto stat = stat_fd(file.get());
  if (!stat || !stat->is_regular() || (uid && stat->owner != *uid))
    return damaged(name + " is not a file of the job's owner");
  if (check == ImageCheck::kSizes) return ImageFile{name, stat->size, {}};
  // A disk that writes them while they are hashed needs one commit for all of them, at the first
  // fsync. syncfs() would also wait for what other users have written.
  if (!uid) ::sync_file_range(file.get(), 0, 0, SYNC_FILE_RANGE_WRITE);
  Sha256 hash;
  std::array<char, kChunk>
      chunk;  // NOLINT(cppcoreguidelines-pro-type-member-init): read() fills it
  std::uint64_t bytes = 0;
  while (true) {
    const ssize_t got = ::read(file.get(), chunk.data(), chunk.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return damaged(system_error("read " + name, errno).message());
    if (got == 0) break;
    hash.update({chunk.data(), static_cast<std::size_t>(got)});
    bytes += static_cast<std::uint64_t>(got);
    if (hashed) hashed(static_cast<std::uint64_t>(got));
  }
  return ImageFile{name, bytes, hash.finish_hex()};
}

std::string value_in(std::string_view text, std::string_view key) {
  while (!text.empty()) {
    std::string_view value = take_until(text, '\n');
    const std::string_view name = take_until(value, ':');
    if (trim(name, " \t") == key) return std::string(trim(value));
  }
  return {};
}

}  // namespace

std::string manifest_text(const Manifest& manifest) {
  Json files = Json::array();
  std::uint64_t bytes = 0;
  for (const ImageFile& file : manifest.files) {
    files.push_back({{"name", file.name}, {"bytes", file.bytes}, {"sha256", file.sha256}});
    bytes += file.bytes;
  }
  const Json json{{"format", kFormat},
                  {"job", manifest.job},
                  {"engine", manifest.engine},
                  {"engine_version", manifest.engine_version},
                  {"node", manifest.machine.node},
                  {"kernel", manifest.machine.kernel},
                  {"cpu_model", manifest.machine.cpu_model},
                  {"cpu_flags", manifest.machine.cpu_flags},
                  {"node_only", manifest.node_only},
                  {"made", manifest.made},
                  {"processes", manifest.processes},
                  {"bytes", bytes},
                  {"files", std::move(files)}};
  return json.dump(1, ' ', true, Json::error_handler_t::replace) + "\n";
}

Outcome<Manifest> parse_manifest(std::string_view text) try {
  const Json json = Json::parse(text);
  if (json.at("format").get<int>() != kFormat)
    return damaged("the manifest's format is not one that this version knows");
  Manifest manifest;
  manifest.sha256 = sha256_hex(text);
  json.at("job").get_to(manifest.job);
  json.at("engine").get_to(manifest.engine);
  json.at("engine_version").get_to(manifest.engine_version);
  json.at("node").get_to(manifest.machine.node);
  json.at("kernel").get_to(manifest.machine.kernel);
  json.at("cpu_model").get_to(manifest.machine.cpu_model);
  json.at("cpu_flags").get_to(manifest.machine.cpu_flags);
  json.at("node_only").get_to(manifest.node_only);
  json.at("made").get_to(manifest.made);
  json.at("processes").get_to(manifest.processes);
  for (const Json& file : json.at("files")) {
    manifest.files.push_back({file.at("name").get<std::string>(),
                              file.at("bytes").get<std::uint64_t>(),
                              file.at("sha256").get<std::string>()});
  }
  return manifest;
} catch (const Json::exception& e) {
  return damaged(std::string("the manifest cannot be read: ") + e.what());
}

std::optional<Refusal> mismatch(const Manifest& manifest, const Machine& here,
                                const std::string& engine) {
  if (manifest.engine != engine)
    return Refusal{"other_engine", "the image is of engine " + manifest.engine};
  if (!manifest.node_only.empty() && manifest.machine.node != here.node) {
    return Refusal{"other_node", "the image can be restored on " + manifest.machine.node +
                                     " only: " + manifest.node_only};
  }
  std::string missing;
  for (const std::string& flag : manifest.machine.cpu_flags) {
    if (std::ranges::find(here.cpu_flags, flag) == here.cpu_flags.end()) missing += " " + flag;
  }
  if (!missing.empty()) {
    return Refusal{"other_cpu", "the image is of a " + manifest.machine.cpu_model +
                                    "; this node's processor lacks" + missing};
  }
  return std::nullopt;
}

Machine this_machine() {
  Machine machine{.node = process::host_name(), .kernel = {}, .cpu_model = {}, .cpu_flags = {}};
  utsname name{};
  if (::uname(&name) == 0) machine.kernel = name.release;
  const std::string text = read_proc("/proc/cpuinfo");
  machine.cpu_model = value_in(text, "model name");
  std::string flags = value_in(text, "flags");
  if (flags.empty()) flags = value_in(text, "Features");
  for (std::string_view rest = flags; !rest.empty();)
    machine.cpu_flags.emplace_back(take_until(rest, ' '));
  return machine;
}

Outcome<std::vector<ImageFile>> hash_images(int directory) {
  const auto names = image_names(directory);
  if (!names) return tl::unexpected(names.error());
  std::vector<ImageFile> files;
  for (const std::string& name : *names) {
    auto file = read_image(directory, name, std::nullopt);
    if (!file) return tl::unexpected(file.error());
    files.push_back(*std::move(file));
  }
  for (const std::string& name : *names) {
    const UniqueFd file(::openat(directory, name.c_str(), kReadFlags));
    if (!file || ::fsync(file.get()) != 0)
      return tl::unexpected(Refusal{"no_space", system_error("fsync " + name, errno).message()});
  }
  return files;
}

Outcome<std::vector<std::string>> damage_of(int directory, const Manifest& manifest,
                                            std::uint32_t uid, ImageCheck check,
                                            const std::function<void(std::uint64_t)>& hashed) {
  const auto names = image_names(directory);
  if (!names) return tl::unexpected(names.error());
  std::vector<std::string> damage;
  for (const ImageFile& file : manifest.files) {
    if (!std::ranges::binary_search(*names, file.name)) damage.push_back(file.name + " is missing");
  }
  for (const std::string& name : *names) {
    const auto meant = std::ranges::find(manifest.files, name, &ImageFile::name);
    if (meant == manifest.files.end()) {
      damage.push_back(name + " is not in the manifest");
      continue;
    }
    const auto found = read_image(directory, name, uid, check, hashed);
    if (!found) {
      damage.push_back(found.error().detail);
    } else if (found->bytes != meant->bytes ||
               (check == ImageCheck::kAll && found->sha256 != meant->sha256)) {
      damage.push_back(name + " is not as it was when it was made");
    }
  }
  return damage;
}

Outcome<Manifest> check_image(int directory, std::uint32_t uid, ImageCheck check) {
  const auto folder = stat_fd(directory);
  if (!folder || folder->owner != uid || (folder->mode & 0077U) != 0)
    return damaged("the image's folder is not one that only the job's owner can enter");
  const UniqueFd file(::openat(directory, kManifestFile, kReadFlags));
  const auto stat = stat_fd(file.get());
  if (!file || !stat || !stat->is_regular() || stat->owner != uid)
    return damaged("there is no manifest of the job's owner");
  const auto text = read_fd(file.get(), kMostManifest);
  auto manifest = text ? parse_manifest(*text) : damaged(text.error().message());
  if (!manifest || check == ImageCheck::kManifest) return manifest;
  const auto damage = damage_of(directory, *manifest, uid, check);
  if (!damage) return tl::unexpected(damage.error());
  if (!damage->empty()) return damaged(damage->front());
  return manifest;
}

}  // namespace scriptorium::checkpoint
