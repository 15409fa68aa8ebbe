#pragma once

#include <string>
#include <string_view>

#include "checkpoint/user_directory.h"

namespace scriptorium::checkpoint {

// The names in a save directory that scriptorium-checkpointd has not made.
inline constexpr const char* kOutputFile = "output";  // of the command, of all lives
inline constexpr const char* kStateFile = "state";

// What a life leaves for the next one: the file "state", lines of a name and a value. Unknown lines
// are ignored.
struct RunState {
  std::string chain;    // BatchJob::chain of the last life
  std::string command;  // sha256 of the command's words
  int tries = 0;        // lives in a row in which it could not be resumed
  bool has_succeeded = false;
};
// Pure.
RunState parse_run_state(std::string_view text);
std::string run_state_text(const RunState& state);

// Pure: a resume that was refused for this reason would be refused on other nodes as well, so that
// the image before is tried. `tries`: lives in which it was refused before. Some reasons can lie in
// the node or in the image; for these another node is tried first.
bool is_fault_of_image(std::string_view reason, int tries);

// The directory, made if it is missing, with a lock that lasts until this process ends: two lives
// never work in one at the same time, as far as its file system has locks.
// kTransient: another process has the lock. kPermanent: it cannot be made or written.
struct SaveDir {
  std::string path;  // absolute
  UserDirectory directory;
  UniqueFd lock;

  // What `path` names in the working directory.
  static std::string absolute(const std::string& path);
  static Result<SaveDir> open(const std::string& path);

  // Absent file: "".
  std::string read(const std::string& name) const;
  bool has_image() const;
  // What a life without it does as well; so a failure is not reported.
  void put_in_image(const std::string& name, std::string_view text) const;
  // Its image, older ones, and what belongs to them.
  void remove_images() const;
  // The image of the time before takes the place of the newest, which is kept beside it as
  // checkpoint.unusable. False: there is none.
  bool use_older_image() const;
};

}  // namespace scriptorium::checkpoint
