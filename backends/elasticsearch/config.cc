#include "backends/elasticsearch/config.h"

#include <algorithm>
#include <span>
#include <utility>

#include "core/api/kit/path_option.h"
#include "core/base/ascii.h"

namespace scriptorium::elasticsearch {
namespace {

constexpr std::size_t kMostHosts = 64;

void read_labels(const Value& value, const Table& table, ElasticsearchConfig& into,
                 Problems& problems) {
  constexpr const char* kAllowed = "a table of texts, such as { site = \"north\" }";
  const auto* labels = std::get_if<Table>(&value.data);
  if (labels == nullptr) return problems.add(table, "labels", "wrong type", kAllowed);
  if (labels->entries.size() > kMostLabels) {
    problems.add(
        table, "labels",
        "more than " + std::to_string(kMostLabels) + " labels: each name is a field of the index");
  }
  for (const TableEntry& entry : labels->entries) {
    const auto* text = std::get_if<std::string>(&entry.value.data);
    if (!is_label_name(entry.key)) {
      problems.add(*labels, entry.key, "not a name for a label", "1 to 64 of A-Z a-z 0-9 _ -");
    } else if (text == nullptr || text->empty() || text->size() > kLabelMaxBytes) {
      problems.add(*labels, entry.key, "not a label", "a text of 1 to 256 bytes");
    } else {
      into.labels.emplace_back(entry.key, *text);
    }
  }
}

const Schema<ElasticsearchConfig>& schema() {
  using Config = ElasticsearchConfig;
  static const Schema<Config> kSchema{
      required("hosts", &Config::hosts,
               "servers as URLs, such as [\"https://es1:9200\", \"https://es2:9200\"]; any of them "
               "may be down"),
      option("index", &Config::index,
             "index of a document, with {family} {kind} {cluster} {scheduler} {year} {month} {day} "
             "of the event; absent: \"scriptorium-{family}-{year}.{month}\", or with data_stream "
             "\"scriptorium-stream-{family}\""),
      option("data_stream", &Config::data_stream,
             "write to data streams; after a rollover, an event that is delivered again is stored "
             "twice"),
      option("require_alias", &Config::require_alias,
             "index names an alias that must exist already; never create an index of that name"),
      option("require_template", &Config::require_template,
             "hold events back while the server reports that it lacks the index template that "
             "`scriptorium setup` installs"),
      choice("product", &Config::product,
             {{"auto", Product::kAuto},
              {"elasticsearch", Product::kElasticsearch},
              {"opensearch", Product::kOpensearch}},
             "which form of the index templates `scriptorium setup` installs; auto: as the server "
             "reports"),
      option("user", &Config::user, "user name for basic authentication, with password_file"),
      option("password_file", &Config::password_file,
             "file that contains the user's password: an absolute path, or the name of a systemd "
             "credential"),
      option("api_key_file", &Config::api_key_file,
             "file that contains an API key, as id:key or as the base64 of that"),
      option("bearer_token_file", &Config::bearer_token_file,
             "file that contains a token for \"Authorization: Bearer\""),
      option("ca_file", &Config::ca_file,
             "certificates (PEM) of the authority that signed the servers' certificates; absent: "
             "the system's"),
      option("certificate_file", &Config::certificate_file,
             "client certificate (PEM), with key_file"),
      option("key_file", &Config::key_file, "private key of the client certificate (PEM)"),
      option("key_password_file", &Config::key_password_file,
             "file that contains that key's password, if it has one"),
      option("verify_tls", &Config::verify_tls,
             "refuse servers whose certificate is not valid for their name; set false only for a "
             "test"),
      option(
          "proxy", &Config::proxy,
          "HTTP proxy, such as \"http://proxy:3128\"; absent: none, whatever the environment says"),
      choice("compression", &Config::compression,
             {{"gzip", Compression::kGzip}, {"none", Compression::kNone}},
             "compression of requests"),
      integer("request_max_bytes", &Config::request_max_bytes, 65'536, 50'000'000,
              "size of one request before compression; a larger document travels alone"),
      integer("requests_in_flight", &Config::requests_in_flight, 1, 16,
              "requests that may be in flight at once"),
      integer("request_timeout_ms", &Config::request_timeout_ms, 1000, 600'000,
              "milliseconds that a request may take in total"),
      integer("connect_timeout_ms", &Config::connect_timeout_ms, 100, 120'000,
              "milliseconds that connecting may take"),
      option("script_text", &Config::script_text, "index the job script's text"),
      integer(
          "script_max_bytes", &Config::script_max_bytes, 1024, 4'194'304,
          "bytes of a script that are indexed; more than 1 MB makes Kibana's highlighting fail"),
      option("environment", &Config::environment, "index the environment variables"),
      integer("environment_max_bytes", &Config::environment_max_bytes, 1024, 16'777'216,
              "bytes of a job's environment that are indexed; of each value at most 8000"),
      custom<Config>(
          {.name = "labels",
           .type = "table",
           .default_value = "{}",
           .help = "texts that every document gets under labels, such as { site = \"north\" }"},
          &read_labels),
      integer("retention_days", &Config::retention_days, 0, 36'500,
              "days after which the policy that `scriptorium setup` installs deletes an index; 0: "
              "no policy"),
  };
  return kSchema;
}

// What is wrong with a server's URL; "" = nothing.
std::string host_problem(std::string_view url) {
  std::string_view rest = url;
  if (rest.starts_with("https://")) {
    rest.remove_prefix(8);
  } else if (rest.starts_with("http://")) {
    rest.remove_prefix(7);
  } else {
    return "not a URL that begins with http:// or https://";
  }
  if (std::ranges::any_of(rest, [](char c) {
        return static_cast<unsigned char>(c) <= ' ' || c == '\x7f' || c == '\\';
      })) {
    return "a blank or control character in a URL";
  }
  const std::string_view authority = rest.substr(0, rest.find('/'));
  if (authority.find('@') != std::string_view::npos)
    return "a user or password in a URL; use user and password_file";
  if (rest.find_first_of("?#") != std::string_view::npos) return "a URL with '?' or '#'";
  if (authority.starts_with('[') && authority.find(']') == std::string_view::npos)
    return "a URL with '[' and no ']'";
  const std::string_view after =
      authority.starts_with('[')
          ? authority.substr(std::min(authority.find(']'), authority.size() - 1) + 1)
          : authority.substr(std::min(authority.find(':'), authority.size()));
  if (authority.empty() || authority == after) return "a URL without a host";
  if (after.empty()) return "a URL without a port: say :9200, or :443 behind a proxy";
  const std::string_view port = after.substr(1);
  if (after.front() != ':' || port.size() > 5 || !is_all_digits(port)) {
    return "a port that is not a number";
  }
  return {};
}

void check_hosts(const Table& table, ElasticsearchConfig& config, Problems& problems) {
  const Value* value = table.find("hosts");
  if (value == nullptr || !std::holds_alternative<std::vector<Value>>(value->data)) return;
  constexpr const char* kAllowed = R"(a list such as ["https://es1:9200"])";
  if (config.hosts.empty() && std::get<std::vector<Value>>(value->data).empty()) {
    problems.add(table, "hosts", "the list is empty", kAllowed);
  }
  if (config.hosts.size() > kMostHosts)
    problems.add(table, "hosts", "more than 64 hosts", kAllowed);
  for (std::size_t i = 0; i < config.hosts.size(); ++i) {
    HostUrl& host = config.hosts[i];
    // Without the value: a URL may hold a password.
    if (const std::string problem = host_problem(host); !problem.empty()) {
      problems.add({.position = value->position,
                    .key = options_detail::join_key(table.path, "hosts"),
                    .problem = "item " + std::to_string(i + 1) + " of the list: " + problem,
                    .allowed = kAllowed,
                    .given = {},
                    .did_you_mean = {}});
      continue;
    }
    drop_final_slashes(host);
    if (std::ranges::count(std::span(config.hosts).first(i), host) != 0) {
      problems.add(table, "hosts", "\"" + host + "\" stands there twice", kAllowed);
    }
  }
}

void check_files(const Table& table, Problems& problems) {
  for (const char* key : {"ca_file", "certificate_file", "key_file"})
    check_absolute_path(table, key, problems);
  for (const char* key :
       {"password_file", "api_key_file", "bearer_token_file", "key_password_file"}) {
    const std::string* file = given_text(table, key);
    if (file != nullptr && !file->starts_with('/') &&
        (file->empty() || file->find('/') != std::string::npos)) {
      problems.add(table, key, "neither an absolute path nor the name of a systemd credential");
    }
  }
}

void check_authentication(const Table& table, const ElasticsearchConfig& config,
                          Problems& problems) {
  if (!config.user.empty() && config.password_file.empty())
    problems.add(table, "user", "set without password_file");
  if (config.user.empty() && !config.password_file.empty())
    problems.add(table, "password_file", "set without user");
  if (config.user.find_first_of(":\r\n") != std::string::npos)
    problems.add(table, "user", "a name cannot hold ':' or a line's end");
  const int ways = static_cast<int>(!config.user.empty()) +
                   static_cast<int>(!config.api_key_file.empty()) +
                   static_cast<int>(!config.bearer_token_file.empty());
  if (ways > 1) {
    problems.add(table, config.api_key_file.empty() ? "bearer_token_file" : "api_key_file",
                 "another way to authenticate is set too",
                 "one of user with password_file, api_key_file, bearer_token_file");
  }
  if (config.certificate_file.empty() != config.key_file.empty()) {
    problems.add(table, config.key_file.empty() ? "certificate_file" : "key_file",
                 "certificate_file and key_file need each other");
  }
  if (!config.key_password_file.empty() && config.key_file.empty())
    problems.add(table, "key_password_file", "set without key_file");
}

}  // namespace

bool is_label_name(std::string_view name) noexcept {
  return !name.empty() && name.size() <= 64 && std::ranges::all_of(name, [](char c) {
    return is_alphanumeric(c) || c == '_' || c == '-';
  });
}

std::vector<OptionInfo> options() { return schema().options(); }

ElasticsearchConfig parse_config(const Table& table, Problems& problems) {
  ElasticsearchConfig config = schema().parse(table, problems);
  check_hosts(table, config, problems);
  check_files(table, problems);
  check_authentication(table, config, problems);
  if (given_text(table, "index") == nullptr)
    config.index = config.data_stream ? IndexName::kDefaultStream : IndexName::kDefault;
  if (auto name = IndexName::parse(config.index)) {
    config.index_name = *std::move(name);
  } else {
    problems.add(table, "index", name.error().message(),
                 "a-z 0-9 - _ . + and {family} {kind} {cluster} {scheduler} {year} {month} {day}, "
                 "each once, after fixed text");
  }
  if (config.data_stream && config.index_name.has_date()) {
    problems.add(table, "index", "a data stream has no date in its name: it rolls over by itself",
                 "a name without {year} {month} {day}");
  }
  if (config.data_stream && config.require_alias)
    problems.add(table, "require_alias", "a data stream is no alias; set only one of the two");
  if (config.index.starts_with("logs-") || config.index.starts_with("metrics-")) {
    problems.add(table, "index",
                 "names with logs- or metrics- fall under templates that the server brings along",
                 "another beginning");
  }
  return config;
}

}  // namespace scriptorium::elasticsearch
