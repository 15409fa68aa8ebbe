#include "backends/file/job_files.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "backends/file/outcome.h"
#include "backends/file/store.h"
#include "core/base/sha256.h"
#include "core/base/text.h"

namespace scriptorium::file {
namespace {

constexpr std::uint64_t kMostMetadataBytes = 64U << 20;
constexpr std::uint64_t kMostContentBytes = std::uint64_t{1} << 30;
constexpr std::string_view kPendingEnding = ".redacted";
constexpr std::string_view kMoveEnding = ".moved";

// The words that {ext} becomes: those of the default, and those of the presets (layout.cc).
struct Words {
  std::string_view script, environment, metadata;
};
constexpr std::array<Words, 3> kWords{{{"sh", "env", "json"},
                                       {"script", "environment", "metadata.json"},
                                       {"savescript", "env", "json"}}};

std::string_view word_of(const Words& words, FileKind kind) {
  return kind == FileKind::kScript ? words.script : words.environment;
}

std::optional<std::string> inner_name(std::string_view name, std::string_view ending) {
  if (!name.starts_with('.') || !name.ends_with(ending) || name.size() < ending.size() + 2)
    return std::nullopt;
  return std::string(name.substr(1, name.size() - 1 - ending.size()));
}

// The bytes that were delivered, if `text` is what some format makes of them.
std::optional<std::string> delivered_bytes(std::string_view text, FileKind kind,
                                           const EventFile& file, EnvironmentFormat format,
                                           EnvironmentStyle& style) {
  const auto matches = [&](std::string_view bytes) {
    return bytes.size() == file.size && sha256_hex(bytes) == file.sha256;
  };
  if (matches(text)) return std::string(text);
  if (kind != FileKind::kEnvironment) return std::nullopt;
  for (const EnvironmentStyle candidate : {EnvironmentStyle::kLines, EnvironmentStyle::kShell}) {
    auto bytes = parse_environment(text, format, candidate);
    if (!bytes || !matches(*bytes)) continue;
    style = candidate;
    return bytes;
  }
  return std::nullopt;
}

// Nothing: the tree holds no file of such a name. kCorrupt: there is one, with other bytes.
Result<std::optional<StoredContent>> find_content(int directory, const std::string& metadata,
                                                  FileKind kind, const EventFile& file,
                                                  EnvironmentFormat format, bool pending) {
  bool differs = false;
  for (const std::string& name : content_names(metadata, kind)) {
    auto text = pending ? read_beneath(directory, pending_name(name), kMostContentBytes)
                        : Result<std::string>(file_error(ENOENT));
    if (!text && text.error().kind() == ErrorKind::kVanished)
      text = read_beneath(directory, name, kMostContentBytes);
    if (!text && text.error().kind() == ErrorKind::kVanished) continue;
    if (!text) return text.error();
    StoredContent content{.kind = kind, .name = name, .bytes = nullptr};
    if (auto bytes = delivered_bytes(*text, kind, file, format, content.style)) {
      content.bytes = make_bytes(*std::move(bytes));
      return std::optional(std::move(content));
    }
    differs = true;
  }
  if (differs) return Error{ErrorKind::kCorrupt, "not what was stored"};
  return std::optional<StoredContent>{};
}

}  // namespace

bool may_be_metadata(std::string_view name) {
  return !name.starts_with('.') && name.find("json") != std::string_view::npos;
}

std::vector<std::string> content_names(std::string_view metadata, FileKind kind) {
  std::vector<std::string> names;
  for (const Words& words : kWords) {
    const std::size_t at = metadata.rfind(words.metadata);
    if (at == std::string_view::npos) continue;
    std::string name(metadata);
    name.replace(at, words.metadata.size(), word_of(words, kind));
    if (name != metadata && std::ranges::find(names, name) == names.end())
      names.push_back(std::move(name));
  }
  return names;
}

std::string renamed_metadata(std::string_view metadata, std::string_view before,
                             std::string_view after, unsigned slot) {
  std::string name(metadata);
  const std::string old_part = safe_value(before);
  const std::size_t at = name.rfind(old_part);
  if (at == std::string::npos || before == after) return name;
  name.replace(at, old_part.size(), safe_value(after));
  if (slot > 1) {
    std::size_t ending = std::min(name.rfind("metadata.json"), name.rfind("json"));
    if (ending != std::string::npos)
      name.insert(ending > 0 ? ending - 1 : 0, "." + std::to_string(slot));
  }
  return name;
}

std::string pending_name(std::string_view name) {
  return std::string(".").append(name).append(kPendingEnding);
}
std::string move_note_name(std::string_view name) {
  return std::string(".").append(name).append(kMoveEnding);
}
std::optional<std::string> name_of_pending(std::string_view name) {
  return inner_name(name, kPendingEnding);
}
std::optional<std::string> name_of_move_note(std::string_view name) {
  return inner_name(name, kMoveEnding);
}

Result<Event> read_metadata(int directory, const std::string& name) {
  auto json = read_beneath(directory, name, kMostMetadataBytes);
  if (!json) return json.error();
  auto event = event_from_json(*json);
  if (event && (event->id.size() != 64 || !hex_decode(event->id)))
    return Error{ErrorKind::kCorrupt, "not an event's metadata"};
  return event;
}

bool is_content(std::string_view text, FileKind kind, const EventFile& file,
                EnvironmentFormat format) {
  EnvironmentStyle style{};
  return delivered_bytes(text, kind, file, format, style).has_value();
}

Bytes record_of(const Event& event) {
  return make_bytes(event_json(event, {.script_text = false, .environment = false, .indent = 2}) +
                    '\n');
}

Result<StoredEvent> read_contents(int directory, const std::string& metadata, Event event,
                                  bool pending) {
  StoredEvent stored{.metadata = metadata, .event = std::move(event), .contents = {}};
  for (const FileKind kind : {FileKind::kScript, FileKind::kEnvironment}) {
    for (EventFile& file : stored.event.files) {
      if (file.name != to_string(kind)) continue;
      auto content =
          find_content(directory, metadata, kind, file, stored.event.environment_format, pending);
      if (!content) return content.error();
      if (!*content) continue;
      file.bytes = (*content)->bytes;
      stored.contents.push_back(**std::move(content));
    }
  }
  return stored;
}

}  // namespace scriptorium::file
