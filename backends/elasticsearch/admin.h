#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "backends/elasticsearch/config.h"
#include "backends/elasticsearch/http.h"
#include "backends/elasticsearch/setup.h"
#include "core/api/sink.h"

namespace scriptorium::elasticsearch {

// What the commands ask for: one question after the other, nothing under way beside.
// Threads: one that holds SIGPIPE back.
class Admin {
 public:
  Admin(const ElasticsearchConfig& config, const Credentials& credentials,
        const PluginContext& context);

  // Reachable, known to the server, allowed to create documents, template there? Stores nothing.
  Result<void> check();
  // At most kMostFound of the newest. Empty too where we may write but not read.
  Result<std::vector<StoredJob>> find(std::string_view job_id);
  Result<std::string> setup(bool print);

  static constexpr int kMostFound = 20;

 private:
  Result<void> check_reachable();
  Result<void> check_rights();
  Result<void> check_blocks();
  Result<void> check_index();
  Result<void> check_new_index(const std::string& missing);
  Result<void> check_alias(const std::string& alias);
  Result<void> check_higher_template(const std::string& name);
  struct Answered;
  Answered ask_for(const std::string& path, const std::string& method = "GET");
  Result<void> check_templates();
  Result<void> try_to_write(const std::string& index);
  std::string sample_index() const;
  // What setup() would do, as commands for a person.
  Result<std::string> commands() const;
  // One line about it. `policies` becomes false if the server has none.
  Result<std::string> install(const SetupStep& step, bool& policies);

  const ElasticsearchConfig& config_;
  const PluginContext& context_;
  Http http_;
  std::vector<std::string> hosts_;  // those that answer
  Product product_ = Product::kAuto;
};

}  // namespace scriptorium::elasticsearch
