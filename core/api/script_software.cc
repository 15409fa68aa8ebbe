#include "core/api/script_software.h"

#include <algorithm>
#include <array>
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
constexpr std::string_view kBlanks = " \t\n\v\f\r";

bool is_blank(char c) noexcept { return kBlanks.find(c) != std::string_view::npos; }

// NAME=value
bool is_assignment(std::string_view word) noexcept {
  const auto is_name_char = [](char c) { return is_alphanumeric(c) || c == '_'; };
  const std::size_t equals = word.find('=');
  return equals != std::string_view::npos && equals > 0 && !is_digit(word[0]) &&
         std::all_of(word.begin(), word.begin() + static_cast<std::ptrdiff_t>(equals),
                     is_name_char);
}

bool is_separator(char c) noexcept {
  return c == ';' || c == '&' || c == '|' || c == '(' || c == ')';
}

template <std::size_t N>
bool is_one_of(std::string_view word, const std::array<std::string_view, N>& words) noexcept {
  return std::find(words.begin(), words.end(), word) != words.end();
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
    if (quote == '\0' && (is_blank(c) || is_separator(c) || c == '<' || c == '>')) break;
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
  at = at == std::string_view::npos ? line.size() : line.find_first_not_of(kBlanks, at);
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
    if (is_blank(line[at])) {
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

std::string_view base_name(std::string_view path) noexcept {
  return path.substr(path.rfind('/') + 1);
}

// Whether an option takes the next word as its value: "--bind", 'B'.
struct OptionsWithValue {
  std::span<const std::string_view> names;
  std::string_view letters;
};

bool takes_next_word(std::string_view word, const OptionsWithValue& with_value) noexcept {
  if (word.starts_with("--")) {
    return std::find(with_value.names.begin(), with_value.names.end(), word.substr(2)) !=
           with_value.names.end();
  }
  // "-it": flags; "-itv": the last one takes the value; "-v/a:/b" has it.
  const std::size_t letter = word.find_first_of(with_value.letters, 1);
  return letter != std::string_view::npos && letter + 1 == word.size();
}

// Removes the options at the beginning, and their values.
Words after_options(Words words, const OptionsWithValue& with_value) noexcept {
  while (!words.empty() && words.front().starts_with('-')) {
    if (words.front() == "--") return words.subspan(1);
    const std::size_t count = takes_next_word(words.front(), with_value) ? 2 : 1;
    words = words.subspan(std::min(count, words.size()));
  }
  return words;
}

// The value of an option such as -n NAME, --name NAME or --name=NAME, wherever it is before the
// first word that is none.
std::string_view option_value(Words words, std::span<const std::string_view> names,
                              const OptionsWithValue& with_value) noexcept {
  while (!words.empty() && words.front().starts_with('-')) {
    const std::string_view word = words.front();
    const std::string_view name = word.substr(0, word.find('='));
    if (std::find(names.begin(), names.end(), name) != names.end()) {
      if (name.size() < word.size()) return word.substr(name.size() + 1);
      return words.size() > 1 ? std::string_view(words[1]) : std::string_view();
    }
    const std::size_t count = takes_next_word(word, with_value) ? 2 : 1;
    words = words.subspan(std::min(count, words.size()));
  }
  return {};
}

// Words that may precede a command on the same line.
constexpr std::array kBefore{"if"sv, "then"sv, "elif"sv, "else"sv, "while"sv,   "until"sv,  "do"sv,
                             "!"sv,  "time"sv, "{"sv,    "exec"sv, "command"sv, "builtin"sv};
// Commands that run the command which follows their own options.
constexpr std::array kLaunchers{
    "srun"sv,  "mpirun"sv,  "mpiexec"sv, "mpiexec.hydra"sv, "orterun"sv, "prun"sv,
    "aprun"sv, "jsrun"sv,   "ibrun"sv,   "env"sv,           "sudo"sv,    "nohup"sv,
    "nice"sv,  "timeout"sv, "taskset"sv, "numactl"sv,       "stdbuf"sv,  "setsid"sv,
    "xargs"sv, "tclsh"sv,   "perf"sv,    "/usr/bin/time"sv};
constexpr std::array kShells{"bash"sv, "sh"sv, "zsh"sv, "ksh"sv, "dash"sv, "csh"sv, "tcsh"sv};
constexpr std::array kModuleCommands{"modulecmd"sv, "modulecmd.tcl"sv, "lmod"sv, "$LMOD_CMD"sv,
                                     "${LMOD_CMD}"sv};
constexpr std::array kCondas{"conda"sv, "mamba"sv, "micromamba"sv};
constexpr std::array kImageRunners{"apptainer"sv, "singularity"sv, "docker"sv, "podman"sv};

constexpr std::array kLoad{"load"sv, "add"sv, "try-load"sv, "try-add"sv, "load-any"sv};
constexpr std::array kSwap{"swap"sv, "switch"sv, "sw"sv};
// Commands of `ml` (Lmod and Environment Modules) that load nothing. Any other first word of `ml`
// is a module.
constexpr std::array kOther{
    "av"sv,          "avail"sv,   "apropos"sv,      "append-path"sv, "category"sv, "clear"sv,
    "config"sv,      "del"sv,     "describe"sv,     "disable"sv,     "display"sv,  "edit"sv,
    "freeze"sv,      "help"sv,    "is-avail"sv,     "is-loaded"sv,   "is-saved"sv, "is-used"sv,
    "key"sv,         "keyword"sv, "list"sv,         "mod-to-sh"sv,   "overview"sv, "ov"sv,
    "path"sv,        "paths"sv,   "prepend-path"sv, "purge"sv,       "refresh"sv,  "reload"sv,
    "remove-path"sv, "reset"sv,   "restore"sv,      "rm"sv,          "remove"sv,   "save"sv,
    "savelist"sv,    "saverm"sv,  "saveshow"sv,     "search"sv,      "show"sv,     "source"sv,
    "spider"sv,      "stash"sv,   "test"sv,         "tablelist"sv,   "unload"sv,   "unuse"sv,
    "update"sv,      "use"sv,     "whatis"sv,       "whereis"sv,     "unsource"sv, "unswap"sv,
    "initlist"sv,    "initadd"sv, "initrm"sv,       "initclear"sv,   "mcc"sv,      "cachebuild"sv,
    "cacheclear"sv,  "aliases"sv, "lint"sv,         "sh-to-mod"sv};

// Options of `apptainer` and of its exec, run, shell, test and `instance start` that take a value
// (apptainer 1.4, cmd/internal/cli/action_flags.go; those of SingularityCE 4 and Singularity 2
// beside them).
constexpr std::array kApptainerNames{"add-caps"sv,
                                     "app"sv,
                                     "apply-cgroups"sv,
                                     "authfile"sv,
                                     "bind"sv,
                                     "blkio-weight"sv,
                                     "blkio-weight-device"sv,
                                     "cdi-dirs"sv,
                                     "config"sv,
                                     "configdir"sv,
                                     "containlibs"sv,
                                     "cpu-shares"sv,
                                     "cpus"sv,
                                     "cpuset-cpus"sv,
                                     "cpuset-mems"sv,
                                     "cwd"sv,
                                     "data"sv,
                                     "device"sv,
                                     "dns"sv,
                                     "docker-host"sv,
                                     "drop-caps"sv,
                                     "env"sv,
                                     "env-file"sv,
                                     "fusemount"sv,
                                     "home"sv,
                                     "hostname"sv,
                                     "memory"sv,
                                     "memory-reservation"sv,
                                     "memory-swap"sv,
                                     "mount"sv,
                                     "netns-path"sv,
                                     "network"sv,
                                     "network-args"sv,
                                     "no-mount"sv,
                                     "overlay"sv,
                                     "pem-path"sv,
                                     "pid-file"sv,
                                     "pids-limit"sv,
                                     "pwd"sv,
                                     "scratch"sv,
                                     "security"sv,
                                     "shell"sv,
                                     "workdir"sv};
constexpr OptionsWithValue kApptainerOptions{kApptainerNames, "BHSWo"};
constexpr OptionsWithValue kApptainerGlobal{kApptainerNames, "c"};

// Options of `docker run`, `podman run` and create that take no value; all others do (docker 28,
// podman 5).
constexpr std::array kDockerFlags{"detach"sv,
                                  "disable-content-trust"sv,
                                  "env-host"sv,
                                  "help"sv,
                                  "http-proxy"sv,
                                  "init"sv,
                                  "interactive"sv,
                                  "no-healthcheck"sv,
                                  "no-hostname"sv,
                                  "no-hosts"sv,
                                  "oom-kill-disable"sv,
                                  "passwd"sv,
                                  "privileged"sv,
                                  "publish-all"sv,
                                  "quiet"sv,
                                  "read-only"sv,
                                  "read-only-tmpfs"sv,
                                  "replace"sv,
                                  "rm"sv,
                                  "rmi"sv,
                                  "rootfs"sv,
                                  "sig-proxy"sv,
                                  "tls-verify"sv,
                                  "tty"sv,
                                  "unsetenv-all"sv,
                                  "use-api-socket"sv};
constexpr std::string_view kDockerFlagLetters = "ditPq";
constexpr std::array kDockerGlobalNames{
    "config"sv,      "context"sv,   "host"sv,       "log-level"sv, "root"sv,
    "runroot"sv,     "url"sv,       "connection"sv, "identity"sv,  "storage-driver"sv,
    "storage-opt"sv, "tlscacert"sv, "tlscert"sv,    "tlskey"sv,    "module"sv};
constexpr OptionsWithValue kDockerGlobal{kDockerGlobalNames, "cHl"};

constexpr std::array kCondaNames{"name"sv, "prefix"sv, "cwd"sv, "rc-file"sv, "root-prefix"sv};
constexpr OptionsWithValue kCondaOptions{kCondaNames, "npr"};
constexpr std::array kCondaEnvironment{"-n"sv, "--name"sv, "-p"sv, "--prefix"sv};

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
      if (is_assignment(words.front()) || is_one_of(words.front(), kBefore)) {
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
    if (first == "spack") return read_spack(rest);
    // Each of eval's words is text of its own; those with a substitution were read.
    if (first == "eval") return read_text(rest, nested);
    // os.popen('modulecmd python load a')
    if (rest.empty() && is_module_command(first.substr(0, first.find_first_of(kBlanks))) &&
        first.find_first_of(kBlanks) != std::string_view::npos)
      return read_text(words, nested);
    if (!is_one_of(base_name(first), kLaunchers) && !is_one_of(first, kLaunchers))
      return read_program(words, nested);
    const auto program = std::find_if(rest.begin(), rest.end(), is_program);
    if (program != rest.end()) read_program(rest.subspan(program - rest.begin()), nested);
  }

  static bool is_module_command(std::string_view word) noexcept {
    return is_one_of(base_name(word), kModuleCommands);
  }

  static bool is_program(std::string_view word) noexcept {
    const std::string_view name = base_name(word);
    return is_one_of(name, kShells) || is_one_of(name, kImageRunners) || is_one_of(name, kCondas) ||
           is_module_command(word);
  }

  // A program that may also be named by its path and follow a launcher.
  void read_program(Words words, int nested) {
    const std::string_view name = base_name(words.front());
    const Words rest = words.subspan(1);
    if (is_module_command(name)) {
      if (rest.size() > 1) read_module(rest.subspan(1), false);  // the first one is the shell
    } else if (is_one_of(name, kShells)) {
      read_shell(rest, nested);
    } else if (name == "apptainer" || name == "singularity") {
      read_apptainer(name, after_options(rest, kApptainerGlobal));
    } else if (name == "docker" || name == "podman") {
      read_docker(name, after_options(rest, kDockerGlobal));
    } else if (is_one_of(name, kCondas)) {
      read_conda(name == "conda" ? "conda" : "mamba", rest);
    }
  }

  void read_text(Words texts, int nested) {
    if (nested >= kMostNested) return;
    for (const std::string& text : texts) {
      if (text.find_first_of(kBlanks) != std::string::npos && !text.starts_with("$(") &&
          !text.starts_with('`'))
        read_line(text, nested + 1);
    }
    // eval module load a
    if (!texts.empty() && texts.front().find_first_of(kBlanks) == std::string::npos)
      read_simple(texts, nested + 1);
  }

  // bash -l -c "module load a"
  void read_shell(Words words, int nested) {
    while (words.size() > 1 && words.front().starts_with('-')) {
      const std::string& option = words.front();
      const bool command = !option.starts_with("--") && option.find('c') != std::string::npos;
      words = words.subspan(1);
      if (command) return read_text(words.first(1), nested);
    }
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
    } else if (!short_form || is_one_of(action, kOther)) {
      return;
    }
    for (const std::string& name : words) add_module(name);
  }

  // "source activate NAME" and "source MINICONDA/bin/activate NAME" are conda's, "source
  // DIRECTORY/bin/activate" is a venv's.
  void read_source(Words words) {
    if (words.empty()) return;
    const std::string_view file = words.front();
    const bool activates =
        is_one_of(base_name(file), std::array{"activate"sv, "activate.csh"sv, "activate.fish"sv});
    if (!activates) return;
    if (words.size() > 1) return add("conda", words[1]);
    const std::size_t end = file.rfind("/bin/");
    if (end == std::string_view::npos) return;
    const std::string_view directory = file.substr(0, end);
    const std::string name = to_lower(base_name(directory));
    const bool is_conda = name.find("conda") != std::string::npos || name.ends_with("forge") ||
                          name.starts_with("miniforge");
    add(is_conda ? "conda" : "venv", directory);
  }

  void read_conda(std::string_view kind, Words words) {
    if (words.empty()) return;
    const std::string_view action = words.front();
    words = words.subspan(1);
    if (action == "activate") {
      const Words named = after_options(words, kCondaOptions);
      std::string_view name = option_value(words, kCondaEnvironment, kCondaOptions);
      if (name.empty()) name = named.empty() ? std::string_view("base") : named.front();
      add(kind, name);
    } else if (action == "run") {
      const std::string_view name = option_value(words, kCondaEnvironment, kCondaOptions);
      if (!name.empty()) add(kind, name);
    }
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
    if (!is_one_of(action, std::array{"exec"sv, "run"sv, "shell"sv, "test"sv})) return;
    const OptionsWithValue options{kApptainerNames, action == "shell" ? "BHSWos" : "BHSWo"};
    words = after_options(words, options);
    if (!words.empty() && !words.front().starts_with("instance://")) add(kind, words.front());
  }

  void read_docker(std::string_view kind, Words words) {
    if (!words.empty() && words.front() == "container") words = words.subspan(1);
    if (words.empty() || (words.front() != "run" && words.front() != "create")) return;
    words = words.subspan(1);
    while (!words.empty() && words.front().starts_with('-')) {
      const std::string_view word = words.front();
      bool value = false;
      if (word.starts_with("--")) {
        value = word.find('=') == std::string_view::npos && word.size() > 2 &&
                !is_one_of(word.substr(2), kDockerFlags);
      } else {
        value = word.find_first_not_of(kDockerFlagLetters, 1) == word.size() - 1;
      }
      words = words.subspan(std::min<std::size_t>(value ? 2 : 1, words.size()));
      if (word == "--") break;
    }
    if (!words.empty()) add(kind, words.front());
  }

  // Words that begin like this belong to the spec before them.
  static bool continues_spec(std::string_view word) noexcept {
    return "%+~^@"sv.find(word.front()) != std::string_view::npos ||
           (word.find('=') != std::string_view::npos && word.find('@') == std::string_view::npos);
  }

  void read_spack(Words words) {
    constexpr OptionsWithValue kSpack{{}, "eCDZ"};
    words = after_options(words, kSpack);
    if (words.empty() || words.front() != "load") return;
    std::string spec;
    for (const std::string& word : words.subspan(1)) {
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

constexpr std::array kSignals{"module"sv,   "ml"sv,       "mamba"sv,     "lmod"sv,
                              "LMOD_CMD"sv, "conda"sv,    "apptainer"sv, "singularity"sv,
                              "docker"sv,   "activate"sv, "podman"sv,    "spack"sv};
constexpr std::array<bool, 256> first_bytes() {
  std::array<bool, 256> first{};
  for (const std::string_view signal : kSignals)
    first[static_cast<unsigned char>(signal[0])] = true;
  return first;
}

// Whether the line may name software. It rejects nearly every line; splitting all lines into words
// would cost ten times as much.
bool may_name_software(std::string_view line) noexcept {
  constexpr auto kFirst = first_bytes();
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (!kFirst[static_cast<unsigned char>(line[i])]) continue;
    const std::string_view rest = line.substr(i);
    for (const std::string_view signal : kSignals) {
      if (rest.starts_with(signal)) return true;
    }
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
  while (!script.empty() && !reader.is_full()) {
    const std::string_view line = without_return(take_until(script, '\n'));
    if (!may_name_software(line)) continue;
    if (trim(line, kBlanks).starts_with('#') || line.size() > kMaxLogicalLine) continue;
    if (!continues(line)) {
      reader.read_line(line);
      continue;
    }
    std::string joined(line.substr(0, line.size() - 1));
    bool more = true;
    while (more && !script.empty() && joined.size() <= kMaxLogicalLine) {
      std::string_view next = without_return(take_until(script, '\n'));
      more = continues(next);
      if (more) next.remove_suffix(1);
      joined += next;
    }
    if (joined.size() <= kMaxLogicalLine) reader.read_line(joined);
  }
  return reader.take();
}

}  // namespace scriptorium
