#include "core/api/kit/search/similarity.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <random>
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

TEST(SameFamilyTest, AsksMoreOfARenamedJob) {
  const ScriptSignature none;
  EXPECT_TRUE(same_family("md", none, "md", none));
  EXPECT_FALSE(same_family("md", none, "other", none));
  std::string script = "#!/bin/bash\n";
  for (int i = 0; i < 60; ++i)
    script += "step" + std::string(1, static_cast<char>('a' + i % 26)) +
              std::string(1, static_cast<char>('a' + i / 26)) + "\n";
  const auto whole = script_signature(script);
  const auto part = script_signature(script.substr(0, script.size() * 7 / 10));
  EXPECT_TRUE(same_family("md", whole, "md", part));
  EXPECT_FALSE(same_family("md", whole, "other", part));
  EXPECT_TRUE(same_family("md", whole, "other", whole));
}

// ---- made families: users who submit, edit, rename and copy their scripts

class MadeScripts {
 public:
  struct Job {
    std::string name;
    std::string script;
  };

  explicit MadeScripts(unsigned seed) : random_(seed) {}

  // What all scripts of a user begin with.
  std::string header() {
    std::string lines = "#!/bin/bash\n";
    const std::vector<std::string> all{"#SBATCH --time=12:00:00",
                                       "#SBATCH --account=chem",
                                       "#SBATCH --partition=batch",
                                       "#SBATCH --nodes=2",
                                       "#SBATCH --ntasks-per-node=16",
                                       "#SBATCH --mem=16G",
                                       "#SBATCH --output=%j.out",
                                       "#SBATCH --mail-type=END",
                                       "set -euo pipefail",
                                       "module purge",
                                       "module load " + word() + "/2023",
                                       "module load " + word(),
                                       "cd $SLURM_SUBMIT_DIR"};
    for (const std::string& line : all) {
      if (below(4) > 0) lines += line + "\n";
    }
    return lines;
  }
  Job family(const std::string& header) {
    Job job{.name = word() + "_" + std::to_string(below(100)), .script = header};
    for (int i = 12 + below(25); i > 0; --i) job.script += line();
    return job;
  }
  // 1 to 4 places: numbers, paths, lines.
  Job edited(Job job) {
    for (int i = 1 + below(4); i > 0; --i) edit(job.script);
    renumber(job.name);
    return job;
  }
  std::string word() {
    static constexpr std::string_view kConsonants = "bcdfghklmnprstvw";
    static constexpr std::string_view kVowels = "aeiou";
    std::string made;
    for (int i = 2 + below(2); i > 0; --i) {
      made += kConsonants[static_cast<std::size_t>(below(kConsonants.size()))];
      made += kVowels[static_cast<std::size_t>(below(kVowels.size()))];
    }
    return made;
  }
  int below(std::size_t limit) { return static_cast<int>(random_() % limit); }

 private:
  std::string path() { return "/scratch/" + word() + "/" + word() + std::to_string(below(1000)); }
  std::string line() {
    switch (below(5)) {
      case 0: return "export " + word() + "=" + std::to_string(below(64)) + "\n";
      case 1: return "srun " + word() + " -i " + path() + ".in -o " + path() + ".out\n";
      case 2: return "cp " + path() + " $TMPDIR/" + word() + "\n";
      case 3: return "echo \"" + word() + " " + word() + "\"\n";
      default:
        return "python3 " + word() + ".py --" + word() + "=" + std::to_string(below(100)) + "\n";
    }
  }
  void edit(std::string& script) {
    const std::size_t begin = script.find('\n', static_cast<std::size_t>(below(script.size()))) + 1;
    const std::size_t end = script.find('\n', begin);
    if (begin == 0 || end == std::string::npos) return;
    switch (below(4)) {
      case 0: script.erase(begin, end + 1 - begin); break;
      case 1: script.insert(begin, line()); break;
      case 2: script.replace(begin, end + 1 - begin, line()); break;
      default: renumber(script);
    }
  }
  void renumber(std::string& text) {
    for (char& c : text) {
      if (c >= '0' && c <= '9') c = static_cast<char>('0' + below(10));
    }
  }

  std::mt19937 random_;
};

struct Score {
  int right = 0;   // pairs of one family, found to be of one
  int missed = 0;  // pairs of one family, told apart
  int wrong = 0;   // pairs of two families, found to be of one
  double precision() const { return right / static_cast<double>(std::max(right + wrong, 1)); }
  double recall() const { return right / static_cast<double>(std::max(right + missed, 1)); }
};

bool found_same(const MadeScripts::Job& a, const MadeScripts::Job& b) {
  return same_family(stable_name(a.name), script_signature(a.script), stable_name(b.name),
                     script_signature(b.script));
}

TEST(SameFamilyTest, KeepsEditsTogetherAndOtherScriptsOfAUserApart) {
  MadeScripts made(1848);
  Score edits;
  Score renames;
  Score drift;
  for (int user = 0; user < 60; ++user) {
    const std::string header = made.header();
    std::vector<std::vector<MadeScripts::Job>> families;
    for (int i = 0; i < 5; ++i) {
      auto& jobs = families.emplace_back();
      jobs.push_back(made.family(header));
      // Of 100 submissions 25 are the same again, the others edits of the last.
      for (int job = 0; job < 8; ++job) {
        jobs.push_back(made.below(4) == 0 ? jobs.back() : made.edited(jobs.back()));
        ++(found_same(jobs[jobs.size() - 2], jobs.back()) ? edits.right : edits.missed);
        ++(found_same(jobs.front(), jobs.back()) ? drift.right : drift.missed);
      }
      MadeScripts::Job renamed = made.below(2) == 0 ? jobs.back() : made.edited(jobs.back());
      renamed.name = made.word();
      ++(found_same(jobs.back(), renamed) ? renames.right : renames.missed);
    }
    for (std::size_t a = 0; a < families.size(); ++a) {
      for (std::size_t b = a + 1; b < families.size(); ++b) {
        for (const auto& one : families[a]) {
          for (const auto& other : families[b]) edits.wrong += found_same(one, other) ? 1 : 0;
        }
      }
    }
  }
  std::cout << "families: precision " << edits.precision() << ", recall of edits " << edits.recall()
            << ", of renames " << renames.recall() << ", of eight edits later " << drift.recall()
            << "\n";
  EXPECT_GE(edits.precision(), 0.99);
  EXPECT_GE(edits.recall(), 0.99);
  EXPECT_GE(renames.recall(), 0.8);
  EXPECT_GE(drift.recall(), 0.9);
}

}  // namespace
}  // namespace scriptorium
