// A sink that does what an attacker would who has taken over the daemon: with the descriptors and
// the rights of that process it tries to have files of others. Option `file` gets a line for each
// attempt, "NAME ERRNO" (0: it worked); option `directory` is one of others' files, with a file
// `secret` that nobody but root may read.
#include <fcntl.h>
#include <sched.h>
#include <sys/fanotify.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "core/base/file.h"
#include "tests/broken_plugins/plain_sink.h"

namespace {

struct PryingConfig {
  std::string file;
  std::string directory;
};

const scriptorium::Schema<PryingConfig>& schema() {
  static const scriptorium::Schema<PryingConfig> the_schema{
      scriptorium::required("file", &PryingConfig::file, "gets the outcome of each attempt"),
      scriptorium::required("directory", &PryingConfig::directory, "the files to be had"),
  };
  return the_schema;
}

class PryingSink : public scriptorium::broken::PlainSink {
 public:
  explicit PryingSink(PryingConfig config) : config_(std::move(config)) {}

  void deliver(std::vector<scriptorium::Delivery> batch) override {
    if (!std::exchange(done_, true)) pry();
    PlainSink::deliver(std::move(batch));
  }

 private:
  void pry() const {
    std::string outcome;
    const auto attempt = [&](const std::string& name, long result) {
      outcome += name + " " + std::to_string(result < 0 ? errno : 0) + "\n";
    };
    std::error_code failed;
    for (const auto& fd : std::filesystem::directory_iterator("/proc/self/fd", failed)) {
      if (std::filesystem::read_symlink(fd.path(), failed) != "anon_inode:[fanotify]") continue;
      attempt("fanotify_mark",
              ::fanotify_mark(std::atoi(fd.path().filename().c_str()), FAN_MARK_ADD,
                              FAN_OPEN | FAN_EVENT_ON_CHILD, AT_FDCWD, config_.directory.c_str()));
    }
    attempt("fanotify_init", ::fanotify_init(FAN_CLASS_NOTIF | FAN_REPORT_FID, O_RDONLY));
    attempt("open", ::open((config_.directory + "/secret").c_str(), O_RDONLY | O_CLOEXEC));
    attempt("open_by_handle_at", ::syscall(SYS_open_by_handle_at, AT_FDCWD, nullptr, O_RDONLY));
    attempt("ptrace", ::ptrace(PTRACE_SEIZE, ::getppid(), nullptr, nullptr));
    attempt("unshare", ::unshare(CLONE_NEWUSER));
    attempt("io_uring_setup", ::syscall(SYS_io_uring_setup, 0, nullptr));
    attempt("a program that it starts", std::system("true") == 0 ? 0 : -1);
    const scriptorium::UniqueFd fd{
        ::open(config_.file.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600)};
    static_cast<void>(scriptorium::write_fd(fd.get(), outcome));
  }

  PryingConfig config_;
  bool done_ = false;
};

}  // namespace

extern "C" SCRIPTORIUM_EXPORT const scriptorium::PluginDescriptor scriptorium_plugin =
    scriptorium::broken::describe<&schema, PryingSink>("prying", "tries to have files of others");
