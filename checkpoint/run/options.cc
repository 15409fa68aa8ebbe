#include "checkpoint/run/options.h"

#include <algorithm>
#include <optional>

#include "core/base/number.h"
#include "core/base/text.h"

namespace scriptorium::checkpoint {
namespace {

constexpr int kMostKept = 100;

Error usage_error(std::string why) { return {ErrorKind::kPermanent, std::move(why)}; }

}  // namespace

const char* const kRunHelp =
    "usage: scriptorium-run [OPTIONS] [--] COMMAND [ARGUMENT]...\n"
    "Runs COMMAND in a batch job of Slurm or OAR. On SIGUSR2 the command is saved and the job "
    "ends\n"
    "with exit code 99, with which the scheduler runs it again; then the command is resumed where\n"
    "it was saved. In the end the exit code is the command's own.\n"
    "  --save-dir DIR        for images and output; default: scriptorium-run.JOB in the working\n"
    "                        directory. Two jobs cannot use one at the same time.\n"
    "                        With it, your files in $TMPDIR go along\n"
    "  --every TIME          save it at this interval too, such as 30m or 2h, while it continues\n"
    "  --keep N              images to keep, the newest included, up to the service's limit; "
    "default:\n"
    "                        that limit, which is 2 if the administrator has not changed it\n"
    "  --engine auto|criu|app  what saves the command; auto: criu, by scriptorium-checkpointd;\n"
    "                        app: the command itself\n"
    "  --keep-after-success  keep the images when the command has ended with exit code 0\n"
    "  --help, --version\n";

std::int64_t parse_period(std::string_view text) {
  const auto count = take_number<std::int64_t>(text);
  constexpr std::int64_t kMost = std::int64_t{365} * 86400;
  if (!count || *count < 1 || *count > kMost || text.size() != 1) return 0;
  switch (text.front()) {
    case 's': return *count;
    case 'm': return std::min(*count * 60, kMost);
    case 'h': return std::min(*count * 3600, kMost);
    case 'd': return std::min(*count * 86400, kMost);
    default: return 0;
  }
}

Result<RunOptions> parse_run_options(const std::vector<std::string>& words) {
  RunOptions options;
  auto word = words.begin();
  for (; word != words.end() && word->starts_with('-'); ++word) {
    if (*word == "--") {
      ++word;
      break;
    }
    const auto equals = word->find('=');
    const std::string name = word->substr(0, equals);
    std::optional<std::string> value;
    if (equals != std::string::npos) value = word->substr(equals + 1);
    const bool takes_value =
        name == "--save-dir" || name == "--engine" || name == "--every" || name == "--keep";
    if (takes_value && !value && word + 1 != words.end()) value = *++word;
    if (takes_value != value.has_value())
      return usage_error(name + (takes_value ? " needs a value" : " takes no value"));
    if (name == "--save-dir") {
      options.save_dir = *value;
      if (value->empty()) return usage_error("--save-dir needs a directory");
    } else if (name == "--engine") {
      options.engine = *value == "app" ? RunEngine::kApp : RunEngine::kCriu;
      if (*value != "auto" && *value != "criu" && *value != "app")
        return usage_error("--engine is auto, criu or app, not \"" + printable(*value) + "\"");
    } else if (name == "--every") {
      options.every_seconds = parse_period(*value);
      if (options.every_seconds == 0)
        return usage_error("--every is a time such as 30m or 2h, not \"" + printable(*value) +
                           "\"");
    } else if (name == "--keep") {
      options.keep = parse_number<int>(*value).value_or(0);
      if (options.keep < 1 || options.keep > kMostKept)
        return usage_error("--keep is a number of images from 1 to 100, not \"" +
                           printable(*value) + "\"");
    } else if (name == "--keep-after-success") {
      options.keeps_images = true;
    } else if (name == "--help") {
      options.shows_help = true;
    } else if (name == "--version") {
      options.shows_version = true;
    } else {
      return usage_error("unknown option \"" + printable(name) + "\"");
    }
  }
  options.command.assign(word, words.end());
  if (options.command.empty() && !options.shows_help && !options.shows_version)
    return usage_error("no command is given");
  return options;
}

}  // namespace scriptorium::checkpoint
