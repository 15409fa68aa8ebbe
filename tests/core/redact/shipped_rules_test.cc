#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/redact/rule_set.h"
#include "tests/core/redact/ordinary_scripts.h"

// What the shipped rules find, and what they leave alone. The files of secrets are tables of
// three columns: the kind, the secret, and the line that contains it, in which "\n", "\t", "\r" and
// "\\" are escapes.
namespace scriptorium::redact {
namespace {

using testing::IsEmpty;

const std::filesystem::path kVectors =
    std::filesystem::path(SCRIPTORIUM_SOURCE_DIR) / "tests/core/redact/vectors";

struct SecretLine {
  std::string kind, secret, text;
};

std::string unescaped(std::string_view text) {
  std::string result;
  for (std::size_t n = 0; n < text.size(); ++n) {
    if (text[n] != '\\' || n + 1 == text.size()) {
      result += text[n];
      continue;
    }
    const char c = text[++n];
    result += c == 'n' ? '\n' : c == 't' ? '\t' : c == 'r' ? '\r' : c;
  }
  return result;
}

std::vector<SecretLine> read_secrets(const std::string& file) {
  std::vector<SecretLine> lines;
  std::ifstream in(kVectors / file, std::ios::binary);
  for (std::string line; std::getline(in, line);) {
    if (line.empty() || line.starts_with("##")) continue;
    const std::size_t first = line.find('\t');
    const std::size_t second = line.find('\t', first + 1);
    lines.push_back({line.substr(0, first),
                     unescaped(std::string_view(line).substr(first + 1, second - first - 1)),
                     unescaped(std::string_view(line).substr(second + 1))});
  }
  return lines;
}

// What is left of a text, with a NUL for each secret that was found.
std::string redacted(std::string_view text, const std::vector<Finding>& findings) {
  std::string result;
  std::size_t at = 0;
  for (const Finding& finding : findings) {
    result += std::string(text.substr(at, finding.begin - at)) + '\0';
    at = finding.end;
  }
  return result + std::string(text.substr(at));
}

struct Recall {
  std::size_t found = 0;
  std::size_t all = 0;
  double percent() const { return 100.0 * static_cast<double>(found) / static_cast<double>(all); }
};

class ShippedRuleFilesTest : public testing::Test {
 protected:
  ShippedRuleFilesTest() {
    Problems problems;
    rules_ = RuleSet::load("", problems);
    for (const Problem& problem : problems.list()) ADD_FAILURE() << problem.text();
  }

  std::string redact(std::string_view script, Mode mode = Mode::kDefault) const {
    return redacted(script, rules_->find(mode, Place::kScript, script));
  }

  // By kind, and over all as "". Prints what was missed, by kind: the secrets are made up.
  std::map<std::string, Recall> recall_of(const std::vector<SecretLine>& lines) const {
    std::map<std::string, Recall> recall;
    for (const SecretLine& line : lines) {
      EXPECT_NE(line.text.find(line.secret), std::string::npos) << line.kind << ": " << line.text;
      const bool is_found = redact(line.text).find(line.secret) == std::string::npos;
      for (const std::string& kind : {line.kind, std::string()}) {
        recall[kind].found += is_found ? 1 : 0;
        ++recall[kind].all;
      }
      if (!is_found) std::cout << "missed: " << line.kind << ": " << line.text << "\n";
    }
    return recall;
  }

