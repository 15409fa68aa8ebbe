#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/api/sink.h"

// A job as the journal and the sinks have stored it.
namespace scriptorium::cli {

using Json = nlohmann::ordered_json;

// One place where a capture is stored.
struct Place {
  std::string sink;  // "" = the journal
  StoredJob stored;
};

// One capture of the job. A job whose id was reused, or whose script grew, has several.
struct StoredCapture {
  Json event;  // schema 1; null if no place kept it
  std::vector<Place> places;

  const StoredFile* file(std::string_view name) const {
    for (const Place& place : places) {
      for (const StoredFile& f : place.stored.files) {
        if (f.name == name && f.bytes != nullptr) return &f;
      }
    }
    return nullptr;
  }
};

bool is_script(const StoredCapture& capture);  // not a usage record
std::string time_of(const StoredCapture& capture);
// The JSON value's text, if it is one.
std::optional<std::string> string_of(const Json& value);

// The bytes as captured, or what can be had of them from a sink's conversion.
std::optional<std::string> script_of(const StoredCapture& capture);
// NUL-ended strings.
std::optional<std::string> environment_of(const StoredCapture& capture);

}  // namespace scriptorium::cli
