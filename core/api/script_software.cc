#include "core/api/script_software.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <set>
#include <span>
#include <utility>

#include "core/api/job_script.h"
#include "core/base/ascii.h"

namespace scriptorium {
namespace {

using namespace std::literals;

constexpr std::size_t kMaxLogicalLine = 64U << 10;
constexpr int kMostNested = 4;  // commands within the text of a command

bool is_separator(char c) noexcept {
  return c == ';' || c == '&' || c == '|' || c == '(' || c == ')';
}

// Whether the list, with blanks between its words, has the word.
bool is_one_of(std::string_view word, std::string_view list) noexcept {
  for (std::size_t at = list.find(word); at != std::string_view::npos;
       at = list.find(word, at + 1)) {
    const std::size_t end = at + word.size();
    if ((at == 0 || list[at - 1] == ' ') && (end == list.size() || list[end] == ' '))
      return word.find(' ') == std::string_view::npos;
  }
  return false;
}

// ---- words of the shell

// One simple command.
struct Command {
  std::vector<std::string> words;          // without quotes, substitutions as written
  std::vector<std::string_view> commands;  // those that it substitutes, without $( ) and ` `
};

// The position after the substitution that begins at `at` ("$(...)", "${...}" or "`...`"), or the
// end of the text if it is not closed.
std::size_t substitution_end(std::string_view line, std::size_t at) noexcept {
  if (line[at] == '`') {
    const std::size_t end = line.find('`', at + 1);
    return end == std::string_view::npos ? line.size() : end + 1;
  }
  const char open = line[at + 1];
  const char close = open == '(' ? ')' : '}';
  std::size_t depth = 0;
  for (std::size_t i = at + 1; i < line.size(); ++i) {
    if (line[i] == open) ++depth;
    if (line[i] == close && --depth == 0) return i + 1;
  }
  return line.size();
}

bool is_substitution(std::string_view line, std::size_t at) noexcept {
  return line[at] == '`' ||
         (line[at] == '$' && at + 1 < line.size() && (line[at + 1] == '(' || line[at + 1] == '{'));
}

// Reads one word at `at` into `command` and moves `at` past it. An open quote ends with the line,
// so that an apostrophe in a here-document affects only its own line.
void read_word(std::string_view line, std::size_t& at, Command& command) {
  std::string word;
  char quote = '\0';
  while (at < line.size()) {
    const char c = line[at];
    if (quote == '\0' && (is_script_blank(c) || is_separator(c) || c == '<' || c == '>')) break;
    if (quote != '\'' && is_substitution(line, at)) {
      const std::size_t end = substitution_end(line, at);
      const std::string_view text = line.substr(at, end - at);
      word += text;
      if (c == '`') {
        command.commands.push_back(text.substr(1, text.size() - 1 - (text.ends_with('`') ? 1 : 0)));
      } else if (text[1] == '(') {
        command.commands.push_back(text.substr(2, text.size() - 2 - (text.ends_with(')') ? 1 : 0)));
      }
      at = end;
      continue;
    }
    ++at;
    if (c == '\\' && quote != '\'' && at < line.size()) {
      if (quote == '"' && line[at] != '"' && line[at] != '\\' && line[at] != '$' && line[at] != '`')
        word += c;
      word += line[at++];
    } else if (quote == c) {
      quote = '\0';
    } else if (quote == '\0' && (c == '"' || c == '\'')) {
      quote = c;
    } else {
      word += c;
    }
  }
  command.words.push_back(std::move(word));
}

// Moves `at` past a redirection and its target; false if there is none.
bool skip_redirection(std::string_view line, std::size_t& at) {
  std::size_t sign = at;
  while (sign < line.size() && is_digit(line[sign])) ++sign;
  if (line[at] == '&' && at + 1 < line.size() && line[at + 1] == '>') sign = at + 1;
  if (sign == line.size() || (line[sign] != '<' && line[sign] != '>')) return false;
  at = line.find_first_not_of("<>&|", sign);
  at = at == std::string_view::npos ? line.size() : line.find_first_not_of(kScriptBlanks, at);
  if (at == std::string_view::npos) at = line.size();
  Command target;
  read_word(line, at, target);
  return true;
}

// Calls use(command) for each simple command of a line.
template <typename Use>
void for_each_command(std::string_view line, const Use& use) {
  Command command;
  std::size_t at = 0;
  while (at < line.size() && line[at] != '#') {
    if (is_script_blank(line[at])) {
      ++at;
    } else if (skip_redirection(line, at)) {
      continue;
    } else if (is_separator(line[at])) {
      use(std::exchange(command, {}));
      ++at;
    } else {
      read_word(line, at, command);
    }
  }
  use(std::move(command));
}

// ---- the commands that matter

// The rest of a command's words.
using Words = std::span<const std::string>;

// "conda" of "/opt/bin/conda" and of "$(which conda)".
std::string_view program_name(std::string_view word) noexcept {
  const bool substituted = (word.starts_with("$(") && word.ends_with(')')) ||
                           (word.starts_with('`') && word.ends_with('`'));
  if (substituted) word.remove_suffix(1);
  return word.substr(word.find_last_of(substituted ? "/ " : "/") + 1);
}

// Which options take a value: "bind", 'B'.
struct OptionsWithValue {
  std::string_view names;
  std::string_view letters;
  bool all_others = false;  // these take none, all others do
};

// Whether an option's value is the next word.
bool takes_next_word(std::string_view word, const OptionsWithValue& with_value) noexcept {
  if (word.starts_with("--"))
    return word.find('=') == std::string_view::npos &&
           is_one_of(word.substr(2), with_value.names) != with_value.all_others;
  // "-it": flags; "-itv": the last one takes the value; "-v/a:/b" has it.
  const std::size_t letter = with_value.all_others ? word.find_first_not_of(with_value.letters, 1)
                                                   : word.find_first_of(with_value.letters, 1);
  return letter != std::string_view::npos && letter + 1 == word.size();
}

// Removes the option at the beginning, and its value.
Words after_option(Words words, const OptionsWithValue& with_value) noexcept {
  const std::size_t count = takes_next_word(words.front(), with_value) ? 2 : 1;
  return words.subspan(std::min(count, words.size()));
}

Words after_options(Words words, const OptionsWithValue& with_value) noexcept {
  while (!words.empty() && words.front().starts_with('-')) {
    if (words.front() == "--") return words.subspan(1);
    words = after_option(words, with_value);
  }
  return words;
}

// The value of an option such as -n NAME, -nNAME, --name NAME or --name=NAME, wherever it is before
// the first word that is none.
std::string_view option_value(Words words, std::string_view names,
                              const OptionsWithValue& with_value) noexcept {
  for (; !words.empty() && words.front().starts_with('-');
       words = after_option(words, with_value)) {
    const std::string_view word = words.front();
    const std::string_view name = word.substr(0, word.find('='));
    if (is_one_of(name, names)) {
      if (name.size() < word.size()) return word.substr(name.size() + 1);
      return words.size() > 1 ? std::string_view(words[1]) : std::string_view();
    }
    if (is_one_of(word.substr(0, 2), names)) return word.substr(2);
  }
  return {};
}

// Words that may precede a command on the same line.
constexpr std::string_view kBefore =
    "if then elif else while until do ! time { exec command builtin";
// Commands that run the command which follows their own options.
constexpr std::string_view kLaunchers =
    "srun mpirun mpiexec mpiexec.hydra orterun prun aprun jsrun ibrun env sudo nohup nice timeout "
    "taskset numactl stdbuf setsid xargs tclsh perf ionice parallel time";
constexpr std::string_view kShells = "bash sh zsh ksh dash csh tcsh";
constexpr std::string_view kModuleCommands = "modulecmd modulecmd.tcl lmod $LMOD_CMD ${LMOD_CMD}";

constexpr std::string_view kLoad = "load add try-load try-add load-any";
constexpr std::string_view kSwap = "swap switch sw";
// Commands of `ml` (Lmod and Environment Modules) that load nothing. Any other first word of `ml`
// is a module.
constexpr std::string_view kOther =
    "av avail apropos append-path category clear config del describe disable display edit freeze "
    "help is-avail is-loaded is-saved is-used key keyword list mod-to-sh overview ov path paths "
    "prepend-path purge refresh reload remove-path reset restore rm remove save savelist saverm "
    "saveshow search show source spider stash test tablelist unload unuse update use whatis "
    "whereis unsource unswap initlist initadd initrm initclear mcc cachebuild cacheclear aliases "
    "lint sh-to-mod";

// Options of `apptainer` and of its exec, run, shell, test and `instance start` that take a value
// (apptainer 1.4, cmd/internal/cli/action_flags.go; those of SingularityCE 4 and Singularity 2
// beside them).
constexpr std::string_view kApptainerNames =
    "add-caps app apply-cgroups authfile bind blkio-weight blkio-weight-device cdi-dirs config "
    "configdir containlibs cpu-shares cpus cpuset-cpus cpuset-mems cwd data device dmtcp-launch "
    "dmtcp-restart dns docker-host docker-password docker-username drop-caps env env-file "
    "fusemount home hostname memory memory-reservation memory-swap mount netns-path network "
    "network-args no-mount overlay pem-path pid-file pids-limit pwd runscript-timeout scratch "
    "security shell workdir";

// Options of `docker run`, `podman run` and create that take no value; all others do (docker 28,
// podman 5).
constexpr OptionsWithValue kDockerOptions{
    "detach disable-content-trust env-host help http-proxy init interactive no-healthcheck "
    "no-hostname no-hosts oom-kill-disable passwd privileged publish-all quiet read-only "
    "read-only-tmpfs replace rm rmi rootfs sig-proxy tls-verify tty unsetenv-all use-api-socket",
    "ditPq", true};
constexpr OptionsWithValue kDockerGlobal{
    "config context host log-level root runroot url connection identity storage-driver "
    "storage-opt tlscacert tlscert tlskey module cgroup-manager runtime tmpdir imagestore "
    "events-backend conmon hooks-dir",
    "cHl"};

constexpr OptionsWithValue kCondaOptions{"name prefix cwd rc-file root-prefix attach env label",
                                         "nprae"};
constexpr std::string_view kCondaEnvironment = "-n --name -p --prefix";

class Reader {
 public:
  UsedSoftware take() { return std::move(result_); }
  bool is_full() const {
    return result_.modules.size() >= kMaxScriptItems && result_.software.size() >= kMaxScriptItems;
  }

