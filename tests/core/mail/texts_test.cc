#include "core/mail/texts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/config/toml_reader.h"
#include "core/mail/shipped_texts.h"
#include "tests/support/temp_dir.h"

namespace scriptorium::mail {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class MailTextsTest : public testing::Test {
 protected:
  void write(const std::string& name, const std::string& text) {
    std::ofstream(site_.path_to(name)) << text;
  }
  Texts load(const std::string& language) {
    Problems problems;
    Texts texts = Texts::load(language, site_.path(), problems);
    problems_.clear();
    for (const Problem& problem : problems.list()) {
      std::string text = problem.text();
      const std::size_t folder = text.find(site_.path() + "/");
      if (folder != std::string::npos) text.erase(folder, site_.path().size() + 1);
      problems_.push_back(text);
    }
    return texts;
  }

  test::TempDir site_;
  std::vector<std::string> problems_;
};

// The sentences of a shipped file by their keys.
std::map<std::string, std::string> sentences_of(std::string_view name) {
  std::map<std::string, std::string> sentences;
  for (const ShippedText& file : shipped_texts()) {
    if (file.name != name) continue;
    Problems problems;
    const TomlText read = read_toml(file.text, std::string(name), problems);
    EXPECT_TRUE(problems.empty());
    for (const TableEntry& table : read.table.entries) {
      for (const TableEntry& entry : std::get<Table>(table.value.data).entries)
        sentences[table.key + "." + entry.key] = std::get<std::string>(entry.value.data);
    }
  }
  return sentences;
}

std::multiset<std::string> fields_of(const std::string& sentence) {
  static const std::regex kField(R"(\{[a-z_]*\})");
  const std::sregex_iterator begin(sentence.begin(), sentence.end(), kField);
  std::multiset<std::string> fields;
  for (auto match = begin; match != std::sregex_iterator{}; ++match) fields.insert(match->str());
  return fields;
}

TEST_F(MailTextsTest, EachShippedLanguageHasAllSentencesWithTheSameFields) {
  const auto english = sentences_of("en.toml");
  EXPECT_GT(english.size(), 70U);
  for (const char* name : {"de.toml", "fr.toml"}) {
    const auto other = sentences_of(name);
    EXPECT_EQ(other.size(), english.size()) << name;
    for (const auto& [key, sentence] : english) {
      ASSERT_TRUE(other.contains(key)) << name << ": " << key;
      EXPECT_EQ(fields_of(other.at(key)), fields_of(sentence)) << name << ": " << key;
      EXPECT_FALSE(other.at(key).empty()) << name << ": " << key;
    }
  }
}

TEST_F(MailTextsTest, TheShippedLanguagesHaveNoProblems) {
  EXPECT_THAT(Texts::languages(""), ElementsAre("de", "en", "fr"));
  for (const char* language : {"de", "en", "fr"}) {
    EXPECT_EQ(load(language).language(), language);
    EXPECT_THAT(problems_, ElementsAre());
  }
}

TEST_F(MailTextsTest, EachDocumentedFindingHasASentence) {
  std::ifstream file(std::string(SCRIPTORIUM_SOURCE_DIR) + "/docs/usage.md");
  const std::string docs{std::istreambuf_iterator<char>(file), {}};
  const std::size_t begin = docs.find("| id | found when | severity |");
  ASSERT_NE(begin, std::string::npos);
  const std::string table = docs.substr(begin, docs.find("\n\n", begin) - begin);
  static const std::regex kId(R"(\n\| `([a-z_]+)` \|)");
  std::set<std::string> documented;
  for (std::sregex_iterator match(table.begin(), table.end(), kId), end; match != end; ++match)
    documented.insert("findings." + match->str(1));
  std::set<std::string> in_file;
  for (const auto& [key, sentence] : sentences_of("en.toml")) {
    if (key.starts_with("findings.")) in_file.insert(key);
  }
  EXPECT_GE(documented.size(), 23U);
  EXPECT_EQ(in_file, documented);
}

TEST_F(MailTextsTest, PutsInValuesAndNumbers) {
  const Texts texts = load("en");
  EXPECT_EQ(texts.text("greeting", {{"user", "{user}"}}), "Hello {user},");
  EXPECT_EQ(texts.counted("seen", 1), "Seen in one job.");
  EXPECT_EQ(texts.counted("seen", 0), "Seen in 0 jobs.");
  EXPECT_EQ(texts.counted("seen", 21), "Seen in 21 jobs.");
  EXPECT_EQ(texts.text("no_such_key"), "");
  EXPECT_EQ(texts.finding("no_such_finding"), "");
  EXPECT_THAT(texts.finding("mem_over"), HasSubstr("memory"));
}

TEST_F(MailTextsTest, ASiteReplacesSingleSentences) {
  write("de.toml",
        "[mail]\n"
        "greeting = \"Moin {user}!\"\n"
        "seen_one = \"\"\"Einmal\n({count} Job).\"\"\"\n"
        "[findings]\n"
        "mem_over = \"Weniger {{Speicher}}!\"\n");
  const Texts texts = load("de");
  EXPECT_THAT(problems_, ElementsAre());
  EXPECT_EQ(texts.text("greeting", {{"user", "eva"}}), "Moin eva!");
  EXPECT_EQ(texts.counted("seen", 1), "Einmal (1 Job).");
  EXPECT_EQ(texts.finding("mem_over"), "Weniger {Speicher}!");
  EXPECT_EQ(texts.counted("seen", 2), "Betrifft 2 Jobs.");
}

TEST_F(MailTextsTest, AMistakeIsNamedWithItsLineAndTheShippedSentenceIsUsed) {
  write("en.toml",
        "greeting = \"x\"\n"
        "[mail]\n"
        "greting = \"Hi\"\n"
        "greeting = \"Hi {usr}\"\n"
        "page = 7\n"
        "details = \"More {\"\n"
        "[finding]\n"
        "mem_over = \"Less\"\n");
  const Texts texts = load("en");
  EXPECT_THAT(
      problems_,
      ElementsAre("en.toml:1: greeting: unknown key; allowed: [mail], [findings]",
                  "en.toml:3: mail.greting: unknown key; did you mean \"mail.greeting\"?; "
                  "allowed: those of the shipped en.toml; given: \"Hi\"",
                  "en.toml:4: mail.greeting: unknown field {usr}; did you mean {user}? the fields "
                  "are {user}; given: \"Hi {usr}\"",
                  "en.toml:5: mail.page: wrong type; allowed: string; given: 7",
                  "en.toml:6: mail.details: '{' without '}' after it; write {{ for the brace "
                  "itself; given: \"More {\"",
                  "en.toml:7: finding: unknown table; did you mean \"findings\"?; allowed: [mail], "
                  "[findings]"));
  EXPECT_EQ(texts.text("greeting", {{"user", "eva"}}), "Hello eva,");
  EXPECT_EQ(texts.text("page"), "A page about your jobs:");
}

TEST_F(MailTextsTest, ASentenceThatIsMissingInALanguageOfTheSiteIsEnglishAndReported) {
  write("it.toml", "[mail]\ngreeting = \"Buongiorno {user},\"\n");
  const Texts texts = load("it");
  EXPECT_EQ(texts.language(), "it");
  EXPECT_EQ(texts.text("greeting", {{"user", "eva"}}), "Buongiorno eva,");
  EXPECT_EQ(texts.text("details"), "More about it:");
  EXPECT_EQ(problems_.size(), sentences_of("en.toml").size() - 1);
  EXPECT_THAT(problems_,
              testing::Contains("it.toml: mail.details: missing; the English sentence is used"));
  EXPECT_THAT(Texts::languages(site_.path()), ElementsAre("de", "en", "fr", "it"));
}

TEST_F(MailTextsTest, TheEnglishOfTheSiteReplacesWhatALanguageLacks) {
  write("en.toml", "[mail]\ndetails = \"See\"\nwrong = \"x\"\n");
  write("it.toml", "[mail]\n");
  EXPECT_EQ(load("it").text("details"), "See");
  for (const std::string& problem : problems_) EXPECT_THAT(problem, HasSubstr("missing"));
}

TEST_F(MailTextsTest, AnUnknownLanguageIsEnglishAndReported) {
  write("it.toml", "[mail]\n");
  for (const char* language : {"xx", "", "../de", "de.toml"}) {
    EXPECT_EQ(load(language).language(), "en");
    ASSERT_EQ(problems_.size(), 1U) << language;
    EXPECT_THAT(problems_[0], HasSubstr("language: there are no sentences in this language; the "
                                        "English ones are used; allowed: de, en, fr, it; given: "));
  }
}

}  // namespace
}  // namespace scriptorium::mail
