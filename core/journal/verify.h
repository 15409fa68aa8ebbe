#pragma once

#include <string>

#include "core/journal/sqlite.h"

namespace scriptorium::journal {

enum class Extent {
  kStructure,  // SQLite's quick check, the tables' definitions, the checksums of cursors
  kWhole,      // every index, reference and content too, which reads all bytes
};
// What is wrong with the journal, in words; "" = nothing.
std::string verify(Connection& connection, Extent extent);

}  // namespace scriptorium::journal
