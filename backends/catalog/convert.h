#pragma once

#include <cstdint>

#include "core/api/kit/sqlite/connection.h"

namespace scriptorium::catalog {

// Makes a file of an older format, from kOldestFormat on, one of kFormat, in one transaction. An
// error sticks to the connection; the caller rolls back. Of a segment that was written before
// format 5 every later event is read once.
bool convert_tables(sqlite::Connection& db, std::int64_t format);

}  // namespace scriptorium::catalog
