#include "checkpoint/work.h"

#include <fcntl.h>
#include <sys/fsuid.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "checkpoint/image.h"
#include "checkpoint/obstacles.h"
#include "checkpoint/owner.h"
#include "checkpoint/processes.h"
#include "checkpoint/user_directory.h"
#include "core/base/accounts.h"
#include "core/base/ascii.h"
#include "core/base/sha256.h"
#include "core/base/text.h"

namespace scriptorium::checkpoint {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;

// The other names that job scripts know.
constexpr const char* kNewImage = "checkpoint.tmp";
constexpr const char* kRefused = "checkpoint_failed";
constexpr const char* kResumed = "resume_ok";
constexpr const char* kPid = "pidfile";  // in the image's folder

constexpr seconds kPidPatience{10};
constexpr milliseconds kPidPace{200};
constexpr int kTermPatienceMs = 5000;
// Between a file's time and a process's, both of which are coarse.
constexpr std::int64_t kClockError = kSecond;
constexpr std::uint64_t kRoomMargin = 64U << 20;

tl::unexpected<Refusal> refuse(std::string reason, std::string detail) {
  return tl::unexpected(Refusal{std::move(reason), std::move(detail)});
}

// Slurm names the control group of an array's task by the task's own id, so "34_5" has none.
std::string job_text(const JobOwner& owner) {
  const bool is_task = owner.job.find('_') != std::string::npos;
  return "job " + owner.job + (is_task ? " (use the task's SLURM_JOB_ID)" : "");
}

std::int64_t ms_since(SteadyTime begin) {
  return std::chrono::duration_cast<milliseconds>(steady_clock::now() - begin).count();
}

// "checkpoint.old", "checkpoint.old2"
std::string generation(std::int64_t n) {
  if (n == 0) return kImage;
  return std::string(kImage) + ".old" + (n == 1 ? "" : std::to_string(n));
}

// A process outside the job has the program's number by now: another user's that is younger than
// the job, or the owner's that is younger than the request. Any other one was named by mistake.
bool number_was_reused(const Request& request) {
  const auto holder = read_process(request.body.pid);
  if (!holder || is_in_job(*holder, request.owner)) return false;
  if (belongs_to(*holder, request.owner.uid)) return start_time_ns(*holder) > request.written_ns;
  const auto first = first_process(request.owner);
  return first && holder->start > first->start;
}

// As the owner.
void end_job(const Request& request) {
  const auto first = first_process(request.owner);
  // Slurm gives each life of a job the same id; the request was the life's before.
  if (!first || start_time_ns(*first) > request.written_ns + kClockError) return;
  const UniqueFd process = open_process(first->pid);
  const auto again = read_process(first->pid);
  if (!process || !again || again->start != first->start) return;
  send_signal(process, SIGTERM);
  if (!wait_for_end(process, kTermPatienceMs)) send_signal(process, SIGKILL);
}

// One request of one job. Everything but enter_job() is done as the owner.
class Work {
 public:
  Work(const Request& request, const Config& config, std::string engine_version, Engine& engine)
      : request_(request),
        owner_(request.owner),
        config_(config),
        engine_version_(std::move(engine_version)),
        engine_(engine),
        deadline_(steady_clock::now() + seconds(config.time_limit_seconds)) {}

  // As root, before a resume.
  Outcome<void> enter_job() const;
  Outcome<Done> checkpoint();
  Outcome<Done> resume();
  // After a resume that succeeded. The exit code of a program that ended by itself.
  std::optional<int> wait_for_program() const;
  // After a checkpoint that was refused: nothing is left that the job could wait for.
  bool program_has_ended() const { return !is_running(root_) || number_was_reused(request_); }

 private:
  Outcome<void> open_directory();
  Outcome<std::vector<Process>> inspect_tree() const;
  Outcome<void> check_room(const std::vector<Process>& tree) const;
  Outcome<void> keep(const UserDirectory& image, Done& done);
  Outcome<pid_t> restore(const UserDirectory& image);
  Outcome<std::uint64_t> check_restored(pid_t root) const;

