#pragma once

#include <stdlib.h>
#include <sys/resource.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <utility>

#include "core/api/event.h"
#include "core/api/logger.h"
#include "core/base/sha256.h"

// What the programs that time parts of the daemon have in common: jobs to send, a clock of CPU
// time, a log.
namespace scriptorium::bench {

[[noreturn]] inline void fail(const std::string& words) {
  std::fprintf(stderr, "bench: %s\n", words.c_str());
  std::exit(1);
}

// Warnings and errors to standard error.
class WarningLogger final : public Logger {
 public:
  void log(LogLevel level, std::string_view id, std::string_view sentence,
           const Fields& fields) noexcept override {
    if (level < LogLevel::kWarning) return;
    std::string line = std::string(id) + ": " + std::string(sentence);
    for (const auto& field : fields) line += " " + field.key + "=" + field.value;
    std::fprintf(stderr, "%s\n", line.c_str());
  }
};

// Of this process, all threads, user and system.
inline double cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto of = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
  };
  return of(usage.ru_utime) + of(usage.ru_stime);
}

// A new directory below TMPDIR, gone with this.
class TemporaryDirectory {
 public:
  TemporaryDirectory()
      : path_((std::filesystem::temp_directory_path() / "scriptorium-bench.XXXXXX").string()) {
    if (::mkdtemp(path_.data()) == nullptr) fail("mkdtemp " + path_);
  }
  ~TemporaryDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

inline EventFile make_file(std::string name, std::string bytes) {
  return {.name = std::move(name),
          .size = bytes.size(),
          .sha256 = sha256_hex(bytes),
          .bytes = make_bytes(std::move(bytes))};
}

// A job with a script and an environment of these sizes, no two alike. Words, options and paths
// repeat as people repeat them, numbers and names do not: a megabyte of them shrinks to about a
// sixth (zstd -3), as scripts of real clusters do. A loop that says the same line again and again
// would flatter whatever compresses.
inline std::shared_ptr<const Event> make_job(int number, std::size_t script_bytes,
                                             std::size_t environment_bytes, Timestamp captured) {
  static constexpr std::string_view kWords[] = {"srun --ntasks=",
                                                "gmx_mpi mdrun -deffnm ",
                                                "module load GROMACS/2023.",
                                                "cp -r $SLURM_SUBMIT_DIR/",
                                                "export OMP_NUM_THREADS=",
                                                "python3 fit.py --seed ",
                                                "mpirun -np ",
                                                "echo \"step ",
                                                "tar czf results-",
                                                "if [ -f restart.",
                                                "/scratch/project_",
                                                "/lib64/cmake/",
                                                "awk '{ print $",
                                                "# restart of run ",
                                                "for i in $(seq "};
  static constexpr std::string_view kNames[] = {
      "SLURM_JOB_", "MODULE_VERSION_", "EBROOT", "PYTHONPATH_", "LMOD_", "OMP_", "XDG_"};
  std::mt19937_64 random(static_cast<std::uint64_t>(number) * 2 + 1);
  const auto token = [&](std::size_t digits) {
    static constexpr std::string_view kDigits = "abcdefghijklmnopqrstuvwxyz0123456789";
    std::string text;
    for (std::uint64_t bits = random(); digits > 0; --digits, bits /= kDigits.size())
      text += kDigits[bits % kDigits.size()];
    return text;
  };
  std::string script =
      "#!/bin/bash\n#SBATCH --time=00:10:00\n#SBATCH --nodes=2\nmodule load GROMACS/2023.1\n";
  while (script.size() < script_bytes) {
    script.append(kWords[random() % std::size(kWords)]).append(token(random() % 5 + 1));
    if (random() % 2 == 0) script.append("/\"output\" --verbose --checkpoint-every=600");
    script += random() % 3 == 0 ? '\n' : ' ';
  }
  std::string environment;
  for (int i = 0; environment.size() < environment_bytes; ++i) {
    environment.append(kNames[random() % std::size(kNames)])
        .append(std::to_string(i))
        .append("=/opt/software/")
        .append(token(3));
    environment.append("/foss-2022a/lib:/usr/lib64/openmpi/").append(token(4)) += '\0';
  }
  Event event;
  event.kind = "job.script";
  event.time = event.captured_at = captured;
  event.capture = "fanotify";
  event.cluster = "lab";
  event.scheduler = "slurm";
  event.host = "ctl1";
  event.job.id = std::to_string(100'000 + number);
  event.job.name = "simulation";
  event.job.account = "chem";
  event.job.partition = "batch";
  event.user.name = "alice";
  event.user.id = "1001";
  event.script = ScriptInfo{.interpreter = "/bin/bash",
                            .directives = {"--time=00:10:00", "--nodes=2"},
                            .modules = {"GROMACS/2023.1"}};
  event.environment_format = EnvironmentFormat::kNulEnded;
  event.files = {make_file("script", std::move(script)),
                 make_file("environment", std::move(environment))};
  event.id = event_id(event.cluster, event.scheduler, event.kind, event.job.id, number,
                      event.files[0].sha256);
  return std::make_shared<const Event>(std::move(event));
}

// The same, so that its JSON is about `json_bytes` long; 1.2 KB of that are its members.
inline std::shared_ptr<const Event> make_job_of(int number, std::size_t json_bytes,
                                                Timestamp captured) {
  const std::size_t texts = json_bytes > 1300 ? json_bytes - 1200 : 100;
  return make_job(number, texts * 2 / 3, texts / 4, captured);
}

}  // namespace scriptorium::bench
