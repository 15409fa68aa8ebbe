#include "backends/elasticsearch/outcome.h"

#include <curl/curl.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "backends/elasticsearch/json_text.h"
#include "core/base/ascii.h"
#include "core/base/number.h"
#include "core/base/text.h"

namespace scriptorium::elasticsearch {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kReasonMaxBytes = 200;
constexpr std::size_t kTypeMaxBytes = 64;
constexpr std::size_t kQuoteBytes =
    12;  // as much of a script in a server's words is not a coincidence

// Behind each of these a server quotes what it was sent: the request, the source, a value, a term
// in decimal.
constexpr std::array<std::string_view, 14> kQuotations = {"request: [",
                                                          "in document with id",
                                                          "source[",
                                                          "Preview of",
                                                          "[Source:",
                                                          "prefix of",
                                                          "For input string",
                                                          "Source: (",
                                                          "parsing `",
                                                          "value [",
                                                          "failed to parse date field [",
                                                          "Illegal character",
                                                          "Unrecognized token",
                                                          " for REST request ["};

bool has(std::string_view text, std::string_view part) noexcept {
  return text.find(part) != std::string_view::npos;
}

// An exception's name, or "" for anything else in its place.
std::string exception_name(std::string_view type) {
  const bool plain =
      !type.empty() && type.size() <= kTypeMaxBytes &&
      std::ranges::all_of(type, [](char c) { return is_lower(c) || is_digit(c) || c == '_'; });
  return plain ? std::string(type) : std::string{};
}

ServerError error_of(const Json& json) {
  const auto error = json.find("error");
  if (error == json.end()) return {};
  if (error->is_object())
    return {exception_name(text_of(*error, "type")), text_of(*error, "reason")};
  if (error->is_string()) return {{}, error->get<std::string>()};
  return {};
}

Item item_of(const Json& json) {
  Item item;
  const auto status = json.find("status");
  if (status == json.end() || !status->is_number_integer()) return item;
  item.status = status->get<int>();
  item.id = text_of(json, "_id");
  ServerError error = error_of(json);
  item.type = std::move(error.type);
  item.reason = std::move(error.reason);
  item.failure_store = text_of(json, "failure_store") == "used";
  return item;
}

ItemAction judge_bad_request(const Item& item) noexcept {
  // These say that the cluster or an index is in no state to take any document: the shard limit is
  // reached (often on the first of a month), an index is closed, an alias has nowhere to write to.
  if (item.type == "validation_exception" || item.type == "index_closed_exception" ||
      item.type == "invalid_index_name_exception") {
    return ItemAction::kHold;
  }
  if (item.type == "illegal_argument_exception") {
    if (has(item.reason, "immense term") || has(item.reason, "DocValuesField") ||
        has(item.reason, "Limit of total fields") || has(item.reason, "immense field")) {
      return ItemAction::kReject;
    }
    // A data stream.
    if (has(item.reason, "only write ops with an op_type of create")) {
      return item.changes ? ItemAction::kNoChange : ItemAction::kHold;
    }
    if (has(item.reason, "no write index is defined") ||
        (has(item.reason, "pipeline with id") && has(item.reason, "does not exist"))) {
      return ItemAction::kHold;
    }
    return ItemAction::kSuspect;
  }
  if (item.type == "mapper_parsing_exception" || item.type == "document_parsing_exception" ||
      item.type == "strict_dynamic_mapping_exception") {
    return ItemAction::kReject;
  }
  return ItemAction::kSuspect;
}

// Where `reason` first repeats kQuoteBytes of `text`; its size if it does not.
std::size_t quoted_at(std::string_view reason, std::string_view text) noexcept {
  for (std::size_t i = 0; i + kQuoteBytes <= reason.size(); ++i) {
    if (text.find(reason.substr(i, kQuoteBytes)) != std::string_view::npos) return i;
  }
  return reason.size();
}

constexpr std::string_view kSentenceEnd = " ,.:";

}  // namespace

