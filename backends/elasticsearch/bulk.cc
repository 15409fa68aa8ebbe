#include "backends/elasticsearch/bulk.h"

namespace scriptorium::elasticsearch {

Cuts Body::add(const Event& event, const ElasticsearchConfig& config, Replacing replacing) {
  const Cuts cuts = append_document(event, config, replacing, bytes_);
  ends_.push_back(bytes_.size());
  return cuts;
}

void Body::drop_last() {
  ends_.pop_back();
  bytes_.resize(begin_of(ends_.size()));
}

std::string_view Body::slice(std::size_t first, std::size_t last) const noexcept {
  const std::size_t begin = begin_of(first);
  return std::string_view(bytes_).substr(begin, begin_of(last) - begin);
}

}  // namespace scriptorium::elasticsearch
