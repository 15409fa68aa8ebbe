#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "backends/elasticsearch/document.h"

namespace scriptorium::elasticsearch {

// The body of a bulk request, and where in it each document lies: a part of it is again a body, so
// a request that is refused can be split without rendering anything twice.
class Body {
 public:
  explicit Body(std::size_t size_hint) { bytes_.reserve(size_hint); }

  Cuts add(const Event& event, const ElasticsearchConfig& config, Replacing replacing);
  // Takes the last document away again.
  void drop_last();

  std::size_t count() const noexcept { return ends_.size(); }
  std::size_t size() const noexcept { return bytes_.size(); }
  // Of the documents [first, last). The view lives as long as this and until the next add().
  std::string_view slice(std::size_t first, std::size_t last) const noexcept;

 private:
  std::size_t begin_of(std::size_t index) const noexcept {
    return index == 0 ? 0 : ends_[index - 1];
  }

  std::string bytes_;
  std::vector<std::size_t> ends_;
};

}  // namespace scriptorium::elasticsearch
