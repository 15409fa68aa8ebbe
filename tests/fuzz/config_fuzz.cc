#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <string>
#include <string_view>

#include "core/base/text.h"
#include "core/config/config.h"
#include "core/redact/environment.h"

namespace {

using namespace scriptorium;

void require(bool holds, const std::string& what) {
  if (holds) return;
  std::cerr << "broken promise: " << what << "\n";
  std::abort();
}

bool one_line(const std::string& text) {
  if (!is_utf8(text)) return false;
  for (const char c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) return false;
  }
  return true;
}

}  // namespace

// Any bytes as a config: every message is one printable line about a line that exists, and what was
// found good keeps the promises that the rest of the program builds on. Then the rule that was read
// filters the same bytes.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  std::size_t lines = 1;
  for (const char c : text) lines += c == '\n' ? 1 : 0;

  Problems problems;
  const Config config = parse_config(text, "fuzz.toml", problems);
  const bool good = problems.empty();
  for (const SourceInstance& source : config.sources)
    check_unknown_keys(source.table, source_options(), problems);
  for (const SinkInstance& sink : config.sinks)
    check_unknown_keys(sink.table, sink_options(), problems);
  for (const Problem& problem : problems.list()) {
    const std::string message = problem.text();
    require(one_line(message), "a message is one printable line: " + message);
    require(problem.position.line <= lines, "a message names a line that exists: " + message);
    require(!problem.problem.empty(), "a message says what is wrong");
  }
  if (good) {
    require(!config.core.cluster.empty() && config.core.cluster.size() <= 64, "cluster is set");
    require(!config.core.state_dir.empty() && config.core.state_dir.front() == '/',
            "state_dir is absolute");
    require(!config.sources.empty() && !config.sinks.empty(), "there are a source and a sink");
    for (const SinkInstance& sink : config.sinks) {
      require(!sink.common.plugin.empty() && !sink.common.kinds.empty() &&
                  sink.common.workers >= 1 && sink.common.batch_max_events >= 1,
              "a sink can work");
    }
  }

  const Bytes environment = make_bytes(std::string(text));
  for (const SourceInstance& source : config.sources) {
    const EnvironmentRule& rule = source.common.environment;
    const FilteredEnvironment filtered = filter_environment(environment, rule);
    if (rule.mode == EnvironmentRule::Mode::kNone) {
      require(filtered.bytes == nullptr, "none keeps nothing");
    } else if (filtered.dropped == 0) {
      require(filtered.bytes == environment, "without a drop the bytes are the same object");
    } else {
      require(filtered.bytes && filtered.bytes->size() < text.size(), "a drop makes it shorter");
      require(filter_environment(filtered.bytes, rule).dropped == 0,
              "what was kept would be kept again");
    }
  }
  return 0;
}
