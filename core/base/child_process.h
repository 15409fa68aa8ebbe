#pragma once

#include <sys/types.h>

#include <optional>
#include <vector>

namespace scriptorium {

// A child of this process that may hang, in a process group of its own. Only this object waits for
// it.
//
// Owns:    the child and its group: the destructor kills both and takes up to 100 ms. A child that
//          SIGKILL does not end by then (blocked in a file system) is added to `stuck`.
// Threads: one at a time.
class ChildProcess {
 public:
  // `stuck` must outlive this object.
  ChildProcess(pid_t pid, std::vector<pid_t>& stuck) : pid_(pid), stuck_(stuck) {}
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;
  ~ChildProcess();

  // Once the child has ended: its exit status, or 128 + the signal that ended it.
  std::optional<int> ended() const noexcept;

  // The destructor leaves the group's other processes alone. Only for a child that has ended.
  void leave_group() noexcept { kills_group_ = false; }

 private:
  pid_t pid_;
  std::vector<pid_t>& stuck_;
  bool kills_group_ = true;
};

// Removes from the list those that have ended meanwhile.
void reap_ended(std::vector<pid_t>& stuck) noexcept;

}  // namespace scriptorium
