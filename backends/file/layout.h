#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/api/event.h"
#include "core/api/kit/text_template.h"
#include "core/base/result.h"

// Where an event's files lie below the root. Pure: no file system, no clock.
namespace scriptorium::file {

enum class FileKind { kScript, kEnvironment, kMetadata };
inline constexpr std::array<FileKind, 3> kFileKinds{FileKind::kScript, FileKind::kEnvironment,
                                                    FileKind::kMetadata};
const char* to_string(FileKind kind) noexcept;  // "script", "environment", "metadata"

// A text from outside as part of one path component: never empty, no '/', no leading '.' or '-', no
// control, blank, zero-width or direction character, always UTF-8, at most 64 bytes. Letters of any
// language, digits, '.', '_' and '-' stay; a blank becomes '_'; other bytes become %XX; what is too
// long is cut and gets '~' and eight digits of its sha256. Two texts may give the same part, so who
// writes checks it.
std::string safe_value(std::string_view value);

inline constexpr std::string_view kUnverified = "unverified";
inline constexpr std::string_view kUidPrefix =
    "uid-";  // before the number of a confirmed user without a name
inline constexpr std::size_t kMaxValueBytes = 64;
inline constexpr std::size_t kMaxComponentBytes = 200;

// The name of an event that is not a job script: one file, its record, beside the job's script.
// "usage.json" for usage.job; "usage-node-n1.json", "usage-sample-n1-20261121T012622.364Z.json" and
// "job-checkpoint-n1-20261121T012622.364Z.json", because a job has one for each node and each time;
// for any other kind its words with dashes.
std::string record_word(const Event& event);

inline constexpr unsigned kMaxSlots = 10'000;
// A search for a slot that is taken ends after so many free ones: a free number precedes a taken
// one only where files were moved away or removed.
inline constexpr unsigned kFreeSlotsPassed = 8;

// One event's place. Names of one event differ in the ending only; `slot` 1 is the plain name, 2
// and on put ".2" in front of the ending, for another event that would get the same path.
struct Place {
  std::vector<std::string> directories;  // below the root, from the top
  std::size_t owned_from = 0;  // directories[owned_from...] hold files of one verified user only
  std::string stem;
  std::array<std::string, 3> endings;  // by FileKind: ".sh", ".env", ".json"

  std::string directory() const;  // "alice/2026/11"; "" is the root itself
  std::string name(FileKind kind, unsigned slot) const;
};

// A template such as "{user}/{year}/{month}/{job_id}-{job_name}.{ext}", or the name of a preset.
// Threads: const members from any.
class Layout {
 public:
  static constexpr std::string_view kDefault = "user-month";

  // kInvalidConfig says what is wrong with the template.
  static Result<Layout> parse(std::string_view text);

  // Year, month and day are those of event.time, in UTC. A user who is not verified becomes
  // "unverified", a verified one without a name "uid-4242"; a real user of either name gets its
  // first letter escaped, "%75nverified".
  Place place(const Event& event) const;

  bool has_ext() const noexcept { return has_ext_; }
  bool begins_with_user() const noexcept;
  // What a preset keeps unless the config says otherwise; nothing = all.
  const std::optional<std::vector<FileKind>>& preset_files() const noexcept {
    return preset_files_;
  }

  // For finding a job again: one glob pattern for each directory, and one for the stem of the name.
  struct Search {
    struct Pattern {
      std::string glob;
      std::optional<std::string> exact;  // set if there is nothing to match, only to open
    };
    std::vector<Pattern> directories;
    std::string stem;
    std::array<std::string, 3> endings;
    // ".usage" or ".job-checkpoint" and, at the end, ".json": the ending of a record that is not a
    // job script's.
    std::array<std::string, 2> record_begins;
    std::string record_end;

    // The stem with its slot ("4711-md.2") if the name is one that this search looks for.
    struct Match {
      FileKind kind;
      std::string stem;
    };
    // `kinds` in the order in which endings are tried. A record of another kind is always looked
    // for, and its stem is its whole name, as it is not one of the script's files.
    std::optional<Match> match(std::string_view name, const std::vector<FileKind>& kinds) const;
  };
  Search search(std::string_view job_id) const;
  // For one event wherever it was filed: by another user, account or job name than it has now.
  Search search(const Event& event) const;

  // What the name of a directory says of the jobs below it.
  struct DirectoryFacts {
    std::optional<unsigned> year;
    std::optional<unsigned> month;
    std::optional<unsigned> day;
    std::optional<std::string> user;  // as place() wrote it
  };
  // Adds to `facts` what such a name at this depth tells. False: this layout gives no such name.
  bool read_directory(std::size_t depth, std::string_view name, DirectoryFacts& facts) const;
  bool can_name(std::size_t depth, std::string_view name) const {
    DirectoryFacts facts;
    return read_directory(depth, name, facts);
  }

  std::size_t directory_depth() const noexcept { return directories_.size(); }
  std::array<std::string, 3> endings() const;  // of a job script's files, by FileKind
  // What follows ".json" in the name of a record that is not a job script's.
  std::string after_record() const { return has_ext_ ? after_ext_ : std::string{}; }

 private:
  enum class Field {  // in the order of kFieldNames
    kLiteral,
    kCluster,
    kScheduler,
    kUser,
    kAccount,
    kYear,
    kMonth,
    kDay,
    kJobId,
    kJobName,
    kArrayJobId,
    kExt
  };
  struct Part {
    Field field = Field::kLiteral;
    std::string literal;
  };
  using Component = std::vector<Part>;
  static bool may_contain(const Component& component, char c);
  struct Values;

  // Split at each '/'.
  static std::vector<Component> components_of(const TextTemplate& layout);
  static std::optional<std::string> problem_of(const std::vector<Component>& components);
  // Splits the last component into stem_ and the texts around {ext}.
  void take_ending(Component last);
  static std::string render(const Component& component, const Values& values);
  static Values values_of(const Event& event);
  Search search(const Values& values, const std::vector<Field>& exact) const;
  // Without {ext} the ending of the script's file precedes it, so that no name of a script can
  // be the same.
  std::string before_record() const { return has_ext_ ? before_ext_ : after_ext_ + "."; }

  std::vector<Component> directories_;
  Component stem_;          // of the last component
  std::string before_ext_;  // "."
  std::string after_ext_;   // literal after {ext}, or the whole ending without {ext}
  bool has_ext_ = false;
  std::array<std::string, 3> words_{"sh", "env", "json"};  // what {ext} becomes
  std::optional<std::vector<FileKind>> preset_files_;
};

}  // namespace scriptorium::file
