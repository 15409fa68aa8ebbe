#pragma once

#include <string>

namespace scriptorium {

enum class MetricsFormat {
  kPrometheus,   // text format 0.0.4, https://prometheus.io/docs/instrumenting/exposition_formats/
  kOpenMetrics,  // 1.0, https://prometheus.io/docs/specs/om/open_metrics_spec/
};

// The Content-Type that belongs to it.
const char* content_type(MetricsFormat format) noexcept;

// The answer to `status` (a JSON object as text, from this daemon) as metrics: so a scrape and
// `status --json` cannot disagree. Names, units and labels are listed in docs/metrics.md. Times are
// in seconds, sizes in bytes; labels hold names of the configuration and reasons from short lists,
// never a user or a job. Pure.
std::string render_metrics(const std::string& status_json, MetricsFormat format);

}  // namespace scriptorium
