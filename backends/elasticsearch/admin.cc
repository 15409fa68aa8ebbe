#include "backends/elasticsearch/admin.h"

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "backends/elasticsearch/json_text.h"
#include "backends/elasticsearch/outcome.h"
#include "backends/elasticsearch/server.h"
#include "backends/elasticsearch/setup.h"
#include "core/base/number.h"
#include "core/base/text.h"

namespace scriptorium::elasticsearch {
namespace {

using Json = nlohmann::ordered_json;
using std::chrono::milliseconds;

constexpr milliseconds kSearchTimeout{20'000};
constexpr milliseconds kSetupTimeout{
    60'000};  // a policy's first one makes an index of the server's own
constexpr std::size_t kSearchMaxBytes = std::size_t{64} << 20;

Error cannot(const std::string& what, const HttpResponse& response) {
  return Error{ErrorKind::kTransient, what + ": " + describe(response)};
}

std::string text_at(const Json& json, const Json::json_pointer& where) {
  return json.contains(where) && json[where].is_string() ? json[where].get<std::string>()
                                                         : std::string{};
}

bool true_at(const Json& json, const char* key) {
  return json.contains(key) && json[key].is_boolean() && json[key].get<bool>();
}

void add_file(StoredJob& job, const char* name, std::string bytes) {
  job.files.push_back(
      {.name = name, .location = job.location, .bytes = make_bytes(std::move(bytes))});
}

// An update names as null what is not known any more: to a reader the same as absent.
void drop_nulls(Json& object) {
  for (auto member = object.begin(); member != object.end();) {
    if (member->is_object()) drop_nulls(*member);
    member = member->is_null() ? object.erase(member) : std::next(member);
  }
}

// What the document still has of the job's files: only what is whole.
StoredJob job_of(const Json& hit, const std::string& host) {
  StoredJob job;
  // The document's own id is that of the first event, if another one has replaced it.
  const std::string id = text_at(hit, "/_id"_json_pointer);
  job.event_id = text_at(hit, "/_source/id"_json_pointer);
  if (job.event_id.empty()) job.event_id = id;
  job.location = host + "/" + text_at(hit, "/_index"_json_pointer) + "/_doc/" + id;
  Json source = hit.value("_source", Json::object());
  if (!source.is_object()) return job;
  if (auto script = source.find("script"); script != source.end() && script->is_object()) {
    if (!true_at(*script, "truncated") && script->contains("text") &&
        (*script)["text"].is_string()) {
      if (script->contains("raw")) {
        if (auto raw = base64_decode(text_at(*script, "/raw"_json_pointer)))
          add_file(job, "script", *std::move(raw));
      } else {
        add_file(job, "script", (*script)["text"].get<std::string>());
      }
    }
    for (const char* name : {"text", "encoding", "raw", "truncated"}) script->erase(name);
  }
  if (auto environment = source.find("environment");
      environment != source.end() && environment->is_object()) {
    const Json lossy = source.value("lossy", Json::array());
    const bool exact = !true_at(source, "environment_truncated") &&
                       std::find(lossy.begin(), lossy.end(), Json("environment")) == lossy.end();
    std::string bytes;
    for (const auto& [name, value] : environment->items()) {
      if (!value.is_string()) continue;
      bytes += name;
      bytes += '=';
      bytes += value.get<std::string>();
      bytes += '\0';
    }
    if (exact) add_file(job, "environment", std::move(bytes));
    source.erase(environment);
  }
  for (const char* name : {"@timestamp", "environment_truncated", "labels"}) source.erase(name);
  if (auto user = source.find("user"); user != source.end() && user->is_object()) drop_nulls(*user);
  add_file(job, "metadata", source.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
  return job;
}

struct Found {
  StoredJob job;
  std::string replaces;  // "" = nothing
};

// Where documents cannot be changed, a job whose owner was found later has two. That is one job, of
// which the later document may lack the script and the environment.
std::vector<StoredJob> joined(std::vector<Found> found) {
  std::set<std::string> replaced;
  for (Found& later : found) {
    const auto earlier =
        std::ranges::find(found, later.replaces, [](const Found& f) { return f.job.event_id; });
    if (later.replaces.empty() || earlier == found.end()) continue;
    replaced.insert(later.replaces);
    for (const StoredFile& file : earlier->job.files) {
      const bool there =
          std::ranges::find(later.job.files, file.name, &StoredFile::name) != later.job.files.end();
      if (!there) later.job.files.push_back(file);
    }
  }
  std::vector<StoredJob> jobs;
  for (Found& f : found) {
    if (!replaced.contains(f.job.event_id)) jobs.push_back(std::move(f.job));
  }
  return jobs;
}

}  // namespace

Admin::Admin(const ElasticsearchConfig& config, const Credentials& credentials,
             const PluginContext& context)
    : config_(config),
      context_(context),
      http_(config, credentials),
      hosts_(config.hosts),
      product_(config.product) {}

Result<void> Admin::check() {
  if (auto reachable = check_reachable(); !reachable) return reachable.error();
  if (auto rights = check_rights(); !rights) return rights.error();
  if (auto open = check_blocks(); !open) return open.error();
  if (auto there = check_index(); !there) return there.error();
  return check_templates();
}

Result<void> Admin::check_reachable() {
  std::vector<std::string> answering;
  std::string words;
  for (const std::string& host : config_.hosts) {
    const HttpResponse response = http_.ask(get(host, "/"));
    const bool answers = response.failure == HttpResponse::Failure::kNone &&
                         judge_request(response.status, {}) != RequestAction::kNextHost;
    if (answers && response.status == 401) return cannot(host, response);
    if (!answers) {
      words += (words.empty() ? "" : "; ") + host + ": " + describe(response);
      continue;
    }
    answering.push_back(host);
    if (product_ == Product::kAuto) product_ = server_info(response).product;
  }
  if (answering.empty()) return Error{ErrorKind::kTransient, words};
  if (answering.size() < config_.hosts.size()) {
    context_.log.warning("ES_HOST_DOWN",
                         "a server of the list does not answer; the others get its requests",
                         {{"sink", context_.name}, {"reason", words}});
  }
  hosts_ = std::move(answering);
  return {};
}

std::string Admin::sample_index() const {
  Event event;
  event.kind = "job.script";
  event.cluster = context_.cluster;
  event.scheduler = "scheduler";
  event.time = context_.clock.now();
  return config_.index_name.of(event);
}

Result<void> Admin::check_rights() {
  const std::string index = sample_index();
  const Json question = {
      {"index",
       Json::array({{{"names", {index}},
                     {"privileges", {"create_doc", "auto_configure", "create_index", "index"}}}})}};
  const auto answer = ask_any(http_, hosts_, [&](const std::string& host) {
    return send_json("POST", host, "/_security/user/_has_privileges", question.dump());
  });
  // Only Elasticsearch with its security has this; what does not answer it is asked in another way.
  if (answer && answer->response.status == 200) {
    const Json json = Json::parse(answer->response.body, nullptr, false);
    const Json rights =
        json.is_object() ? json.value("index", Json::object()).value(index, Json()) : Json();
    if (rights.is_object()) {
      if (!true_at(rights, "create_doc")) {
        return Error{ErrorKind::kTransient,
                     "we may not create documents in " + index + ": give the privilege create_doc"};
      }
      if (!config_.require_alias && !true_at(rights, "auto_configure") &&
          !true_at(rights, "create_index")) {
        return Error{
            ErrorKind::kTransient,
            "we may not make the index " + index +
                ": give the privilege auto_configure, or the next month's will be missing"};
      }
      if (!config_.data_stream && rights.contains("index") && !true_at(rights, "index")) {
        context_.log.warning(
            "ES_CREATE_ONLY",
            "we may create documents but not change them, so a job whose owner is found later gets "
            "a second "
            "document beside its first; give the privilege index if it is to have one",
            {{"sink", context_.name}});
      }
    }
  }
  return try_to_write(index);
}

// A document that cannot be stored, because it asks for an alias of a name that is none: what the
// server says before it comes to that shows whether we may write at all.
Result<void> Admin::try_to_write(const std::string& index) {
  const std::string nowhere = index + "-check." + std::to_string(context_.clock.now().nanoseconds);
  const std::string body =
      R"({"create":{"_index":")" + nowhere + R"(","_id":"check"}})" + "\n" + R"({"@timestamp":")" +
      format_rfc3339(context_.clock.now(), TimePrecision::kMilliseconds) + "\"}\n";
  const auto answer = ask_any(http_, hosts_, [&](const std::string& host) {
    HttpRequest request = send_json("POST", host, "/_bulk?require_alias=true", body);
    request.content_type = "application/x-ndjson";
    return request;
  });
  if (!answer) return answer.error();
  const HttpResponse& response = answer->response;
  if (response.status == 401 || response.status == 403) return cannot("we may not write", response);
  if (response.status == 400) return {};  // a server of another age; the deliveries will show
  if (response.status != 200) return cannot(answer->host + " takes no documents", response);
  const auto items = parse_bulk_answer(response.body, {"check"});
  if (!items) return cannot(answer->host + " takes no documents", response);
  if (items->front().status == 401 || items->front().status == 403) {
    return Error{ErrorKind::kTransient,
                 "we may not write to " + index + ": " +
                     short_reason(items->front().status, items->front().type) + ": " +
                     safe_reason(items->front().reason)};
  }
  return {};
}

// A server whose disk is full makes its indices read-only.
Result<void> Admin::check_blocks() {
  const std::string path = "/" + sample_index() +
                           "/_settings/index.blocks.*?flat_settings=true&ignore_unavailable=true"
                           "&allow_no_indices=true";
  const auto answer =
      ask_any(http_, hosts_, [&](const std::string& host) { return get(host, path); });
  if (!answer || answer->response.status != 200) return {};  // the deliveries will show
  const Json json = Json::parse(answer->response.body, nullptr, false);
  if (!json.is_object()) return {};
  for (const auto& [index, entry] : json.items()) {
    const Json settings = entry.is_object() ? entry.value("settings", Json::object()) : Json();
    for (const char* block : {"read_only_allow_delete", "read_only", "write"}) {
      const std::string key = std::string("index.blocks.") + block;
      if (!settings.is_object() || text_of(settings, key.c_str()) != "true") continue;
      return Error{ErrorKind::kTransient,
                   "the server takes no documents into " + printable(index, 255) + ": " + key +
                       " is set" +
                       (key.ends_with("_delete")
                            ? ", as the server does itself when its disk is full; make room there"
                            : "")};
    }
  }
  return {};
}

struct Admin::Answered {
  long status = 0;  // 0: none
  Json json;        // of status 200
};

Admin::Answered Admin::ask_for(const std::string& path, const std::string& method) {
  const auto answer = ask_any(http_, hosts_, [&](const std::string& host) {
    HttpRequest request = get(host, path);
    request.method = method;
    return request;
  });
  if (!answer) return {};
  const HttpResponse& response = answer->response;
  return {.status = response.status,
          .json = response.status == 200 ? Json::parse(response.body, nullptr, false) : Json()};
}

// What a server says only when it gets a document: that the index is closed or has no copy that is
// alive, or that it makes no other. Each question may need a right that we lack; then the
// deliveries will show.
Result<void> Admin::check_index() {
  const std::string index = sample_index();
  if (config_.require_alias) return check_alias(index);
  if (config_.data_stream) return check_new_index({});
  const auto [status, list] =
      ask_for("/_cat/indices/" + index + "?format=json&h=index,status,health&expand_wildcards=all");
  const Json entry = list.is_array() && list.size() == 1 ? list.front() : Json();
  if (text_of(entry, "status") == "close") {
    return Error{ErrorKind::kTransient, "the index " + index + " is closed; open it"};
  }
  if (text_of(entry, "health") == "red") {
    return Error{ErrorKind::kTransient,
                 "the index " + index +
                     " has a shard without any copy that is active (health red); "
                     "GET _cluster/allocation/explain says why"};
  }
  return check_new_index(status == 404 ? index : std::string{});
}

// `missing`: the index that is to be made with the next event; "" if it is there.
Result<void> Admin::check_new_index(const std::string& missing) {
  const Json settings = ask_for(
                            "/_cluster/settings?include_defaults=true&filter_path="
                            "*.action.auto_create_index,*.cluster.max_shards_per_node")
                            .json;
  const auto setting = [&](const std::string& name) {
    for (const std::string level : {"transient", "persistent", "defaults"}) {
      const std::string value = text_at(settings, Json::json_pointer("/" + level + "/" + name));
      if (!value.empty()) return value;
    }
    return std::string{};
  };
  if (!missing.empty() && setting("action/auto_create_index") == "false") {
    return Error{ErrorKind::kTransient,
                 "the index " + missing +
                     " is not there, and the server makes none: action.auto_create_index is false"};
  }
  // One index for ever is there already.
  if (missing.empty() && !config_.data_stream && !config_.index_name.has_date()) return {};
  const auto most = parse_number<std::int64_t>(setting("cluster/max_shards_per_node"));
  const Json health = most ? ask_for("/_cluster/health").json : Json();
  if (!health.is_object()) return {};
  const auto count = [&](const char* key) {
    const auto found = health.find(key);
    return found != health.end() && found->is_number_integer() ? found->get<std::int64_t>() : 0;
  };
  const std::int64_t there =
      count("active_shards") + count("initializing_shards") + count("unassigned_shards");
  const std::int64_t limit = *most * count("number_of_data_nodes");
  // One of ours has a shard and a copy of it.
  if (limit == 0 || there + 2 <= limit) return {};
  return Error{ErrorKind::kTransient,
               "the server has " + std::to_string(there) + " of the " + std::to_string(limit) +
                   " shards that cluster.max_shards_per_node allows, so it makes no other index" +
                   (missing.empty() ? ", and the next month's will be missing" : "")};
}

Result<void> Admin::check_alias(const std::string& alias) {
  const auto [status, found] = ask_for("/_alias/" + alias);
  if (status == 404) {
    return Error{ErrorKind::kTransient,
                 "require_alias is set, and there is no alias " + alias + " on the server"};
  }
  if (!found.is_object() || found.empty()) return {};
  bool writes = false;
  bool forbidden = false;
  for (const auto& [index, entry] : found.items()) {
    const Json it = entry.is_object()
                        ? entry.value("aliases", Json::object()).value(alias, Json::object())
                        : Json::object();
    writes = writes || true_at(it, "is_write_index");
    forbidden = forbidden || it.contains("is_write_index");
  }
  if (writes || (found.size() == 1 && !forbidden)) return {};
  return Error{ErrorKind::kTransient,
               "none of the indices of the alias " + alias + " is its write index"};
}

// Another template that fits our indices as well, and goes before ours.
Result<void> Admin::check_higher_template(const std::string& name) {
  const std::string index = sample_index();
  const Json simulated = ask_for("/_index_template/_simulate_index/" + index, "POST").json;
  if (!simulated.is_object()) return {};
  for (const Json& lower : simulated.value("overlapping", Json::array())) {
    if (text_of(lower, "name") != name) continue;
    return Error{ErrorKind::kTransient,
                 "another index template than " + name + " decides about " + index +
                     ", by its higher priority; leave our indices out of its index_patterns"};
  }
  return {};
}

Result<void> Admin::check_templates() {
  if (!config_.require_template) return {};
  const std::string name = config_.index_name.template_name("job");
  const auto answer = ask_any(http_, hosts_, [&](const std::string& host) {
    return get(host, "/_index_template/" + name);
  });
  if (answer && says_no_template(answer->response)) {
    return Error{ErrorKind::kTransient, "the index template " + name +
                                            " is missing; run: scriptorium setup " + context_.name +
                                            " (or set require_template = false)"};
  }
  return check_higher_template(name);
}

Result<std::vector<StoredJob>> Admin::find(std::string_view job_id) {
  const Json query = {
      {"query", {{"term", {{"job.id", {{"value", job_id}}}}}}},
      {"size", kMostFound},
      {"sort", Json::array({{{"@timestamp", {{"order", "desc"}, {"unmapped_type", "date"}}}}})}};
  const std::string path = "/" + config_.index_name.pattern("job") +
                           "/_search?ignore_unavailable=true&allow_no_indices=true&filter_path="
                           "hits.hits._index,hits.hits._id,hits.hits._source";
  const std::string body = query.dump(-1, ' ', false, Json::error_handler_t::replace);
  const auto answer = ask_any(http_, hosts_, [&](const std::string& host) {
    HttpRequest request = send_json("POST", host, path, body);
    request.timeout = kSearchTimeout;
    request.response_max_bytes = kSearchMaxBytes;
    return request;
  });
  if (!answer) return answer.error();
  const HttpResponse& response = answer->response;
  if (response.status == 401 || response.status == 403) {
    context_.log.info("ES_MAY_NOT_READ",
                      "this sink may write but not search, so it is not looked into",
                      {{"sink", context_.name}, {"reason", describe(response)}});
    return std::vector<StoredJob>{};
  }
  if (response.status == 404) return std::vector<StoredJob>{};
  if (response.status != 200) return cannot("search", response);
  const Json json = Json::parse(response.body, nullptr, false);
  if (!json.is_object())
    return Error{ErrorKind::kTransient, "search: the answer is not understood"};
  std::vector<Found> found;
  for (const Json& hit : json.value("/hits/hits"_json_pointer, Json::array())) {
    // Without our template job.id may be words instead of one name.
    if (!hit.is_object() || text_at(hit, "/_source/job/id"_json_pointer) != job_id) continue;
    found.push_back({job_of(hit, answer->host), text_at(hit, "/_source/replaces"_json_pointer)});
  }
  return joined(std::move(found));
}

Result<std::string> Admin::setup(bool print) {
  if (product_ == Product::kAuto) {
    const auto answer =
        ask_any(http_, hosts_, [](const std::string& host) { return get(host, "/"); });
    if (answer) product_ = server_info(answer->response).product;
    if (!answer && !print) return answer.error();
  }
  if (print) return commands();
  // A server that does not say what it is: a proxy, or a user who may not ask.
  if (product_ == Product::kAuto) product_ = Product::kElasticsearch;
  const auto steps = setup_steps(config_, product_);
  if (!steps) return steps.error();
  std::string text;
  bool policies = true;
  for (const SetupStep& step : *steps) {
    if (step.kind == SetupStep::Kind::kPolicy && !policies) continue;
    const auto line = install(step, policies);
    if (!line) return line.error();
    text += *line;
  }
  return text;
}

// For both products, if nobody knows which it is.
Result<std::string> Admin::commands() const {
  std::vector<Product> products{product_};
  if (product_ == Product::kAuto) products = {Product::kElasticsearch, Product::kOpensearch};
  std::string text;
  for (const Product product : products) {
    const auto steps = setup_steps(config_, product);
    if (!steps) return steps.error();
    text += setup_text(config_, product, *steps);
  }
  return text;
}

Result<std::string> Admin::install(const SetupStep& step, bool& policies) {
  const std::string& body =
      !policies && !step.without_policy.empty() ? step.without_policy : step.body;
  const auto answer = ask_any(http_, hosts_, [&](const std::string& host) {
    HttpRequest request = send_json("PUT", host, step.path, body);
    request.timeout = kSetupTimeout;
    return request;
  });
  if (!answer) return answer.error();
  const HttpResponse& response = answer->response;
  if (response.status >= 200 && response.status < 300) {
    const std::string deletes = step.deletes ? ": deletes what is older than " +
                                                   std::to_string(config_.retention_days) +
                                                   " days (retention_days; 0 keeps everything)"
                                             : std::string{};
    return "installed " + step.path + deletes + "\n";
  }
  if (step.kind == SetupStep::Kind::kPolicy) {
    if (response.status == 409) return "left " + step.path + " as it is: it is there already\n";
    if (response.status == 400 || response.status == 404 || response.status == 405) {
      policies = false;
      return "no policies on this server (" + describe(response) +
             "): nothing will be deleted by itself\n";
    }
  }
  return cannot("PUT " + step.path +
                    " (the commands for somebody with more rights: scriptorium setup " +
                    context_.name + " --print)",
                response);
}

}  // namespace scriptorium::elasticsearch
