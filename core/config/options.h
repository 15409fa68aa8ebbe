#pragma once

#include <string_view>

#include "core/config/config.h"

// The schemas of core's own tables. Only core/config uses them; other code calls core_options() and
// similar functions.
namespace scriptorium {

const Schema<CoreConfig>& core_schema();
const Schema<ReportConfig>& report_schema();
const Schema<ServeConfig>& serve_schema();
const Schema<SourceConfig>& source_schema();
const Schema<SinkConfig>& sink_schema();

// [a-z][a-z0-9_-]*, at most 64: names of instances and plugins. They appear in file names, status
// and logs.
bool is_instance_name(std::string_view name) noexcept;
inline constexpr const char* kInstanceNameRule =
    "a lower-case letter, then at most 63 of a-z, 0-9, _ and -";

}  // namespace scriptorium
