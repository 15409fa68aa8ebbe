#pragma once

#include <string>
#include <vector>

#include "backends/elasticsearch/config.h"
#include "core/base/result.h"

// What a server needs once: index templates and the policies that delete old indices. Pure.
namespace scriptorium::elasticsearch {

struct SetupStep {
  enum class Kind { kPolicy, kTemplate };
  Kind kind = Kind::kTemplate;
  std::string family;
  std::string path;            // "/_index_template/scriptorium-job"
  std::string body;            // JSON, indented
  std::string without_policy;  // of a template that names its policy: the same for a server that
                               // has no policies
  bool deletes = false;        // of a policy: it deletes after retention_days
};

// In the order in which they must be sent. `product` is not kAuto.
Result<std::vector<SetupStep>> setup_steps(const ElasticsearchConfig& config, Product product);

// As Kibana's and Dashboards' Dev Tools take it.
std::string setup_text(const ElasticsearchConfig& config, Product product,
                       const std::vector<SetupStep>& steps);

// The families of kinds that a template is shipped for, and whose indices `index` keeps apart.
std::vector<std::string> families(const ElasticsearchConfig& config);

}  // namespace scriptorium::elasticsearch
