// A sink that ends the process at each batch with a job whose id is that of its option `job`.
// Option `how`: "segfault" in deliver(); "recursion", which uses up the thread's stack; "callback",
// a segmentation fault in a thread of its own after deliver() came back, as a client library's;
// "kill", SIGKILL. Option `file`: gets the job id of every acknowledged event.
#include <signal.h>
#include <unistd.h>

#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/broken_plugins/plain_sink.h"

namespace {

struct CrashingConfig {
  std::string file;
  std::string job;
  std::string how = "segfault";
};

const scriptorium::Schema<CrashingConfig>& schema() {
  static const scriptorium::Schema<CrashingConfig> the_schema{
      scriptorium::required("job", &CrashingConfig::job, "the job that ends the process"),
      scriptorium::required("file", &CrashingConfig::file,
                            "gets the job id of every acknowledged event"),
      scriptorium::option("how", &CrashingConfig::how, "segfault, recursion, callback or kill"),
  };
  return the_schema;
}

void segfault() {
  volatile int* volatile nothing = nullptr;
  *nothing = 1;  // NOLINT(clang-analyzer-core.NullDereference): what it is for
}

// NOLINTNEXTLINE(misc-no-recursion): what it is for
int recurse(int depth) {
  volatile char room[4096];
  room[0] = static_cast<char>(depth);
  if (depth < 0) return 0;  // so that the compiler believes in an end
  return recurse(depth + 1) + room[0];
}

class CrashingSink : public scriptorium::Sink {
 public:
  explicit CrashingSink(CrashingConfig config) : config_(std::move(config)) {}

  void deliver(std::vector<scriptorium::Delivery> batch) override {
    bool crash = false;
    for (const scriptorium::Delivery& delivery : batch)
      crash = crash || delivery.event().job.id == config_.job;
    if (crash && config_.how == "callback") {
      // The whole batch stays under way, and the thread that crashes is none of ours.
      kept_ = std::move(batch);
      std::thread([] { segfault(); }).detach();
      return;
    }
    for (scriptorium::Delivery& delivery : batch) {
      if (delivery.event().job.id == config_.job) {
        if (config_.how == "recursion") recurse(0);
        if (config_.how == "kill") ::kill(::getpid(), SIGKILL);
        segfault();
      }
      scriptorium::broken::note_and_acknowledge(config_.file, delivery.event().job.id, delivery);
    }
  }

 private:
  CrashingConfig config_;
  std::vector<scriptorium::Delivery> kept_;
};

}  // namespace

extern "C" SCRIPTORIUM_EXPORT const scriptorium::PluginDescriptor scriptorium_plugin =
    scriptorium::broken::describe<&schema, CrashingSink>("crashing", "ends the process at one job");
