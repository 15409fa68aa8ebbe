#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/api/logger.h"
#include "core/api/spool_adapter.h"

namespace scriptorium {

// The scheduler's adapter, which is a plugin, behind call_plugin(): nothing that it throws reaches
// capture. A call that threw is logged (ADAPTER_THREW) and answered as for a path or an entry that
// is not the scheduler's.
//
// Threads: as SpoolAdapter; replace() while nobody calls another. Borrows the adapter and the
//          logger for its life.
class GuardedAdapter {
 public:
  // Calls `parse` or, for an entry that has ended the process again and again, does not.
  using AroundParse =
      std::function<void(const SpoolEntry& entry, const std::function<void()>& parse)>;

  GuardedAdapter(const SpoolAdapter& adapter, AroundParse around_parse, std::string source,
                 Logger& log)
      : adapter_(&adapter),
        around_parse_(std::move(around_parse)),
        source_(std::move(source)),
        log_(log) {}

  // Of the same plugin, with another configuration.
  void replace(const SpoolAdapter& adapter) { adapter_ = &adapter; }

  SpoolPath classify(std::string_view path) const;
  Assessment assess(const SpoolEntry& entry) const;
  Result<ParsedJob> parse(const SpoolEntry& entry) const;
  std::optional<std::uint64_t> number_of(std::string_view entry) const;
  std::string path_of(std::string_view entry, std::string_view file) const;
  std::span<const std::string_view> file_names() const;
  Result<void> check_root(std::span<const std::string> names) const;

 private:
  // The call's answer, or `fallback`.
  template <typename Answer, typename Call>
  Answer guard(Answer fallback, Call&& call) const;
  void log_thrown(const std::string& what) const;

  const SpoolAdapter* adapter_;
  const AroundParse around_parse_;
  const std::string source_;
  Logger& log_;
};

}  // namespace scriptorium