  void read_line(std::string_view line, int nested = 0) {
    for_each_command(line, [&](const Command& command) { read(command, nested); });
  }

 private:
  void read(const Command& command, int nested) {
    if (nested < kMostNested) {
      for (const std::string_view substituted : command.commands)
        read_line(substituted, nested + 1);
    }
    Words words = command.words;
    while (!words.empty()) {
      const bool is_option =  // time -p
          words.size() < command.words.size() && words.front().starts_with('-');
      if (is_option || is_assignment(words.front()) || is_one_of(words.front(), kBefore)) {
        words = words.subspan(1);
      } else if (words.front() == "function") {
        words = words.subspan(std::min<std::size_t>(2, words.size()));
      } else {
        break;
      }
    }
    if (!words.empty()) read_simple(words, nested);
  }

  void read_simple(Words words, int nested) {
    const std::string_view first = words.front();
    const Words rest = words.subspan(1);
    if (first == "module" || first == "ml") return read_module(rest, first == "ml");
    if (first == "source" || first == ".") return read_source(rest);
    // Each of eval's words is text of its own; those that are a substitution were read.
    if (first == "eval") return read_text(rest, nested);
    // os.popen('modulecmd python load a')
    const std::size_t blank = first.find_first_of(kScriptBlanks);
    if (rest.empty() && blank != std::string_view::npos &&
        is_one_of(program_name(first.substr(0, blank)), kModuleCommands))
      return read_text(words, nested);
    if (!is_one_of(program_name(first), kLaunchers)) return read_program(words, nested);
    const auto program = std::find_if(rest.begin(), rest.end(), is_program);
    if (program != rest.end()) read_program(rest.subspan(program - rest.begin()), nested);
  }