Result<std::vector<Item>> parse_bulk_answer(std::string_view body,
                                            const std::vector<std::string_view>& ids) {
  const Error unknown(ErrorKind::kTransient, "the server's answer is not understood");
  const Json json = Json::parse(body, nullptr, false);
  if (!json.is_object()) return unknown;
  const auto items = json.find("items");
  if (items == json.end() || !items->is_array()) return unknown;
  if (items->size() != ids.size())
    return Error(ErrorKind::kTransient, "the server answers for another number of documents");
  std::vector<Item> result;
  result.reserve(ids.size());
  for (const Json& entry : *items) {
    // {"create": {"status": 201, ...}}
    if (!entry.is_object() || entry.size() != 1 || !entry.begin()->is_object()) return unknown;
    Item item = item_of(*entry.begin());
    item.changes = entry.begin().key() == "index" || entry.begin().key() == "update";
    // An update that changes nothing is one as well.
    item.dropped = entry.begin().key() != "update" && text_of(*entry.begin(), "result") == "noop";
    if (item.dropped) item.reason = "an ingest pipeline of the server drops the document";
    if (item.status == 0) return unknown;
    if (!item.id.empty() && item.id != ids[result.size()]) {
      return Error(ErrorKind::kTransient, "the server answers for other documents");
    }
    result.push_back(std::move(item));
  }
  return result;
}

ServerError parse_error(std::string_view body) {
  const Json json = Json::parse(body, nullptr, false);
  return json.is_object() ? error_of(json) : ServerError{};
}

ItemAction judge_item(const Item& item) noexcept {
  switch (item.status) {
    case 200:
    case 201: return item.dropped ? ItemAction::kReject : ItemAction::kStored;
    case 409:
      if (item.changes) return ItemAction::kRetry;  // somebody else wrote it in just that moment
      // `create` has no other conflict than a document that is there.
      return item.type.empty() || item.type == "version_conflict_engine_exception"
                 ? ItemAction::kDuplicate
                 : ItemAction::kSuspect;
    case 429:
      // The server's disk is full, and it has made the index read-only.
      return item.type == "cluster_block_exception" ? ItemAction::kHold : ItemAction::kRetry;
    case 408:
    case 502:
    case 503:
    case 504: return ItemAction::kRetry;
    case 403:
      return item.changes && item.type == "security_exception" ? ItemAction::kNoChange
                                                               : ItemAction::kHold;
    case 401:
    case 404:
    case 405:
    case 406: return ItemAction::kHold;
    case 400: return judge_bad_request(item);
    default: return ItemAction::kSuspect;
  }
}

RequestAction judge_request(long status, const ServerError& error) noexcept {
  switch (status) {
    case 200: return RequestAction::kItems;
    case 400:
      return error.type == "validation_exception" ? RequestAction::kHold : RequestAction::kSuspect;
    case 413:
    case 417: return RequestAction::kSplit;
    case 502:
    case 503:
    case 504: return RequestAction::kNextHost;
    case 429:
      return error.type == "cluster_block_exception" ? RequestAction::kHold : RequestAction::kRetry;
    case 408:
    case 500: return RequestAction::kRetry;
    default: break;
  }
  // 401, 403, 404, 405, 406, a redirect: somebody must act. 1xx and other 2xx say nothing about the
  // documents.
  if (status >= 300 && status < 500) return RequestAction::kHold;
  return RequestAction::kRetry;
}

std::string short_reason(long status, std::string_view type) {
  std::string result = std::to_string(status);
  if (!type.empty()) result.append(" ").append(type);
  return result;
}

std::string safe_reason(std::string_view reason) {
  std::size_t end = reason.size();
  for (const std::string_view quotation : kQuotations) end = std::min(end, reason.find(quotation));
  return std::string(trim_end(printable(reason.substr(0, end), kReasonMaxBytes), kSentenceEnd));
}

std::string safe_reason(std::string_view reason, const Event& event) {
  std::string result = safe_reason(reason);
  std::size_t end = result.size();
  for (const EventFile& file : event.files) {
    if (file.bytes != nullptr) end = std::min(end, quoted_at(result, *file.bytes));
  }
  if (end == result.size()) return result;
  return std::string(trim_end(std::string_view(result).substr(0, end), kSentenceEnd)) + "...";
}

std::optional<std::chrono::milliseconds> parse_retry_after(std::string_view text,
                                                           std::int64_t now) {
  constexpr std::int64_t kMostSeconds = 3600;
  text = trim(text);
  if (text.empty() || text.size() > 64) return std::nullopt;
  auto seconds = parse_number<std::int64_t>(text);
  if (!seconds) {
    const std::int64_t date = curl_getdate(std::string(text).c_str(), nullptr);
    if (date < 0) return std::nullopt;
    seconds = date - now;
  }
  return std::chrono::seconds(std::clamp<std::int64_t>(*seconds, 0, kMostSeconds));
}

}  // namespace scriptorium::elasticsearch
