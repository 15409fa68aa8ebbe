#pragma once

#include <sys/types.h>

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/file.h"
#include "core/cli/console.h"

namespace scriptorium::cli {

// Prints what may be longer than the terminal: it is held back until it is, and then goes to
// $PAGER, else to less. Without a terminal, or with $PAGER empty or "cat", it is printed at once.
//
// Owns:    the pager's process, and waits for its end.
// Threads: one.
class Pager {
 public:
  explicit Pager(Console& console);
  Pager(const Pager&) = delete;
  Pager& operator=(const Pager&) = delete;
  ~Pager();

  // False once nobody reads any more: the pager was left.
  bool write(std::string_view text);
  // Prints the rest and waits until the person has left the pager.
  void finish();

 private:
  bool start();
  bool send(std::string_view text);

  Console& console_;
  std::string held_;
  std::size_t lines_ = 0;
  bool may_page_ = false;
  bool left_ = false;
  pid_t child_ = -1;
  UniqueFd pipe_;
};

// The words of $PAGER, split at blanks; it is never run through a shell. Empty: no pager.
std::vector<std::string> pager_words(const char* pager);

}  // namespace scriptorium::cli