  std::shared_ptr<const RuleSet> rules_;
};

TEST_F(ShippedRuleFilesTest, EachRuleHasTwoHitsAndTwoNearMisses) {
  std::size_t rules = 0;
  for (const RuleFile& file : shipped_rules()) {
    for (const Rule& rule : file.rules) {
      std::size_t hits = 0;
      for (const Example& example : rule.examples) hits += example.secret.empty() ? 0 : 1;
      EXPECT_GE(hits, 2U) << rule.name;
      EXPECT_GE(rule.examples.size() - hits, 2U) << rule.name;
      ++rules;
    }
  }
  EXPECT_GE(rules, 75U);
}

// Each keyword is searched for in every job, and what it hits is searched again by its expression.
TEST_F(ShippedRuleFilesTest, NoKeywordIsShorterThanThreeBytes) {
  for (const RuleFile& file : shipped_rules()) {
    for (const Rule& rule : file.rules) {
      for (const std::string& keyword : rule.keywords)
        EXPECT_GE(keyword.size(), 3U) << rule.name << ": " << keyword;
    }
  }
}

TEST_F(ShippedRuleFilesTest, FindNinetyFivePercentOfTheSecretsAndFourFifthsOfEachKind) {
  const std::vector<SecretLine> lines = read_secrets("secrets.tsv");
  EXPECT_GE(lines.size(), 260U);
  const std::map<std::string, Recall> recall = recall_of(lines);
  EXPECT_GE(recall.size(), 26U);
  for (const auto& [kind, figures] : recall)
    EXPECT_GE(figures.percent(), kind.empty() ? 95.0 : 80.0) << kind;
}

// These lines were written before any rule was.
TEST_F(ShippedRuleFilesTest, FindNinetyFivePercentOfTheSecretsThatWereSetAside) {
  const std::vector<SecretLine> lines = read_secrets("held-out.tsv");
  EXPECT_GE(lines.size(), 100U);
  EXPECT_GE(recall_of(lines).at("").percent(), 95.0);
}

// People align their options, and continue long commands on the next line.
TEST_F(ShippedRuleFilesTest, FindAsManyWhereBlanksAreWiderOrContinueOnTheNextLine) {
  for (const std::string_view blank : {"   ", " \t", " \\\n    "}) {
    std::vector<SecretLine> wide;
    for (SecretLine& line : read_secrets("secrets.tsv")) {
      // What is quoted, or on several lines, would mean something else.
      if (line.text.find_first_of("\"'\n\\#") != std::string::npos ||
          line.secret.find(' ') != std::string::npos)
        continue;
      std::string text;
      for (const char c : line.text) text += c == ' ' ? std::string(blank) : std::string(1, c);
      wide.push_back({line.kind, line.secret, std::move(text)});
    }
    EXPECT_GE(wide.size(), 120U);
    EXPECT_GE(recall_of(wide).at("").percent(), 95.0) << testing::PrintToString(blank);
  }
}

TEST_F(ShippedRuleFilesTest, TwoThousandOrdinaryScriptsLoseAtMostOneText) {
  const std::vector<std::string> scripts = ordinary_scripts(kVectors / "ordinary.txt", 2000);
  ASSERT_EQ(scripts.size(), 2000U);
  std::vector<std::string> wrong;
  for (const std::string& script : scripts) {
    for (const Finding& finding : rules_->find(Mode::kDefault, Place::kScript, script)) {
      const std::size_t begin = script.rfind('\n', finding.begin) + 1;
      wrong.push_back(finding.rule->name + ": " +
                      script.substr(begin, script.find('\n', finding.end) - begin));
    }
  }
  const std::set<std::string> kinds(wrong.begin(), wrong.end());
  EXPECT_LE(wrong.size(), 1U) << testing::PrintToString(kinds);
}

TEST_F(ShippedRuleFilesTest, StrictFindsRandomValuesThatDefaultKeeps) {
  const std::string line = "export GATEWAY=Zk3Jx9qW7vR2tY5uB8nM1cD4\n";
  EXPECT_EQ(redact(line), line);
  EXPECT_EQ(redact(line, Mode::kStrict), std::string("export GATEWAY=\0\n", 17));
}

TEST_F(ShippedRuleFilesTest, ANameIsSecretInAScriptIfItIsInAnEnvironment) {
  for (const std::string name :
       {"SSHPASS",     "BORG_PASSPHRASE", "GITHUB_PAT",    "GH_PAT",         "PASSPHRASE",
        "DBPASS",      "LDAPPASS",        "FTPPASS",       "PRIVATEKEY",     "KAGGLE_KEY",
        "CREDENTIALS", "LICENSE_KEY",     "DB_PASSWORD",   "API_TOKEN",      "MYSQLPASS",
        "SMTP_PWD",    "RESTIC_PASSWORD", "WANDB_API_KEY", "ENCRYPTION_KEY", "JUPYTER_TOKEN",
        "AZURE_PAT",   "SAS_URL",         "OTP_SEED",      "CLIENT_SECRET",  "SUDO_PW"}) {
    EXPECT_TRUE(rules_->is_denied(name)) << name;
    for (const std::string& script : {"export " + name + "=geheim7\n", name + "='geheim7' ./x\n"})
      EXPECT_EQ(redact(script).find("geheim7"), std::string::npos) << script;
  }
  for (const std::string name :
       {"PATH", "HOME", "MONKEY", "KEYWORD", "COMPASS", "BYPASS", "TOKENIZERS_PARALLELISM",
        "MAX_TOKENS", "SLURM_JOB_ID", "OMP_NUM_THREADS", "PASSES", "KEYBOARD"}) {
    EXPECT_FALSE(rules_->is_denied(name)) << name;
    const std::string script = "export " + name + "=geheim7\n";
    EXPECT_EQ(redact(script), script);
  }
}

TEST_F(ShippedRuleFilesTest, WhatNamesAPlaceOrAColumnIsKept) {
  const std::vector<std::pair<std::string_view, std::string_view>> kept = {
      {"HF_TOKEN_PATH", "/home/bob/.cache/token"},
      {"API_KEY_FILE", "~/.key"},
      {"SECRET_DIR", "$HOME/secrets"},
      {"TOKEN_FILE", "../run/token.txt"},
      {"PRIMARY_KEY", "id"},
      {"SORT_KEY", "name"},
      {"DB_PARTITION_KEY", "sample_id,run"},
      {"PUBLIC_KEY", "ssh-ed25519 AAAAC3Nz bob"},
      {"DEPLOY_PUBLIC_KEY", "0x12ab"}};
  for (const auto& [name, value] : kept) EXPECT_FALSE(rules_->is_denied(name, value)) << name;
  const std::vector<std::pair<std::string_view, std::string_view>> denied = {
      {"HF_TOKEN_PATH", "hf_geheim"},
      {"API_KEY_FILE", "geheim"},
      {"SECRET_FILE", "/x with a blank"},
      {"AZURE_PRIMARY_KEY", "Zk3Jx9qW7vR2tY5u=="},
      {"SORT_KEY", "a1b2c3"},
      {"API_KEY", "/looks/like/a/path"},
      {"PRIVATE_KEY", "id"},
      {"TOKEN_FILE", ".../x"}};
  for (const auto& [name, value] : denied) EXPECT_TRUE(rules_->is_denied(name, value)) << name;
}

// The environment names no variable here: name_patterns.h decides on names, the rules on values.
TEST_F(ShippedRuleFilesTest, ValuesOfVariablesWithHarmlessNamesAreSearched) {
  for (const std::string_view value :
       {"https://bob:geheim@proxy:3128", "ghp_A1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6Q7rS",
        "host=db user=bob password=geheim", "-u bob -H 'Authorization: Bearer geheim1'"}) {
    EXPECT_EQ(rules_->find(Mode::kDefault, Place::kValue, value).size(), 1U) << value;
  }
  for (const std::string_view value :
       {"/opt/lib:/usr/lib", "27000@licence", "gpu:a100:4", "2024-01-01T00:00:00", "node[01-16]",
        "() {  eval `modulecmd bash $*`\n}", "localhost,127.0.0.1", "rxvt-256color", "PASS"}) {
    EXPECT_THAT(rules_->find(Mode::kDefault, Place::kValue, value), IsEmpty()) << value;
  }
}

}  // namespace
}  // namespace scriptorium::redact
