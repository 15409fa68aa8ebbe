#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "backends/elasticsearch/index_name.h"
#include "core/api/options.h"

namespace scriptorium::elasticsearch {

// Which form of the index templates `setup` installs. Deliveries are the same for all.
enum class Product {
  kAuto,           // as the server's answer to GET / says; Elasticsearch if it does not say
  kElasticsearch,  // flattened environment, ILM
  kOpensearch,     // flat_object environment, ISM
};

enum class Compression { kGzip, kNone };

// A server, "https://es1:9200/prefix" without a final '/'.
using HostUrl = std::string;

struct ElasticsearchConfig {
  std::vector<HostUrl> hosts;
  std::string index;  // "" = by data_stream
  bool data_stream = false;
  bool require_alias = false;
  bool require_template = true;
  Product product = Product::kAuto;

  std::string user;
  std::string password_file;
  std::string api_key_file;
  std::string bearer_token_file;

  std::string ca_file;
  std::string certificate_file;
  std::string key_file;
  std::string key_password_file;
  bool verify_tls = true;
  std::string proxy;

  Compression compression = Compression::kGzip;
  std::int64_t request_max_bytes = 5'000'000;
  std::int64_t requests_in_flight = 2;
  std::int64_t request_timeout_ms = 60'000;
  std::int64_t connect_timeout_ms = 10'000;

  bool script_text = true;
  std::int64_t script_max_bytes = 262'144;
  bool environment = true;
  std::int64_t environment_max_bytes = 1'048'576;
  std::vector<std::pair<std::string, std::string>> labels;
  std::int64_t retention_days = 730;

  IndexName index_name;  // `index`, parsed
};

// Bytes of one variable's value that are indexed, and the longest name: what flat_object and
// flattened both take.
inline constexpr std::size_t kVariableMaxBytes = 8000;
inline constexpr std::size_t kVariableNameMaxBytes = 512;

// Each name of a label is a field of the index, which has 500 at most.
inline constexpr std::size_t kMostLabels = 32;
inline constexpr std::size_t kLabelMaxBytes = 256;
bool is_label_name(std::string_view name) noexcept;

std::vector<OptionInfo> options();

// Says every problem of the table; the result is to be used only if there was none. Touches no
// file.
ElasticsearchConfig parse_config(const Table& table, Problems& problems);

}  // namespace scriptorium::elasticsearch
