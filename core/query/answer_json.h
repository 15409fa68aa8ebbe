#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "core/api/searchable.h"

// An answer for programs. The names are a public contract, as those of job_json(). Texts may hold
// bytes that are not UTF-8: dump with error_handler_t::replace. Pure.
namespace scriptorium::query {

nlohmann::ordered_json count_json(const Searchable::Count& count);
// The job and its matching lines.
nlohmann::ordered_json hit_json(const Searchable::Hit& hit);
// The later events; the schemas of docs/schema.
nlohmann::ordered_json later_json(const Searchable::Record& record);
// The job, its event, and its later events. The event's texts are left out, and `problems` says so,
// if they have more than kMostJsonTextBytes: as JSON they may take six times as much.
inline constexpr std::uint64_t kMostJsonTextBytes = std::uint64_t{1} << 20;
nlohmann::ordered_json record_json(const Searchable::Record& record);
// All but the hits, of the sink `store`.
nlohmann::ordered_json answer_json(const Searchable::Answer& answer, const std::string& store);

}  // namespace scriptorium::query
