#pragma once

#include <string_view>
#include <vector>

namespace scriptorium::elasticsearch {

// A file of templates/, built in.
struct EmbeddedFile {
  std::string_view name;  // "opensearch-job.json"
  std::string_view text;
};
const std::vector<EmbeddedFile>& embedded_files();

}  // namespace scriptorium::elasticsearch
