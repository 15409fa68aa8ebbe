#pragma once

#include <optional>

#include "core/api/query.h"

namespace scriptorium::query {

// The jobs that the query does not find although they might belong to it: no event has said yet how
// they ended. Nothing if the query asks for no such field (is_outcome_field()), or only excludes
// by one. Pure.
std::optional<Query> unknown_end(const Query& query);

}  // namespace scriptorium::query
