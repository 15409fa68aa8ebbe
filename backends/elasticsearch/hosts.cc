#include "backends/elasticsearch/hosts.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

namespace scriptorium::elasticsearch {

Hosts::Hosts(const std::vector<std::string>& urls) {
  hosts_.reserve(urls.size());
  for (const std::string& url : urls) hosts_.push_back({.url = url});
}

std::size_t Hosts::pick(SteadyTime now, const std::vector<std::size_t>& tried) {
  const bool all_tried = tried.size() >= hosts_.size();
  std::optional<std::size_t> longest_out;
  for (std::size_t step = 0; step < hosts_.size(); ++step) {
    const std::size_t index = (next_ + step) % hosts_.size();
    if (!all_tried && std::ranges::find(tried, index) != tried.end()) continue;
    if (hosts_[index].out_until <= now) {
      next_ = index + 1;
      return index;
    }
    if (!longest_out || hosts_[index].failed_at < hosts_[*longest_out].failed_at)
      longest_out = index;
  }
  return longest_out.value_or(0);
}

void Hosts::failed(std::size_t index, SteadyTime now, std::string why) {
  Host& host = hosts_[index];
  host.failures = std::min<std::uint32_t>(host.failures + 1, 7);
  host.out_until = now + std::min(std::chrono::seconds(1) * (1U << (host.failures - 1)),
                                  std::chrono::seconds(60));
  host.failed_at = now;
  host.last_error = std::move(why);
}

void Hosts::worked(std::size_t index) {
  Host& host = hosts_[index];
  host.failures = 0;
  host.out_until = {};
  host.last_error.clear();
}

}  // namespace scriptorium::elasticsearch
