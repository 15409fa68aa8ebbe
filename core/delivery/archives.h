#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "core/api/sink.h"
#include "core/base/guarded.h"
#include "core/base/result.h"
#include "core/delivery/call_watch.h"

namespace scriptorium {

// The configured sinks that can be read back (core/api/readable_sink.h). Reading reaches a network
// file system, so each call may hang for as long as that does.
//
// Owns:    a share of each sink, so that a reload does not destroy one during a fetch.
// Threads: any.
class Archives {
 public:
  // Replaces a sink of that name. A sink that cannot be read is left out, and so is a null one.
  void put(const std::string& name, std::shared_ptr<Sink> sink);
  void keep_only(const std::vector<std::string>& configured);
  std::vector<std::string> names() const;
  // The oldest call under way that reads from a sink.
  std::optional<CallWatch::Call> call_under_way(const std::string& name) const;

  // From the first archive that has it; one that cannot be read keeps nobody from the others.
  // kVanished or kCorrupt only if there is an archive and every one of them answered.
  Result<std::shared_ptr<const Event>> fetch(const Event& locator) const;
  // kPermanent: there is no such archive, or no longer. kVanished also for an event that was
  // delivered without some of its files, when the sink still had the option `parts`.
  Result<std::shared_ptr<const Event>> fetch_from(const std::string& name,
                                                  const Event& locator) const;
  // Leaves such events out, and counts them as skipped.
  Result<ReadableSink::Page> list(const std::string& name, const ReadableSink::Query& query,
                                  const std::string& after, std::size_t limit) const;

 private:
  template <typename Call>
  std::invoke_result_t<Call, ReadableSink&> ask(const std::string& name, Call call) const;

  struct Archive {
    std::shared_ptr<Sink> sink;
    std::shared_ptr<CallWatch> calls;
  };
  std::optional<Archive> find(const std::string& name) const;

  Guarded<std::map<std::string, Archive>> archives_;
};

// The archive has answered: it does not have the event, or not as it was delivered.
bool is_lost(const Error& error) noexcept;

// kPermanent, with the name.
Error no_such_archive(const std::string& name);

}  // namespace scriptorium
