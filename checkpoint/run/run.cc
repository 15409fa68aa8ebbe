#include "checkpoint/run/run.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>

#include "checkpoint/image.h"
#include "checkpoint/processes.h"
#include "checkpoint/record.h"
#include "checkpoint/run/criu_files.h"
#include "checkpoint/run/notices.h"
#include "checkpoint/run/save_dir.h"
#include "checkpoint/run/shells.h"
#include "checkpoint/run/tmpdir.h"
#include "core/base/ascii.h"
#include "core/base/number.h"
#include "core/base/sha256.h"
#include "core/base/text.h"
#include "core/base/time.h"
#include "core/daemon/process.h"

namespace scriptorium::checkpoint {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;

constexpr int kExitCannotRun = 75;
constexpr int kMostTries = 5;
// OAR does not submit a job again that has run for 60 s or less.
constexpr seconds kShortestLifeOfOar{61};
constexpr seconds kLockPatience{30};
constexpr seconds kServicePatience{60};
constexpr seconds kExitCodePatience{5};
constexpr seconds kTermPatience{10};
constexpr int kPaceMs = 500;
constexpr int kWaitingPaceMs = 50;
// Of the output, when the image was made.
constexpr const char* kOutputBytes = "checkpoint/output_bytes";
// The files of $TMPDIR, and its path, which is written when all of them are there.
constexpr const char* kTmpdir = "checkpoint/tmpdir";
constexpr const char* kTmpdirPath = "checkpoint/tmpdir_path";
// Of programs that save themselves; checkpoint/app has their side.
constexpr const char* kAppFolder = "app";
constexpr const char* kAppSaveNow = "save_now";
constexpr const char* kAppSaved = "saved";
constexpr const char* kManifest = "checkpoint/manifest.json";
constexpr const char* kSpool = "/var/lib/checkpoints";
constexpr const char* kUserRecords = "/var/lib/scriptorium-run";

std::string shown(std::string_view text) { return printable(trim(text, " \n"), 500); }

std::string folder_or(const char* otherwise, const char* variable) {
  const char* named = std::getenv(variable);
  return named == nullptr || *named == '\0' ? otherwise : named;
}

std::string requests_folder() { return folder_or(kSpool, "SCRIPTORIUM_REQUESTS"); }

std::string process_name(pid_t pid) {
  return std::string(trim(read_proc("/proc/" + std::to_string(pid) + "/comm"), "\n"));
}

int exit_code_of(int status) {
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// When an image was made, by its manifest, in nanoseconds; 0 = unknown.
std::int64_t made_at(const std::string& manifest_text) {
  const auto manifest = parse_manifest(manifest_text);
  const auto made = parse_rfc3339(manifest ? manifest->made : std::string{});
  return made.value_or(Timestamp{}).nanoseconds;
}

// Between two images.
std::string lost_time(const std::string& newer, const std::string& older) {
  const std::int64_t begin = made_at(older);
  const std::int64_t end = made_at(newer);
  if (begin == 0 || end < begin) return "some of the command's work";
  return format_seconds(static_cast<double>(end - begin) / static_cast<double>(kSecond)) +
         " of the command's work";
}

// A request to scriptorium-checkpointd, as a file in its spool.
class RequestFile {
 public:
  RequestFile() = default;
  static Result<RequestFile> write(const std::string& name, const std::string& text) {
    RequestFile file(requests_folder() + "/" + name);
    file.withdraw();
    const UniqueFd fd(::open(file.path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    if (!fd) return system_error("write " + file.path_, errno);
    if (auto written = write_fd(fd.get(), text); !written) return written.error();
    file.written_ = steady_clock::now();
    return file;
  }
  // The service has not taken it.
  bool is_there() const { return ::access(path_.c_str(), F_OK) == 0; }
  // False: the service has it, or never saw it.
  bool withdraw() const { return ::unlink(path_.c_str()) == 0; }
  bool is_late() const { return is_there() && steady_clock::now() - written_ > kServicePatience; }

 private:
  explicit RequestFile(std::string path) : path_(std::move(path)) {}
  std::string path_;
  SteadyTime written_;
};

class Life {
 public:
  Life(const RunOptions& options, const BatchJob& job, SaveDir save_dir, RunState state)
      : options_(options), job_(job), dir_(std::move(save_dir)), state_(std::move(state)) {
    const char* tmpdir = std::getenv("TMPDIR");
    if (tmpdir != nullptr && !options.save_dir.empty()) tmpdir_ = job_tmpdir(tmpdir, dir_.path);
  }

  int run();

 private:
  enum class Phase : std::uint8_t { kResuming, kRunning, kSaving };

  void begin_in_job();
  bool block_signals();
  bool open_output();
  bool open_app_folder();
  Result<void> start();
  // Of a command that saves itself; the service records what it does itself.
  void record(Record step) const;
  Result<void> request_resume();
  enum class Save : std::uint8_t { kForNextLife, kPeriodic };
  void request_save(Save save);
  void keep_output_size();
  void save_tmpdir() const;
  void restore_tmpdir() const;
  void wait_for_something();
  void take_signals();
  void reap();
  void copy_output();
  std::optional<int> step_resuming();
  std::optional<int> step_running();
  std::optional<int> step_saving();
  std::optional<int> step_app_saving();
  std::optional<int> exit_code_of_resumed();
  int command_ended(int code);
  int try_elsewhere(const std::string& why);
  int leave();
  void put_state() const;
  bool has_program_ended() const {
    return is_child_ ? status_.has_value() : pid_ > 0 && (!program_ || !is_running(program_));
  }

  const RunOptions& options_;
  const BatchJob& job_;
  SaveDir dir_;
  RunState state_;
  std::string tmpdir_;                // whose files go along; "" = none
  std::optional<UserDirectory> app_;  // of a command that saves itself
  Shells shells_;
  UniqueFd signals_;
  sigset_t former_mask_{};
  UniqueFd output_;           // for reading
  std::uint64_t copied_ = 0;  // bytes of the output that this life's stdout has, or does not get
  Phase phase_ = Phase::kRunning;
  RequestFile request_;
  Save save_ = Save::kForNextLife;       // the last one that was requested
  std::uint64_t output_at_request_ = 0;  // its size
  SteadyTime requested_;                 // when
  SteadyTime next_save_ = SteadyTime::max();
  std::string said_failure_;
  bool wants_save_ = false;
  bool said_late_ = false;
  bool is_child_ = false;
  pid_t pid_ = 0;              // of the command, which leads a session
  UniqueFd program_;           // its pidfd
  int passed_on_ = 0;          // the last signal that the command is to get
  std::optional<int> status_;  // of our child, as of waitpid()
  SteadyTime begin_ = steady_clock::now();
  // When the end of a resumed command was noticed, or SIGTERM was sent to one that saved itself.
  SteadyTime ended_;
};

int Life::run() {
  const bool is_app = options_.engine == RunEngine::kApp;
  if (!open_output() || (is_app && !open_app_folder()) || !block_signals()) {
    say("the command runs without being saved");
    return become_command(options_.command);
  }
  begin_in_job();
  if (!is_app && !dir_.has_image())
    dir_.use_older_image();  // the service was killed while it renamed
  const bool resumes = !is_app && dir_.has_image() && !dir_.directory.has("checkpoint/exit_code");
  if (!resumes && !is_app) dir_.remove_images();
  if (!resumes && !is_app && std::getenv("SLURM_RESTART_COUNT") != nullptr) {
    say("no image of an earlier life is in " + shown(dir_.path) +
        ": the command starts from its beginning");
  }
  put_state();
  if (options_.every_seconds > 0)
    next_save_ = steady_clock::now() + seconds(options_.every_seconds);
  const auto begun = resumes ? request_resume() : start();
  if (!begun && !resumes) {
    say(begun.error().message());
    return kExitCannotRun;
  }
  if (!begun) return try_elsewhere(begun.error().message());
  while (true) {
    std::optional<int> code;
    switch (phase_) {
      case Phase::kResuming: code = step_resuming(); break;
      case Phase::kRunning: code = step_running(); break;
      case Phase::kSaving: code = is_app ? step_app_saving() : step_saving(); break;
    }
    if (code) return *code;
    wait_for_something();
  }
}

bool Life::block_signals() {
  sigset_t mask;
  sigemptyset(&mask);
  for (const int signal : {SIGCHLD, SIGUSR1, SIGUSR2, SIGTERM, SIGINT, SIGHUP, SIGQUIT})
    sigaddset(&mask, signal);
  signals_.reset(::signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!signals_) {
    say(system_error("signalfd", errno).message());
    return false;
  }
  ::sigprocmask(SIG_BLOCK, &mask, &former_mask_);
  ::signal(SIGPIPE, SIG_IGN);
  return true;
}

bool Life::open_output() {
  output_.reset(::openat(dir_.directory.fd(), kOutputFile,
                         O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600));
  const auto found = output_ ? stat_fd(output_.get()) : system_error(kOutputFile, errno);
  if (!found || !found->is_regular()) {
    say("the file output in " + shown(dir_.path) + " cannot be written");
    return false;
  }
  copied_ = found->size;
  return true;
}

bool Life::open_app_folder() {
  ::mkdirat(dir_.directory.fd(), kAppFolder, 0700);
  auto folder = dir_.directory.open_folder(kAppFolder);
  if (!folder) {
    say(folder.error().message());
    return false;
  }
  app_ = *std::move(folder);
  return true;
}

void Life::begin_in_job() {
  const auto self = read_process(::getpid());
  const auto above =
      self ? shells_above(*self, job_.scheduler, read_process, process_name) : std::vector<pid_t>{};
  const auto first = above.empty() ? std::nullopt : std::optional(above.back());
  const std::string requests = options_.engine == RunEngine::kApp ? "" : requests_folder();
  for (const std::string& text : notices(job_, first, requests, dir_.directory.fd())) say(text);
  auto held = Shells::hold(above);
  if (held) {
    shells_ = *std::move(held);
    return;
  }
  say("the scheduler's signal does not get here, so the command cannot be saved (" +
      held.error().message() +
      "). Make it the last line of the job script: exec scriptorium-run ...");
}

Result<void> Life::start() {
  const std::string path = dir_.path + "/" + kOutputFile;
  const bool app_resumes = app_ && app_->has(kAppSaved);
  if (app_) app_->remove(kAppSaveNow);  // of a life that ended before it was done
  const pid_t child = ::fork();
  if (child < 0) return system_error("fork", errno);
  if (child == 0) {
    // What is opened by its path with these flags, criu does not refuse when it has grown.
    const int null = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
    const int out = ::open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC | O_NOFOLLOW);
    ::setsid();
    if (app_) {
      ::setenv("SCRIPTORIUM_SAVE_DIR", (dir_.path + "/" + kAppFolder).c_str(), 1);
      if (app_resumes) ::setenv("SCRIPTORIUM_RESUMES", "1", 1);
    }
    ::signal(SIGPIPE, SIG_DFL);
    ::sigprocmask(SIG_SETMASK, &former_mask_, nullptr);
    if (null < 0 || out < 0 || ::dup2(null, 0) < 0 || ::dup2(out, 1) < 0 || ::dup2(out, 2) < 0)
      ::_exit(126);
    ::_exit(become_command(options_.command));
  }
  is_child_ = true;
  pid_ = child;
  program_ = open_process(child);
  if (app_resumes) record({.action = "restarted"});
  return {};
}

void Life::record(Record step) const {
  step.time = system_clock().now();
  step.node = process::host_name();
  step.scheduler = job_.scheduler == Scheduler::kOar ? "oar" : "slurm";
  step.job = job_.id;
  step.engine = "app";
  step.root_pid = pid_;
  if (step.action != "ended") step.image_path = dir_.path + "/" + kAppFolder;
  // Without it the job is the same.
  static_cast<void>(write_user_record(folder_or(kUserRecords, "SCRIPTORIUM_RECORDS"), step));
}

Result<void> Life::request_resume() {
  dir_.directory.remove("checkpoint/pidfile");
  dir_.directory.remove_tree("checkpoint_failed");
  // What was written after the image was made is written again.
  const auto bytes = parse_number<std::uint64_t>(trim(dir_.read(kOutputBytes), " \n"));
  if (bytes && *bytes < copied_ && ::ftruncate(output_.get(), static_cast<off_t>(*bytes)) == 0) {
    say(std::to_string(copied_ - *bytes) +
        " bytes of the output were written after the save, and are written again");
    copied_ = *bytes;
  }
  restore_tmpdir();
  auto written = RequestFile::write(job_.id + ".resume", "keep_job\n" + dir_.path + "\n");
  if (!written) return written.error();
  request_ = *std::move(written);
  phase_ = Phase::kResuming;
  return {};
}

void Life::request_save(Save save) {
  save_ = save;
  if (save == Save::kForNextLife) wants_save_ = false;
  if (options_.every_seconds > 0)
    next_save_ = steady_clock::now() + seconds(options_.every_seconds);
  copy_output();
  output_at_request_ = copied_;
  if (app_) {
    requested_ = steady_clock::now();
    const auto asked = app_->put(kAppSaveNow, {});
    if (asked) phase_ = Phase::kSaving;
    if (!asked) say("not saved: " + asked.error().message() + ". The command continues");
    return;
  }
  dir_.directory.remove("checkpoint_ok");
  dir_.directory.remove_tree("checkpoint_failed");
  auto written = RequestFile::write(
      job_.id + ".checkpoint",
      std::to_string(pid_) + "\nkeep_job\n" + (save == Save::kPeriodic ? "runs_on\n" : "") +
          (options_.keep > 0 ? "keep " + std::to_string(options_.keep) + "\n" : "") + dir_.path +
          "\n");
  if (!written) {
    say("not saved: " + written.error().message() + ". The command continues");
    return;
  }
  request_ = *std::move(written);
  said_late_ = false;
  phase_ = Phase::kSaving;
}

void Life::wait_for_something() {
  std::array<pollfd, 2> fds{pollfd{signals_.get(), POLLIN, 0},
                            pollfd{has_program_ended() ? -1 : program_.get(), POLLIN, 0}};
  ::poll(fds.data(), fds.size(), phase_ == Phase::kRunning ? kPaceMs : kWaitingPaceMs);
  take_signals();
  reap();
  copy_output();
}

void Life::take_signals() {
  signalfd_siginfo info{};
  while (::read(signals_.get(), &info, sizeof info) == sizeof info) {
    const int signal = static_cast<int>(info.ssi_signo);
    if (signal == SIGCHLD) continue;
    if (signal == SIGUSR2) {
      wants_save_ = true;
    } else {
      passed_on_ = signal;
      if (pid_ > 0 && !has_program_ended()) ::kill(-pid_, signal);
    }
  }
}

void Life::reap() {
  int status = 0;
  while (true) {
    const pid_t pid = ::waitpid(-1, &status, WNOHANG | __WALL);
    if (pid <= 0) return;
    const auto event = shells_.handle(pid, status);
    if (event == Shells::Event::kSave) wants_save_ = true;
    if (event == Shells::Event::kNotAShell && is_child_ && pid == pid_) status_ = status;
  }
}

void Life::copy_output() {
  std::array<char, 65536> buffer{};
  while (true) {
    const ssize_t count =
        ::pread(output_.get(), buffer.data(), buffer.size(), static_cast<off_t>(copied_));
    if (count <= 0) return;
    copied_ += static_cast<std::uint64_t>(count);
    // What standard output does not take is in the file.
    static_cast<void>(write_fd(STDOUT_FILENO, {buffer.data(), static_cast<std::size_t>(count)}));
  }
}

std::optional<int> Life::step_resuming() {
  if (const std::string failure = dir_.read("checkpoint_failed"); !failure.empty()) {
    const std::string_view reason = std::string_view(failure).substr(0, failure.find(':'));
    if (!is_fault_of_image(reason, state_.tries)) return try_elsewhere(shown(failure));
    say("the newest image cannot be resumed: " + shown(failure));
    const std::string newest = dir_.read(kManifest);
    if (dir_.use_older_image()) {
      say("the image before it is tried; " + lost_time(newest, dir_.read(kManifest)) +
          " is done again");
      if (const auto again = request_resume(); !again)
        return try_elsewhere(again.error().message());
      return std::nullopt;
    }
    say("no other image is there. The images remain in " + shown(dir_.path));
    return kExitCannotRun;
  }
  if (const auto pid = parse_number<pid_t>(trim(dir_.read("checkpoint/pidfile"), " \n"))) {
    pid_ = *pid;
    program_ = open_process(pid_);
    phase_ = Phase::kRunning;
    if (passed_on_ != 0) ::kill(-pid_, passed_on_);  // it came meanwhile
    state_.tries = 0;
    put_state();
    return std::nullopt;
  }
  if (passed_on_ != 0 && passed_on_ != SIGUSR1 && request_.withdraw()) return 128 + passed_on_;
  if (request_.is_late() && request_.withdraw())
    return try_elsewhere("scriptorium-checkpointd does not run on this node");
  return std::nullopt;
}

std::optional<int> Life::step_running() {
  if (has_program_ended()) {
    if (is_child_)
      return status_ ? std::optional(command_ended(exit_code_of(*status_))) : std::nullopt;
    return exit_code_of_resumed();
  }
  if (wants_save_)
    request_save(Save::kForNextLife);
  else if (steady_clock::now() >= next_save_)
    request_save(Save::kPeriodic);
  return std::nullopt;
}

// Of the last save. A program that continues has written since: criu's image has the position in
// the file, unless the program wrote by another descriptor last.
void Life::keep_output_size() {
  copy_output();
  std::uint64_t bytes = copied_;
  if (save_ == Save::kPeriodic) {
    std::error_code error;
    const auto path =
        std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(output_.get()), error);
    const auto position = position_in_image(dir_.read("checkpoint/files.img"), path.string());
    bytes = std::clamp(position.value_or(output_at_request_), output_at_request_, copied_);
  }
  dir_.put_in_image("output_bytes", std::to_string(bytes) + "\n");
}

// The command has ended.
void Life::save_tmpdir() const {
  if (tmpdir_.empty()) return;
  const auto copied =
      copy_own_files(tmpdir_, dir_.path + "/" + kTmpdir, dir_.directory.free_bytes());
  if (copied) return dir_.put_in_image("tmpdir_path", tmpdir_);
  dir_.directory.remove_tree(kTmpdir);
  say("the files of $TMPDIR are not saved: " + shown(copied.error().message()));
}

void Life::restore_tmpdir() const {
  const std::string saved = dir_.read(kTmpdirPath);
  if (saved.empty()) return;
  const auto copied =
      saved == tmpdir_
          ? copy_own_files(dir_.path + "/" + kTmpdir, tmpdir_,
                           std::numeric_limits<std::uint64_t>::max())
          : Result<void>(Error{ErrorKind::kPermanent, "it was " + saved + " when they were saved"});
  if (!copied) say("the files of $TMPDIR are not restored: " + shown(copied.error().message()));
}

std::optional<int> Life::step_saving() {
  const bool is_periodic = save_ == Save::kPeriodic;
  if (!is_periodic) wants_save_ = false;  // one at a time
  if (dir_.directory.has("checkpoint_ok") && (is_periodic || has_program_ended())) {
    keep_output_size();
    if (!is_periodic) {
      save_tmpdir();
      return leave();
    }
    phase_ = Phase::kRunning;
    return std::nullopt;
  }
  if (const std::string failure = dir_.read("checkpoint_failed"); !failure.empty()) {
    phase_ = Phase::kRunning;
    // A reason that does not change is said once, unless the job's end is near.
    if (!has_program_ended() && (!is_periodic || failure != said_failure_))
      say("not saved: " + shown(failure) + ". The command continues");
    said_failure_ = failure;
    return std::nullopt;
  }
  if (is_periodic && wants_save_ && request_.withdraw()) {
    phase_ = Phase::kRunning;
    return std::nullopt;
  }
  if (has_program_ended()) {
    // It ended before it was saved: by itself, or killed while the service does not run. A periodic
    // save ends soon, and its image is deleted after success.
    if (ended_ == SteadyTime{}) ended_ = steady_clock::now();
    const bool by_itself =
        is_child_ ? status_ && WIFEXITED(*status_) : dir_.directory.has("checkpoint/exit_code");
    const bool waits = is_periodic && steady_clock::now() - ended_ < kServicePatience;
    if (request_.withdraw() || (by_itself && !waits)) phase_ = Phase::kRunning;
    return std::nullopt;
  }
  if (request_.is_late() && !said_late_) {
    said_late_ = true;
    say("scriptorium-checkpointd does not answer; the command continues meanwhile");
  }
  return std::nullopt;
}

std::optional<int> Life::step_app_saving() {
  if (app_->has(kAppSaveNow)) {
    // One that did not save itself has ended for good. While a periodic save is not done, the
    // scheduler's signal makes it the last one.
    if (has_program_ended()) phase_ = Phase::kRunning;
    if (wants_save_) save_ = Save::kForNextLife;
    return std::nullopt;
  }
  if (ended_ == SteadyTime{}) {
    const auto took = std::chrono::duration_cast<milliseconds>(steady_clock::now() - requested_);
    record({.action = "made", .duration_ms = took.count(), .runs_on = save_ == Save::kPeriodic});
  }
  if (save_ == Save::kPeriodic) {
    phase_ = Phase::kRunning;
    return std::nullopt;
  }
  if (has_program_ended()) return leave();
  if (ended_ == SteadyTime{}) {
    ended_ = steady_clock::now();
    ::kill(-pid_, SIGTERM);
  } else if (steady_clock::now() - ended_ > kTermPatience) {
    ::kill(-pid_, SIGKILL);
  }
  return std::nullopt;
}

// The service writes it after the end of what it resumed, unless a signal from outside was the end.
std::optional<int> Life::exit_code_of_resumed() {
  if (ended_ == SteadyTime{}) ended_ = steady_clock::now();
  const std::string text = dir_.read("checkpoint/exit_code");
  if (const auto code = parse_number<int>(trim(text, " \n"))) return command_ended(*code);
  if (steady_clock::now() - ended_ < kExitCodePatience) return std::nullopt;
  say("the command was ended by a signal");
  return command_ended(128 + (passed_on_ == 0 ? SIGKILL : passed_on_));
}

int Life::command_ended(int code) {
  copy_output();
  if (app_) record({.action = "ended", .exit_code = code});
  if (code == 0) {
    state_.has_succeeded = true;
    put_state();
    if (app_) app_->remove(kAppSaveNow);
    if (app_) app_->remove(kAppSaved);
    if (!options_.keeps_images) dir_.remove_images();
  }
  return code;
}

// It may be possible on another node, in another life.
int Life::try_elsewhere(const std::string& why) {
  ++state_.tries;
  if (state_.tries > kMostTries) {
    say("not resumed: " + why + ". This was tried in " + std::to_string(kMostTries) +
        " lives; the images remain in " + shown(dir_.path));
    state_.tries = 0;
    put_state();
    return kExitCannotRun;
  }
  say("not resumed: " + why + ". The job is run again, for another node");
  return leave();
}

int Life::leave() {
  copy_output();
  put_state();
  if (job_.scheduler == Scheduler::kOar) {
    while (steady_clock::now() - begin_ < kShortestLifeOfOar && passed_on_ == 0)
      wait_for_something();
  }
  if (auto ended = shells_.end_with(kExitRunAgain); !ended)
    say("the job's script cannot be ended (" + ended.error().message() +
        "), and continues after this command");
  return kExitRunAgain;
}

void Life::put_state() const {
  if (auto written = dir_.directory.put(kStateFile, run_state_text(state_)); !written)
    say("the state cannot be written: " + written.error().message());
}

Result<SaveDir> open_save_dir(const std::string& path) {
  const SteadyTime last = steady_clock::now() + kLockPatience;
  while (true) {
    auto opened = SaveDir::open(path);
    if (opened || opened.error().kind() != ErrorKind::kTransient || steady_clock::now() >= last)
      return opened;
    ::poll(nullptr, 0, kPaceMs);  // of the life before, which may be about to end
  }
}

}  // namespace

void say(const std::string& text) { std::cerr << "scriptorium-run: " + text + "\n"; }

int become_command(const std::vector<std::string>& command) {
  std::vector<char*> argv;
  for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  ::execvp(argv.front(), argv.data());
  const int problem = errno;
  say(printable(command.front()) + ": " + std::strerror(problem));
  return problem == ENOENT ? 127 : 126;
}

int run_life(const RunOptions& options, const BatchJob& job) {
  const auto why = why_not_saved(options.command.front());
  if (why && options.engine != RunEngine::kApp) {
    say("refused: " + *why + ", or with --engine app if it saves itself");
    return kExitUsage;
  }
  const bool is_default = options.save_dir.empty();
  const std::string path =
      SaveDir::absolute(is_default ? "scriptorium-run." + job.chain : options.save_dir);
  // A request to the service ends with this path, as a line.
  if (path.find('\n') != std::string::npos && options.engine != RunEngine::kApp) {
    say("refused: the path of the save directory has a line break: " + shown(path) +
        ". Give another one with --save-dir");
    return kExitUsage;
  }
  auto dir = open_save_dir(path);
  if (!dir && dir.error().kind() == ErrorKind::kTransient) {
    say(shown(dir.error().message()));
    return kExitCannotRun;
  }
  if (!dir) {
    say(shown(dir.error().message()) + "; the command runs without being saved");
    return become_command(options.command);
  }
  std::string words;
  for (const std::string& word : options.command) words += word + '\0';
  RunState state = parse_run_state(dir->read(kStateFile));
  const std::string command = sha256_hex(words);
  if ((state.chain == job.chain || dir->has_image()) && state.command != command) {
    say(shown(dir->path) + " is of another command; give each its own --save-dir");
    return kExitCannotRun;
  }
  if (state.chain == job.chain) {
    if (state.has_succeeded) {
      say("the command has ended with exit code 0 in an earlier life of this job");
      return 0;
    }
  } else {
    state.tries = 0;
  }
  state.chain = job.chain;
  state.command = command;
  state.has_succeeded = false;
  return Life(options, job, *std::move(dir), std::move(state)).run();
}

}  // namespace scriptorium::checkpoint
