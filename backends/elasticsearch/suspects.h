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
  // The server stored something of this family, whose documents have one template.
  void accepted_one(const std::string& family) { ++accepts_[family]; }

  // Counts a refusal of the document. True: it is the document's fault.
  bool refused(const std::string& id, const std::string& family, SteadyTime now);
  // Whether the server took something of its family since this document was refused first.
  bool others_accepted_since(const std::string& id) const;
  void forget(const std::string& id) {
    if (!refusals_.empty()) refusals_.erase(id);
  }

 private:
  struct Refusals {
    std::uint32_t count = 0;
    SteadyTime since;
    std::string family;
    std::uint64_t accepts_before = 0;
  };
  std::uint64_t accepts(const std::string& family) const {
    const auto known = accepts_.find(family);
    return known == accepts_.end() ? 0 : known->second;
  }
  std::unordered_map<std::string, Refusals> refusals_;
  std::unordered_map<std::string, std::uint64_t> accepts_;
};

}  // namespace scriptorium::elasticsearch
