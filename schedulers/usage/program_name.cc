#include "schedulers/usage/program_name.h"

#include <algorithm>
#include <array>
#include <vector>

#include "core/base/ascii.h"
#include "core/base/number.h"
#include "core/base/text.h"

namespace scriptorium::usage {
namespace {

using Words = std::vector<std::string_view>;

// More options than this before a script are not searched.
constexpr std::size_t kMostWords = 64;
constexpr std::array<std::string_view, 12> kShells = {
    "sh", "bash", "dash", "zsh", "ksh", "mksh", "ash", "rbash", "rksh", "csh", "tcsh", "fish"};

bool has_blank(std::string_view text) {
  return std::any_of(text.begin(), text.end(),
                     [](char c) { return static_cast<unsigned char>(c) <= ' ' || c == '\x7f'; });
}

std::string_view base_name(std::string_view path) { return path.substr(path.rfind('/') + 1); }

std::string bounded(std::string_view bytes) { return bounded_text(bytes, kLongestProgramName); }

// What follows argv[0]. A last word without its end is left out: the file was longer than what was
// read, or the program wrote over its arguments.
Words words_of(std::string_view arguments) {
  Words words;
  while (words.size() < kMostWords && arguments.find('\0') != std::string_view::npos)
    words.push_back(take_until(arguments, '\0'));
  return words;
}

// The base name of a script. What has blanks may be code or a text, so it is not taken for a file.
std::string_view script_file(const Words& words, std::size_t at) {
  if (at >= words.size() || has_blank(words[at]) || words[at].starts_with("/dev/fd/")) return {};
  return base_name(words[at]);
}

std::string_view module_name(std::string_view text) {
  const bool is_name = std::all_of(
      text.begin(), text.end(), [](char c) { return is_alphanumeric(c) || c == '_' || c == '.'; });
  return is_name ? text : std::string_view{};
}

// Options of one letter may be written together: -uBm. Of c, m, W and X the rest of the word is the
// value, else the next word is.
std::string_view python_script(const Words& words) {
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string_view word = words[i];
    if (word == "-") return {};
    if (word == "--") return script_file(words, i + 1);
    if (!word.starts_with('-')) return script_file(words, i);
    if (word.starts_with("--")) {
      if (word == "--check-hash-based-pycs") ++i;
      continue;
    }
    const std::size_t option = word.find_first_of("cmWX", 1);
    if (option == std::string_view::npos) continue;
    if (word[option] == 'c') return {};
    const std::string_view value = word.substr(option + 1);
    if (word[option] == 'm')
      return module_name(!value.empty() ? value : i + 1 < words.size() ? words[i + 1] : value);
    if (value.empty()) ++i;
  }
  return {};
}

std::string_view perl_script(const Words& words) {
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string_view word = words[i];
    if (word == "-") return {};
    if (word == "--") return script_file(words, i + 1);
    if (!word.starts_with('-')) return script_file(words, i);
    if (word == "-I") ++i;
    if (std::string_view("IMmixFD").find(word[1]) != std::string_view::npos) continue;
    if (word.find_first_of("eE") != std::string_view::npos) return {};
  }
  return {};
}

std::string_view shell_script(const Words& words) {
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string_view word = words[i];
    if (word == "-" || word == "--") return script_file(words, i + 1);
    if (!word.starts_with('-') && !word.starts_with('+')) return script_file(words, i);
    if (word.starts_with("--")) {
      if (word.find("command") != std::string_view::npos) return {};  // fish
      if (word == "--rcfile" || word == "--init-file") ++i;
      continue;
    }
    // -c: the next word is code. -s: the script is standard input. -o and -O have a value: the next
    // word for bash, the rest of this one for zsh.
    if (word.find_first_of("cs") != std::string_view::npos) return {};
    const std::size_t valued = word.find_first_of("oO");
    if (valued == std::string_view::npos) continue;
    if (valued + 1 < word.size()) return {};
    ++i;
  }
  return {};
}

std::string_view r_script(const Words& words) {
  constexpr std::string_view kFile = "--file=";
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (words[i] == "-e" || words[i] == "--args") return {};
    if (words[i] == "-f") return script_file(words, i + 1);
    if (words[i].starts_with(kFile)) return script_file({words[i].substr(kFile.size())}, 0);
  }
  return {};
}

