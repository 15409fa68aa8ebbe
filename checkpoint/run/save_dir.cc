#include "checkpoint/run/save_dir.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <utility>

#include "checkpoint/folder.h"
#include "core/base/ascii.h"
#include "core/base/number.h"

namespace scriptorium::checkpoint {
namespace {

constexpr std::uint64_t kMostText = 16U << 20;
constexpr const char* kImageFolder = "checkpoint";

Error unusable(const Error& error) { return {ErrorKind::kPermanent, error.message()}; }

}  // namespace

RunState parse_run_state(std::string_view text) {
  RunState state;
  while (!text.empty()) {
    std::string_view line = take_until(text, '\n');
    const std::string_view name = take_until(line, ' ');
    if (name == "chain") state.chain = line;
    if (name == "command") state.command = line;
    if (name == "tries") state.tries = parse_number<int>(line).value_or(0);
    if (name == "succeeded") state.has_succeeded = true;
  }
  return state;
}

std::string run_state_text(const RunState& state) {
  return "chain " + state.chain + "\ncommand " + state.command + "\ntries " +
         std::to_string(state.tries) + "\n" + (state.has_succeeded ? "succeeded\n" : "");
}

bool is_fault_of_image(std::string_view reason, int tries) {
  if (reason == "engine" || reason == "file_missing") return tries > 0;
  return reason == "image_damaged" || reason == "file_changed" || reason == "no_image" ||
         reason == "ended";
}

std::string SaveDir::absolute(const std::string& path) {
  std::error_code error;
  return std::filesystem::absolute(path, error).lexically_normal();
}

Result<SaveDir> SaveDir::open(const std::string& path) {
  const std::string absolute = SaveDir::absolute(path);
  if (auto made = make_directories(absolute, 0700); !made) return unusable(made.error());
  auto directory = UserDirectory::open(absolute);
  if (!directory) return unusable(directory.error());
  UniqueFd lock(::openat(directory->fd(), "lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!lock) return unusable(system_error("open " + absolute + "/lock", errno));
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
    return Error{ErrorKind::kTransient, "another scriptorium-run works in " + absolute};
  return SaveDir{absolute, *std::move(directory), std::move(lock)};
}

std::string SaveDir::read(const std::string& name) const {
  const UniqueFd file(
      ::openat(directory.fd(), name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  const auto text = file ? read_fd(file.get(), kMostText) : Result<std::string>(std::string{});
  return text ? *text : std::string{};
}

bool SaveDir::has_image() const {
  return directory.has(std::string(kImageFolder) + "/manifest.json");
}

void SaveDir::remove_images() const {
  const auto names = names_in(directory.fd());
  if (!names) return;
  for (const std::string& name : *names) {
    if (name.starts_with(kImageFolder) || name == "resume_ok") directory.remove_tree(name);
  }
}

void SaveDir::put_in_image(const std::string& name, std::string_view text) const {
  const auto image = directory.open_folder(kImageFolder);
  if (image) static_cast<void>(image->put(name, text));
}

bool SaveDir::use_older_image() const {
  const std::string older = std::string(kImageFolder) + ".old";
  if (!directory.has(older + "/manifest.json")) return false;
  const std::string unusable = std::string(kImageFolder) + ".unusable";
  directory.remove_tree(unusable);
  if (directory.has(kImageFolder) && !directory.rename(kImageFolder, unusable)) return false;
  return directory.rename(older, kImageFolder).has_value();
}

}  // namespace scriptorium::checkpoint
