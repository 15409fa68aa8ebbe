#include "core/delivery/archives.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "core/base/text.h"
#include "core/plugin/call_plugin.h"

namespace scriptorium {

Error no_such_archive(const std::string& name) {
  return Error{ErrorKind::kPermanent, "there is no sink " + printable(name) + " that can be read"};
}

void Archives::put(const std::string& name, std::shared_ptr<Sink> sink) {
  bool readable = false;
  static_cast<void>(call_plugin([&] { readable = sink->readable() != nullptr; }));
  sinks_.with([&](auto& sinks) {
    sinks.erase(name);
    if (readable) sinks.emplace(name, std::move(sink));
  });
}

void Archives::keep_only(const std::vector<std::string>& configured) {
  std::map<std::string, std::shared_ptr<Sink>> removed;  // destroyed outside of the lock
  sinks_.with([&](auto& sinks) {
    for (auto it = sinks.begin(); it != sinks.end();) {
      const bool stays =
          std::find(configured.begin(), configured.end(), it->first) != configured.end();
      const auto here = it++;
      if (!stays) removed.insert(sinks.extract(here));
    }
  });
}

std::vector<std::string> Archives::names() const {
  return sinks_.with([](const auto& sinks) {
    std::vector<std::string> names;
    for (const auto& [name, sink] : sinks) names.push_back(name);
    return names;
  });
}

std::shared_ptr<Sink> Archives::find(const std::string& name) const {
  return sinks_.with([&](const auto& sinks) {
    const auto found = sinks.find(name);
    return found == sinks.end() ? nullptr : found->second;
  });
}

Result<std::shared_ptr<const Event>> Archives::fetch(const Event& locator) const {
  std::optional<Error> missing;
  for (const std::string& name : names()) {
    auto event = fetch_from(name, locator);
    if (event) return event;
    const ErrorKind kind = event.error().kind();
    if (kind == ErrorKind::kPermanent) continue;
    if (kind != ErrorKind::kVanished && kind != ErrorKind::kCorrupt)
      return event.error().with_context(name);
    missing = event.error().with_context(name);
  }
  if (missing) return *missing;
  return Error{ErrorKind::kTransient, "no sink is configured that can be read"};
}

Result<std::shared_ptr<const Event>> Archives::fetch_from(const std::string& name,
                                                          const Event& locator) const {
  const auto sink = find(name);
  if (sink == nullptr) return no_such_archive(name);
  return call_plugin("the plugin", ErrorKind::kTransient,
                     [&] { return sink->readable()->fetch(locator); });
}

Result<ReadableSink::Page> Archives::list(const std::string& name, const ReadableSink::Query& query,
                                          const std::string& after, std::size_t limit) const {
  const auto sink = find(name);
  if (sink == nullptr) return no_such_archive(name);
  return call_plugin("the plugin", ErrorKind::kTransient,
                     [&] { return sink->readable()->list(query, after, limit); });
}

}  // namespace scriptorium
