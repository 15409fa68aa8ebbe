#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "backends/file/environment.h"
#include "backends/file/layout.h"
#include "core/api/event.h"
#include "core/base/result.h"

// The files of one stored event, found by the name of its metadata alone: a tree may have been
// written with a layout and a format of environments that no configuration names any more. Nothing
// is believed but what agrees with the metadata's sizes and hashes.
namespace scriptorium::file {

// Whether a file of this name may be an event's metadata.
bool may_be_metadata(std::string_view name);
// The name that the script or environment would have beside metadata of this name, for each set of
// words that a layout may use.
std::vector<std::string> content_names(std::string_view metadata, FileKind kind);
// The name of the metadata once the job's name changed from `before` to `after`; `metadata` itself
// if the layout does not use that. `slot` 2 and on: the next choices if that name is taken.
std::string renamed_metadata(std::string_view metadata, std::string_view before,
                             std::string_view after, unsigned slot);

// What replaces a file once it is whole: ".NAME.redacted". Where the one of the metadata lies, the
// change takes effect, and the next pass completes it if this one ends early.
std::string pending_name(std::string_view name);
std::string move_note_name(std::string_view name);  // ".NAME.moved": the new name of the metadata
// The NAME of such names; nothing for other names.
std::optional<std::string> name_of_pending(std::string_view name);
std::optional<std::string> name_of_move_note(std::string_view name);

struct StoredContent {
  FileKind kind = FileKind::kScript;
  std::string name;
  EnvironmentStyle style = EnvironmentStyle::kNul;
  Bytes bytes;  // as they were delivered, whatever their format in the file
};
struct StoredEvent {
  std::string metadata;  // its name
  Event event;           // with the bytes of its contents
  std::vector<StoredContent> contents;
};

// The event that metadata describe. kCorrupt: this is not an event's metadata; kVanished: it is not
// there.
Result<Event> read_metadata(int directory, const std::string& name);
// Whether a file's text is that of the event's, in some format.
bool is_content(std::string_view text, FileKind kind, const EventFile& file,
                EnvironmentFormat format);

// The metadata of an event.
Bytes record_of(const Event& event);

// Reads the contents of an event. With `pending`, a file's replacement counts as the file where
// there is one. kCorrupt: one of them is not what was stored; a content that the tree does not hold
// keeps null bytes.
Result<StoredEvent> read_contents(int directory, const std::string& metadata, Event event,
                                  bool pending);

}  // namespace scriptorium::file