std::string_view rscript_script(const Words& words) {
  const auto is_long = [](std::string_view word) { return word.starts_with("--"); };
  const auto first = std::find_if_not(words.begin(), words.end(), is_long);
  if (first == words.end() || first->starts_with('-')) return {};
  return script_file(words, static_cast<std::size_t>(first - words.begin()));
}

std::string_view julia_script(const Words& words) {
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string_view word = words[i];
    for (const std::string_view code : {"-e", "-E", "-m", "--eval", "--print", "--module"}) {
      if (word.starts_with(code)) return {};
    }
    if (word == "-L" || word == "--load") ++i;
    // Many options have a value of their own, so only what is named as Julia's files are is one.
    if (!word.starts_with('-') && word.ends_with(".jl")) return script_file(words, i);
  }
  return {};
}

std::string_view script_of(std::string_view program, const Words& words) {
  // Without a version: python3.11, perl5.36.0, julia-1.9, ksh93.
  const std::string_view kind = program.substr(0, program.find_last_not_of("0123456789.-") + 1);
  if (kind == "python" || kind == "pypy") return python_script(words);
  if (kind == "perl") return perl_script(words);
  if (kind == "R") return r_script(words);
  if (kind == "Rscript") return rscript_script(words);
  if (kind == "julia") return julia_script(words);
  if (std::find(kShells.begin(), kShells.end(), kind) != kShells.end()) return shell_script(words);
  return {};
}

}  // namespace

std::string bounded_text(std::string_view bytes, std::size_t most) {
  std::string text = to_utf8_lossy(bytes.substr(0, most + 4));
  if (text.size() <= most) return text;
  std::size_t end = most;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  text.resize(end);
  return text;
}

ProgramName name_program(std::string_view command, std::string_view arguments) {
  std::string_view program = take_until(arguments, '\0');
  program = has_blank(program) ? std::string_view{} : base_name(program);
  if (program.starts_with('-')) program.remove_prefix(1);  // a login shell
  if (program.empty()) return {bounded(command.empty() ? "?" : command), {}};
  return {bounded(program), bounded(script_of(program, words_of(arguments)))};
}

// A line: "44 64 254:0 /images/debian / ro,relatime - ext4 /dev/vda rw" (proc_pid_mountinfo(5)).
RootDirectory root_directory(std::string_view mounts) noexcept {
  while (mounts.find('\n') != std::string_view::npos) {
    std::string_view line = take_until(mounts, '\n');
    take_until(line, ' ');
    take_until(line, ' ');
    RootDirectory root;
    root.device = take_until(line, ' ');
    root.path = take_until(line, ' ');
    if (take_until(line, ' ') == "/") return root;
  }
  return {};
}

std::string container_of(const RootDirectory& process, const RootDirectory& machine) {
  // The kernel writes a blank as \040, and //deleted behind the path of what was removed.
  const bool is_odd =
      process.path.find('\\') != std::string_view::npos || process.path.ends_with("//deleted");
  return is_odd || process == machine || machine.path.empty() ? std::string{}
                                                              : bounded(base_name(process.path));
}

std::optional<std::uint64_t> srun_task(std::string_view groups) noexcept {
  constexpr std::string_view kStep = "/step_";
  constexpr std::string_view kTask = "/task_";
  while (!groups.empty()) {
    std::string_view line = take_until(groups, '\n');
    const std::size_t step_at = line.find(kStep);
    if (step_at == std::string_view::npos) continue;
    line.remove_prefix(step_at + kStep.size());
    const auto step = take_number<std::uint32_t>(line);
    const std::size_t task_at = line.find(kTask);
    if (!step || !line.starts_with('/') || task_at == std::string_view::npos) continue;
    line.remove_prefix(task_at + kTask.size());
    const auto task = take_number<std::uint32_t>(line);
    if (task && (line.empty() || line.starts_with('/')))
      return (std::uint64_t{*step} << 32U) | *task;
  }
  return std::nullopt;
}

}  // namespace scriptorium::usage
