#include "core/mail/body.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/ascii.h"
#include "core/base/text.h"

namespace scriptorium::mail {
namespace {

constexpr std::size_t kColumns = 72;
constexpr std::size_t kNameBytes = 50;       // of a job, a user, a cluster
constexpr std::size_t kSentenceBytes = 500;  // of a finding or condition from an event

// A part of a mail, for both forms. Its texts are printable and not yet escaped.
struct Block {
  enum class Kind { kParagraph, kTitle, kBar, kFinding, kNote, kItem, kCode, kLink, kSmall } kind;
  std::string text;   // of kCode: lines to copy
  std::string label;  // of a bar
  double ratio = 0;   // of a bar: the part that was used
};

// ---- numbers and dates

std::string hours_text(std::uint64_t seconds, const Texts& texts) {
  const double hours = static_cast<double>(seconds) / 3600;
  if (seconds == 0) return "0";
  if (hours >= 9.95) return std::to_string(std::llround(hours));
  const std::int64_t tenths = std::llround(hours * 10);
  if (tenths == 0) return "<0" + texts.text("decimal_mark") + "1";
  return std::to_string(tenths / 10) + texts.text("decimal_mark") + std::to_string(tenths % 10);
}

// Core or GPU hours of jobs.
struct Hours {
  std::uint64_t seconds = 0;
  std::uint64_t unused_seconds = 0;  // <= seconds
  std::string unit;                  // "core hours"

