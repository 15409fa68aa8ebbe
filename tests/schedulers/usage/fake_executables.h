#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "core/api/executables.h"

namespace scriptorium::usage::test {

// Answers what it has, and remembers what it was asked.
struct FakeExecutables final : Executables {
  std::map<std::uint32_t, Executable> answers;
  std::vector<std::pair<std::uint32_t, std::uint64_t>> asked;

  std::optional<Executable> find(std::uint32_t pid, std::uint64_t start_ticks) override {
    asked.emplace_back(pid, start_ticks);
    const auto found = answers.find(pid);
    return found != answers.end() ? std::optional(found->second) : std::nullopt;
  }
};

}  // namespace scriptorium::usage::test
