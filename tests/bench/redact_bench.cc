// What the rules for secrets cost a job, and that the time is linear in the text.
//   redact_bench [JOBS]
// Prints CPU time for a 2 KB script and the 60 variables (6 KB) of an ordinary login, with and
// without rules, and for megabytes of texts that nearly hold a secret.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/redact/rule_set.h"
#include "tests/bench/bench_fixture.h"

namespace {

using namespace scriptorium;
using namespace scriptorium::redact;
using bench::cpu_seconds;

using Variables = std::vector<std::pair<std::string, std::string>>;

// What the shell of a user exports on a cluster with modules, and sbatch with it.
Variables login_variables() {
  Variables variables = {
      {"SHELL", "/bin/bash"},
      {"HOME", "/home/alice"},
      {"USER", "alice"},
      {"LOGNAME", "alice"},
      {"PWD", "/scratch/project_4711/alice/runs/restart-03"},
      {"OLDPWD", "/home/alice"},
      {"LANG", "en_GB.UTF-8"},
      {"TERM", "xterm-256color"},
      {"HISTCONTROL", "ignoredups"},
      {"MAIL", "/var/spool/mail/alice"},
      {"XDG_RUNTIME_DIR", "/run/user/1001"},
      {"XDG_SESSION_ID", "4711"},
      {"SSH_CONNECTION", "10.1.2.3 51234 10.1.0.2 22"},
      {"SSH_AUTH_SOCK", "/tmp/ssh-XXXXabcdef/agent.4711"},
      {"HF_HOME", "/scratch/project_4711/alice/huggingface"},
      {"WANDB_API_KEY", "0123456789abcdef0123456789abcdef01234567"},
      {"CUDA_HOME", "/opt/software/CUDA/12.1.1"},
      {"OMP_NUM_THREADS", "8"},
      {"CONDA_EXE", "/home/alice/miniconda3/bin/conda"},
      {"CONDA_PREFIX", "/home/alice/miniconda3/envs/fit"},
      {"LS_COLORS",
       "rs=0:di=01;34:ln=01;36:mh=00:pi=40;33:so=01;35:do=01;35:bd=40;33;01:cd=40;33;01:or=40;31;"
       "01:mi=01;05;37;41:su=37;41:sg=30;43:ca=30;41:tw=30;42:ow=34;42:st=37;44:ex=01;32:*.tar=01;"
       "31:*.tgz=01;31:*.zip=01;31:*.gz=01;31:*.bz2=01;31:*.xz=01;31:*.jpg=01;35:*.png=01;35"},
      {"LESSOPEN", "||/usr/bin/lesspipe.sh %s"},
      {"BASH_FUNC_ml%%", "() {  eval \"$($LMOD_DIR/ml_cmd \"$@\")\"\n}"},
      {"BASH_FUNC_module%%",
       "() {  if [ -z \"${LMOD_SH_DBG_ON+x}\" ]; then\n case \"$-\" in \n *v*x*)\n "
       "__lmod_sh_dbg='vx'\n ;;\n esac;\n fi;\n eval \"$($LMOD_CMD bash \"$@\")\" && eval "
       "$(${LMOD_SETTARG_CMD:-:} -s sh);\n return $?\n}"},
      {"SLURM_SUBMIT_DIR", "/scratch/project_4711/alice/runs/restart-03"},
      {"SLURM_SUBMIT_HOST", "login2.cluster.example"},
      {"SLURM_JOB_NAME", "md-restart"},
      {"SLURM_PRIO_PROCESS", "0"},
      {"SLURM_UMASK", "0022"},
      {"SLURM_GET_USER_ENV", "1"}};
  const std::string software = "/opt/software/";
  std::string paths;
  for (const char* name : {"GROMACS/2023.1-foss-2022a-CUDA-11.7.0", "OpenMPI/4.1.4-GCC-11.3.0",
                           "FFTW.MPI/3.3.10-gompi-2022a", "Python/3.10.4-GCCcore-11.3.0",
                           "SciPy-bundle/2022.05-foss-2022a", "UCX/1.12.1-GCCcore-11.3.0"}) {
    const std::string_view module = name;
    const std::string plain(module.substr(0, module.find('/')));
    variables.emplace_back("EBROOT" + plain, software + name);
    variables.emplace_back("EBVERSION" + plain, module.substr(module.find('/') + 1));
    variables.emplace_back("EBDEVEL" + plain,
                           software + name + "/easybuild/" + plain + "-easybuild-devel");
    paths += software + name + "/bin:";
  }
  for (const char* name : {"PATH", "LD_LIBRARY_PATH", "LIBRARY_PATH", "CPATH", "MANPATH",
                           "PKG_CONFIG_PATH", "CMAKE_PREFIX_PATH", "XDG_DATA_DIRS", "PYTHONPATH",
                           "MODULEPATH", "LOADEDMODULES", "_LMFILES_"})
    variables.emplace_back(name, paths + "/usr/local/bin:/usr/bin");
  return variables;
}

// Two kilobytes of a script as users write them.
std::string ordinary_script() {
  std::string script =
      "#!/bin/bash\n#SBATCH --job-name=md-restart\n#SBATCH --account=project_4711\n"
      "#SBATCH --time=24:00:00\n#SBATCH --nodes=2 --ntasks-per-node=64\n"
      "#SBATCH --mail-user=alice@example.org\n\nset -euo pipefail\nmodule purge\n"
      "module load GROMACS/2023.1-foss-2022a\nexport OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK\n"
      "source ~/.tokens  # HF_TOKEN\ncd \"$SLURM_SUBMIT_DIR\"\n";
  for (int step = 0; script.size() < 2000; ++step) {
    const std::string number = std::to_string(step);
    script += "if [ -f step-" + number + ".cpt ]; then\n  srun gmx_mpi mdrun -deffnm step-" +
              number + " -cpi step-" + number + ".cpt \\\n      -maxh 23.5 -ntomp 8 -pin on\nfi\n";
  }
  return script;
}

// What the capture thread asks of the rules for one job.
std::size_t search_job(const RuleSet& rules, const std::string& script,
                       const Variables& variables) {
  std::size_t found = rules.find(Mode::kDefault, Place::kScript, script).size();
  for (const auto& [name, value] : variables) {
    if (rules.is_denied(name, value)) {
      ++found;
    } else {
      found += rules.find(Mode::kDefault, Place::kValue, value).size();
    }
  }
  return found;
}

std::shared_ptr<const RuleSet> compiled(std::vector<RuleFile> files) {
  Problems problems;
  auto rules = RuleSet::make(std::move(files), problems);
  for (const Problem& problem : problems.list()) bench::fail(problem.text());
  return rules;
}

void time_jobs(const char* what, const RuleSet& rules, int jobs) {
  const std::string script = ordinary_script();
  const Variables variables = login_variables();
  std::size_t bytes = script.size();
  for (const auto& [name, value] : variables) bytes += name.size() + value.size() + 2;
  search_job(rules, script, variables);  // RE2 makes its tables when they are first used
  std::size_t found = 0;
  const double before = cpu_seconds();
  for (int n = 0; n < jobs; ++n) found += search_job(rules, script, variables);
  std::printf("%-14s %6.1f us CPU a job (%zu variables, %zu bytes in all, %zu findings)\n", what,
              (cpu_seconds() - before) / jobs * 1e6, variables.size(), bytes,
              found / static_cast<std::size_t>(jobs));
}

void time_texts(const char* what, const RuleSet& rules, const std::string& part) {
  std::printf("%-40s", what);
  for (const std::size_t megabytes : {1, 2, 4}) {
    std::string text;
    while (text.size() < megabytes << 20) text += part;
    double most = 0;
    for (const Place place : {Place::kScript, Place::kValue, Place::kText}) {
      const double before = cpu_seconds();
      rules.find(Mode::kStrict, place, text);
      most = std::max(most, cpu_seconds() - before);
    }
    std::printf("  %zu MB %7.1f ms", megabytes, most * 1e3);
  }
  std::printf("\n");
}

}  // namespace

