#pragma once

#include <string>
#include <string_view>

// Ids in the JSON that event_json() wrote, without parsing it: a search reads very many records.
// Pure.
namespace scriptorium::file {

// Whether some member "id" has this value. A quote within a string is escaped, so the pattern
// cannot appear inside of one.
bool has_id(std::string_view json, std::string_view id);
// Whether it is the record of an event that has taken the place of the one with this id.
bool replaces_id(std::string_view json, std::string_view id);

// The event's id: the only "id" of 64 hexadecimal digits. "" if there is none.
std::string event_id_of(std::string_view json);

}  // namespace scriptorium::file