  static bool is_program(std::string_view word) noexcept {
    const std::string_view name = program_name(word);
    return is_one_of(name, kShells) || is_one_of(name, kModuleCommands) ||
           is_one_of(name, "apptainer singularity docker podman conda mamba micromamba");
  }

  // A program that may also be named by its path and follow a launcher.
  void read_program(Words words, int nested) {
    const std::string_view name = program_name(words.front());
    const Words rest = words.subspan(1);
    if (is_one_of(name, kModuleCommands)) {
      if (rest.size() > 1) read_module(rest.subspan(1), false);  // the first one is the shell
    } else if (is_one_of(name, kShells)) {
      read_shell(rest, nested);
    } else if (name == "apptainer" || name == "singularity") {
      read_apptainer(name, after_options(rest, {kApptainerNames, "c"}));
    } else if (name == "docker" || name == "podman") {
      read_docker(name, after_options(rest, kDockerGlobal));
    } else if (is_one_of(name, "conda mamba micromamba")) {
      read_conda(name == "conda" ? "conda" : "mamba", rest);
    } else if (name == "spack") {
      read_spack(rest);
    }
  }

  void read_text(Words texts, int nested) {
    if (nested >= kMostNested) return;
    for (const std::string& text : texts) {
      if (text.find_first_of(kScriptBlanks) == std::string::npos) continue;
      const bool was_read = is_substitution(text, 0) && substitution_end(text, 0) == text.size();
      if (!was_read) read_line(text, nested + 1);
    }
    // eval module load a
    if (!texts.empty() && texts.front().find_first_of(kScriptBlanks) == std::string::npos)
      read_simple(texts, nested + 1);
  }

