#include "core/query/field_value.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "core/base/ascii.h"
#include "core/base/number.h"
#include "core/base/text.h"

namespace scriptorium::query {
namespace {

using Number = std::optional<std::int64_t>;
constexpr std::int64_t kLeast = std::numeric_limits<std::int64_t>::min();
constexpr std::int64_t kGreatest = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kEarliest = -2'208'988'800 * kSecond;   // 1900, as read_time()
constexpr std::int64_t kLatest = 9'214'646'400 * kSecond - 1;  // the end of 2261

std::string shown(std::string_view value) { return "\"" + printable(value, 40) + "\""; }

Query field_node(QueryField field, std::string text) {
  Query query;
  query.kind = Query::Kind::kField;
  query.field = field;
  query.text = std::move(text);
  return query;
}

Query range_node(QueryField field, Number from, Number to, bool percent = false) {
  Query query;
  query.kind = Query::Kind::kRange;
  query.field = field;
  query.from = from;
  query.to = to;
  query.percent = percent;
  return query;
}

// ---- ranges

// What one bound means: a number, or a period of time.
struct Bound {
  Period period;
  bool percent = false;
};

bool is_time(QueryField field) noexcept {
  return field == QueryField::kSubmitted || field == QueryField::kStarted ||
         field == QueryField::kEnded;
}

std::optional<Bound> read_bound(QueryField field, std::string_view text, const Moment& moment) {
  if (is_time(field)) {
    const auto period = read_time(text, moment);
    return period ? std::optional(Bound{.period = *period}) : std::nullopt;
  }
  const bool may_be_percent =
      field == QueryField::kMemory || field == QueryField::kCpu || field == QueryField::kGpu;
  const bool percent = may_be_percent && !text.empty() && text.back() == '%';
  Number number;
  if (percent) {
    number = read_percent(text);
  } else if (field == QueryField::kMemory || field == QueryField::kRequestedMemory) {
    number = read_size(text);
  } else if (field == QueryField::kElapsed || field == QueryField::kRequestedTime) {
    number = read_duration(text);
  } else {
    number = read_count(text);
  }
  if (!number) return std::nullopt;
  return Bound{.period = {.from = *number, .to = *number}, .percent = percent};
}

std::string allowed(QueryField field) {
  switch (field) {
    case QueryField::kMemory: return "a size such as 64G, 512M or 80%, >64G, or 1G..4G";
    case QueryField::kRequestedMemory: return "a size such as 64G or 512M, >64G, or 1G..4G";
    case QueryField::kRequestedCpu:
    case QueryField::kRequestedGpu: return "a number such as 4, >4, or 4..16";
    case QueryField::kRequestedTime:
    case QueryField::kElapsed:
      return "a duration such as 90s, 10m, 2h or 1-00:00:00, >2h, or 1h..2h";
    case QueryField::kCpu:
    case QueryField::kGpu:
      return "a number such as 4, or 30% of what was requested, >4, <30%, or 4..16";
    case QueryField::kExit: return "an exit code such as 0, >0, 1..127, or signal:9";
    default:
      return "a time such as 2026-11-14, 2026-11, 2026-11-14T08:00, today, yesterday or 7d, or "
             "2026-10..2026-11";
  }
}

ValueError bad_value(QueryField field, std::string_view value) {
  return {"cannot read " + shown(value), "allowed: " + allowed(field)};
}

ValueResult compared(QueryField field, std::string_view sign, std::string_view value,
                     const Moment& moment) {
  const auto bound = read_bound(field, value, moment);
  if (!bound) return bad_value(field, value);
  if (bound->period.age) {
    return ValueError{
        "it is not clear on which side of an age " + shown(sign) + " is",
        "write " + std::string(value) + ".. for later, .." + std::string(value) + " for earlier"};
  }
  const Period& period = bound->period;
  const std::int64_t least = is_time(field) ? kEarliest : kLeast;
  const std::int64_t greatest = is_time(field) ? kLatest : kGreatest;
  if (sign == ">=") return range_node(field, period.from, std::nullopt, bound->percent);
  if (sign == "<=") return range_node(field, std::nullopt, period.to, bound->percent);
  if (sign == ">") {
    const std::int64_t from = period.to < greatest ? period.to + 1 : greatest;
    return range_node(field, from, std::nullopt, bound->percent);
  }
  const std::int64_t to = period.from > least ? period.from - 1 : least;
  return range_node(field, std::nullopt, to, bound->percent);
}

ValueResult between(QueryField field, std::string_view low, std::string_view high,
                    std::string_view value, const Moment& moment) {
  Number from;
  Number to;
  bool percent = false;
  if (!low.empty()) {
    const auto bound = read_bound(field, low, moment);
    if (!bound) return bad_value(field, low);
    from = bound->period.from;
    percent = bound->percent;
  }
  if (!high.empty()) {
    const auto bound = read_bound(field, high, moment);
    if (!bound) return bad_value(field, high);
    if (from && percent != bound->percent)
      return ValueError{"one end of " + shown(value) + " is percent, the other is not",
                        "allowed: " + allowed(field)};
    to = bound->period.to;
    percent = bound->percent;
  }
  if (!from && !to) return bad_value(field, value);
  if (from && to && *from > *to) {
    return ValueError{
        shown(value) + " ends before it begins",
        "write the " + std::string(is_time(field) ? "earlier" : "smaller") + " end first"};
  }
  return range_node(field, from, to, percent);
}

ValueResult range_value(QueryField field, std::string_view value, const Moment& moment) {
  if (value == "*") return range_node(field, std::nullopt, std::nullopt);
  for (const std::string_view sign : {">=", "<=", ">", "<"}) {
    if (value.starts_with(sign))
      return compared(field, sign, trim(value.substr(sign.size())), moment);
  }
  if (value.starts_with("=")) value.remove_prefix(1);
  if (const std::size_t dots = value.find(".."); dots != std::string_view::npos)
    return between(field, value.substr(0, dots), value.substr(dots + 2), value, moment);
  const auto bound = read_bound(field, value, moment);
  if (!bound) return bad_value(field, value);
  // "ended:7d" is the last seven days.
  if (bound->period.age) return range_node(field, bound->period.from, std::nullopt);
  return range_node(field, bound->period.from, bound->period.to, bound->percent);
}

// "signal:9", and "0:9" as Slurm writes both.
ValueResult exit_value(std::string_view value, const Moment& moment) {
  const std::size_t colon = value.find(':');
  if (colon == std::string_view::npos) return range_value(QueryField::kExit, value, moment);
  const std::string_view before = value.substr(0, colon);
  const std::string_view signal = value.substr(colon + 1);
  if (!is_all_digits(signal) || signal.size() > 4) return bad_value(QueryField::kExit, value);
  Query by_signal = field_node(QueryField::kExit, "signal:" + std::string(signal));
  if (to_lower(before) == "signal") return by_signal;
  const Number code = read_count(before);
  if (!code) return bad_value(QueryField::kExit, value);
  Query by_code = range_node(QueryField::kExit, code, code);
  if (signal == "0") return by_code;
  Query both;
  both.kind = Query::Kind::kAnd;
  both.children.push_back(std::move(by_code));
  both.children.push_back(std::move(by_signal));
  return both;
}

// ---- words

std::optional<std::string> truth_of(std::string_view value) {
  const std::string word = to_lower(value);
  if (word == "true" || word == "yes" || word == "1") return "true";
  if (word == "false" || word == "no" || word == "0") return "false";
  return std::nullopt;
}

ValueResult digest_value(std::string_view value) {
  std::string digits = to_lower(value);
  const bool hexadecimal = digits.find_first_not_of("0123456789abcdef") == std::string::npos;
  if (digits != "*" && (!hexadecimal || digits.size() < 4 || digits.size() > 64)) {
    return ValueError{"cannot read " + shown(value),
                      "allowed: the sha256 of a script, or its first digits (at least 4); text is "
                      "searched without a field"};
  }
  return field_node(QueryField::kScript, std::move(digits));
}

ValueResult word_value(QueryField field, std::string_view value, bool in_quotes) {
  if (!in_quotes && (value.starts_with('<') || value.starts_with('>'))) {
    return ValueError{"this field has no order to compare by",
                      "mem, cpu, gpu, elapsed, exit, submitted and ended have one; quotes make it "
                      "text: " +
                          shown(value)};
  }
  switch (field) {
    case QueryField::kArray:
      if (const auto truth = truth_of(value); truth && value.size() > 1)
        return field_node(field, *truth);
      break;
    case QueryField::kComplete:
    case QueryField::kSecret:
    case QueryField::kVerified: {
      const auto truth = truth_of(value);
      if (!truth) return ValueError{"cannot read " + shown(value), "allowed: true or false"};
      return field_node(field, *truth);
    }
    case QueryField::kFinding: return field_node(field, to_lower(value));
    case QueryField::kFamily:
      if (value != "*" && !parse_number<std::uint64_t>(value))
        return ValueError{"cannot read " + shown(value), "allowed: the number of a family"};
      break;
    default: break;
  }
  return field_node(field, std::string(value));
}

}  // namespace

ValueResult field_value(QueryField field, std::string_view value, const Moment& moment,
                        bool in_quotes) {
  if (value.empty())
    return ValueError{"an empty value",
                      "to find jobs without one: -" + std::string(query_field_name(field)) + ":*"};
  if (field == QueryField::kExit) return exit_value(value, moment);
  if (is_range_field(field)) return range_value(field, value, moment);
  if (field == QueryField::kScript) return digest_value(value);
  return word_value(field, value, in_quotes);
}

std::optional<MomentWord> moment_word_of(std::string_view word) noexcept {
  if (word == "since") return MomentWord::kSince;
  if (word == "after") return MomentWord::kAfter;
  if (word == "before") return MomentWord::kBefore;
  if (word == "until") return MomentWord::kUntil;
  return std::nullopt;
}

ValueResult moment_value(MomentWord word, std::string_view value, const Moment& moment) {
  constexpr QueryField kField = QueryField::kSubmitted;
  const auto period = read_time(value, moment);
  if (!period) {
    return ValueError{"cannot read " + shown(value),
                      "allowed: one time such as 2026-11-14, 2026-11, 2026-11-14T08:00, today, "
                      "yesterday or 7d"};
  }
  switch (word) {
    case MomentWord::kSince:
    case MomentWord::kAfter: return range_node(kField, period->from, std::nullopt);
    case MomentWord::kBefore:
      return range_node(kField, std::nullopt,
                        period->from > kEarliest ? period->from - 1 : kEarliest);
    case MomentWord::kUntil: break;
  }
  return range_node(kField, std::nullopt, period->to);
}

}  // namespace scriptorium::query
