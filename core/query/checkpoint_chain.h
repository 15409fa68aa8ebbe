#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/api/searchable.h"
#include "core/base/time.h"

// What became of the programs of a job that were saved and resumed: its events job.checkpoint as a
// chain of lives, and what is wrong with that. Texts are printable; what is not known is absent.
// Pure.
namespace scriptorium::query {

inline constexpr const char* kCheckpoint = "checkpoint";  // the events' member, not a plugin's name

struct CheckpointStep {
  enum class Action : std::uint8_t { kMade, kFailed, kRestartFailed, kRestarted, kEnded, kOther };

  Timestamp time;
  std::string node;
  Action action = Action::kOther;
  std::string action_name;  // as the event has it
  bool is_verified = false;
  std::string writer;  // of a step that is not verified; "": not known
  std::optional<std::uint64_t> root_pid;
  std::string manifest_sha256;  // of the image; "": not known
  std::optional<std::uint64_t> image_bytes;
  std::optional<double> frozen_seconds;
  std::optional<bool> runs_on;  // of kMade: the save did not end the program
  std::string reason;
  std::optional<int> exit_code;
  // Of kRestarted: since the save before it. The clocks of the nodes may disagree: then absent.
  std::optional<double> away_seconds;
  // Of kRestarted: the program ran on after that save, so that it does again what it did since.
  bool repeats_work = false;
};
// "saved", "not resumed"; another program's word for kOther.
std::string checkpoint_words(const CheckpointStep& step);

// One program on one node, until it was resumed elsewhere or ended.
struct CheckpointLife {
  std::string node;
  std::vector<CheckpointStep> refused;  // attempts to resume it before this life
  std::optional<CheckpointStep> resumed;
  std::vector<CheckpointStep> saves;    // a program may run on after one
  std::vector<CheckpointStep> unsaved;  // attempts to save it
  std::optional<CheckpointStep> ended;  // by itself
  bool is_verified = true;              // all of these
  std::set<std::string> writers;        // of those that are not
};

// All that is known of one program: its steps are those of the same images and process ids.
struct CheckpointChain {
  std::vector<CheckpointStep> steps;  // by time, each event once
  std::vector<CheckpointLife> lives;
  std::vector<CheckpointStep> refused;  // attempts to resume it that nothing followed
  // Of the lives of which begin and end are known. Lost: the program was saved, waited, was
  // resumed, or did what it does again in the next life. Worked: the rest.
  std::size_t measured_lives = 0;
  double lost_seconds = 0;
  double away_seconds = 0;      // the part of that between a save and a resume
  double repeated_seconds = 0;  // the part of those after a save that did not end the program
  double worked_seconds = 0;
};

// Steps that are not verified count only if the job's owner, as far as that is known, wrote them.
enum class CheckpointTrust : std::uint8_t { kAll, kVerifiedOnly };
// By their first steps. The begin of the first program's first life is that of the job's run, where
// usage events say it.
std::vector<CheckpointChain> checkpoint_chains(const Searchable::Record& record,
                                               CheckpointTrust trust = CheckpointTrust::kAll);

// All of its steps.
bool is_verified(const CheckpointChain& chain);

// "3 lives, 12 min 4 s lost of 5 h 10 min"; "" if no program has had a second one.
std::string checkpoint_sum_text(const std::vector<CheckpointChain>& chains);

struct CheckpointFinding {
  std::string id;
  std::string severity;  // "notice", "warning"
  double value = 0;
  double threshold = 0;
  std::string unit;
  std::string text;  // what was seen, why it matters, what to do
};

// ckpt_thrash: a quarter of the time lost is as much as other findings allow (idle_tail,
// gpu_idle_run); from a half on more is lost than done. Ten minutes as for idle_tail: a short test
// of checkpoints is no waste.
inline constexpr double kThrashNoticeRatio = 0.25;
inline constexpr double kThrashWarningRatio = 0.5;
inline constexpr double kThrashLeastSeconds = 600;
inline constexpr std::size_t kThrashLeastLives = 2;  // of which begin and end are known
// ckpt_never_restored: longer than jobs usually wait in a queue, and shorter than sites usually
// keep unused files. One refused attempt is enough.
inline constexpr double kNeverRestoredSeconds = 7 * 86400;

// Only verified events count.
std::vector<CheckpointFinding> checkpoint_findings(const Searchable::Record& record, Timestamp now);

// For programs: {"programs": [{root_pid, lives, verified, lost_seconds, worked_seconds}],
// "findings": [...]}. Null if nothing was ever saved or resumed.
nlohmann::ordered_json checkpoint_json(const Searchable::Record& record, Timestamp now);

}  // namespace scriptorium::query
