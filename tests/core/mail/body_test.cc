#include "core/mail/body.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/text.h"
#include "tests/core/mail/rich_summary.h"

namespace scriptorium::mail {
namespace {

using test::kHour;
using test::rich_summary;

const MailLinks kLinks{.page_url = "https://hpc.example.org/jobs?user=alice&week=46",
                       .unsubscribe = "hpc-support@example.org"};

Texts texts_in(const std::string& language) {
  Problems problems;
  Texts texts = Texts::load(language, "", problems);
  for (const Problem& problem : problems.list()) ADD_FAILURE() << problem.text();
  return texts;
}

MailBody body_in(const std::string& language, const Summary& summary = rich_summary()) {
  return body_of(summary, texts_in(language), kLinks);
}

std::string expected_text(const std::string& name) {
  std::ifstream file(std::string(SCRIPTORIUM_SOURCE_DIR) + "/tests/core/mail/" + name);
  EXPECT_TRUE(file) << name;
  return {std::istreambuf_iterator<char>(file), {}};
}

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

std::size_t columns(std::string_view line) {
  return static_cast<std::size_t>(std::ranges::count_if(
      line, [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }));
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

// The first thing that is wrong with the tags and entities, "" if nothing is.
std::string html_problem(const std::string& html) {
  constexpr std::string_view kDoctype = "<!DOCTYPE html>\n";
  if (!html.starts_with(kDoctype)) return "no doctype";
  std::vector<std::string> open;
  for (std::size_t at = kDoctype.size(); at < html.size(); ++at) {
    if (html[at] == '>') return "a > outside of a tag at " + html.substr(at, 40);
    if (html[at] == '&') {
      const std::string name = html.substr(at, html.find(';', at) + 1 - at);
      const std::vector<std::string> allowed = {"&amp;",  "&lt;",  "&gt;",
                                                "&quot;", "&#39;", "&#160;"};
      if (std::ranges::find(allowed, name) == allowed.end())
        return "an & that is no entity at " + html.substr(at, 40);
    }
    if (html[at] != '<') continue;
    const std::size_t end = html.find('>', at);
    if (end == std::string::npos) return "a tag without an end";
    const std::string tag = html.substr(at + 1, end - at - 1);
    if (contains(tag, "<")) return "a < in the tag " + tag;
    if (std::ranges::count(tag, '"') % 2 != 0) return "a quote without its pair in " + tag;
    const std::string name = tag.substr(0, tag.find(' '));
    if (tag.starts_with('/')) {
      if (open.empty() || "/" + open.back() != tag) return "<" + tag + "> closes nothing";
      open.pop_back();
    } else if (!tag.ends_with('/')) {
      open.push_back(name);
    }
    at = end;
  }
  return open.empty() ? "" : "<" + open.back() + "> is not closed";
}

// What a browser would show, on one line.
std::string visible(const std::string& html) {
  std::string text;
  bool in_tag = false;
  for (const char c : html.substr(html.find("<body"))) {
    if (c == '<') in_tag = true;
    if (!in_tag) text += c == '\n' ? ' ' : c;
    if (c == '>') in_tag = false;
  }
  for (const auto& [entity, character] :
       std::vector<std::pair<std::string, std::string>>{{"&lt;", "<"},
                                                        {"&gt;", ">"},
                                                        {"&quot;", "\""},
                                                        {"&#39;", "'"},
                                                        {"&#160;", " "},
                                                        {"&amp;", "&"}}) {
    for (std::size_t at = text.find(entity); at != std::string::npos;
         at = text.find(entity, at + 1))
      text.replace(at, entity.size(), character);
  }
  return text;
}

std::string without_blanks(std::string text) {
  std::erase_if(text, [](char c) { return c == ' ' || c == '\n'; });
  return text;
}

Summary with_job_name(const std::string& name) {
  Summary summary = rich_summary();
  summary.findings[0].job_name = name;
  return summary;
}

// Whatever a name is: it stays within its line, and the HTML is what it is with a plain name.
void expect_harmless(const std::string& name, const std::string& shown) {
  const MailBody plain = body_in("en", with_job_name("md"));
  const MailBody body = body_in("en", with_job_name(name));
  EXPECT_EQ(body.subject, plain.subject);
  EXPECT_TRUE(contains(without_blanks(body.text), without_blanks("“" + shown + "”"))) << body.text;
  EXPECT_TRUE(contains(visible(body.html), "“" + shown + "”")) << visible(body.html);
  EXPECT_EQ(html_problem(body.html), "");
  EXPECT_TRUE(is_utf8(body.text));
  EXPECT_TRUE(is_utf8(body.html));
  EXPECT_EQ(std::ranges::count(body.html, '<'), std::ranges::count(plain.html, '<'));
  for (const std::string& line : lines_of(body.text)) EXPECT_LE(columns(line), 72U) << line;
}

class MailBodyLanguageTest : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Languages, MailBodyLanguageTest, testing::Values("en", "de", "fr"));

TEST_P(MailBodyLanguageTest, HasTheExpectedWordsInTheTextAndTheHtml) {
  const MailBody body = body_in(GetParam());
  EXPECT_EQ("Subject: " + body.subject + "\n\n" + body.text,
            expected_text("rich." + GetParam() + ".txt"));
  EXPECT_EQ(body.html, expected_text("rich." + GetParam() + ".html"));
}

TEST_P(MailBodyLanguageTest, TheStaffsMailHasAccountsAndNobodysName) {
  const MailBody body = body_of(test::site_summary(), texts_in(GetParam()), {});
  EXPECT_EQ("Subject: " + body.subject + "\n\n" + body.text,
            expected_text("site." + GetParam() + ".txt"));
  EXPECT_EQ(html_problem(body.html), "");
  EXPECT_FALSE(contains(body.text, "alice")) << body.text;
  EXPECT_FALSE(contains(body.text, "no-mail")) << body.text;
  for (const std::string& line : lines_of(body.text)) EXPECT_LE(columns(line), 72U) << line;
}

TEST_P(MailBodyLanguageTest, ACoordinatorsMailHasAccountsAndUsers) {
  const MailBody body = body_of(test::coordinator_summary(), texts_in(GetParam()), {});
  EXPECT_EQ("Subject: " + body.subject + "\n\n" + body.text,
            expected_text("coordinator." + GetParam() + ".txt"));
  EXPECT_EQ(html_problem(body.html), "");
  for (const std::string& line : lines_of(body.text)) EXPECT_LE(columns(line), 72U) << line;
}

TEST_P(MailBodyLanguageTest, TheHtmlIsWellFormedAndLoadsNothing) {
  const MailBody body = body_in(GetParam());
  EXPECT_EQ(html_problem(body.html), "");
  EXPECT_TRUE(contains(body.html, "<html lang=\"" + GetParam() + "\">"));
  for (const char* part : {"<script", "<img", "<link", "src=", "url(", "@import", "onload"})
    EXPECT_FALSE(contains(body.html, part)) << part;
}

TEST_P(MailBodyLanguageTest, EachWordOfTheTextIsInTheHtml) {
  const MailBody body = body_in(GetParam());
  const std::string html = without_blanks(visible(body.html));
  for (std::string line : lines_of(body.text)) {
    const std::size_t bar = line.find("]  ");
    if (bar != std::string::npos) line = line.substr(bar + 3);  // drawn in the HTML
    if (line.size() > 3 && line.substr(1, 2) == ". ") line = line.substr(3);
    if (line.find_first_not_of('-') == std::string::npos) continue;
    EXPECT_TRUE(contains(html, without_blanks(line))) << line;
  }
}

TEST_P(MailBodyLanguageTest, HasNoLineOfMoreThan72Columns) {
  Summary summary = rich_summary();
  summary.now.core_seconds = 123'456'789 * kHour;
  summary.now.unused_core_seconds = 98'765'432 * kHour;
  const Texts texts = texts_in(GetParam());
  for (const char* id : {"cpu_low", "cpu_unused_node", "cpu_oversubscribed", "mem_oom",
                         "gpu_memory_low", "time_out", "short_job", "fragmented"}) {
    summary.findings[0].id = id;
    for (const std::string& line : lines_of(body_of(summary, texts, kLinks).text))
      EXPECT_LE(columns(line), 72U) << line;
  }
}

TEST_P(MailBodyLanguageTest, NamesTheOneJobThatHadASecret) {
  Summary summary = rich_summary();
  summary.secret_jobs = 1;
  summary.secret_examples = {"4711; rm -rf ~"};
  const MailBody body = body_of(summary, texts_in(GetParam()), kLinks);
  EXPECT_TRUE(contains(body.text, "4711; rm")) << body.text;
  EXPECT_FALSE(contains(body.text, "scriptorium show")) << "no id that a shell takes as one";
  EXPECT_EQ(html_problem(body.html), "");
}

TEST_P(MailBodyLanguageTest, SaysAWholeSentenceForOneJobWithoutFindingsAndAnythingBefore) {
  Summary summary = rich_summary();
  summary.period = {.kind = CalendarPeriod::Kind::kMonth, .year = 2026, .number = 8};
  summary.now = {.jobs = 1, .core_seconds = 9 * kHour / 2, .unused_core_seconds = 60};
  summary.before = {};
  summary.unmeasured_jobs = 1;
  summary.findings.clear();
  summary.secret_jobs = 0;
  const MailBody body = body_of(summary, texts_in(GetParam()), {});
  EXPECT_EQ("Subject: " + body.subject + "\n\n" + body.text,
            expected_text("small." + GetParam() + ".txt"));
  EXPECT_EQ(html_problem(body.html), "");
  EXPECT_FALSE(contains(body.text, "GPU"));
  EXPECT_FALSE(contains(body.html, "GPU"));
}

TEST(MailBodyTest, ComparesThePartThatWasUnusedWithThePeriodBefore) {
  Summary summary = rich_summary();
  summary.now = {.jobs = 8, .core_seconds = 1000 * kHour, .unused_core_seconds = 500 * kHour};
  const auto trend = [&](std::uint64_t had, std::uint64_t unused) {
    summary.before = {
        .jobs = 8, .core_seconds = had * kHour, .unused_core_seconds = unused * kHour};
    return without_blanks(body_in("en", summary).text);
  };
  EXPECT_TRUE(contains(trend(100, 47), "itisalargerpart"));
  EXPECT_TRUE(contains(trend(100, 48), "itisaboutthesamepart"));
  EXPECT_TRUE(contains(trend(5000, 2600), "itisaboutthesamepart"));
  EXPECT_TRUE(contains(trend(100, 53), "itisasmallerpart"));
  EXPECT_TRUE(contains(trend(100, 0), "0of100corehours(0\u00A0%)wereunused"));
}

TEST(MailBodyTest, NamesTheDaysOfAWeekByIso8601) {
  Summary summary = rich_summary();
  const auto has = [&](int year, int week, const std::string& dates, const char* language = "en") {
    summary.period.year = year;
    summary.period.number = week;
    return contains(without_blanks(body_in(language, summary).text), without_blanks(dates));
  };
  EXPECT_TRUE(has(2026, 53, "(28 December to 3 January 2027)"));
  EXPECT_TRUE(has(2027, 1, "(4 January to 10 January 2027)"));
  EXPECT_TRUE(has(2025, 1, "(30 December to 5 January 2025)"));
  EXPECT_TRUE(has(2024, 9, "(26 February to 3 March 2024)"));
  EXPECT_TRUE(has(2026, 27, "(29. Juni bis 5. Juli 2026)", "de"));
  EXPECT_TRUE(has(2027, 5, "(du 1er février au 7 février 2027)", "fr"));
}

TEST(MailBodyTest, RoundsHoursAndNeverSaysZeroForALittle) {
  Summary summary = rich_summary();
  const auto subject = [&](std::uint64_t unused, std::uint64_t had, const char* language = "en") {
    summary.now = {.jobs = 2, .core_seconds = had, .unused_core_seconds = unused};
    return body_in(language, summary).subject;
  };
  EXPECT_EQ(subject(0, 36000), "Your jobs in week 46 of 2026: 0 of 10 core hours unused");
  EXPECT_EQ(subject(179, 35819), "Your jobs in week 46 of 2026: <0.1 of 9.9 core hours unused");
  EXPECT_EQ(subject(180, 35820), "Your jobs in week 46 of 2026: 0.1 of 10 core hours unused");
  EXPECT_EQ(subject(5400, 9000, "de"),
            "Ihre Jobs in Kalenderwoche 46/2026: 1,5 von 2,5 Kernstunden ungenutzt");
  // More than there was: an event that is wrong.
  EXPECT_EQ(subject(72000, 36000), "Your jobs in week 46 of 2026: 10 of 10 core hours unused");
}

TEST(MailBodyTest, DrawsBarsOfTheirWholeLengthAtBothEnds) {
  Summary summary = rich_summary();
  const auto body = [&](std::uint64_t unused) {
    summary.now = {.jobs = 2, .core_seconds = 100, .unused_core_seconds = unused};
    return body_in("en", summary);
  };
  EXPECT_TRUE(contains(body(0).text, "[####################]"));
  EXPECT_TRUE(contains(body(100).text, "[....................]"));
  EXPECT_FALSE(contains(body(0).html, "width=\"0%\""));
  EXPECT_TRUE(contains(body(100).html, "<td width=\"100%\""));
}

TEST(MailBodyTest, AFindingWithoutASentenceIsShownByTheWordsOfItsEvent) {
  Summary summary = rich_summary();
  summary.findings.resize(1);
  summary.findings[0].id = "newer_rule";
  summary.findings[0].text = "The job wrote its results twice. Write them once.";
  for (const char* language : {"en", "de", "fr"}) {
    const std::string text = body_in(language, summary).text;
    EXPECT_TRUE(contains(text, "\n1. The job wrote its results twice. Write them once.\n")) << text;
  }
  summary.findings[0].text.clear();
  EXPECT_TRUE(contains(body_in("en", summary).text, "\n1. newer_rule\n"));
}

TEST(MailBodyTest, AFindingThatLeftNothingUnusedHasNoHours) {
  Summary summary = rich_summary();
  summary.findings.resize(1);
  summary.findings[0].id = "time_out";
  summary.findings[0].sum = {.jobs = 3, .core_seconds = 30 * kHour};
  EXPECT_TRUE(contains(body_in("en", summary).text, "\n   Seen in 3 jobs.\n"));
  summary.findings[0].sum = {.jobs = 3,
                             .core_seconds = 30 * kHour,
                             .unused_core_seconds = 20 * kHour,
                             .gpu_seconds = 5 * kHour,
                             .unused_gpu_seconds = kHour};
  EXPECT_TRUE(contains(
      body_in("en", summary).text,
      "\n   Seen in 3 jobs, which left 20\u00A0core hours and 1.0\u00A0GPU hours unused.\n"));
}

TEST(MailBodyTest, HtmlInAJobNameIsShownAsText) {
  expect_harmless("</p><script>alert(1)</script>", "</p><script>alert(1)</script>");
  expect_harmless("\" onclick='x' &amp;", "\" onclick='x' &amp;");
}

TEST(MailBodyTest, AJobNameOfTenThousandCharactersIsCut) {
  expect_harmless(std::string(10'000, 'x'), std::string(50, 'x') + "...");
}

TEST(MailBodyTest, AJobNameIsNeverCutWithinACharacter) {
  std::string expected;
  for (int i = 0; i < 17; ++i) expected += "計";  // three bytes each
  expect_harmless(expected + expected, expected + "...");
}

TEST(MailBodyTest, AJobNameCannotBeginALine) {
  expect_harmless("md\nBcc: bob@example.org\r\n\n.", "md\\nBcc: bob@example.org\\x0d\\n\\n.");
}

TEST(MailBodyTest, AJobNameCannotReorderTheTextOrColourATerminal) {
  expect_harmless("a\u202Ebc\u2066\x1b[31m", "a\\u202ebc\\u2066\\x1b[31m");
}

TEST(MailBodyTest, InvalidUtf8InAJobNameIsEscaped) {
  expect_harmless("caf\xe9 \xff\xc3", "caf\\xe9 \\xff\\xc3");
}

TEST(MailBodyTest, NoOtherTextOfAnEventReachesTheHtmlUnescaped) {
  Summary summary = rich_summary();
  const std::string bad = "<b>\n\u202E\xff" + std::string(1000, 'y');
  summary.user = summary.cluster = bad;
  for (CostlyFinding& finding : summary.findings) {
    finding.id = finding.job = finding.job_name = finding.text = finding.condition = bad;
    finding.directives = {"#SBATCH --mem=1G"};
  }
  const MailBody body =
      body_of(summary, texts_in("en"),
              {.page_url = "https://x/\"><b>\n'", .unsubscribe = "a\"<b>\n@example.org"});
  EXPECT_EQ(html_problem(body.html), "");
  EXPECT_TRUE(is_utf8(body.html) && is_utf8(body.text));
  EXPECT_FALSE(contains(body.html, "<b>\\"));
  EXPECT_FALSE(contains(body.text, "\u202E"));
  for (const std::string& line : lines_of(body.text)) EXPECT_LE(columns(line), 72U) << line;
  EXPECT_EQ(body.subject, body_in("en").subject);
}

TEST(MailBodyTest, OffersNoLineThatCannotBeCopiedAsItIs) {
  Summary summary = rich_summary();
  summary.findings[1].directives = {"#SBATCH --mem=1G\nrm -rf ~", "#SBATCH " + std::string(80, 'x'),
                                    "#SBATCH --ntasks=2"};
  summary.findings[1].job = "4711; rm";
  const MailBody body = body_in("en", summary);
  EXPECT_FALSE(contains(body.text, "rm -rf"));
  EXPECT_FALSE(contains(body.text, "xxx"));
  EXPECT_FALSE(contains(body.text, "scriptorium report 4711"));
  EXPECT_TRUE(contains(body.text, "\n     #SBATCH --ntasks=2\n"));
}

TEST(MailBodyTest, LinksOnlyPagesOfTheWeb) {
  const auto html = [](const std::string& url) {
    return body_of(rich_summary(), texts_in("en"), {.page_url = url, .unsubscribe = ""}).html;
  };
  EXPECT_TRUE(contains(html("https://x.org/?a=1&b=2"), "href=\"https://x.org/?a=1&amp;b=2\""));
  EXPECT_FALSE(contains(html("javascript:alert(1)"), "javascript"));
}

}  // namespace
}  // namespace scriptorium::mail
