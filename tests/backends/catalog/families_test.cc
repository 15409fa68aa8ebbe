#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "backends/catalog/segments.h"
#include "backends/catalog/store_families.h"
#include "core/base/sha256.h"
#include "tests/support/temp_dir.h"

// Made families: how users submit, edit, rename and copy their scripts. What the catalog finds is
// held against what was made.
namespace scriptorium::catalog {
namespace {

using Lines = std::vector<std::string>;

struct Job {
  std::string owner;
  std::string name;
  Lines directives;
  Lines lines;
  std::string text() const {
    std::string script = "#!/bin/bash\n";
    for (const Lines* part : {&directives, &lines}) {
      for (const std::string& line : *part) script += line + "\n";
    }
    return script;
  }
};

class Maker {
 public:
  explicit Maker(unsigned seed) : random_(seed) {}

  std::size_t below(std::size_t limit) { return random_() % limit; }
  std::string number(std::size_t limit) { return std::to_string(below(limit)); }
  std::string word() {
    static constexpr std::string_view kConsonants = "bcdfghklmnprstvw";
    static constexpr std::string_view kVowels = "aeiou";
    std::string made;
    for (std::size_t i = 2 + below(2); i > 0; --i) {
      made += kConsonants[below(kConsonants.size())];
      made += kVowels[below(kVowels.size())];
    }
    return made;
  }
  std::string path() { return "/scratch/" + word() + "/" + word() + number(1000); }
  std::string line() {
    switch (below(6)) {
      case 0: return "export " + word() + "=" + number(64);
      case 1: return "srun " + word() + " -i " + path() + ".in -o " + path() + ".out";
      case 2: return "cp " + path() + " $TMPDIR/" + word();
      case 3: return "echo \"" + word() + " " + word() + "\"";
      case 4: return "cd " + path();
      default: return "python3 " + word() + ".py --" + word() + "=" + number(100);
    }
  }
  Lines some_lines(std::size_t least, std::size_t most) {
    Lines lines;
    for (std::size_t i = least + below(most - least + 1); i > 0; --i) lines.push_back(line());
    return lines;
  }
  Lines directives(const std::string& name) {
    Lines lines{"#SBATCH --job-name=" + name, "#SBATCH --time=" + number(24) + ":00:00"};
    for (const char* option : {"--account=chem", "--partition=batch", "--nodes=2", "--mem=16G",
                               "--ntasks-per-node=16", "--output=%j.out", "--mail-type=END"}) {
      if (below(3) > 0) lines.push_back(std::string("#SBATCH ") + option);
    }
    return lines;
  }
  Job job(const std::string& owner) {
    const std::string name = word() + "_" + number(100);
    Job made{.owner = owner, .name = name, .directives = directives(name), .lines = {}};
    made.lines = {"module load " + word() + "/2023." + number(9), "module load " + word() + "/4.1"};
    for (std::string& line : some_lines(8, 40)) made.lines.push_back(std::move(line));
    return made;
  }

  // ---- what users do, and the job stays of its family

  Job other_input(Job job) {
    for (std::string& line : job.lines) {
      const std::size_t at = line.find(" -i ");
      if (at != std::string::npos) line = line.substr(0, at) + " -i " + path() + ".in";
    }
    job.lines.back() = "./run --input " + path() + ".dat";
    return job;
  }
  Job renamed(Job job) {
    job.name = word() + "_" + number(100);
    job.directives.front() = "#SBATCH --job-name=" + job.name;
    return job;
  }
  Job edited(Job job, std::size_t edits) {
    for (; edits > 0; --edits) {
      const auto at = job.lines.begin() + static_cast<std::ptrdiff_t>(below(job.lines.size()));
      switch (below(3)) {
        case 0: job.lines.insert(at, line()); break;
        case 1: *at = line(); break;
        default:
          if (job.lines.size() > 5) job.lines.erase(at);
      }
    }
    return job;
  }
  Job other_versions(Job job) {
    for (std::string& line : job.lines) {
      if (line.starts_with("module load "))
        line = line.substr(0, line.find('/')) + "/2024b-" + word();
    }
    return job;
  }
  Job other_directives(Job job) {
    job.directives = {
        job.directives.front(),           "#SBATCH -t 2-0",
        "#SBATCH --qos=" + word(),        "#SBATCH --gres=gpu:" + number(8),
        "#SBATCH --constraint=" + word(), "#SBATCH --mail-user=" + word() + "@" + word() + ".org"};
    return job;
  }

