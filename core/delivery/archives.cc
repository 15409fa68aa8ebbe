#include "core/delivery/archives.h"

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
  static_cast<void>(
      call_plugin([&] { readable = sink != nullptr && sink->readable() != nullptr; }));
  sinks_.with([&](auto& sinks) {
    sinks.erase(name);
    if (readable) sinks.emplace(name, std::move(sink));
  });
}

void Archives::keep_only(const std::vector<std::string>& configured) {
  std::map<std::string, std::shared_ptr<Sink>> removed;  // destroyed outside of the lock
  sinks_.with([&](auto& sinks) {
    removed = std::exchange(sinks, {});
    for (const std::string& name : configured) {
      if (auto kept = removed.extract(name)) sinks.insert(std::move(kept));
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

template <typename Call>
std::invoke_result_t<Call, ReadableSink&> Archives::ask(const std::string& name, Call call) const {
  const auto sink = sinks_.with([&](const auto& sinks) {
    const auto found = sinks.find(name);
    return found == sinks.end() ? nullptr : found->second;
  });
  if (sink == nullptr) return no_such_archive(name);
  return call_plugin("the plugin", ErrorKind::kTransient, [&] { return call(*sink->readable()); });
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
  auto event = ask(name, [&](ReadableSink& archive) { return archive.fetch(locator); });
  if (event && !(*event)->parts.empty())
    return Error{ErrorKind::kVanished, "it was stored without all its parts"};
  return event;
}

Result<ReadableSink::Page> Archives::list(const std::string& name, const ReadableSink::Query& query,
                                          const std::string& after, std::size_t limit) const {
  auto page = ask(name, [&](ReadableSink& archive) { return archive.list(query, after, limit); });
  if (page)
    page->skipped += std::erase_if(page->events, [](const auto& e) { return !e->parts.empty(); });
  return page;
}

}  // namespace scriptorium
