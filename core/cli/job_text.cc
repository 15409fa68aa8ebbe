#include "core/cli/job_text.h"

#include <algorithm>

#include "core/base/text.h"

namespace scriptorium::cli {
namespace {

constexpr std::size_t kNoLimit = 1U << 20;

std::string one_line(std::string_view text) {
  std::string blanks(text);
  std::replace(blanks.begin(), blanks.end(), '\t', ' ');
  return printable(blanks, kNoLimit);
}

}  // namespace

Paint state_paint(const JobRow& job) {
  switch (query::ending_of(job)) {
    case query::Ending::kGood: return Paint::kGood;
    case query::Ending::kStopped: return Paint::kWarning;
    case query::Ending::kBad: return Paint::kBad;
    case query::Ending::kUnknown: break;
  }
  return Paint::kNone;
}

std::string job_line(const JobRow& job) {
  std::string text = printable(job.id);
  for (const std::string& part :
       {shown(job.name), user_text(job), local_time(job.time), state_text(job)}) {
    if (!part.empty()) text += "  " + part;
  }
  return text;
}

std::string hit_line(const Searchable::Line& line, const Console& console) {
  const bool matches = !line.marks.empty();
  const std::string number = std::to_string(line.number);
  std::string text = "    " + std::string(number.size() < 4 ? 4 - number.size() : 0, ' ');
  text += line.part == JobPart::kEnvironment ? "env " + number : number;
  text += matches ? ": " : "- ";
  const std::string_view bytes = line.text;
  std::size_t done = 0;
  for (const auto& [begin, end] : line.marks) {
    if (begin < done || end > bytes.size() || begin > end) continue;
    text += one_line(bytes.substr(done, begin - done));
    const std::string found = one_line(bytes.substr(begin, end - begin));
    text += console.colour ? "\033[1;31m" + found + "\033[0m" : found;
    done = end;
  }
  return text + one_line(bytes.substr(done));
}

}  // namespace scriptorium::cli