  // bash -euo pipefail -c "module load a"
  void read_shell(Words words, int nested) {
    const Words rest = after_options(words, {"rcfile init-file", "oO"});
    const Words options = words.first(words.size() - rest.size());
    const bool is_text = std::any_of(options.begin(), options.end(), [](std::string_view word) {
      return word.starts_with('-') && !word.starts_with("--") && word.find('c') != word.npos;
    });
    if (is_text && !rest.empty()) read_text(rest.first(1), nested);
  }

  void read_module(Words words, bool short_form) {
    // "module --silent load X"; but "ml -GCC" unloads GCC, and a list of modules follows.
    while (!words.empty() && words.front().starts_with('-')) words = words.subspan(1);
    if (words.empty()) return;
    const std::string& action = words.front();
    if (is_one_of(action, kSwap)) {
      if (words.size() > 1) add_module(words.back());  // the last one is the new module
      return;
    }
    if (is_one_of(action, kLoad)) {
      words = words.subspan(1);
    } else if (!short_form || is_one_of(action, kOther) || action.ends_with('=')) {
      return;
    }
    for (const std::string& name : words) add_module(name);
  }

  // "source activate NAME" and "source MINICONDA/bin/activate NAME" are conda's, "source
  // DIRECTORY/bin/activate" is a venv's.
  void read_source(Words words) {
    if (words.empty()) return;
    const std::string_view file = words.front();
    if (!is_one_of(program_name(file), "activate activate.csh activate.fish")) return;
    if (words.size() > 1) return add("conda", words[1]);
    const std::size_t end = file.rfind("/bin/");
    if (end == std::string_view::npos) return;
    const std::string_view directory = file.substr(0, end);
    const std::string lower = to_lower(directory);
    const auto has = [&lower](std::string_view part) { return lower.find(part) != lower.npos; };
    const bool is_conda = (has("conda") || has("mamba") || has("miniforge")) && !has("venv");
    add(is_conda ? "conda" : "venv", directory);
  }

  void read_conda(std::string_view kind, Words words) {
    words = after_options(words, kCondaOptions);
    if (words.empty()) return;
    const bool activates = words.front() == "activate";
    if (!activates && words.front() != "run") return;
    words = words.subspan(1);
    std::string_view name = option_value(words, kCondaEnvironment, kCondaOptions);
    if (name.empty() && activates) {
      const Words named = after_options(words, kCondaOptions);
      name = named.empty() ? std::string_view("base") : named.front();
    }
    add(kind, name);
  }

  void read_apptainer(std::string_view kind, Words words) {
    if (words.empty()) return;
    std::string_view action = words.front();
    words = words.subspan(1);
    if (action == "instance" && !words.empty()) {
      action = words.front() == "start" || words.front() == "run" ? "run" : "";
      words = words.subspan(1);
    }
    if (action == "instance.start") action = "run";  // Singularity 2
    if (!is_one_of(action, "exec run shell test")) return;
    words = after_options(words, {kApptainerNames, action == "shell" ? "BHSWos" : "BHSWo"});
    if (!words.empty() && !words.front().starts_with("instance://")) add(kind, words.front());
  }

  void read_docker(std::string_view kind, Words words) {
    if (!words.empty() && words.front() == "container") words = words.subspan(1);
    if (words.empty() || (words.front() != "run" && words.front() != "create")) return;
    words = after_options(words.subspan(1), kDockerOptions);
    if (!words.empty()) add(kind, words.front());
  }

