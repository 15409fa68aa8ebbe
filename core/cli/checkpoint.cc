// scriptorium checkpoint: a user's own images of programs. It needs neither the configuration nor a
// daemon: all that it says is in the directories. Where there is an archive, `list` asks it which
// directories that are.
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/image.h"
#include "checkpoint/saved_images.h"
#include "core/base/text.h"
#include "core/cli/archived_images.h"
#include "core/cli/commands.h"
#include "core/cli/common.h"
#include "core/cli/exit_codes.h"
#include "core/cli/fitted_table.h"
#include "core/cli/progress_line.h"

namespace scriptorium::cli {
namespace {

using checkpoint::ImagePlace;
using checkpoint::SavedImage;
using Json = nlohmann::ordered_json;

constexpr std::size_t kMostPath = 4096;

std::string path_of(const SavedImage& image) { return printable(image.path(), kMostPath); }

std::string state_of(const SavedImage& image) {
  if (!image.manifest) return "not an image";
  if (!image.damage.empty()) return "damaged";
  if (!image.exit_code.empty()) return "ended, exit code " + printable(image.exit_code, 20);
  if (!image.resumed_by.empty()) return "resumed by job " + printable(image.resumed_by, 40);
  return image.waits ? "waits for its resume" : "";
}

Paint paint_of(const SavedImage& image) {
  if (!image.manifest || !image.damage.empty()) return Paint::kBad;
  return image.waits ? Paint::kGood : Paint::kNone;
}

// Where it can be resumed, if not everywhere.
std::string place_of(const SavedImage& image, const checkpoint::Machine& here) {
  if (!image.manifest) return {};
  const auto refusal = checkpoint::why_not_resumed(image, here);
  if (refusal && refusal->reason.starts_with("other_")) return refusal->reason;
  return image.manifest->node_only.empty() ? "" : "this node only";
}

Json image_json(const SavedImage& image, const checkpoint::Machine& here) {
  Json json{{"path", image.path()}, {"directory", image.directory}, {"name", image.name}};
  if (image.manifest) {
    json["job"] = image.manifest->job;
    json["made"] = image.manifest->made;
    json["bytes"] = image.bytes;
    json["engine"] = image.manifest->engine;
    json["engine_version"] = image.manifest->engine_version;
    json["processes"] = image.manifest->processes;
    json["node"] = image.manifest->machine.node;
    if (!image.manifest->node_only.empty()) json["node_only"] = image.manifest->node_only;
    json["waits"] = image.waits;
    if (!image.resumed_by.empty()) json["resumed_by"] = image.resumed_by;
    if (!image.exit_code.empty()) json["exit_code"] = image.exit_code;
  }
  if (const auto refusal = checkpoint::why_not_resumed(image, here))
    json["not_resumed"] = {{"reason", refusal->reason}, {"detail", refusal->detail}};
  return json;
}

void print_json(const Json& json, Console& console) {
  console.out << printable_json(json.dump(2, ' ', false, Json::error_handler_t::replace)) << "\n";
}

std::string age_of(const SavedImage& image) {
  if (!image.made) return {};
  const std::int64_t age = system_clock().now().nanoseconds - image.made->nanoseconds;
  return age < 0 ? "" : format_seconds(static_cast<double>(age) / static_cast<double>(kSecond));
}

std::string made_of(const SavedImage& image) { return image.made ? local_text(*image.made) : ""; }

// The directories that were named; says which cannot be read.
std::vector<ImagePlace> places_of(const Arguments& arguments, Console& console, int& code) {
  std::vector<std::string> paths = arguments.files;
  if (paths.empty()) paths.emplace_back(".");
  std::vector<ImagePlace> places;
  for (const std::string& path : paths) {
    auto place = ImagePlace::open(path);
    if (place) {
      places.push_back(*std::move(place));
    } else {
      code = fail(console, printable(place.error().message(), kMostPath), kExitNoInput);
    }
  }
  return places;
}

// Adds the images of the directories that the archive names. Returns what it names and is not
// there.
std::vector<ArchivedImage> add_archived(const ArchivedImages& archived,
                                        std::vector<SavedImage>& images) {
  std::set<std::string> listed;
  std::set<std::string> directories;
  for (const SavedImage& image : images) {
    listed.insert(image.path());
    directories.insert(image.directory);
  }
  std::vector<ArchivedImage> gone;
  for (const ArchivedImage& named : archived.images) {
    const std::string directory = std::filesystem::path(named.path).parent_path();
    const auto place = ImagePlace::open(directory);
    if (place && directories.insert(place->path).second) {
      for (SavedImage& image : place->images()) {
        if (listed.insert(image.path()).second) images.push_back(std::move(image));
      }
    }
    if (!place || !listed.contains(named.path)) gone.push_back(named);
  }
  return gone;
}

Json gone_json(const std::vector<ArchivedImage>& gone) {
  Json list = Json::array();
  for (const ArchivedImage& image : gone)
    list.push_back({{"path", image.path},
                    {"job", image.job},
                    {"saved", format_rfc3339(image.saved, TimePrecision::kMilliseconds)},
                    {"node", image.node}});
  return list;
}

// What is to be said of the archive's answer, below the table.
std::string archive_text(const ArchivedImages& archived, const std::vector<ArchivedImage>& gone) {
  std::string text;
  if (!gone.empty()) {
    const ArchivedImage& last = gone.front();
    text += count_of(gone.size(), "image") +
            " of which the archive has a record: removed, or not on this node; the newest is " +
            printable(last.path, kMostPath) + ", of job " + printable(last.job, 40) + " on " +
            printable(last.node, 80) + (gone.size() > 1 ? "; --json has all" : "") + "\n";
  }
  if (archived.is_cut) {
    text += "only your newest " + std::to_string(kMostJobsWithImages) +
            " jobs with checkpoints were asked for\n";
  }
  return text;
}

int list(const Arguments& arguments, Console& console) {
  int code = kExitGood;
  const checkpoint::Machine here = checkpoint::this_machine();
  std::vector<SavedImage> images;
  for (const ImagePlace& place : places_of(arguments, console, code))
    std::ranges::move(place.images_below(), std::back_inserter(images));
  const ArchivedImages archived =
      arguments.files.empty() ? archived_images(arguments, console) : ArchivedImages{};
  const std::vector<ArchivedImage> gone = add_archived(archived, images);
  std::ranges::stable_sort(images, std::greater{}, [](const SavedImage& image) {
    return image.made.value_or(Timestamp{}).nanoseconds;
  });
  if (arguments.json) {
    Json json{{"images", Json::array()}};
    for (const SavedImage& image : images) json["images"].push_back(image_json(image, here));
    if (archived.was_asked) json["gone"] = gone_json(gone);
    print_json(json, console);
    return code;
  }
  if (images.empty()) {
    if (code == kExitGood) {
      console.out << (archived.was_asked
                          ? "no image in this directory, the folders in it, or where the archive "
                            "has a record of one\n"
                          : "no image in these directories or the folders in them\n");
    }
    console.out << archive_text(archived, gone);
    return code;
  }
  FittedTable table({{.title = "MADE"},
                     {.title = "AGE", .right = true, .rank = 3},
                     {.title = "JOB"},
                     {.title = "SIZE", .right = true},
                     {.title = "ENGINE", .rank = 2},
                     {.title = "PROCESSES", .right = true, .rank = 4},
                     {.title = "STATE"},
                     {.title = "WHERE", .rank = 1},
                     {.title = "IMAGE"}});
  std::vector<FittedTable::Row> rows;
  for (const SavedImage& image : images) {
    FittedTable::Row row{{{made_of(image)},
                          {age_of(image)},
                          {},
                          {},
                          {},
                          {},
                          {state_of(image), paint_of(image)},
                          {place_of(image, here)},
                          {path_of(image)}},
                         {}};
    if (image.manifest) {
      row.cells[2].text = printable(image.manifest->job, 40);
      row.cells[3].text = format_bytes(image.bytes);
      row.cells[4].text = printable(image.manifest->engine, 40);
      row.cells[5].text = std::to_string(image.manifest->processes);
    } else {
      row.below.push_back("    " + printable(image.manifest.error().detail));
    }
    rows.push_back(std::move(row));
  }
  console.out << table.portion(rows, console) << archive_text(archived, gone);
  return code;
}

std::string summary_of(const SavedImage& image) {
  if (!image.manifest) return "not an image: " + printable(image.manifest.error().detail);
  const std::string state = state_of(image);
  return "job " + printable(image.manifest->job, 40) + ", made " + made_of(image) + ", " +
         format_bytes(image.bytes) + (state.empty() ? "" : ", " + state);
}

void show_text(const SavedImage& image, const std::vector<SavedImage>& beside,
               const checkpoint::Machine& here, Console& console) {
  const checkpoint::Manifest& manifest = *image.manifest;
  std::string text;
  const auto add = [&](const char* name, const std::string& value) {
    if (!value.empty()) text += "  " + padded(name, 12) + value + "\n";
  };
  const auto shown = [](const std::string& value) { return printable(value, 500); };
  add("job", shown(manifest.job));
  add("made", made_of(image) + (age_of(image).empty() ? "" : ", " + age_of(image) + " ago"));
  add("state", state_of(image));
  add("node", shown(manifest.machine.node));
  add("kernel", shown(manifest.machine.kernel));
  add("processor", shown(manifest.machine.cpu_model));
  add("engine", shown(manifest.engine + " " + manifest.engine_version));
  add("processes", std::to_string(manifest.processes));
  add("size", format_bytes(image.bytes) + " in " + count_of(manifest.files.size(), "file"));
  if (!manifest.node_only.empty())
    add("only on", shown(manifest.machine.node + ": " + manifest.node_only));
  const auto refusal = checkpoint::why_not_resumed(image, here);
  add("resume",
      refusal ? "not on this node: " + printable(refusal->reason) + ": " + shown(refusal->detail)
              : "nothing is against it on this node; verify compares its files");
  add("manifest", "sha256 " + manifest.sha256);
  for (const SavedImage& other : beside) {
    if (other.name != image.name) add("beside", printable(other.name) + ": " + summary_of(other));
  }
  for (const checkpoint::ImageFile& file : manifest.files)
    add("file", shown(file.sha256) + "  " + format_bytes(file.bytes) + "  " + shown(file.name));
  console.out << console.bold("image " + path_of(image)) << "\n" << text;
}

int show(const Arguments& arguments, Console& console) {
  int code = kExitGood;
  const std::vector<ImagePlace> places = places_of(arguments, console, code);
  if (places.empty()) return code;
  const std::vector<SavedImage> images = places.front().images();
  const std::string& only = places.front().only;
  const auto found =
      only.empty() ? images.begin() : std::ranges::find(images, only, &SavedImage::name);
  if (found == images.end()) {
    return fail(console, "no image in " + printable(places.front().path, kMostPath), kExitNoInput);
  }
  if (!found->manifest) {
    return fail(console, path_of(*found) + " is " + summary_of(*found), kExitNoInput);
  }
  const checkpoint::Machine here = checkpoint::this_machine();
  if (!arguments.json) {
    show_text(*found, images, here, console);
    return kExitGood;
  }
  Json json = image_json(*found, here);
  json["manifest_sha256"] = found->manifest->sha256;
  json["manifest"] = Json::parse(checkpoint::manifest_text(*found->manifest), nullptr, false);
  json["beside"] = Json::array();
  for (const SavedImage& other : images) {
    if (other.name != found->name) json["beside"].push_back(image_json(other, here));
  }
  print_json(json, console);
  return kExitGood;
}

// Whether it is whole.
bool verify_image(const ImagePlace& place, const SavedImage& image, Console& console) {
  const auto refuse = [&](const std::string& why) {
    console.out << console.red("damaged") << "  " << path_of(image) << ": " << printable(why)
                << "\n";
    return false;
  };
  if (!image.manifest) return refuse("not an image: " + image.manifest.error().detail);
  const auto folder = place.directory.open_folder(image.name);
  if (!folder) return refuse(folder.error().message());
  ProgressLine progress(console);
  std::uint64_t done = 0;
  const auto damage = checkpoint::damage_of(folder->fd(), *image.manifest, image.owner,
                                            checkpoint::ImageCheck::kAll, [&](std::uint64_t bytes) {
                                              done += bytes;
                                              if (progress.due()) {
                                                progress.draw(format_bytes(done) + " of " +
                                                              format_bytes(image.bytes) + ": " +
                                                              printable(image.name));
                                              }
                                            });
  progress.clear();
  if (!damage) return refuse(damage.error().detail);
  for (const std::string& each : *damage) refuse(each);
  if (!damage->empty()) return false;
  console.out << console.green("whole") << "    " << path_of(image) << ": "
              << count_of(image.manifest->files.size(), "file") << ", " << format_bytes(image.bytes)
              << "\n";
  return true;
}

int verify(const Arguments& arguments, Console& console) {
  int unread = kExitGood;
  bool is_whole = true;
  for (const ImagePlace& place : places_of(arguments, console, unread)) {
    const std::vector<SavedImage> images = place.named_images();
    if (images.empty()) {
      console.err << "scriptorium: no image in " << printable(place.path, kMostPath) << "\n";
      is_whole = false;
    }
    for (const SavedImage& image : images)
      is_whole = verify_image(place, image, console) && is_whole;
  }
  return is_whole && unread == kExitGood ? kExitGood : kExitFound;
}

// What prune has done in all directories.
struct Pruned {
  std::uint64_t images = 0;
  std::uint64_t bytes = 0;
  int code = kExitGood;
};

void prune_place(const ImagePlace& place, const checkpoint::PruneRule& rule, bool dry_run,
                 Pruned& pruned, Console& console) {
  const std::string path = printable(place.path, kMostPath);
  if (!place.directory.lock()) {
    pruned.code =
        fail(console, "a request works in " + path + "; nothing is removed there", kExitTryAgain);
    return;
  }
  const std::vector<SavedImage> images = place.images();
  if (images.empty()) pruned.code = fail(console, "no image in " + path, kExitNoInput);
  const std::vector<std::string> reasons = checkpoint::why_kept(images, rule, ::geteuid());
  for (std::size_t i = 0; i < images.size(); ++i) {
    const SavedImage& image = images[i];
    if (!place.only.empty() && image.name != place.only) continue;
    if (!reasons[i].empty()) {
      console.out << "kept     " << path_of(image) << ": " << printable(reasons[i]) << "\n";
      if (!image.manifest || image.owner != ::geteuid()) pruned.code = kExitDataError;
      continue;
    }
    const std::uint64_t bytes = checkpoint::bytes_of(place.directory, image);
    const auto removed =
        dry_run ? Result<void>() : checkpoint::remove_image(place.directory, image);
    if (!removed) {
      pruned.code = fail(console, path_of(image) + ": " + printable(removed.error().message()),
                         kExitDataError);
      continue;
    }
    console.out << (dry_run ? "would remove " : "removed  ") << path_of(image) << ": "
                << summary_of(image) << "\n";
    ++pruned.images;
    pruned.bytes += bytes;
  }
}

int prune(const Arguments& arguments, Console& console) {
  checkpoint::PruneRule rule{.keep = arguments.keep, .made_before = {}, .all = arguments.all};
  if (!arguments.before.empty()) {
    rule.made_before = since_of(arguments.before);
    if (!rule.made_before) {
      return fail(console,
                  "--older-than is an age such as 7d, a date or a time, not \"" +
                      printable(arguments.before) + "\"",
                  kExitUsage);
    }
  }
  Pruned pruned;
  for (const ImagePlace& place : places_of(arguments, console, pruned.code))
    prune_place(place, rule, arguments.dry_run, pruned, console);
  console.out << count_of(pruned.images, "image") << ", " << format_bytes(pruned.bytes)
              << (arguments.dry_run ? ", would be removed\n" : " removed\n");
  return pruned.code;
}

}  // namespace

int checkpoint_command(const Arguments& arguments, Console& console) {
  switch (arguments.command) {
    case Command::kCheckpointShow: return show(arguments, console);
    case Command::kCheckpointVerify: return verify(arguments, console);
    case Command::kCheckpointPrune: return prune(arguments, console);
    default: return list(arguments, console);
  }
}

}  // namespace scriptorium::cli