int main(int argc, char** argv) {
  const int jobs = argc > 1 ? std::atoi(argv[1]) : 20'000;
  const double before = cpu_seconds();
  const auto shipped = compiled(shipped_rules());
  std::printf("%zu rules, compiled and tested in %.1f ms\n", shipped->rules().size(),
              (cpu_seconds() - before) * 1e3);
  time_jobs("without rules", *compiled({}), jobs);
  time_jobs("shipped rules", *shipped, jobs);

  // Every keyword, so that every expression runs; in one line, and each in a line of its own.
  std::string near_misses;
  for (const Rule* rule : shipped->rules()) {
    for (const std::string& keyword : rule->keywords) near_misses += keyword + " ";
  }
  std::string lines = near_misses;
  for (char& c : lines) c = c == ' ' ? '\n' : c;
  time_texts("keywords, all in one line:", *shipped, near_misses);
  time_texts("keywords, each in a line of its own:", *shipped, lines);
  time_texts("assignments, all in one line:", *shipped, "export API_TOKEN=${X} password: ");
  time_texts("assignments, each in a line of its own:", *shipped, "export API_TOKEN=${X}\n");
  time_texts("commands in one line:", *shipped, "mysql -u a | curl -u a http:// ; ");
  time_texts("continued lines:", *shipped, "curl -u a \\\n");
  time_texts("beginnings of private keys:", *shipped, "-----BEGIN PRIVATE KEY\n");
  return 0;
}
