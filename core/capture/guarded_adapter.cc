#include "core/capture/guarded_adapter.h"

#include "core/plugin/call_plugin.h"

namespace scriptorium {

template <typename Answer, typename Call>
Answer GuardedAdapter::guard(Answer fallback, Call&& call) const {
  if (const auto thrown = call_plugin([&] { fallback = call(); })) log_thrown(*thrown);
  return fallback;
}

SpoolPath GuardedAdapter::classify(std::string_view path) const {
  return guard(SpoolPath{}, [&] { return adapter_->classify(path); });
}

Assessment GuardedAdapter::assess(const SpoolEntry& entry) const {
  return guard(Assessment{}, [&] { return adapter_->assess(entry); });
}

Result<ParsedJob> GuardedAdapter::parse(const SpoolEntry& entry) const {
  Result<ParsedJob> parsed =
      Error{ErrorKind::kPermanent, "the adapter has ended the process on it again and again"};
  const auto parse = [&] { parsed = adapter_->parse(entry); };
  const auto thrown = call_plugin([&] { around_parse_ ? around_parse_(entry, parse) : parse(); });
  if (!thrown) return parsed;
  log_thrown(*thrown);
  return Error{ErrorKind::kPermanent, "the adapter threw: " + *thrown};
}

std::optional<std::uint64_t> GuardedAdapter::number_of(std::string_view entry) const {
  return guard(std::optional<std::uint64_t>{}, [&] { return adapter_->number_of(entry); });
}

std::string GuardedAdapter::path_of(std::string_view entry, std::string_view file) const {
  // The fallback is what an adapter without its own path_of() means.
  std::string path;
  const auto thrown = call_plugin([&] { path = adapter_->path_of(entry, file); });
  if (!thrown) return path;
  log_thrown(*thrown);
  return std::string(entry) + '/' + std::string(file);
}

std::span<const std::string_view> GuardedAdapter::file_names() const {
  return guard(std::span<const std::string_view>{}, [&] { return adapter_->file_names(); });
}

Result<void> GuardedAdapter::check_root(std::span<const std::string> names) const {
  return guard(Result<void>{}, [&] { return adapter_->check_root(names); });
}

void GuardedAdapter::log_thrown(const std::string& what) const {
  log_.error("ADAPTER_THREW",
             "the scheduler adapter threw an exception; the path or entry is left out; this is a "
             "bug of the plugin",
             {{"source", source_}, {"what", what}});
}

}  // namespace scriptorium
