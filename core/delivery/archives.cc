#include "core/delivery/archives.h"

#include <chrono>
#include <utility>

#include "core/base/text.h"
#include "core/plugin/call_plugin.h"

namespace scriptorium {

Error no_such_archive(const std::string& name) {
  return Error{ErrorKind::kPermanent, "there is no sink " + printable(name) + " that can be read"};
}

bool is_lost(const Error& error) noexcept {
  return error.kind() == ErrorKind::kVanished || error.kind() == ErrorKind::kCorrupt;
}

void Archives::put(const std::string& name, std::shared_ptr<Sink> sink) {
  bool readable = false;
  static_cast<void>(
      call_plugin([&] { readable = sink != nullptr && sink->readable() != nullptr; }));
  archives_.with([&](auto& archives) {
    archives.erase(name);
    if (readable) archives.emplace(name, Archive{std::move(sink), std::make_shared<CallWatch>()});
  });
}

void Archives::keep_only(const std::vector<std::string>& configured) {
  std::map<std::string, Archive> removed;  // destroyed outside of the lock
  archives_.with([&](auto& archives) {
    removed = std::exchange(archives, {});
    for (const std::string& name : configured) {
      if (auto kept = removed.extract(name)) archives.insert(std::move(kept));
    }
  });
}

std::vector<std::string> Archives::names() const {
  return archives_.with([](const auto& archives) {
    std::vector<std::string> names;
    for (const auto& [name, archive] : archives) names.push_back(name);
    return names;
  });
}

std::optional<Archives::Archive> Archives::find(const std::string& name) const {
  return archives_.with([&](const auto& archives) {
    const auto found = archives.find(name);
    return found == archives.end() ? std::nullopt : std::optional(found->second);
  });
}

std::optional<CallWatch::Call> Archives::call_under_way(const std::string& name) const {
  const auto archive = find(name);
  return archive ? archive->calls->oldest() : std::nullopt;
}

template <typename Call>
std::invoke_result_t<Call, ReadableSink&> Archives::ask(const std::string& name, Call call) const {
  const auto archive = find(name);
  if (!archive) return no_such_archive(name);
  return archive->calls->during("read", std::chrono::steady_clock::now(), [&] {
    return call_plugin("the plugin", ErrorKind::kTransient,
                       [&] { return call(*archive->sink->readable()); });
  });
}

Result<std::shared_ptr<const Event>> Archives::fetch(const Event& locator) const {
  std::optional<Error> lost, unreadable;  // of the first of each sort
  std::string asked;
  for (const std::string& name : names()) {
    auto event = fetch_from(name, locator);
    if (event) return event;
    const Error& error = event.error();
    if (error.kind() == ErrorKind::kPermanent) continue;
    asked += (asked.empty() ? "" : ", ") + name;
    if (is_lost(error)) {
      if (!lost) lost = error;
    } else if (!unreadable) {
      unreadable = error.with_context(name);
    }
  }
  if (unreadable) return *unreadable;
  if (lost) return lost->with_context(asked);
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
