#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "core/cli/console.h"
#include "core/query/array_report.h"

// The tasks of a job array as one report. Pure.
namespace scriptorium::cli {

// One screen, however many tasks there are.
std::string array_text(const query::ArrayReport& report, const Console& console);
nlohmann::ordered_json array_json(const query::ArrayReport& report);

}  // namespace scriptorium::cli
