#include "core/api/script_software.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/api/job_script.h"

namespace scriptorium {
namespace {

using namespace std::literals;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

std::vector<std::string> modules(std::string_view script) { return read_software(script).modules; }

// "kind name"
std::vector<std::string> software(std::string_view script) {
  std::vector<std::string> texts;
  for (const Software& used : read_software(script).software)
    texts.push_back(used.kind + " " + used.name);
  return texts;
}

TEST(ScriptSoftwareTest, FindsModulesOfModulecmd) {
  for (const char* line : {
           "eval `modulecmd bash load a`",
           "eval $(modulecmd bash load a)",
           "eval \"$(/usr/bin/modulecmd sh load a)\"",
           "eval $($LMOD_CMD bash --silent load a)",
           "eval `/usr/bin/tclsh /usr/share/modules/libexec/modulecmd.tcl bash load a`",
           "  eval $(${LMOD_CMD} bash add a) || exit 1",
           "exec(os.popen('modulecmd python load a').read())",
           "eval `$(command -v modulecmd) bash load a`",
       }) {
    EXPECT_THAT(modules(line), ElementsAre("a")) << line;
  }
  EXPECT_THAT(modules("module() { eval `modulecmd bash $*`; }\n"), IsEmpty());
  EXPECT_THAT(modules("eval $(modulecmd bash purge)\n"), IsEmpty());
}

TEST(ScriptSoftwareTest, FindsModulesInTheTextOfACommand) {
  for (const char* line : {
           "bash -c \"module load a && ./run\"",
           "srun -n 4 bash -lc 'module load a; python x.py'",
           "mpirun -np 4 /bin/sh -e -c \"source /etc/profile; ml a\"",
           "env -i bash -l -c 'module load a'",
           "eval \"module load a\"",
           "eval module load a",
           "sudo -u x bash -c \"bash -c 'module load a'\"",
           "X=$(module load a; which gcc)",
           "bash -c \"module load a",  // the text ends on a later line
           "bash -euo pipefail -c 'module load a'",
           "bash -c -l 'module load a'",
           "bash --rcfile x -c 'module load a'",
           "bash -c \\\n  'module load a'",
           "srun -n 4 \\\n  --mpi=pmi2 bash -c 'module load a; x'",
           "# text \\\nmodule load a",
           "eval \"$(conda shell.bash hook); module load a\"",
       }) {
    EXPECT_THAT(modules(line), ElementsAre("a")) << line;
  }
  EXPECT_THAT(modules("bash -x script module load a\nbash script.sh -c 'module load b'\n"
                      "bash -o noclobber script 'module load c'\n"),
              IsEmpty());
}

TEST(ScriptSoftwareTest, FindsModulesInAFunctionOnOneLine) {
  EXPECT_THAT(modules("setup() { module load a; }\nfunction f { module load b; }\n"
                      "function g() { module load c; }\ncase $x in y) module load d;; esac\n"),
              ElementsAre("a", "b", "c", "d"));
}

TEST(ScriptSoftwareTest, FindsCondaEnvironments) {
  EXPECT_THAT(software("conda activate torch\nmamba activate /proj/env\n"
                       "micromamba activate ./env\nconda activate\n"),
              ElementsAre("conda torch", "mamba /proj/env", "mamba ./env", "conda base"));
  EXPECT_THAT(software("source activate old\nsource ~/miniconda3/bin/activate py37\n"
                       ". \"$HOME/miniforge3/bin/activate\"\n"),
              ElementsAre("conda old", "conda py37", "conda $HOME/miniforge3"));
  EXPECT_THAT(software("srun conda run -n analysis python x.py\n"
                       "conda run --no-capture-output --prefix=/p/env python y.py\n"
                       "bash -lc 'conda activate inner; python z.py'\n"),
              ElementsAre("conda analysis", "conda /p/env", "conda inner"));
  EXPECT_THAT(
      software("conda run -nattached python x\nconda -v run -n after cmd\n"
               "micromamba -r /root run -a '' -e A=b -n all cmd\n"
               "time -p conda run -n timed cmd\n$(which conda) run -n found cmd\n"
               "source `which activate` sourced\nsource /apps/miniconda3/4.12/bin/activate\n"
               "srun \\\n  -n 4 conda run -n later cmd\n"),
      ElementsAre("conda attached", "conda after", "mamba all", "conda timed", "conda found",
                  "conda sourced", "conda /apps/miniconda3/4.12", "conda later"));
  EXPECT_THAT(software("conda activate --stack top\neval \"$(conda shell.bash hook)\"\n"
                       "conda deactivate\nconda install -n x numpy\nconda env list\n"
                       "source activate\necho conda activate no\n# conda activate no\n"),
              ElementsAre("conda top"));
}

TEST(ScriptSoftwareTest, FindsVenvs) {
  EXPECT_THAT(software("source /proj/venv/bin/activate\n. ~/envs/a/bin/activate && python x\n"
                       "source \"$VENV/bin/activate\"\nsource env/bin/activate.csh\n"
                       "source ~/conda_test/.venv/bin/activate\n"),
              ElementsAre("venv /proj/venv", "venv ~/envs/a", "venv $VENV", "venv env",
                          "venv ~/conda_test/.venv"));
  EXPECT_THAT(software("source setup.sh\nsource /x/deactivate\npython -m venv new\n"), IsEmpty());
}

TEST(ScriptSoftwareTest, FindsImages) {
  EXPECT_THAT(
      software(
          "singularity exec img.sif python x.py\n"
          "apptainer run --nv -B /data:/data --bind /scratch docker://ubuntu:24.04 ls\n"
          "singularity -s exec --cleanenv --pwd /x -H /home/y:/y \"$IMG\" cmd\n"
          "srun --mpi=pmix apptainer exec --env A=b --overlay o.img:ro /p/b.sif ./a -x\n"
          "apptainer instance start --nv web.sif web1\napptainer exec instance://web1 ls\n"
          "/usr/bin/singularity shell -s /bin/zsh c.sif\nsingularity instance.start old.simg x\n"),
      ElementsAre("singularity img.sif", "apptainer docker://ubuntu:24.04", "singularity $IMG",
                  "apptainer /p/b.sif", "apptainer web.sif", "singularity c.sif",
                  "singularity old.simg"));
  EXPECT_THAT(
      software("docker run --rm -it -v $PWD:/work -w /work --gpus all python:3.12 python x.py\n"
               "podman --root /tmp/x run --name n -e A=1 --env-host -d quay.io/a/b@sha256:00 sh\n"
               "sudo docker run --network=host -itv /a:/b alpine\npodman container create img\n"
               "nohup docker run -- last\n"),
      ElementsAre("docker python:3.12", "podman quay.io/a/b@sha256:00", "docker alpine",
                  "podman img", "docker last"));
  EXPECT_THAT(
      software("time -p singularity exec a.sif x\n\"$(which singularity)\" exec --nv b.sif x\n"
               "srun `command -v apptainer` run --runscript-timeout 3s c.sif\n"
               "mpirun -np 4 \\\n  -x A --bind-to core singularity exec --nv \\\n  d.sif x\n"
               "parallel -j 4 singularity exec e.sif x ::: a b\nionice -c 3 docker run f x\n"
               "podman --cgroup-manager cgroupfs --runtime crun run --tls-verify=false g\n"),
      ElementsAre("singularity a.sif", "singularity b.sif", "apptainer c.sif", "singularity d.sif",
                  "singularity e.sif", "docker f", "podman g"));
  EXPECT_THAT(software("singularity exec \\\n  --nv \\\n  --bind /a:/b \\\n  img.sif \\\n  cmd\n"),
              ElementsAre("singularity img.sif"));
  EXPECT_THAT(software("singularity pull x.sif docker://x\nsingularity --version\ndocker ps\n"
                       "docker exec name ls\napptainer build a.sif a.def\ndocker run\n"
                       "module load singularity\nsrun ./docker-run x\napptainer exec --nv\n"),
              IsEmpty());
}

TEST(ScriptSoftwareTest, FindsSpecsOfSpack) {
  EXPECT_THAT(software("spack load hdf5@1.14 +mpi ^openmpi@4 gcc@12 /abc123\n"
                       "eval $(spack load --sh cmake)\nspack -e env load --first -r zlib %gcc\n"),
              ElementsAre("spack hdf5@1.14 +mpi ^openmpi@4", "spack gcc@12", "spack /abc123",
                          "spack cmake", "spack zlib %gcc"));
  EXPECT_THAT(software("spack load --only package a\neval $($SPACK_ROOT/bin/spack load --sh b)\n"
                       "spack --env e --color never load c dev_path=/x@1 d@=1\n"),
              ElementsAre("spack a", "spack b", "spack c dev_path=/x@1", "spack d@=1"));
  EXPECT_THAT(software("spack install x\nspack load\nspack unload y\n"), IsEmpty());
}

TEST(ScriptSoftwareTest, EachIsListedOnce) {
  EXPECT_THAT(software("for i in 1 2; do singularity exec a.sif x; done\n"
                       "singularity run a.sif\napptainer run a.sif\n"),
              ElementsAre("singularity a.sif", "apptainer a.sif"));
}

TEST(ScriptSoftwareTest, AHostileScriptIsBounded) {
  std::string script;
  for (int i = 0; i < 5000; ++i) script += "conda activate e" + std::to_string(i) + "\n";
  script += "conda activate " + std::string(kMaxScriptItemBytes + 1, 'x') + "\n";
  EXPECT_THAT(software(script), SizeIs(kMaxScriptItems));
  // Nested deeper than anybody writes.
  std::string nested = "module load a";
  for (int i = 0; i < 50; ++i) nested = "$(" + nested + ")";
  EXPECT_THAT(modules(nested), IsEmpty());
  std::string open(60'000, '(');
  for (std::size_t i = 0; i + 1 < open.size(); i += 2) open[i] = '$';
  EXPECT_THAT(modules(open + "module load a"), IsEmpty());
}

TEST(ScriptSoftwareTest, EveryPrefixCanBeRead) {
  const std::string script =
      "eval \"$(modulecmd bash load a `b\\\n c`)\" ${x\nbash -lc \"conda run -n 'y' z\" -\n"
      "docker -H run -itv\napptainer -c instance start -B --\nspack load +x a =\nsource "
      "/bin/activate\n"
      "function\neval\nsrun\n$( ` $(\n";
  for (std::size_t length = 0; length <= script.size(); ++length)
    read_software(std::string_view(script).substr(0, length));
}

}  // namespace
}  // namespace scriptorium
