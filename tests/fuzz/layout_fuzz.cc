// A template and an event's values from arbitrary bytes: whatever they are, the path stays below
// the root.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "backends/file/environment.h"
#include "backends/file/layout.h"
#include "core/base/text.h"

namespace {

void check(bool good) {
  if (!good) std::abort();
}

void check_component(const std::string& part) {
  check(!part.empty() && part.size() <= scriptorium::file::kMaxComponentBytes);
  check(part != "." && part != "..");
  check(part.front() != '.' && part.front() != '-');
  check(part.find('/') == std::string::npos && part.find('\0') == std::string::npos);
  check(scriptorium::is_utf8(part));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace scriptorium;
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  // Fields end at a newline, the last one takes what is left.
  const auto next = [&] {
    const std::size_t end = rest.find('\n');
    const std::string_view field = rest.substr(0, end);
    rest = end == std::string_view::npos ? std::string_view{} : rest.substr(end + 1);
    return std::string(field);
  };
  const std::string text = next();
  Event event;
  event.job.id = next();
  event.user.name = next();
  event.user.verified = !event.user.name->empty();
  event.job.account = next();
  event.cluster = next();
  event.scheduler = next();
  event.time = Timestamp{static_cast<std::int64_t>(size * 0x9e3779b97f4a7c15ULL)};
  event.job.name = std::string(rest);

  const std::string value = file::safe_value(rest);
  check(value.size() <= file::kMaxValueBytes);
  check_component(value);

  static_cast<void>(
      file::render_environment(rest, EnvironmentFormat::kNulEnded, file::EnvironmentStyle::kShell));
  static_cast<void>(
      file::render_environment(rest, EnvironmentFormat::kNulEnded, file::EnvironmentStyle::kLines));

  for (const std::string_view candidate :
       {std::string_view(text), std::string_view("user-month")}) {
    const auto layout = file::Layout::parse(candidate);
    if (!layout) continue;
    const file::Place place = layout->place(event);
    for (const std::string& directory : place.directories) check_component(directory);
    const auto search = layout->search(event.job.id);
    check(search.directories.size() == place.directories.size());
    for (const file::FileKind kind : file::kFileKinds) {
      for (const unsigned slot : {1U, 2U, 10'000U}) check_component(place.name(kind, slot));
    }
  }
  return 0;
}
