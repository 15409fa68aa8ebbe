#pragma once

#include <string>
#include <string_view>

#include "core/base/file.h"

namespace scriptorium::checkpoint {

// The directory that a request names, held open, so that nothing that is done in it follows a link
// or another directory of that name. Only for a process that has become the directory's user: it
// then reaches nothing that the user cannot.
class UserDirectory {
 public:
  static Result<UserDirectory> open(const std::string& path);

  int fd() const noexcept { return fd_.get(); }
  // Another process of this node works in the directory if false.
  bool lock() const noexcept;
  void unlock() const noexcept;

  bool has(const std::string& name) const noexcept;
  // What a file of one line says, without blanks; "" = it is not there, or is not a file.
  std::string line(const std::string& name) const;
  // Replaces what has the name, a link included, by a new file.
  Result<void> put(const std::string& name, std::string_view text) const;
  void remove(const std::string& name) const noexcept;       // a file or a link
  void remove_tree(const std::string& name) const noexcept;  // or a folder with all that is in it
  // A new, empty folder that only its owner can enter; what had the name is removed.
  Result<UserDirectory> make_folder(const std::string& name) const;
  Result<UserDirectory> open_folder(const std::string& name) const;
  Result<void> rename(const std::string& from, const std::string& to) const;
  // The bytes that its file system has for this user.
  std::uint64_t free_bytes() const noexcept;

 private:
  explicit UserDirectory(UniqueFd fd) : fd_(std::move(fd)) {}

  UniqueFd fd_;
};

}  // namespace scriptorium::checkpoint
