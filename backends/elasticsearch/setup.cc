#include "backends/elasticsearch/setup.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "backends/elasticsearch/server.h"
#include "backends/elasticsearch/templates.h"

namespace scriptorium::elasticsearch {
namespace {

using OrderedJson = nlohmann::ordered_json;

// What the shipped policies say; retention_days replaces it.
constexpr const char* kShippedRetention = "730d";

std::optional<OrderedJson> embedded(const std::string& name) {
  for (const EmbeddedFile& file : embedded_files()) {
    if (file.name == name) return OrderedJson::parse(file.text);
  }
  return std::nullopt;
}

// Every text "730d" in it.
void set_retention(OrderedJson& json, const std::string& days) {
  if (json.is_string() && json.get_ref<const std::string&>() == kShippedRetention) {
    json = days;
  } else if (json.is_structured()) {
    for (OrderedJson& child : json) set_retention(child, days);
  }
}

// Takes the deletion out of a policy; false if nothing remains of it.
bool keep_for_ever(OrderedJson& body) {
  OrderedJson& policy = body["policy"];
  if (policy.contains("phases")) {
    policy["phases"].erase("delete");
    for (const OrderedJson& phase : policy["phases"]) {
      if (!phase.value("actions", OrderedJson::object()).empty()) return true;
    }
    return false;
  }
  OrderedJson first = policy["states"].at(0);
  first["transitions"] = OrderedJson::array();
  const bool remains = !first.value("actions", OrderedJson::array()).empty();
  policy["states"] = OrderedJson::array({std::move(first)});
  return remains;
}

// The pattern of a family's indices, with a star at the end of one that has none.
std::string pattern_of(const ElasticsearchConfig& config, const std::string& family) {
  std::string pattern = config.index_name.pattern(family);
  return pattern.find('*') == std::string::npos ? pattern + "*" : pattern;
}

Result<void> add_steps(const ElasticsearchConfig& config, Product product,
                       const std::string& family, std::vector<SetupStep>& steps) {
  const std::string base =
      std::string(to_string(product)) + "-" + family + (config.data_stream ? "-stream" : "");
  auto shipped = embedded(base + ".json");
  if (!shipped)
    return Error{ErrorKind::kInvalidConfig,
                 "there is no index template " + base + ".json in this build"};
  const std::string name = config.index_name.template_name(family);
  const OrderedJson patterns = OrderedJson::array({pattern_of(config, family)});

  auto policy = embedded(base + "-policy.json");
  const bool has_policy = policy && (config.retention_days > 0 || keep_for_ever(*policy));
  if (has_policy) {
    set_retention(*policy, std::to_string(config.retention_days) + "d");
    if (OrderedJson& inner = (*policy)["policy"]; inner.contains("ism_template")) {
      for (OrderedJson& entry : inner["ism_template"]) entry["index_patterns"] = patterns;
    }
    steps.push_back(
        {.kind = SetupStep::Kind::kPolicy,
         .family = family,
         .path = (product == Product::kOpensearch ? "/_plugins/_ism/policies/" : "/_ilm/policy/") +
                 name,
         .body = policy->dump(2),
         .without_policy = {},
         .deletes = config.retention_days > 0});
  }
  OrderedJson& made = *shipped;
  made["index_patterns"] = patterns;
  OrderedJson bare = made;
  OrderedJson& settings = bare["template"]["settings"];
  const bool names_policy = settings.contains("index") && settings["index"].erase("lifecycle") > 0;
  if (names_policy && has_policy) {
    made["template"]["settings"]["index"]["lifecycle"]["name"] = name;
  } else {
    made = bare;
  }
  steps.push_back({.kind = SetupStep::Kind::kTemplate,
                   .family = family,
                   .path = "/_index_template/" + name,
                   .body = made.dump(2),
                   .without_policy = names_policy && has_policy ? bare.dump(2) : std::string{},
                   .deletes = false});
  return {};
}

}  // namespace

std::vector<std::string> families(const ElasticsearchConfig& config) {
  return config.index_name.has_family() ? std::vector<std::string>{"job", "usage"}
                                        : std::vector<std::string>{"job"};
}

Result<std::vector<SetupStep>> setup_steps(const ElasticsearchConfig& config, Product product) try {
  std::vector<SetupStep> steps;
  for (const std::string& family : families(config)) {
    if (auto added = add_steps(config, product, family, steps); !added) return added.error();
  }
  return steps;
} catch (const nlohmann::json::exception& e) {
  return Error{ErrorKind::kCorrupt, std::string("the index templates of this build: ") + e.what()};
}

std::string setup_text(const ElasticsearchConfig& config, Product product,
                       const std::vector<SetupStep>& steps) {
  std::string text =
      product == Product::kOpensearch ? "# For OpenSearch\n" : "# For Elasticsearch\n";
  for (const SetupStep& step : steps) {
    if (step.deletes) {
      text += "# Deletes what is older than " + std::to_string(config.retention_days) +
              " days; retention_days sets another number, 0 keeps everything\n";
    }
    text += "PUT " + step.path + "\n" + step.body + "\n\n";
  }
  return text;
}

}  // namespace scriptorium::elasticsearch
