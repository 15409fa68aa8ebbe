#include "core/api/kit/search/similarity.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace scriptorium {
namespace {

double similarity_of(std::string_view a, std::string_view b) {
  return similarity(script_signature(a), script_signature(b));
}

TEST(SimilarityTest, IgnoresNumbersCaseAndBlanks) {
  EXPECT_EQ(similarity_of("srun gmx mdrun -s run_0041.in -nt 8\n--time=00:10:00",
                          "srun  GMX mdrun -s run_0042.in -nt 16\n--time=1-00:00:00"),
            1.0);
}

TEST(SimilarityTest, TellsScriptsApart) {
  EXPECT_EQ(similarity_of("module load gromacs; srun gmx mdrun", "python train.py --epochs 5"), 0);
  EXPECT_EQ(similarity_of("", "a b c"), 0);
  EXPECT_EQ(similarity_of("", " \n"), 1);
  EXPECT_EQ(similarity_of("a", "a"), 1);
  EXPECT_EQ(similarity_of("a b", "a c"), 0);
}

TEST(SimilarityTest, EstimatesTheShareOfCommonRuns) {
  // Of 300 runs the first third is in both: 100 of 500.
  std::string a;
  std::string b;
  for (int i = 0; i < 100; ++i) {
    const std::string common = "c" + std::string(1, static_cast<char>('a' + i % 26)) +
                               std::string(1, static_cast<char>('a' + i / 26)) + " ";
    a += common;
    b += common;
  }
  for (int i = 0; i < 200; ++i) {
    const std::string tail = std::string(1, static_cast<char>('a' + i % 26)) +
                             std::string(1, static_cast<char>('a' + i / 26)) + " ";
    a += "x" + tail;
    b += "y" + tail;
  }
  EXPECT_NEAR(similarity_of(a, b), 0.2, 0.15);
}

TEST(SimilarityTest, SurvivesBytesAndRefusesOthers) {
  const ScriptSignature signature = script_signature("srun gmx mdrun -s x.tpr -deffnm y");
  const std::string bytes = signature_bytes(signature);
  EXPECT_EQ(bytes.size(), 132u);
  EXPECT_EQ(signature_of_bytes(bytes), signature);
  EXPECT_EQ(signature_of_bytes(bytes.substr(1)), ScriptSignature{});
  EXPECT_EQ(signature_of_bytes(""), ScriptSignature{});
  // The form on disk stays what it is.
  const std::string expected("\x01\0\0\0", 4);
  EXPECT_EQ(signature_bytes(script_signature("one")).substr(128), expected);
}

TEST(StableNameTest, LeavesTheNumbersOut) {
  EXPECT_EQ(stable_name("run_0041"), "run_#");
  EXPECT_EQ(stable_name("MD-12.3"), "md-#.#");
  EXPECT_EQ(stable_name(""), "");
  EXPECT_EQ(stable_name("7"), "#");
}

TEST(SimilarityTest, DirectivesDoNotCount) {
  const std::string body = "module load GCC\nsrun ./solve -i input.dat\n";
  EXPECT_EQ(script_signature("#!/bin/bash\n#SBATCH -J a\n#PBS -N b\n" + body),
            script_signature("#!/bin/bash\n#SBATCH --qos=long\n" + body));
}

TEST(SameFamilyTest, AsksMoreOfARenamedJob) {
  EXPECT_TRUE(same_family(true, 0.5));
  EXPECT_FALSE(same_family(true, 0.2));
  EXPECT_FALSE(same_family(false, 0.85));
  EXPECT_TRUE(same_family(false, 1));
}

}  // namespace
}  // namespace scriptorium
