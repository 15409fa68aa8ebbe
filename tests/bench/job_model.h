#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/api/event.h"
#include "core/base/sha256.h"

namespace scriptorium::bench {

// How many accounts the users of a site share, and when they submit.
struct SitePlan {
  std::size_t accounts = 150;
  std::int64_t begins = 1'767'225'600 * kSecond;  // 2026-01-01
  std::uint64_t most_gap_ms = 59'000;             // between two jobs; two a minute on average
  std::uint64_t jobs_before = 0;                  // the first job id is the next
};

// Submissions as a site has them: users of whom few submit much, each with 2 to 9 scripts; of 100
// submissions 25 repeat one exactly, 70 change it at 1 to 4 places (a number, a path, a line), and
// 5 are new. A script has 2 KB, an environment 57 variables of which few change. The same seed
// gives the same jobs.
// Threads: one at a time.
class JobModel {
 public:
  explicit JobModel(std::uint64_t seed = 1, std::size_t users = 2'000, std::size_t site = 0,
                    const SitePlan& plan = {})
      : random_(seed),
        site_(site),
        plan_(plan),
        users_(users),
        time_(plan.begins),
        job_(plan.jobs_before) {
    double sum = 0;
    for (std::size_t i = 0; i < users; ++i) {
      // Zipf's law, flattened: the first of 2,000 submits about 3 percent.
      sum += 1.0 / (20.0 + static_cast<double>(i));
      weights_.push_back(sum);
    }
  }

  // The next job.script event: times and job ids ascend.
  Event next() {
    const std::size_t who = draw_user();
    User_& user = users_[who];
    if (user.scripts.empty()) start(user, who);
    Script& script = draw_script(user);
    ++job_;
    time_ += static_cast<std::int64_t>(1'000'000 * (1 + random_() % plan_.most_gap_ms));
    return event_of(user, script);
  }

