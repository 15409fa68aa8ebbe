#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "core/base/time.h"

namespace scriptorium::elasticsearch {

// Which of several servers gets the next request: in turns, those that failed left out for 1 s and
// then twice as long each time, up to 60 s. If all are out it is the one that has been for longest.
// No sockets, no clock. Threads: one.
class Hosts {
 public:
  struct Host {
    std::string url;
    std::string last_error;  // "" while it works
    std::uint32_t failures = 0;
    SteadyTime out_until;
    SteadyTime failed_at;
  };

  explicit Hosts(const std::vector<std::string>& urls);

  // The index of a host that is not among `tried`; of all of them if every one is.
  std::size_t pick(SteadyTime now, const std::vector<std::size_t>& tried = {});
  void failed(std::size_t index, SteadyTime now, std::string why);
  void worked(std::size_t index);

  std::size_t size() const noexcept { return hosts_.size(); }
  const std::string& url(std::size_t index) const { return hosts_[index].url; }
  const std::vector<Host>& list() const noexcept { return hosts_; }

 private:
  std::vector<Host> hosts_;
  std::size_t next_ = 0;
};

}  // namespace scriptorium::elasticsearch
