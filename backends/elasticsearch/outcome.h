#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/api/event.h"
#include "core/base/result.h"

// What an answer of the server means. Pure: no sockets, no clock, no log.
namespace scriptorium::elasticsearch {

// What to do about one document, as its item in the answer says.
enum class ItemAction {
  kStored,     // acknowledge
  kDuplicate,  // it was there already: acknowledge
  kRetry,      // not now
  kHold,     // the configuration or the state of the cluster: again, slowly, with one loud message;
             // never a dead letter
  kSuspect,  // undecidable: again, and after enough of that a dead letter
  kReject,   // the document itself, if the server takes others of its family; else as kHold
  kNoChange,  // the server lets us create documents here, but not change them: as a new document
              // (Replacing::kBeside)
};

// What to do about a request as a whole.
enum class RequestAction {
  kItems,     // judge every item
  kNextHost,  // this server cannot; another one may
  kRetry,     // all of it, later
  kHold,      // as with an item
  kSplit,     // it is too large: in two, and a single document is rejected
  kSuspect,   // something in it is not understood: in two, until the guilty document is alone
};

// One item of a bulk answer, as the server gave it.
struct Item {
  int status = 0;
  bool changes = false;  // of an `index` or `update`, which may change a document that is there;
                         // else of a `create`
  std::string id;        // "" if the answer does not say
  std::string type;
  std::string reason;
  bool failure_store = false;  // stored, but among the failures of a data stream
  bool dropped = false;        // answered as a success, and not stored: by an ingest pipeline
};

// The items of an answer with status 200. An error (kTransient) if it is not such an answer, or not
// one for `count` documents with these ids: then nobody knows what was stored.
Result<std::vector<Item>> parse_bulk_answer(std::string_view body,
                                            const std::vector<std::string_view>& ids);

// Type and reason of an answer that is an error as a whole; empty for what is not JSON.
struct ServerError {
  std::string type;
  std::string reason;
};
ServerError parse_error(std::string_view body);

ItemAction judge_item(const Item& item) noexcept;
RequestAction judge_request(long status, const ServerError& error) noexcept;

// Instead of the words that an answer of these servers has.
inline constexpr const char* kStranger =
    "this is no answer of Elasticsearch or OpenSearch; is the address right, or is a proxy or a "
    "login page in between?";

// "429 es_rejected_execution_exception": short and always the same, fit to be counted by.
std::string short_reason(long status, std::string_view type);

// What may be shown of the server's words. Servers quote documents in them: cut before what is
// known to begin a quotation, at most 200 bytes, on one line.
std::string safe_reason(std::string_view reason);
// The same, and cut where it repeats as much as 12 bytes of the event's script or environment.
std::string safe_reason(std::string_view reason, const Event& event);

// "120" or an HTTP date; nothing for anything else. `now` in seconds since 1970.
std::optional<std::chrono::milliseconds> parse_retry_after(std::string_view text, std::int64_t now);

}  // namespace scriptorium::elasticsearch
