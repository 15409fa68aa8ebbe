#pragma once

#include "core/api/kit/sqlite/connection.h"

// The journal's names for the SQLite wrapper, which it shares with plugins that keep a database.
namespace scriptorium::journal {

using sqlite::Blob;
using sqlite::Connection;
using sqlite::Id;
using sqlite::IdInto;
using sqlite::Large;
using sqlite::Statement;

}  // namespace scriptorium::journal