 private:
  std::mt19937 random_;
};

struct Score {
  int right = 0, all = 0;
  void count(bool is_right) {
    right += is_right ? 1 : 0;
    ++all;
  }
  double share() const { return static_cast<double>(right) / std::max(all, 1); }
};

class CatalogFamiliesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string root = directory_.path_to("catalog");
    ASSERT_TRUE(make_root(root, std::nullopt));
    auto opened = open_catalog_writer(root);
    ASSERT_TRUE(opened) << opened.error().message();
    db_ = *std::move(opened);
    families_ = std::make_unique<Families>(*db_);
  }
  std::uint64_t submit(const Job& job) {
    const std::string text = job.text();
    return families_->family_of(
        job.owner, job.name,
        {"script", text.size(), sha256_hex(text), make_bytes(std::string(text))});
  }

  test::TempDir directory_;
  ConnectionPtr db_;
  std::unique_ptr<Families> families_;
};

TEST_F(CatalogFamiliesTest, AreWhatAPersonWouldCallTheSame) {
  Maker make(34);
  std::map<std::string, Score> scores;
  for (int user = 0; user < 100; ++user) {
    const std::string owner = "u" + std::to_string(user);
    // Jobs of other families come between.
    for (int other = 0; other < 5; ++other) submit(make.job(owner));

    const Job job = make.job(owner);
    const std::uint64_t family = submit(job);
    scores["same: other input"].count(submit(make.other_input(job)) == family);
    scores["same: renamed"].count(submit(make.renamed(job)) == family);
    scores["same: five edits"].count(submit(make.edited(job, 5)) == family);
    scores["same: module version"].count(submit(make.other_versions(job)) == family);
    scores["same: directives"].count(submit(make.other_directives(job)) == family);

    // A pipeline: two scripts of one name, one after the other.
    Job first = make.job(owner);
    Job second = make.job(owner);
    second.name = first.name;
    second.lines[0] = first.lines[0];
    const std::uint64_t one = submit(first);
    const std::uint64_t two = submit(second);
    scores["different: a pipeline's two scripts"].count(one != two);
    for (int round = 0; round < 4; ++round) {
      first = make.edited(first, 1);
      second = make.edited(second, 1);
      scores["same: a pipeline's script"].count(submit(first) == one);
      scores["same: a pipeline's script"].count(submit(second) == two);
    }

    // A site's template, filled for different programs.
    const Lines before = make.some_lines(5, 12);
    const Lines after = make.some_lines(3, 8);
    std::vector<std::uint64_t> filled;
    for (int program = 0; program < 3; ++program) {
      const std::string name = make.word();
      Job made{.owner = owner, .name = name, .directives = make.directives(name), .lines = before};
      made.lines.push_back("module load " + name + "/" + make.number(9));
      made.lines.push_back("srun " + name + " -i " + make.path() + " --" + make.word() + " > out");
      made.lines.insert(made.lines.end(), after.begin(), after.end());
      filled.push_back(submit(made));
    }
    scores["different: a template's programs"].count(filled[0] != filled[1]);
    scores["different: a template's programs"].count(filled[0] != filled[2]);
    scores["different: a template's programs"].count(filled[1] != filled[2]);

    // Edited again and again, and then as it was.
    Job later = job;
    for (int i = 0; i < 8; ++i) {
      later = make.edited(later, 1 + make.below(4));
      scores["same: eight times edited"].count(submit(later) == family);
    }
    scores["same: as it was"].count(submit(make.other_input(job)) == family);
    // Renamed, and edited under its new name.
    const Job renamed = make.renamed(job);
    scores["same: renamed"].count(submit(renamed) == family);
    scores["same: renamed, then edited"].count(submit(make.edited(renamed, 3)) == family);

    Job copy = job;
    copy.owner = owner + "b";
    scores["different: another user's copy"].count(submit(copy) != family);
  }
  int same = 0;
  int missed = 0;
  int wrong = 0;
  for (const auto& [kind, score] : scores) {
    std::cout << kind << ": " << score.right << " of " << score.all << "\n";
    EXPECT_GE(score.share(), 0.95) << kind;
    if (kind.starts_with("same")) {
      same += score.right;
      missed += score.all - score.right;
    } else {
      wrong += score.all - score.right;
    }
  }
  EXPECT_GE(static_cast<double>(same) / (same + wrong), 0.95) << "precision";
  EXPECT_GE(static_cast<double>(same) / (same + missed), 0.95) << "recall";
}

}  // namespace
}  // namespace scriptorium::catalog