  // What the job used, as one usage.job event.
  Event usage_of(const Event& job) {
    Event event;
    event.kind = "usage.job";
    event.time = job.time;
    event.captured_at = {job.time.nanoseconds + 7'200 * kSecond};
    event.capture = "accounting";
    event.cluster = job.cluster;
    event.scheduler = job.scheduler;
    event.host = job.host;
    event.job = job.job;
    event.user = job.user;
    const std::uint64_t elapsed = 60 + random_of_use_() % 7'000;
    const bool failed = random_of_use_() % 8 == 0;
    const std::uint64_t cpus = std::uint64_t{1} << (random_of_use_() % 7);
    const std::uint64_t busy_percent = random_of_use_() % 100;
    const Timestamp began{job.time.nanoseconds + 30 * kSecond};
    const Timestamp ended{began.nanoseconds + static_cast<std::int64_t>(elapsed) * kSecond};
    const std::string times = R"("started_at":")" + format_rfc3339(began, TimePrecision::kSeconds) +
                              R"(","ended_at":")" + format_rfc3339(ended, TimePrecision::kSeconds) +
                              '"';
    event.extra_json = R"({"job":{"state":")" + std::string(failed ? "FAILED" : "COMPLETED") +
                       R"(","exit_code":")" + (failed ? "1:0" : "0:0") + "\"," + times +
                       R"(},"usage":{"elapsed_seconds":)" + std::to_string(elapsed) + "," + times +
                       R"(,"quality":"exact","request":{"nodes":1,"cpus":)" + std::to_string(cpus) +
                       R"(,"memory_bytes":)" + std::to_string((random_of_use_() % 64 + 1) << 30) +
                       R"(},"cpu":{"time_seconds":)" +
                       std::to_string(elapsed * cpus * busy_percent / 100) + R"(,"allocated":)" +
                       std::to_string(cpus) + R"(,"efficiency_ratio":)" +
                       std::to_string(static_cast<double>(busy_percent) / 100) +
                       R"(},"nodes":[{"host":{"name":"n)" + std::to_string(random_of_use_() % 500) +
                       R"("}}],"programs":[{"name":"gmx_mpi","cpu_ratio":0.97},{"name":"bash",)"
                       R"("cpu_ratio":0.02}],"programs_unseen":{"cpu_ratio":0.01},"findings":[)" +
                       (random_of_use_() % 10 == 0 ? R"({"id":"cpu_low"})" : "") + "]}}";
    event.id = event_id(std::vector<std::string_view>{job.id, "usage.job"});
    return event;
  }

  // A reading of a node of the job, one every 30 seconds, from 1.
  Event sample_of(const Event& job, std::uint64_t reading) {
    Event event = job;
    event.files.clear();
    event.script.reset();
    event.kind = "usage.sample";
    event.time.nanoseconds += static_cast<std::int64_t>(reading) * 30 * kSecond + 123'456'789;
    event.captured_at = event.time;
    event.capture = "sampler";
    event.host = "node" + std::to_string(random_of_use_() % 4);
    const std::string used =
        std::to_string(reading * 4) + "." + std::to_string(random_of_use_() % 1'000);
    const std::string bytes =
        std::to_string((std::uint64_t{1} << 30) + random_of_use_() % 100'000'000);
    event.extra_json = R"({"usage":{"seq":)" + std::to_string(reading) +
                       R"(,"interval_seconds":30,"elapsed_seconds":)" +
                       std::to_string(reading * 30) +
                       R"(,"source":{"cpu":"cgroup2","memory":"cgroup2","io":"cgroup2"},)" +
                       R"("cpu":{"time_seconds":)" + used + R"(,"user_seconds":)" + used +
                       R"(,"system_seconds":1.5,"allocated":4,"utilization_ratio":0.)" +
                       std::to_string(900 + random_of_use_() % 99) +
                       R"(},"memory":{"working_set_bytes":)" + bytes + R"(,"anon_bytes":)" + bytes +
                       R"(,"shmem_bytes":0,"swap_bytes":0,"charged_bytes":)" + bytes +
                       R"(,"limit_bytes":8589934592},"io":{"read_bytes":)" + bytes +
                       R"(,"write_bytes":1048576},"tasks":{"current":5,"peak":9}}})";
    event.id = event_id(
        std::vector<std::string_view>{job.id, "usage.sample", event.host, std::to_string(reading)});
    return event;
  }

 private:
  using Lines = std::vector<std::string>;
  struct Script {
    Lines lines;
    std::string name;
    std::size_t domain = 0;
  };
  struct User_ {
    std::string name;
    std::string uid;
    std::string account;
    std::string group;
    std::vector<Script> scripts;
    std::vector<std::string> variables;
    std::uint64_t run = 0;
  };
  struct Domain {
    std::string_view program;
    std::array<std::string_view, 4> modules;
    std::array<std::string_view, 5> commands;
    std::array<std::string_view, 4> words;
  };

  static const std::vector<Domain>& domains() {
    static const std::vector<Domain> kDomains{
        {"gmx_mpi",
         {"GROMACS/2023.1", "GROMACS/2022.5", "OpenMPI/4.1.5", "CUDA/12.1.1"},
         {"gmx_mpi grompp -f %w.mdp -c %w.gro -p topol.top -o run_%n.tpr",
          "mpirun -np %c gmx_mpi mdrun -deffnm run_%n -ntomp $OMP_NUM_THREADS -maxh %n",
          "gmx_mpi energy -f run_%n.edr -o potential_%n.xvg <<< \"Potential\"",
          "gmx_mpi trjconv -s run_%n.tpr -f run_%n.xtc -o center_%n.xtc -pbc mol -center",
          "gmx_mpi rms -s em_%n.tpr -f center_%n.xtc -o rmsd_%n.xvg -tu ns"},
         {"equilibration", "production", "membrane", "minimization"}},
        {"vasp_std",
         {"VASP/6.4.1", "intel/2022b", "imkl/2022.2.1", "HDF5/1.12.2"},
         {"srun --cpu-bind=cores vasp_std > vasp_%n.out 2> vasp_%n.err",
          "cp POSCAR_%w_%n POSCAR && cp INCAR.%w INCAR",
          "grep 'free  energy' OUTCAR | tail -n %c >> energies_%w.dat",
          "mv CONTCAR POSCAR_%w_%n && gzip -9 WAVECAR", "sed -i 's/ENCUT = .*/ENCUT = %n/' INCAR"},
         {"relaxation", "bandstructure", "phonon", "surface"}},
        {"python",
         {"Python/3.11.3", "PyTorch/2.1.2", "CUDA/12.1.1", "Miniconda3/23.5.2"},
         {"python train_%w.py --epochs %n --batch-size %c --lr 0.00%c --output models/%w_%n",
          "torchrun --nproc_per_node=%c finetune.py --config configs/%w_%n.yaml",
          "python -m evaluate --checkpoint models/%w_%n/best.pt --split validation",
          "nvidia-smi --query-gpu=utilization.gpu --format=csv -l 60 > gpu_%n.csv &",
          "conda activate %w_env"},
         {"transformer", "resnet", "segmentation", "diffusion"}},
        {"lmp",
         {"LAMMPS/23Jun2022", "foss/2022a", "FFTW/3.3.10", "OpenMPI/4.1.4"},
         {"mpirun -np %c lmp -in in.%w -var T %n -var seed $RANDOM -log log.%w.%n",
          "python analyse_%w.py dump.%w.%n.lammpstrj --bins %n",
          "for T in %n %n %n; do mkdir -p T_$T; cp in.%w T_$T/; done",
          "tar czf trajectory_%w_%n.tar.gz dump.%w.*",
          "ln -sf ../potentials/%w_%n.eam.alloy potential.eam"},
         {"polymer", "nanowire", "indentation", "melting"}},
        {"bwa",
         {"BWA/0.7.17", "SAMtools/1.17", "GATK/4.4.0.0", "Java/17.0.6"},
         {"bwa mem -t %c reference/%w.fa reads/sample_%n_R1.fastq.gz reads/sample_%n_R2.fastq.gz "
          "| samtools sort -@ %c -o sample_%n.bam",
          "samtools index sample_%n.bam && samtools flagstat sample_%n.bam > sample_%n.stat",
          "gatk --java-options -Xmx%cg HaplotypeCaller -R %w.fa -I sample_%n.bam -O s%n.vcf.gz",
          "bcftools filter -i 'QUAL>%n' sample_%n.vcf.gz -Oz -o filtered_%n.vcf.gz",
          "multiqc -o report_%w_%n ."},
         {"exome", "cohort", "germline", "metagenome"}},
        {"simpleFoam",
         {"OpenFOAM/v2306", "foss/2022b", "ParaView/5.11.0", "ParMETIS/4.0.3"},
         {"blockMesh -case %w_%n > log.blockMesh", "decomposePar -case %w_%n -force",
          "mpirun -np %c simpleFoam -parallel -case %w_%n | tee log.simpleFoam",
          "reconstructPar -case %w_%n -latestTime",
          "postProcess -case %w_%n -func 'forceCoeffs(%n)' -latestTime"},
         {"airfoil", "channel", "cavity", "turbine"}},
    };
    return kDomains;
  }

  std::size_t below(std::size_t most) { return static_cast<std::size_t>(random_() % most); }

  std::size_t draw_user() {
    const double at = weights_.back() * static_cast<double>(random_() >> 11) * 0x1p-53;
    return static_cast<std::size_t>(std::lower_bound(weights_.begin(), weights_.end(), at) -
                                    weights_.begin());
  }

  void start(User_& user, std::size_t number) {
    static constexpr std::array<const char*, 12> kNames{"alice", "bob",   "carol",   "dave",
                                                        "erin",  "frank", "grace",   "heidi",
                                                        "ivan",  "judy",  "mallory", "peggy"};
    user.name = std::string(kNames[number % kNames.size()]) + std::to_string(number);
    user.uid = std::to_string(10'000 + number);
    user.group = "g" + std::to_string(number % 60);
    user.account = "project" + std::to_string(number % plan_.accounts);
    const std::size_t count = 2 + below(8);
    for (std::size_t i = 0; i < count; ++i) user.scripts.push_back(new_script(user));
    user.variables = variables_of(user);
  }

  std::string fill(std::string_view pattern, const Domain& domain) {
    std::string text;
    for (std::size_t i = 0; i < pattern.size(); ++i) {
      if (pattern[i] != '%' || i + 1 == pattern.size()) {
        text += pattern[i];
        continue;
      }
      switch (pattern[++i]) {
        case 'n': text += std::to_string(1 + below(999)); break;
        case 'c': text += std::to_string(1 + below(8)); break;
        case 'w': text += domain.words[below(domain.words.size())]; break;
        default: text += '%'; --i;
      }
    }
    return text;
  }

  Script new_script(User_& user) {
    Script script;
    script.domain = below(domains().size());
    const Domain& domain = domains()[script.domain];
    const std::string word(domain.words[below(domain.words.size())]);
    script.name = word + "_" + std::to_string(++user.run);
    static constexpr std::array<const char*, 4> kPartitions{"batch", "gpu", "long", "debug"};
    const std::string partition = script.domain == 2 ? "gpu" : kPartitions[below(4)];
    Lines& lines = script.lines;
    const auto add = [&](std::string line) { lines.push_back(std::move(line)); };
    add("#!/bin/bash");
    add("#SBATCH --job-name=" + script.name);
    add("#SBATCH --account=" + user.account);
    add("#SBATCH --partition=" + partition);
    add("#SBATCH --nodes=" + std::to_string(1 + below(4)));
    add("#SBATCH --ntasks-per-node=" + std::to_string(4 << below(4)));
    add("#SBATCH --mem=" + std::to_string(8 * (1 + below(16))) + "G");
    add("#SBATCH --time=" + std::to_string(1 + below(23)) + ":00:00");
    if (partition == "gpu") add("#SBATCH --gres=gpu:" + std::to_string(1 + below(4)));
    add("#SBATCH --output=logs/" + word + "_%j.out");
    add("");
    add("# " + word + " run for " + user.account + ", adapted from the group's template");
    add("set -euo pipefail");
    add("module purge");
    for (std::size_t i = 0; i < 2 + below(3); ++i)
      add("module load " + std::string(domain.modules[i % domain.modules.size()]));
    add("export OMP_NUM_THREADS=" + std::to_string(1 + below(8)));
    add("WORK=/scratch/" + user.name + "/" + word + "/run_" + std::to_string(1000 + below(9000)));
    add("mkdir -p \"$WORK\" && cd \"$WORK\"");
    add("echo \"job $SLURM_JOB_ID on $(hostname) started at $(date)\"");
    add("cp /home/" + user.name + "/inputs/" + word + "/*.in . # keep the inputs beside results");
    static constexpr std::array<const char*, 8> kRemarks{
        "# stage the input files to the local disk before the first step",
        "# restart from the last checkpoint if there is one",
        "if [ -f checkpoint.cpt ]; then RESTART=\"-cpi checkpoint.cpt\"; else RESTART=\"\"; fi",
        "# the queue limits the wall time, so the run is split into parts",
        "df -h \"$WORK\" | tail -n 1",
        "find . -name '*.tmp' -mtime +7 -delete",
        "rsync -a --exclude '*.tmp' \"$WORK/\" \"$HOME/results/\"",
        "test -s results.dat || { echo 'no results were written' >&2; exit 1; }"};
    std::size_t bytes = 0;
    for (const std::string& line : lines) bytes += line.size() + 1;
    const std::size_t wanted = 900 + below(2'600);
    while (bytes < wanted) {
      add(below(5) == 0 ? kRemarks[below(kRemarks.size())]
                        : fill(domain.commands[below(domain.commands.size())], domain));
      bytes += lines.back().size() + 1;
    }
    add("echo \"finished with $? after $SECONDS seconds\"");
    return script;
  }

  // 1 to 4 places: another number, another path or another line.
  void edit(Script& script) {
    const Domain& domain = domains()[script.domain];
    for (std::size_t i = 0, places = 1 + below(4); i < places; ++i) {
      std::string& line = script.lines[4 + below(script.lines.size() - 4)];
      const std::size_t digit = line.find_first_of("0123456789");
      const std::size_t kind = below(10);
      if (kind < 7 && digit != std::string::npos) {
        const std::size_t end = std::min(line.find_first_not_of("0123456789", digit), line.size());
        line.replace(digit, end - digit, std::to_string(1 + below(9'999)));
      } else if (kind < 9) {
        script.lines.insert(script.lines.end() - 1,
                            fill(domain.commands[below(domain.commands.size())], domain));
        if (script.lines.size() > 60) script.lines.erase(script.lines.begin() + 30);
      } else {
        line = fill(domain.commands[below(domain.commands.size())], domain);
      }
    }
  }

  Script& draw_script(User_& user) {
    const std::size_t kind = below(100);
    if (kind < 5) {
      Script& old = user.scripts[below(user.scripts.size())];
      old = new_script(user);
      return old;
    }
    Script& script = user.scripts[below(user.scripts.size())];
    if (kind < 75) edit(script);
    return script;
  }

  std::vector<std::string> variables_of(const User_& user) {
    const std::string home = "/home/" + user.name;
    std::vector<std::string> list{
        "HOME=" + home,
        "USER=" + user.name,
        "LOGNAME=" + user.name,
        "SHELL=/bin/bash",
        "LANG=en_US.UTF-8",
        "TERM=xterm-256color",
        "MAIL=/var/spool/mail/" + user.name,
        "HISTSIZE=1000",
        "HISTCONTROL=ignoredups",
        "LESSOPEN=||/usr/bin/lesspipe.sh %s",
        "XDG_DATA_DIRS=" + home + "/.local/share/flatpak/exports/share:/usr/local/share:/usr/share",
        "MODULESHOME=/usr/share/lmod/lmod",
        "LMOD_VERSION=8.7.30",
        "LMOD_SETTARG_FULL_SUPPORT=no",
        "LMOD_CMD=/usr/share/lmod/lmod/libexec/lmod",
        "LMOD_DIR=/usr/share/lmod/lmod/libexec",
        "LMOD_PKG=/usr/share/lmod/lmod",
        "BASH_ENV=/usr/share/lmod/lmod/init/bash",
        "MODULEPATH=/apps/easybuild/modules/all:/etc/modulefiles:/usr/share/modulefiles",
        "SLURM_CONF=/etc/slurm/slurm.conf",
        "KDEDIRS=/usr",
        "SSH_TTY=/dev/pts/7",
        "SELINUX_ROLE_REQUESTED=",
        "SELINUX_LEVEL_REQUESTED=",
        "PKG_CONFIG_PATH=/apps/lib/pkgconfig",
        "CMAKE_PREFIX_PATH=/apps/easybuild/software/foss/2022b"};
    std::string path = home + "/bin";
    std::string libraries;
    std::string loaded;
    for (std::size_t i = 0; i < 8; ++i) {
      const Domain& domain = domains()[below(domains().size())];
      const std::string module(domain.modules[below(domain.modules.size())]);
      path += ":/apps/easybuild/software/" + module + "/bin";
      libraries += "/apps/easybuild/software/" + module + "/lib:";
      loaded += (loaded.empty() ? "" : ":") + module;
    }
    list.push_back("PATH=" + path + ":/usr/local/bin:/usr/bin:/usr/local/sbin:/usr/sbin");
    list.push_back("LD_LIBRARY_PATH=" + libraries);
    list.push_back("LIBRARY_PATH=" + libraries);
    list.push_back("LOADEDMODULES=" + loaded);
    for (std::size_t i = 0; list.size() < 52; ++i) {
      const Domain& domain = domains()[i % domains().size()];
      const std::string module(domain.modules[(i / domains().size()) % 4]);
      list.push_back("EBROOT" + std::to_string(i) + "=/apps/easybuild/software/" + module +
                     "/x86_64/generic-" + std::to_string(below(1000)) +
                     "/easybuild/easybuild-devel:/apps/site/" + std::to_string(i));
    }
    return list;
  }

  std::string environment_of(const User_& user, const Script& script) {
    std::string environment;
    for (const std::string& variable : user.variables) environment += variable + '\0';
    const std::string work = "/home/" + user.name + "/" + script.name;
    environment += "PWD=" + work + '\0';
    environment += "OLDPWD=/home/" + user.name + '\0';
    environment += "SLURM_JOB_NAME=" + script.name + '\0';
    environment += "SLURM_PRIO_PROCESS=0" + std::string(1, '\0');
    environment += "XDG_SESSION_ID=" + std::to_string(job_ / 7) + '\0';
    environment += "SSH_CONNECTION=10.1." + std::to_string(job_ % 200) + "." +
                   std::to_string(random_() % 250) + " " + std::to_string(random_() % 60'000) +
                   " 10.0.0.5 22" + '\0';
    return environment;
  }

  Event event_of(const User_& user, const Script& script) {
    std::string text;
    for (const std::string& line : script.lines) text += line + '\n';
    Event event;
    event.kind = "job.script";
    event.time = {time_};
    event.captured_at = {time_ + 2'114'000};
    event.capture = "fanotify";
    event.cluster = site_ == 0 ? "lab" : "lab" + std::to_string(site_);
    event.scheduler = "slurm";
    event.host = "ctl1";
    event.job.id = std::to_string(job_);
    event.job.name = script.name;
    event.job.account = user.account;
    event.job.partition = script.lines[3].substr(script.lines[3].find('=') + 1);
    event.job.qos = "normal";
    event.job.submitted_at = Timestamp{time_ / kSecond * kSecond};
    event.job.work_dir = "/home/" + user.name + "/" + script.name;
    event.user = {.name = user.name,
                  .id = user.uid,
                  .group_name = user.group,
                  .group_id = "2" + user.group.substr(1),
                  .verified = true};
    ScriptInfo info;
    info.interpreter = "/bin/bash";
    for (const std::string& line : script.lines) {
      constexpr std::string_view kDirective = "#SBATCH ";
      constexpr std::string_view kModule = "module load ";
      if (line.starts_with(kDirective)) info.directives.push_back(line.substr(kDirective.size()));
      if (line.starts_with(kModule)) info.modules.push_back(line.substr(kModule.size()));
    }
    event.script = std::move(info);
    event.environment_format = EnvironmentFormat::kNulEnded;
    event.files.push_back(file("script", std::move(text)));
    event.files.push_back(file("environment", environment_of(user, script)));
    event.id = event_id(event.cluster, event.scheduler, event.kind, event.job.id, time_,
                        event.files[0].sha256);
    return event;
  }

  static EventFile file(std::string name, std::string bytes) {
    EventFile made;
    made.name = std::move(name);
    made.size = bytes.size();
    made.sha256 = sha256_hex(bytes);
    made.bytes = make_bytes(std::move(bytes));
    return made;
  }

  std::mt19937_64 random_;
  std::mt19937_64 random_of_use_{1};  // apart, so that the jobs are the same without it
  std::size_t site_;
  SitePlan plan_;
  std::vector<User_> users_;
  std::vector<double> weights_;  // summed
  std::int64_t time_;
  std::uint64_t job_;
};

}  // namespace scriptorium::bench
