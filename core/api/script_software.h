#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/api/event.h"

// The software that a job script asks for. A pure function that does not evaluate the script: it
// expands no variable and decides no `if`. It accepts any bytes and takes time linear in the
// script's size.
namespace scriptorium {

struct UsedSoftware {
  std::vector<std::string> modules;  // as in ScriptInfo
  std::vector<Software> software;    // as in ScriptInfo
};

// Reads the commands of each line, those in $(...) and `...`, in the text that `bash -c` or `eval`
// gets, and after a launcher such as srun or sudo.
//
// modules   the arguments of `module load`, `module add`, `ml NAME` and `modulecmd SHELL load`, and
//           the new module of `swap`, in order and as often as they are there.
// software  each once, in order:
//           conda, mamba  `conda activate NAME`, `conda run -n NAME`, `source activate NAME`; the
//                         name is "base" where none is given. micromamba counts as mamba.
//           venv          the directory whose bin/activate is sourced.
//           apptainer, singularity   the image of exec, run, shell, test and `instance start`.
//           docker, podman           the image of run and create.
//           spack         each spec of `spack load`: "hdf5@1.14 +mpi".
// All are as written: "GCC/$VERSION" stays so.
UsedSoftware read_software(std::string_view script);

}  // namespace scriptorium