  double unused_ratio() const noexcept {
    return seconds == 0 ? 0 : static_cast<double>(unused_seconds) / static_cast<double>(seconds);
  }
  std::int64_t unused_percent() const noexcept { return std::llround(unused_ratio() * 100); }
};

Hours core_hours(const Sum& sum, const Texts& texts) {
  return {sum.core_seconds, std::min(sum.unused_core_seconds, sum.core_seconds),
          texts.text("core_hours")};
}
Hours gpu_hours(const Sum& sum, const Texts& texts) {
  return {sum.gpu_seconds, std::min(sum.unused_gpu_seconds, sum.gpu_seconds),
          texts.text("gpu_hours")};
}

std::string amount(std::uint64_t seconds, const std::string& unit, const Texts& texts) {
  return texts.text("amount", {{"number", hours_text(seconds, texts)}, {"hours", unit}});
}

std::string month_name(unsigned month, const Texts& texts) {
  return texts.text("month_" + std::to_string(month));
}

std::string date_text(std::chrono::sys_days date, std::string_view key, const Texts& texts) {
  const std::chrono::year_month_day parts{date};
  const auto day = static_cast<unsigned>(parts.day());
  return texts.text(key, {{"day", day == 1 ? texts.text("first_of_month") : std::to_string(day)},
                          {"month", month_name(static_cast<unsigned>(parts.month()), texts)},
                          {"year", std::to_string(static_cast<int>(parts.year()))}});
}

// "in week 46 of 2026", and with its dates.
std::string when_text(const CalendarPeriod& period, bool dates, const Texts& texts) {
  const std::string year = std::to_string(period.year);
  const std::string number = std::to_string(period.number);
  if (period.kind == CalendarPeriod::Kind::kMonth) {
    return texts.text("in_month", {{"month", texts.text("month_" + number)}, {"year", year}});
  }
  if (!dates) return texts.text("in_week", {{"number", number}, {"year", year}});
  const std::chrono::sys_days monday = period.first_day();
  return texts.text("in_week_with_dates",
                    {{"number", number},
                     {"year", year},
                     {"from", date_text(monday, "date_without_year", texts)},
                     {"to", date_text(monday + std::chrono::days{6}, "date", texts)}});
}

// ---- what others wrote

std::string name_text(std::string_view name) { return printable(name, kNameBytes); }

bool can_be_copied(std::string_view line) {
  return !line.empty() && line.size() <= kColumns - 8 && printable(line, line.size()) == line;
}

bool is_job_id(std::string_view id) {
  return can_be_copied(id) && id.size() <= 40 && is_alphanumeric(id.front()) &&
         std::ranges::all_of(id, [](char c) {
           return is_alphanumeric(c) ||
                  std::string_view("_.[]+-").find(c) != std::string_view::npos;
         });
}

// ---- what a mail says

// The sentence for those who get the mail.
std::string key_for(Audience audience, const std::string& key) {
  switch (audience) {
    case Audience::kUser: return key;
    case Audience::kCoordinator: return "coordinator_" + key;
    case Audience::kStaff: return "site_" + key;
  }
  return key;
}

std::string subject_of(const Summary& summary, const Texts& texts) {
  const Hours cores = core_hours(summary.now, texts);
  const Hours gpus = gpu_hours(summary.now, texts);
  return texts.text(
      key_for(summary.audience, "subject") + (gpus.seconds > 0 ? "_gpu" : ""),
      {{"cluster", summary.audience == Audience::kUser ? "" : name_text(summary.cluster)},
       {"when", when_text(summary.period, false, texts)},
       {"unused", hours_text(cores.unused_seconds, texts)},
       {"had", hours_text(cores.seconds, texts)},
       {"gpu_unused", hours_text(gpus.unused_seconds, texts)},
       {"gpu_had", hours_text(gpus.seconds, texts)}});
}

// "320 core hours (63 %)"; "" for hours that there were not.
std::string unused_text(const Hours& hours, const Texts& texts) {
  if (hours.seconds == 0) return {};
  return texts.text("amount_and_part", {{"amount", amount(hours.unused_seconds, hours.unit, texts)},
                                        {"percent", std::to_string(hours.unused_percent())}});
}

// "320 core hours and 28 GPU hours"; either may be "".
std::string both(const std::string& cores, const std::string& gpus, const Texts& texts) {
  if (cores.empty() || gpus.empty()) return cores + gpus;
  return texts.text("two_amounts", {{"first", cores}, {"second", gpus}});
}

std::string reserved_text(const Hours& cores, const Hours& gpus, const Texts& texts) {
  const auto had = [&](const Hours& hours) {
    return hours.seconds == 0 ? std::string{} : amount(hours.seconds, hours.unit, texts);
  };
  return texts.text("reserved",
                    {{"had", both(had(cores), had(gpus), texts)},
                     {"unused", both(unused_text(cores, texts), unused_text(gpus, texts), texts)}});
}

Block bar_of(std::string_view label, const Hours& hours, const Texts& texts) {
  return {
      .kind = Block::Kind::kBar,
      .text = texts.text("bar", {{"used", hours_text(hours.seconds - hours.unused_seconds, texts)},
                                 {"had", hours_text(hours.seconds, texts)},
                                 {"hours", hours.unit}}),
      .label = texts.text(label),
      .ratio = 1 - hours.unused_ratio()};
}

std::string before_text(const CalendarPeriod& period, const Texts& texts) {
  return texts.text(period.kind == CalendarPeriod::Kind::kWeek ? "before_week" : "before_month");
}

// By the part that was unused: more jobs with the same care waste more hours.
std::string trend_text(const Hours& now, const Hours& before, const std::string& when,
                       const Texts& texts) {
  constexpr std::int64_t kSamePercent = 2;
  const std::int64_t more = now.unused_percent() - before.unused_percent();
  const char* key = more > kSamePercent    ? "trend_more"
                    : more < -kSamePercent ? "trend_less"
                                           : "trend_same";
  return texts.text(key, {{"before", when},
                          {"unused", hours_text(before.unused_seconds, texts)},
                          {"had", hours_text(before.seconds, texts)},
                          {"hours", before.unit},
                          {"percent", std::to_string(before.unused_percent())}});
}

std::string trends_text(const Summary& summary, const Texts& texts) {
  const std::string when = before_text(summary.period, texts);
  if (summary.before.jobs == 0)
    return texts.text(key_for(summary.audience, "trend_none"), {{"before", when}});
  std::string text;
  for (const auto hours_of : {core_hours, gpu_hours}) {
    const Hours now = hours_of(summary.now, texts);
    const Hours before = hours_of(summary.before, texts);
    if (now.seconds == 0 || before.seconds == 0) continue;
    text += (text.empty() ? "" : " ") + trend_text(now, before, when, texts);
  }
  return text;
}

std::string cost_text(const Sum& sum, const Texts& texts) {
  const Hours cores = core_hours(sum, texts);
  const Hours gpus = gpu_hours(sum, texts);
  const auto unused = [&](const Hours& hours) {
    return hours.unused_seconds == 0 ? std::string{}
                                     : amount(hours.unused_seconds, hours.unit, texts);
  };
  const std::string wasted = both(unused(cores), unused(gpus), texts);
  if (wasted.empty()) return texts.counted("seen", sum.jobs);
  return texts.counted("cost", sum.jobs, {{"wasted", wasted}});
}

std::string example_text(const CostlyFinding& finding, const Texts& texts) {
  const std::string job = name_text(finding.job);
  if (finding.job_name.empty()) return texts.text("example_without_name", {{"job", job}});
  return texts.text("example", {{"job", job}, {"name", name_text(finding.job_name)}});
}

void add_finding(const CostlyFinding& finding, const Texts& texts, std::vector<Block>& blocks) {
  const auto add = [&](Block::Kind kind, std::string text) {
    blocks.push_back({.kind = kind, .text = std::move(text)});
  };
  std::string meaning = texts.finding(finding.id);
  if (meaning.empty()) meaning = printable(finding.text, kSentenceBytes);
  if (meaning.empty()) meaning = name_text(finding.id);
  add(Block::Kind::kFinding, meaning);
  add(Block::Kind::kNote, cost_text(finding.sum, texts));
  if (finding.job.empty()) return;
  add(Block::Kind::kNote, example_text(finding, texts));

  std::string lines;
  for (const std::string& directive : finding.directives) {
    if (can_be_copied(directive)) lines += (lines.empty() ? "" : "\n") + directive;
  }
  if (!lines.empty()) {
    std::string_view condition = finding.condition;
    if (condition.starts_with("if ")) condition.remove_prefix(3);
    add(Block::Kind::kNote,
        condition.empty()
            ? texts.text("next_time")
            : texts.text("next_time_if", {{"condition", printable(condition, kSentenceBytes)}}));
    add(Block::Kind::kCode, lines);
  }
  if (is_job_id(finding.job)) {
    add(Block::Kind::kNote, texts.text("details"));
    add(Block::Kind::kCode, "scriptorium report " + finding.job);
  }
}

void add_parts(const char* title, const std::vector<Part>& parts, const Texts& texts,
               std::vector<Block>& blocks) {
  if (parts.empty()) return;
  blocks.push_back({.kind = Block::Kind::kTitle, .text = texts.text(title)});
  for (const Part& part : parts) {
    const Hours cores = core_hours(part.sum, texts);
    const Hours gpus = gpu_hours(part.sum, texts);
    blocks.push_back(
        {.kind = Block::Kind::kItem,
         .text = texts.counted(
             "part", part.sum.jobs,
             {{"name", part.name.empty() ? texts.text("no_account") : name_text(part.name)},
              {"unused", both(unused_text(cores, texts), unused_text(gpus, texts), texts)}})});
  }
}

void add_secrets(const Summary& summary, const Texts& texts, std::vector<Block>& blocks) {
  std::string jobs;
  for (const std::string& job : summary.secret_examples)
    jobs += (jobs.empty() ? "" : ", ") + name_text(job);
  blocks.push_back({.kind = Block::Kind::kTitle, .text = texts.text("secrets_title")});
  blocks.push_back({.kind = Block::Kind::kParagraph,
                    .text = texts.counted("secrets", summary.secret_jobs, {{"jobs", jobs}}) + " " +
                            texts.text("secrets_do")});
  for (const std::string& job : summary.secret_examples) {
    if (!is_job_id(job)) continue;
    blocks.push_back({.kind = Block::Kind::kCode, .text = "scriptorium show " + job});
    return;
  }
}

std::vector<Block> blocks_of(const Summary& summary, const Texts& texts, const MailLinks& links) {
  using Kind = Block::Kind;
  std::vector<Block> blocks;
  const auto add = [&](Kind kind, std::string text) {
    blocks.push_back({.kind = kind, .text = std::move(text)});
  };
  const Sum& now = summary.now;
  const std::string cluster = name_text(summary.cluster);
  const Hours cores = core_hours(now, texts);
  const Hours gpus = gpu_hours(now, texts);

  add(Kind::kParagraph, summary.user.empty()
                            ? texts.text("site_greeting")
                            : texts.text("greeting", {{"user", name_text(summary.user)}}));
  std::string ran =
      texts.counted(key_for(summary.audience, "ran"), now.jobs,
                    {{"cluster", cluster}, {"when", when_text(summary.period, true, texts)}});
  if (summary.unmeasured_jobs > 0)
    ran += " " + texts.counted("unmeasured", summary.unmeasured_jobs);
  add(Kind::kParagraph, ran);
  if (cores.seconds + gpus.seconds > 0) add(Kind::kParagraph, reserved_text(cores, gpus, texts));
  if (cores.seconds > 0) blocks.push_back(bar_of("bar_cores", cores, texts));
  if (gpus.seconds > 0) blocks.push_back(bar_of("bar_gpus", gpus, texts));
  if (const std::string trend = trends_text(summary, texts); !trend.empty())
    add(Kind::kParagraph, trend);

  if (summary.findings.empty()) {
    add(Kind::kParagraph, texts.text("findings_none"));
  } else {
    add(Kind::kTitle, texts.text("findings_title"));
    for (const CostlyFinding& finding : summary.findings) add_finding(finding, texts, blocks);
  }
  add_parts("accounts_title", summary.accounts, texts, blocks);
  add_parts("users_title", summary.users, texts, blocks);
  if (summary.secret_jobs > 0) add_secrets(summary, texts, blocks);

  const bool is_link =
      links.page_url.starts_with("https://") || links.page_url.starts_with("http://");
  if (is_link) {
    add(Kind::kParagraph, texts.text("page"));
    add(Kind::kLink, printable(links.page_url, links.page_url.size()));
  }
  add(Kind::kSmall, texts.text(gpus.seconds > 0 ? "core_and_gpu_hour" : "core_hour"));
  if (summary.audience != Audience::kUser)
    add(Kind::kSmall, texts.text(key_for(summary.audience, "stop"), {{"cluster", cluster}}));
  if (summary.audience == Audience::kStaff) return blocks;
  add(Kind::kSmall, links.unsubscribe.empty()
                        ? texts.text("stop_by_command", {{"cluster", cluster}})
                        : texts.text("stop", {{"unsubscribe", printable(links.unsubscribe)},
                                              {"cluster", cluster}}));
  add(Kind::kCode, "mkdir -p ~/.scriptorium && touch ~/.scriptorium/no-mail");
  return blocks;
}

// ---- plain text

// The code points, as if each were a column wide.
std::size_t columns_of(std::string_view text) {
  return static_cast<std::size_t>(std::ranges::count_if(
      text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }));
}

// The longest beginning of a UTF-8 text that has at most so many columns.
std::string_view fitting(std::string_view text, std::size_t columns) {
  std::size_t end = 0;
  while (end < text.size()) {
    std::size_t next = end + 1;
    while (next < text.size() && (static_cast<unsigned char>(text[next]) & 0xC0U) == 0x80U) ++next;
    if (columns_of(text.substr(0, next)) > columns) break;
    end = next;
  }
  return text.substr(0, end);
}

// Lines of at most kColumns. The first begins with `first`, the others with as many blanks. A word
// that is too long for a line is broken.
std::string filled(std::string_view words, const std::string& first) {
  const std::size_t indent = columns_of(first);
  std::string text = first;
  std::size_t column = indent;
  while (!words.empty()) {
    std::string_view word = take_until(words, ' ');
    if (column > indent && column + 1 + columns_of(word) > kColumns) {
      text += "\n" + std::string(indent, ' ');
      column = indent;
    }
    if (column > indent) {
      text += ' ';
      ++column;
    }
    while (columns_of(word) > kColumns - indent) {
      const std::string_view part = fitting(word, kColumns - indent);
      text.append(part).append("\n").append(indent, ' ');
      word.remove_prefix(part.size());
    }
    text += word;
    column += columns_of(word);
  }
  return text + "\n";
}

std::string bar_text(const Block& bar, std::size_t label_columns) {
  constexpr std::size_t kCells = 20;
  const auto full = static_cast<std::size_t>(std::llround(bar.ratio * kCells));
  return filled(bar.text, "  " + bar.label +
                              std::string(label_columns - columns_of(bar.label) + 2, ' ') + "[" +
                              std::string(full, '#') + std::string(kCells - full, '.') + "]  ");
}

std::string code_text(std::string_view lines) {
  std::string text;
  while (!lines.empty()) text.append(5, ' ').append(take_until(lines, '\n')).append("\n");
  return text;
}

std::string text_of(const std::vector<Block>& blocks) {
  using Kind = Block::Kind;
  std::size_t label_columns = 0;
  for (const Block& block : blocks)
    label_columns = std::max(label_columns, columns_of(block.label));
  std::string text;
  int findings = 0;
  Kind last = Kind::kNote;
  for (const Block& block : blocks) {
    const bool continues = block.kind == Kind::kNote || block.kind == Kind::kCode ||
                           block.kind == Kind::kLink ||
                           (block.kind == last && (last == Kind::kBar || last == Kind::kItem));
    if (!text.empty() && !continues) text += "\n";
    switch (block.kind) {
      case Kind::kParagraph:
      case Kind::kSmall: text += filled(block.text, ""); break;
      case Kind::kTitle:
        text += filled(block.text, "") + std::string(columns_of(block.text), '-') + "\n";
        break;
      case Kind::kBar: text += bar_text(block, label_columns); break;
      case Kind::kFinding: text += filled(block.text, std::to_string(++findings) + ". "); break;
      case Kind::kNote: text += filled(block.text, "   "); break;
      case Kind::kItem: text += filled(block.text, "- "); break;
      case Kind::kCode: text += code_text(block.text); break;
      case Kind::kLink: text += block.text + "\n"; break;
    }
    last = block.kind;
  }
  return text;
}

// ---- HTML
// Styles are inline and colours few, since mail programs remove or replace more. Text has the
// reader's own colour, on the reader's own background, so that it can be read in a dark one, too.

constexpr const char* kHead =
    "<meta charset=\"utf-8\" />\n"
    "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\" />\n"
    "<meta name=\"color-scheme\" content=\"light dark\" />\n";
constexpr const char* kFont =
    "font-family:-apple-system,'Segoe UI',Roboto,'Liberation Sans',Helvetica,Arial,sans-serif;"
    "font-size:16px;line-height:1.5";
constexpr const char* kUsedColour = "#2b7de0";
constexpr const char* kUnusedColour = "#e08a2b";

// For an element or an attribute in double quotes.
std::string escaped(std::string_view text) {
  std::string html;
  for (const char c : text) {
    switch (c) {
      case '&': html += "&amp;"; break;
      case '<': html += "&lt;"; break;
      case '>': html += "&gt;"; break;
      case '"': html += "&quot;"; break;
      case '\'': html += "&#39;"; break;
      default: html += c;
    }
  }
  return html;
}

std::string element(const std::string& name, const std::string& style, std::string_view text) {
  return "<" + name + " style=\"" + style + "\">" + escaped(text) + "</" + name + ">\n";
}

std::string bar_cell(std::int64_t percent, const char* colour) {
  if (percent == 0) return {};
  return std::string("<td width=\"") + std::to_string(percent) + "%\" bgcolor=\"" + colour +
         "\" style=\"height:14px;line-height:14px;font-size:0;background-color:" + colour +
         "\">&#160;</td>";
}

std::string bar_html(const Block& bar) {
  const std::int64_t used = std::llround(bar.ratio * 100);
  return "<div style=\"margin:0 0 14px\">\n<div style=\"margin:0 0 4px;font-size:14px\"><b>" +
         escaped(bar.label) + "</b> &#160;" + escaped(bar.text) +
         "</div>\n<table role=\"presentation\" width=\"100%\" cellpadding=\"0\" cellspacing=\"0\" "
         "border=\"0\" style=\"border-collapse:collapse;table-layout:fixed\"><tr>" +
         bar_cell(used, kUsedColour) + bar_cell(100 - used, kUnusedColour) +
         "</tr></table>\n</div>\n";
}

std::string link_html(const std::string& url) {
  return "<p style=\"margin:-8px 0 16px\"><a href=\"" + escaped(url) + "\">" + escaped(url) +
         "</a></p>\n";
}

std::string block_html(const Block& block) {
  using Kind = Block::Kind;
  switch (block.kind) {
    case Kind::kParagraph: return element("p", "margin:0 0 16px", block.text);
    case Kind::kTitle: return element("h2", "margin:24px 0 12px;font-size:19px", block.text);
    case Kind::kBar: return bar_html(block);
    case Kind::kFinding: return element("p", "margin:0 0 8px;font-weight:bold", block.text);
    case Kind::kNote:
    case Kind::kItem: return element("p", "margin:0 0 4px", block.text);
    case Kind::kCode:
      return element("pre",
                     "margin:0 0 8px;padding:8px 12px;border:1px solid #8a8a8a;border-radius:4px;"
                     "font-family:monospace;font-size:14px;line-height:1.4;white-space:pre-wrap;"
                     "overflow-wrap:anywhere",
                     block.text);
    case Kind::kLink: return link_html(block.text);
    case Kind::kSmall: return element("p", "margin:16px 0 4px;font-size:14px", block.text);
  }
  return {};
}

std::string html_of(const std::vector<Block>& blocks, const std::string& subject,
                    const std::string& language) {
  using Kind = Block::Kind;
  std::string html =
      "<!DOCTYPE html>\n<html lang=\"" + escaped(language) + "\">\n<head>\n" + kHead + "<title>" +
      escaped(subject) + "</title>\n</head>\n" +
      "<body style=\"margin:0;padding:0\">\n"
      "<table role=\"presentation\" width=\"640\" align=\"center\" cellpadding=\"0\" "
      "cellspacing=\"0\" border=\"0\" style=\"width:100%;max-width:640px\"><tr>\n"
      "<td style=\"padding:20px 16px;overflow-wrap:anywhere;" +
      kFont + "\">\n";
  bool in_finding = false;
  for (const Block& block : blocks) {
    const bool belongs = block.kind == Kind::kNote || block.kind == Kind::kCode;
    if (in_finding && !belongs) html += "</div>\n";
    in_finding = block.kind == Kind::kFinding || (in_finding && belongs);
    if (block.kind == Kind::kFinding) {
      html += std::string(
                  "<div style=\"margin:0 0 20px;padding:2px 0 2px 14px;border-left:4px solid ") +
              kUnusedColour + "\">\n";
    }
    html += block_html(block);
  }
  if (in_finding) html += "</div>\n";
  return html + "</td>\n</tr></table>\n</body>\n</html>\n";
}

}  // namespace

MailBody body_of(const Summary& summary, const Texts& texts, const MailLinks& links) {
  const std::vector<Block> blocks = blocks_of(summary, texts, links);
  MailBody body{.subject = subject_of(summary, texts), .text = text_of(blocks), .html = {}};
  body.html = html_of(blocks, body.subject, texts.language());
  return body;
}

}  // namespace scriptorium::mail