  // Words that begin like this belong to the spec before them.
  static bool continues_spec(std::string_view word) noexcept {
    return "%+~^@"sv.find(word.front()) != std::string_view::npos ||
           word.find('=') < word.find('@');  // a variant, but not "gcc@=12"
  }

  void read_spack(Words words) {
    words = after_options(words, {"env env-dir config-scope config color", "eCDc"});
    if (words.empty() || words.front() != "load") return;
    std::string spec;
    for (words = words.subspan(1); !words.empty(); words = words.subspan(1)) {
      const std::string& word = words.front();
      if (word == "--only" && words.size() > 1) words = words.subspan(1);
      if (word.empty() || word.starts_with('-')) continue;
      if (!spec.empty() && continues_spec(word)) {
        spec += ' ' + word;
        continue;
      }
      add("spack", std::exchange(spec, word));
    }
    add("spack", spec);
  }

  void add_module(std::string_view name) {
    if (!name.empty() && name.front() != '-' && name.size() <= kMaxScriptItemBytes &&
        result_.modules.size() < kMaxScriptItems)
      result_.modules.emplace_back(name);
  }

  void add(std::string_view kind, std::string_view name) {
    if (name.empty() || name.size() > kMaxScriptItemBytes ||
        result_.software.size() >= kMaxScriptItems)
      return;
    if (seen_.emplace(kind, name).second)
      result_.software.push_back({std::string(kind), std::string(name)});
  }

  UsedSoftware result_;
  std::set<std::pair<std::string, std::string>> seen_;
};

// ---- lines

constexpr std::array kSignals{"module"sv,   "ml "sv,    "ml\t"sv,   "mamba"sv,     "lmod"sv,
                              "LMOD_CMD"sv, "conda"sv,  "docker"sv, "apptainer"sv, "singularity"sv,
                              "activate"sv, "podman"sv, "spack"sv};
static_assert(kSignals.size() <= 16);
// For each byte, which signals have it at their first position (one bit for each), at the second
// one (16 bits higher) and at the third one (32 bits higher).
constexpr std::array<std::uint64_t, 256> signals_by_byte() {
  std::array<std::uint64_t, 256> signals{};
  for (std::size_t i = 0; i < kSignals.size(); ++i) {
    for (std::size_t at = 0; at < 3; ++at)
      signals[static_cast<unsigned char>(kSignals[i][at])] |= std::uint64_t{1} << (16 * at + i);
  }
  return signals;
}
constexpr std::array kByByte = signals_by_byte();

// Whether the line may name software. It rejects nearly every line; splitting all lines into words
// would cost ten times as much. Three bytes reject nearly every position.
bool may_name_software(std::string_view line) noexcept {
  std::uint64_t one = 0;  // signals of which one byte was just seen
  std::uint64_t two = 0;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const std::uint64_t byte = kByByte[static_cast<unsigned char>(line[i])];
    const bool three = (two & (byte >> 32)) != 0;
    two = one & (byte >> 16);
    one = byte;
    if (three && std::any_of(kSignals.begin(), kSignals.end(), [&](std::string_view signal) {
          return line.substr(i - 2).starts_with(signal);
        }))
      return true;
  }
  return false;
}

bool continues(std::string_view line) noexcept {
  std::size_t backslashes = 0;
  while (backslashes < line.size() && line[line.size() - 1 - backslashes] == '\\') ++backslashes;
  return backslashes % 2 == 1;
}

std::string_view without_return(std::string_view line) noexcept {
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

}  // namespace

UsedSoftware read_software(std::string_view script) {
  Reader reader;
  std::string joined;
  while (!script.empty() && !reader.is_full()) {
    std::string_view line = without_return(take_until(script, '\n'));
    if (line.starts_with('#')) continue;
    if (continues(line) && !trim(line, kScriptBlanks).starts_with('#')) {
      joined = line.substr(0, line.size() - 1);
      bool more = true;
      while (more && !script.empty() && joined.size() <= kMaxLogicalLine) {
        std::string_view next = without_return(take_until(script, '\n'));
        more = continues(next);
        if (more) next.remove_suffix(1);
        joined += next;
      }
      line = joined;
    }
    if (line.size() <= kMaxLogicalLine && may_name_software(line)) reader.read_line(line);
  }
  return reader.take();
}

}  // namespace scriptorium