  const Request& request_;
  const JobOwner& owner_;
  const Config& config_;
  std::string engine_version_;
  Engine& engine_;
  SteadyTime deadline_;
  std::optional<UserDirectory> directory_;
  UniqueFd root_;          // of the tree that is to be saved
  std::string node_only_;  // Manifest::node_only
  pid_t program_ = 0;
  std::int64_t tries_ = 0;  // of the engine, to restore it
};

Outcome<void> Work::open_directory() {
  auto directory = UserDirectory::open(request_.body.directory);
  if (!directory) return refuse("directory", directory.error().message());
  directory_ = *std::move(directory);
  if (!directory_->lock()) return refuse("busy", "another request works in this directory");
  return {};
}

// The tree that is to be saved, all of it of the job and of its owner.
Outcome<std::vector<Process>> Work::inspect_tree() const {
  auto tree = tree_of(request_.body.pid, processes_of(owner_.uid));
  if (tree.empty() || tree.front().is_zombie) {
    // Either there is none, or it is another user's.
    const auto other = read_process(request_.body.pid);
    if (!other || other->is_zombie)
      return refuse("process_gone", "there is no process " + std::to_string(request_.body.pid));
    return refuse("not_in_job", "the process is another user's");
  }
  std::erase_if(tree, [](const Process& process) { return process.is_zombie; });
  for (const Process& process : tree) {
    const std::string name = "process " + std::to_string(process.pid);
    if (!belongs_to(process, owner_.uid))
      return refuse("not_in_job", name + " does not run as the job's owner alone");
    if (!is_in_job(process, owner_) && !has_ended(process))
      return refuse("not_in_job", name + " is not in the control group of " + job_text(owner_));
  }
  return tree;
}

Outcome<void> Work::check_room(const std::vector<Process>& tree) const {
  std::uint64_t bytes = 0;
  for (const Process& process : tree) bytes += process.memory_bytes;
  if (bytes > static_cast<std::uint64_t>(config_.max_image_bytes)) {
    return refuse("too_large",
                  "the program uses " + format_bytes(bytes) + ", and at most " +
                      format_bytes(static_cast<std::uint64_t>(config_.max_image_bytes)) +
                      " may be saved");
  }
  const std::uint64_t room = directory_->free_bytes();
  if (room < bytes + kRoomMargin) {
    return refuse("no_space", "the program uses " + format_bytes(bytes) +
                                  ", and the directory's file system has room for " +
                                  format_bytes(room));
  }
  return {};
}

Outcome<Done> Work::checkpoint() {
  // Before the process is inspected: what is then found under its number is the same process, or
  // this descriptor says that it has ended.
  root_ = open_process(request_.body.pid);
  if (auto opened = open_directory(); !opened) return tl::unexpected(opened.error());
  if (directory_->has(kSaved)) {
    const auto image = directory_->open_folder(kImage);
    const auto manifest =
        image ? check_image(image->fd(), owner_.uid, ImageCheck::kManifest) : Outcome<Manifest>{};
    if (image && manifest && manifest->job != owner_.job && image->line(kResumedBy) != owner_.job) {
      return refuse("directory_in_use", "the directory has an image of job " + manifest->job +
                                            " that waits for its " +
                                            "resume; two jobs cannot share one");
    }
    // A signal that came twice: the program was saved for the first one, and the job's script is
    // about to end the job itself.
    if (manifest && manifest->job == owner_.job && !image->has(kResumedBy) && !is_running(root_))
      return Done{};
  }
  directory_->remove(kSaved);
  directory_->remove_tree(kRefused);
  const auto tree = inspect_tree();
  if (!tree) return tl::unexpected(tree.error());
  if (!is_running(root_)) return refuse("process_gone", "the process has ended");
  if (auto room = check_room(*tree); !room) return tl::unexpected(room.error());
  auto obstacles = find_obstacles(*tree, directory_->fd());
  if (!obstacles) return tl::unexpected(obstacles.error());
  node_only_ = *std::move(obstacles);

  auto image = directory_->make_folder(kNewImage);
  if (!image) return refuse("directory", image.error().message());
  Done done{.processes = tree->size(), .root = request_.body.pid};
  const SteadyTime begin = steady_clock::now();
  auto dumped = engine_.dump(
      request_.body.pid, image->fd(), static_cast<std::uint64_t>(config_.max_image_bytes),
      request_.body.runs_on ? AfterDump::kRunsOn : AfterDump::kEnds, deadline_);
  done.engine_ms = ms_since(begin);
  // A process that ended while another one got its number was not the one that was saved.
  if (dumped && request_.body.runs_on && !is_running(root_))
    dumped = refuse("process_gone", "the process ended while it was saved");
  if (dumped && !request_.body.runs_on && !wait_for_end(root_, kTermPatienceMs))
    dumped = refuse("engine", "the process that was saved is not the one that was meant");
  if (dumped) dumped = keep(*image, done);
  if (dumped) return done;
  // An image that could not be finished is the only one of a program that has ended.
  if (request_.body.runs_on || is_running(root_)) directory_->remove_tree(kNewImage);
  return tl::unexpected(dumped.error());
}

// The images are complete and the program has ended.
Outcome<void> Work::keep(const UserDirectory& image, Done& done) {
  const SteadyTime begin = steady_clock::now();
  auto files = hash_images(image.fd());
  if (!files) return tl::unexpected(files.error());
  for (const ImageFile& file : *files) done.bytes += file.bytes;
  const Manifest manifest{
      .job = owner_.job,
      .engine = engine_.name(),
      .engine_version = engine_version_,
      .machine = this_machine(),
      .node_only = node_only_,
      .made = format_rfc3339(system_clock().now(), TimePrecision::kMilliseconds),
      .processes = done.processes,
      .files = *std::move(files)};
  const std::string text = manifest_text(manifest);
  done.manifest_sha256 = sha256_hex(text);
  auto written = image.put(kManifestFile, text);
  if (written) written = sync_fd(image.fd(), kNewImage);
  const std::int64_t keep = request_.body.keep > 0
                                ? std::min(request_.body.keep, config_.generations)
                                : config_.generations;
  for (std::int64_t n = keep; n > 0 && written; --n) {
    if (!directory_->has(generation(n - 1))) continue;
    directory_->remove_tree(generation(n));
    written = directory_->rename(generation(n - 1), generation(n));
  }
  if (written) written = directory_->rename(kNewImage, kImage);
  if (written) written = sync_fd(directory_->fd(), "the directory");
  directory_->remove_tree(kRefused);  // of a second request that came meanwhile
  if (written) written = directory_->put(kSaved, {});
  if (!written) return refuse("directory", written.error().message());
  for (std::int64_t n = keep; n <= config_.generations; ++n) directory_->remove_tree(generation(n));
  done.hash_ms = ms_since(begin);
  return {};
}

// OAR's control groups belong to its own user, and root without CAP_DAC_OVERRIDE cannot open what
// another user alone can write.
UniqueFd open_as_its_owner(const std::string& path) {
  struct stat found{};
  if (::stat(path.c_str(), &found) != 0) return {};
  ::setfsuid(found.st_uid);
  UniqueFd file(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  const int error = errno;
  ::setfsuid(::geteuid());
  errno = error;
  return file;
}

// As root: enters every control group that the job's first process is in.
Outcome<void> Work::enter_job() const {
  const auto first = first_process(owner_);
  const UniqueFd process = first ? open_process(first->pid) : UniqueFd{};
  const std::string groups = first ? read_group_text(first->pid) : std::string{};
  if (!is_in_job(groups, owner_)) {
    return refuse("not_in_job", "no process of " + job_text(owner_) + " of " + owner_.user +
                                    " is on this node, by its control groups");
  }
  const std::string mounts = read_proc("/proc/self/mountinfo");
  for (const GroupEntry& entry : entries_of(groups, mounts, owner_)) {
    const UniqueFd file = open_as_its_owner(entry.procs);
    const bool entered = file && ::write(file.get(), "0", 1) == 1;
    if (!entered && entry.required)
      return refuse("not_in_group", system_error("entering " + entry.procs, errno).message());
  }
  if (!is_running(process) || !is_in_job(read_group_text(::getpid()), owner_))
    return refuse("not_in_group", "the job's control group could not be entered");
  return {};
}

Outcome<pid_t> Work::restore(const UserDirectory& image) {
  // The program becomes our child when criu ends, and what it leaves behind remains below us.
  ::prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
  const SteadyTime last = std::min(steady_clock::now() + kPidPatience, deadline_);
  while (true) {
    ++tries_;
    auto root = engine_.restore(image.fd(), deadline_);
    if (root) return root;
    end_descendants();
    if (root.error().reason != "pid_taken" || steady_clock::now() >= last) return root;
    std::this_thread::sleep_for(kPidPace);
  }
}

Outcome<std::uint64_t> Work::check_restored(pid_t root) const {
  const auto tree = tree_of(root, processes_of(owner_.uid));
  if (tree.empty() || tree.front().parent != ::getpid())
    return refuse("not_in_group", "the restored process is not a child of the service");
  for (const Process& process : tree_of(::getpid(), all_processes())) {
    if (process.pid == ::getpid() || process.is_zombie) continue;
    if (!belongs_to(process, owner_.uid) || process.has_capabilities)
      return refuse("not_in_group", "a restored process has other rights than the job's owner");
    if (!is_in_job(process, owner_) && !has_ended(process))
      return refuse("not_in_group", "a restored process is not in the job's control group");
  }
  return tree.size();
}

Outcome<Done> Work::resume() {
  if (auto opened = open_directory(); !opened) return tl::unexpected(opened.error());
  directory_->remove(kResumed);
  directory_->remove_tree(kRefused);
  auto image = directory_->open_folder(kImage);
  if (!image) return refuse("no_image", image.error().message());
  image->remove(kPid);
  if (image->has(kExitCode)) {
    return refuse("ended", "the program has ended by itself with exit code " +
                               image->line(kExitCode) + "; its image is not restored again");
  }
  const SteadyTime begin = steady_clock::now();
  const auto manifest = check_image(image->fd(), owner_.uid, ImageCheck::kAll);
  if (!manifest) return tl::unexpected(manifest.error());
  if (auto other = mismatch(*manifest, this_machine(), engine_.name()))
    return tl::unexpected(*std::move(other));
  Done done{.hash_ms = ms_since(begin), .manifest_sha256 = manifest->sha256};
  for (const ImageFile& file : manifest->files) done.bytes += file.bytes;

  const SteadyTime restoring = steady_clock::now();
  const auto root = restore(*image);
  if (!root) return tl::unexpected(root.error());
  done.engine_ms = ms_since(restoring);
  const auto processes = check_restored(*root);
  if (!processes) {
    end_descendants();
    return tl::unexpected(processes.error());
  }
  auto written = image->put(kResumedBy, owner_.job + "\n");
  if (written) written = image->put(kPid, std::to_string(*root) + "\n");
  if (written) written = directory_->put(kResumed, {});
  if (!written) {
    end_descendants();
    return refuse("directory", written.error().message());
  }
  done.processes = *processes;
  done.root = program_ = *root;
  done.tries = tries_;
  directory_->unlock();
  return done;
}

// A program that a signal from outside has ended did not end by itself: the scheduler's time limit,
// the next dump, or a user did that.
std::optional<int> Work::wait_for_program() const {
  int status = 0;
  while (true) {
    const pid_t ended = ::waitpid(-1, &status, 0);
    if (ended == program_) break;
    if (ended < 0 && errno != EINTR) return std::nullopt;
  }
  const int signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  for (const int outside : {SIGKILL, SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2, SIGXCPU}) {
    if (signal == outside) return std::nullopt;
  }
  const int code = signal == 0 ? WEXITSTATUS(status) : 128 + signal;
  // What fails here costs one life more, which then ends the same way. The newest image may not be
  // the one that was resumed.
  if (const auto image = directory_->open_folder(kImage))
    static_cast<void>(image->put(kExitCode, std::to_string(code) + "\n"));
  return code;
}

void answer(const Request& request, const Outcome<Done>& outcome) {
  if (outcome) return;
  if (const auto directory = UserDirectory::open(request.body.directory)) {
    const std::string text =
        outcome.error().reason + ": " + printable(outcome.error().detail, 500) + "\n";
    directory->remove_tree(kRefused);
    static_cast<void>(directory->put(kRefused, text));
  }
}

// The user whose id the kernel gave as the request's owner.
Outcome<UserRecord> find_owner(const Request& request) {
  auto user = find_user(request.owner.uid);
  if (!user || !*user) return refuse("refused", "the job's owner is not a user of this node");
  return **std::move(user);
}

// As root. Whose job it is, by the control group of its first process.
WorkReport begin_report(const JobOwner& owner) {
  WorkReport report;
  report.user = owner.user;
  if (const auto first = first_process(owner))
    report.scheduler = scheduler_of(read_group_text(first->pid), owner);
  return report;
}

Outcome<void> become(const UserRecord& user, Action action) {
  const EngineUse use = action == Action::kResume ? EngineUse::kRestore : EngineUse::kDump;
  if (auto became = become_owner(user, use); !became)
    return refuse("refused", became.error().message());
  ::umask(0077);
  return {};
}

}  // namespace

WorkReport not_done(Refusal why) {
  WorkReport report;
  report.outcome = tl::unexpected(std::move(why));
  return report;
}

void serve(const Request& request, const Config& config, const std::string& engine_version,
           Engine& engine, const Report& report) {
  const SteadyTime begin = steady_clock::now();
  const auto user = find_owner(request);
  if (!user) return report(not_done(user.error()));
  Request known = request;
  known.owner.user = user->name;
  WorkReport result = begin_report(known.owner);
  Work work(known, config, engine_version, engine);
  const bool resumes = request.action == Action::kResume;
  const Outcome<void> entered = resumes ? work.enter_job() : Outcome<void>{};
  // Without becoming the owner, nothing of the owner's is touched.
  if (const auto became = become(*user, request.action); !became) {
    result.outcome = tl::unexpected(became.error());
    return report(result);
  }
  result.outcome = !entered  ? tl::unexpected(entered.error())
                   : resumes ? work.resume()
                             : work.checkpoint();
  const Outcome<Done>& outcome = result.outcome;
  static_cast<void>(drop_capabilities());
  answer(known, outcome);
  result.duration_ms = ms_since(begin);
  report(result);
  // A script that knows only checkpoint_ok would wait for its time limit.
  // Of two requests in one directory, the one that is at work may have ended the program to save
  // it.
  if (!outcome && !request.body.keeps_job &&
      (resumes || (outcome.error().reason != "busy" && work.program_has_ended())))
    end_job(known);
  if (!outcome || !resumes) return;
  result.exit_code = work.wait_for_program();
  if (result.exit_code) report(result);
}

void clean_up(const Request& request, const Report& report) {
  const auto user = find_owner(request);
  if (!user) return report(not_done(user.error()));
  Request known = request;
  known.owner.user = user->name;
  WorkReport result = begin_report(known.owner);
  if (const auto became = become(*user, request.action); !became) {
    result.outcome = tl::unexpected(became.error());
    return report(result);
  }
  static_cast<void>(drop_capabilities());
  result.outcome = refuse("interrupted", "the service's process for it was ended");
  answer(known, result.outcome);
  report(result);
  if (!request.body.keeps_job &&
      (request.action == Action::kResume || !is_running(open_process(request.body.pid)) ||
       number_was_reused(known)))
    end_job(known);
}

}  // namespace scriptorium::checkpoint
