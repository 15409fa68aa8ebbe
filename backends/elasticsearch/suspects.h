#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>

#include "core/base/time.h"

namespace scriptorium::elasticsearch {

// Documents that were refused in a way that may be the document's fault or the server's. One is
// rejected once it was refused often enough, for long enough, while the server took others.
// Bounded: the oldest goes when there are too many. Pure; not thread-safe.
class Suspects {
 public:
  // The server stored something of a request.
  void accepted_something() noexcept { ++accepts_; }

  // Counts a refusal of the document. True: it is the document's fault.
  bool refused(const std::string& id, SteadyTime now);
  // Whether the server took something since this document was refused first.
  bool others_accepted_since(const std::string& id) const;
  void forget(const std::string& id) {
    if (!refusals_.empty()) refusals_.erase(id);
  }

 private:
  struct Refusals {
    std::uint32_t count = 0;
    SteadyTime since;
    std::uint64_t accepts_before = 0;
  };
  std::unordered_map<std::string, Refusals> refusals_;
  std::uint64_t accepts_ = 0;
};

}  // namespace scriptorium::elasticsearch
