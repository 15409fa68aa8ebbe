#include "backends/file/layout.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "core/api/kit/text_template.h"
#include "core/base/ascii.h"
#include "core/base/number.h"
#include "core/base/sha256.h"
#include "core/base/text.h"
#include "core/base/time.h"

namespace scriptorium::file {
namespace {

constexpr std::size_t kMaxTemplateBytes = 1024;
constexpr std::size_t kMaxComponents = 16;
constexpr std::size_t kMaxLiteralBytes = 64;
constexpr std::size_t kHashDigits = 8;
constexpr std::string_view kNone = "_none";

struct Range {
  std::uint32_t first;
  std::uint32_t last;
};
// Code points above ASCII that a person cannot see, that reorder the text around them, or that mean
// nothing outside one program. Letters and marks of every script stay.
constexpr Range kInvisible[] = {
    {0x80, 0xa0},       {0xad, 0xad},       {0x34f, 0x34f},     {0x61c, 0x61c},
    {0x115f, 0x1160},   {0x1680, 0x1680},   {0x17b4, 0x17b5},   {0x180b, 0x180f},
    {0x2000, 0x200f},   {0x2028, 0x202f},   {0x205f, 0x206f},   {0x2800, 0x2800},
    {0x3000, 0x3000},   {0x3164, 0x3164},   {0xd800, 0xf8ff},   {0xfdd0, 0xfdef},
    {0xfe00, 0xfe0f},   {0xfeff, 0xfeff},   {0xffa0, 0xffa0},   {0xfff0, 0xffff},
    {0x1bca0, 0x1bca3}, {0x1d173, 0x1d17a}, {0x1fffe, 0x1ffff}, {0x2fffe, 0x2ffff},
    {0x3fffe, 0x10ffff}};

bool visible(std::uint32_t code) {
  return std::ranges::none_of(kInvisible,
                              [&](const Range& r) { return code >= r.first && code <= r.last; });
}

// Length of the well-formed UTF-8 sequence of two to four bytes at the front, and its code point; 0
// if there is none.
std::pair<std::size_t, std::uint32_t> sequence(std::string_view bytes) {
  const auto lead = static_cast<unsigned char>(bytes[0]);
  const std::size_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : lead >= 0xc2 ? 2 : 0;
  if (length == 0 || bytes.size() < length || !is_utf8(bytes.substr(0, length))) return {0, 0};
  std::uint32_t code = lead & (0xffU >> (length + 1));
  for (std::size_t i = 1; i < length; ++i)
    code = code << 6U | (static_cast<unsigned char>(bytes[i]) & 0x3fU);
  return {length, code};
}

bool plain(char c) { return is_alphanumeric(c) || c == '.' || c == '_' || c == '-'; }

std::string percent(char c) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  const auto byte = static_cast<unsigned char>(c);
  return {'%', kDigits[byte >> 4U], kDigits[byte & 15U]};
}

// Where a text may be cut at most at `limit`: not within a character nor within a %XX.
std::size_t cut_position(std::string_view text, std::size_t limit) {
  std::size_t at = limit;
  while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xc0U) == 0x80U) --at;
  for (std::size_t back = 1; back <= 2 && back <= at; ++back) {
    if (text[at - back] == '%') return at - back;
  }
  return at;
}

std::string cut(std::string text, std::size_t limit, std::string_view hashed) {
  if (text.size() <= limit) return text;
  text.resize(cut_position(text, limit - kHashDigits - 1));
  return text + '~' + sha256_hex(hashed).substr(0, kHashDigits);
}

std::string glob_literal(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c == '*' || c == '?' || c == '[' || c == ']' || c == '\\') result += '\\';
    result += c;
  }
  return result;
}

// The folder's owner: a confirmed user's name, or the uid while no name service knows a name for
// it. "" = no owner.
std::string folder_owner(const Event& event) {
  if (!event.user.verified) return {};
  if (event.user.name && !event.user.name->empty()) {
    std::string user = safe_value(*event.user.name);
    // A person of such a name must not get into the folder of all unverified jobs, or of another's
    // number.
    const bool reserved = user == kUnverified || (user.starts_with(kUidPrefix) &&
                                                  is_all_digits(user.substr(kUidPrefix.size())));
    if (reserved) user.replace(0, 1, percent(user[0]));
    return user;
  }
  if (event.user.id && is_all_digits(*event.user.id))
    return std::string(kUidPrefix) + safe_value(*event.user.id);
  return {};
}

Error wrong(std::string message) { return Error{ErrorKind::kInvalidConfig, std::move(message)}; }

struct Preset {
  std::string_view name;
  std::string_view text;
  std::array<const char*, 3> words;
  bool script_only;
};
constexpr Preset kPresets[] = {
    {"user-month", "{user}/{year}/{month}/{job_id}-{job_name}.{ext}", {"sh", "env", "json"}, false},
    // SArchive's file archive with --period daily; its own tools and its users' scripts look for
    // these names.
    {"sarchive-daily",
     "{year}{month}{day}/job.{job_id}_{ext}",
     {"script", "environment", "metadata.json"},
     false},
    // What Open XDMoD's job script ingestion reads.
    {"xdmod", "{year}{month}{day}/{job_id}.{ext}", {"savescript", "env", "json"}, true},
};

}  // namespace

const char* to_string(FileKind kind) noexcept {
  switch (kind) {
    case FileKind::kScript: return "script";
    case FileKind::kEnvironment: return "environment";
    case FileKind::kMetadata: return "metadata";
  }
  return "unknown";
}

std::string safe_value(std::string_view value) {
  if (value.empty()) return std::string(kNone);
  std::string result;
  // What lies beyond cannot show in a name that is cut anyway.
  const std::string_view shown = value.substr(0, kMaxValueBytes * 4);
  for (std::size_t i = 0; i < shown.size();) {
    const char c = shown[i];
    if (plain(c) && (i != 0 || (c != '.' && c != '-'))) {
      result += c;
    } else if (c == ' ' || c == '\t') {
      result += '_';
    } else if (const auto [length, code] = sequence(shown.substr(i));
               length != 0 && visible(code)) {
      result.append(shown, i, length);
      i += length;
      continue;
    } else {
      result += percent(c);
    }
    ++i;
  }
  if (shown.size() < value.size()) result.resize(std::max(result.size(), kMaxValueBytes + 1), '_');
  return cut(std::move(result), kMaxValueBytes, value);
}

std::string record_word(const Event& event) {
  if (event.kind == "usage.job") return "usage.json";
  std::string word = event.kind;
  std::replace(word.begin(), word.end(), '.', '-');
  const bool is_one_of_many = event.kind == "usage.sample" || event.kind == "job.checkpoint";
  if (event.kind == "usage.node" || is_one_of_many) word += '-' + safe_value(event.host);
  if (is_one_of_many) {
    std::string time = format_rfc3339(event.time, TimePrecision::kMilliseconds);
    std::erase_if(time, [](char c) { return c == '-' || c == ':'; });
    word += '-' + time;
  }
  return safe_value(word) + ".json";
}

std::string Place::directory() const {
  std::string result;
  for (const std::string& d : directories) {
    if (!result.empty()) result += '/';
    result += d;
  }
  return result;
}

std::string Place::name(FileKind kind, unsigned slot) const {
  const std::string& ending = endings[static_cast<std::size_t>(kind)];
  if (slot <= 1) return stem + ending;
  // "{ext}" may be the whole name; a name must not begin with a dot.
  return stem.empty() ? std::to_string(slot) + '.' + ending
                      : stem + '.' + std::to_string(slot) + ending;
}

struct Layout::Values {
  std::string cluster, scheduler, user, account, job_id, job_name, array_job_id;
  CivilDate date;
};

namespace {

std::optional<std::string> problem_of_text(std::string_view text) {
  if (text.empty()) return "the layout is empty";
  if (text.find('{') == std::string_view::npos) {
    std::vector<std::string> names;
    for (const Preset& p : kPresets) names.emplace_back(p.name);
    std::string message = "neither a preset nor a template with fields such as {job_id}";
    if (const auto near = did_you_mean(text, names)) message += "; did you mean \"" + *near + "\"?";
    return message;
  }
  if (text.size() > kMaxTemplateBytes) return "the layout is longer than 1024 bytes";
  if (!is_utf8(text)) return "the layout is not UTF-8";
  if (text.front() == '/') return "the layout begins with '/': it is relative to root";
  if (std::ranges::any_of(text, [](char c) { return (c >= 0 && c < 0x20) || c == 0x7f; }))
    return "the layout holds a control character";
  return std::nullopt;
}

// By Layout::Field, without kLiteral.
constexpr std::array<std::string_view, 11> kFieldNames = {
    "cluster", "scheduler", "user",     "account",      "year", "month",
    "day",     "job_id",    "job_name", "array_job_id", "ext"};

std::optional<std::string> problem_of_fields(const TextTemplate& layout) {
  if (layout.count("ext") > 1) return "{ext} appears twice in the layout";
  if (!layout.uses("job_id"))
    return "the layout needs {job_id}, or different jobs would get the same path";
  return std::nullopt;
}

}  // namespace

std::vector<Layout::Component> Layout::components_of(const TextTemplate& layout) {
  std::vector<Component> components(1);
  for (const TextTemplate::Part& part : layout.parts()) {
    if (part.is_field()) {
      const auto place = std::ranges::find(kFieldNames, part.field) - kFieldNames.begin();
      components.back().push_back({static_cast<Field>(place + 1), {}});
      continue;
    }
    std::string_view rest = part.text;
    for (bool first = true; first || !rest.empty(); first = false) {
      const std::string_view literal = rest.substr(0, rest.find('/'));
      rest.remove_prefix(literal.size());
      if (!literal.empty()) components.back().push_back({Field::kLiteral, std::string(literal)});
      if (rest.empty()) break;
      rest.remove_prefix(1);
      components.emplace_back();
    }
  }
  return components;
}

std::optional<std::string> Layout::problem_of(const std::vector<Component>& components) {
  if (components.size() > kMaxComponents) return "the layout has more than 16 parts";
  for (const Component& component : components) {
    if (component.empty()) return "a part between two '/' is empty";
    const Part& first = component.front();
    if (first.field == Field::kLiteral && (first.literal[0] == '.' || first.literal[0] == '-'))
      return "a part begins with '.' or '-'";
    for (const Part& p : component) {
      if (p.literal.size() > kMaxLiteralBytes) return "a fixed text is longer than 64 bytes";
    }
    if (&component != &components.back() &&
        std::ranges::count(component, Field::kExt, &Part::field))
      return "{ext} is allowed in the last part only";
  }
  const Component& last = components.back();
  const auto ext = std::ranges::find(last, Field::kExt, &Part::field);
  if (ext != last.end() &&
      std::any_of(ext + 1, last.end(), [](const Part& p) { return p.field != Field::kLiteral; }))
    return "after {ext} only fixed text may follow";
  return std::nullopt;
}

void Layout::take_ending(Component last) {
  const auto ext = std::ranges::find(last, Field::kExt, &Part::field);
  has_ext_ = ext != last.end();
  if (has_ext_) {
    for (auto p = ext + 1; p != last.end(); ++p) after_ext_ += p->literal;
    last.erase(ext, last.end());
  }
  if (!last.empty() && last.back().field == Field::kLiteral) {
    std::string& literal = last.back().literal;
    if (const char c = literal.back(); has_ext_ && (c == '.' || c == '_' || c == '-')) {
      // The character that sets the ending off goes with it: "4711.2.sh", "job.4711.2_script".
      before_ext_ = c;
      literal.pop_back();
    } else if (const auto dot = literal.rfind('.'); !has_ext_ && dot != std::string::npos) {
      after_ext_ = literal.substr(dot);
      literal.resize(dot);
    }
    if (literal.empty()) last.pop_back();
  }
  stem_ = std::move(last);
}

Result<Layout> Layout::parse(std::string_view text) {
  Layout layout;
  if (const auto preset = std::ranges::find(kPresets, text, &Preset::name);
      preset != std::end(kPresets)) {
    text = preset->text;
    std::ranges::copy(preset->words, layout.words_.begin());
    if (preset->script_only) layout.preset_files_ = std::vector<FileKind>{FileKind::kScript};
  }
  if (const auto problem = problem_of_text(text)) return wrong(*problem);
  const auto parsed = TextTemplate::parse(text, kFieldNames);
  if (!parsed) return parsed.error();
  if (const auto problem = problem_of_fields(*parsed)) return wrong(*problem);
  std::vector<Component> components = components_of(*parsed);
  if (const auto problem = problem_of(components)) return wrong(*problem);
  layout.take_ending(std::move(components.back()));
  components.pop_back();
  layout.directories_ = std::move(components);
  return layout;
}

std::array<std::string, 3> Layout::endings() const {
  std::array<std::string, 3> result;
  for (std::size_t i = 0; i < result.size(); ++i)
    result[i] = has_ext_ ? before_ext_ + words_[i] + after_ext_ : after_ext_;
  return result;
}

std::string Layout::render(const Component& component, const Values& values) {
  std::string result;
  for (const Part& p : component) {
    switch (p.field) {
      case Field::kLiteral: result += p.literal; break;
      case Field::kCluster: result += values.cluster; break;
      case Field::kScheduler: result += values.scheduler; break;
      case Field::kUser: result += values.user; break;
      case Field::kAccount: result += values.account; break;
      case Field::kYear: result += values.date.year; break;
      case Field::kMonth: result += values.date.month; break;
      case Field::kDay: result += values.date.day; break;
      case Field::kJobId: result += values.job_id; break;
      case Field::kJobName: result += values.job_name; break;
      case Field::kArrayJobId: result += values.array_job_id; break;
      case Field::kExt: break;  // in the ending
    }
  }
  return result;
}

Layout::Values Layout::values_of(const Event& event) {
  Values values;
  values.cluster = safe_value(event.cluster);
  values.scheduler = safe_value(event.scheduler);
  values.user = folder_owner(event);
  if (values.user.empty()) values.user = kUnverified;
  values.account = safe_value(event.job.account.value_or(std::string{}));
  values.job_id = safe_value(event.job.id);
  values.job_name = safe_value(event.job.name.value_or(std::string{}));
  values.array_job_id = event.job.array ? safe_value(event.job.array->job_id) : values.job_id;
  values.date = civil_date(event.time);
  values.date.year = safe_value(values.date.year);
  return values;
}

Place Layout::place(const Event& event) const {
  const Values values = values_of(event);
  const bool has_owner = !folder_owner(event).empty();
  Place place;
  place.owned_from = directories_.size();
  for (std::size_t i = 0; i < directories_.size(); ++i) {
    std::string text = render(directories_[i], values);
    const std::string whole = text;
    place.directories.push_back(cut(std::move(text), kMaxComponentBytes, whole));
    const bool of_user =
        std::ranges::any_of(directories_[i], [](const Part& p) { return p.field == Field::kUser; });
    if (of_user && has_owner) place.owned_from = std::min(place.owned_from, i);
  }
  place.endings = endings();
  if (event.kind != "job.script") {
    place.endings[static_cast<std::size_t>(FileKind::kMetadata)] =
        before_record() + record_word(event) + after_record();
  }
  std::size_t longest = 0;
  for (const std::string& e : place.endings) longest = std::max(longest, e.size());
  constexpr std::size_t kSlotBytes = 7;  // ".10000" and one to spare
  place.stem = render(stem_, values);
  const std::string whole = place.stem;
  place.stem = cut(std::move(place.stem), kMaxComponentBytes - longest - kSlotBytes, whole);
  return place;
}

bool Layout::begins_with_user() const noexcept {
  return !directories_.empty() && std::ranges::any_of(directories_.front(), [](const Part& p) {
    return p.field == Field::kUser;
  });
}

// As safe_value() and cut names leave it.
bool Layout::may_contain(const Component& component, char c) {
  return plain(c) || c == '%' || c == '~' || static_cast<unsigned char>(c) >= 0x80 ||
         std::ranges::any_of(component, [c](const Part& part) {
           return part.literal.find(c) != std::string::npos;
         });
}

bool Layout::read_directory(std::size_t depth, std::string_view name, DirectoryFacts& facts) const {
  if (name.size() > kMaxComponentBytes / 2) return true;  // it may have been cut
  const Component& component = directories_.at(depth);
  if (!std::ranges::all_of(name, [&](char c) { return may_contain(component, c); })) return false;
  const auto fixed_size = [](const Part& part) -> std::optional<std::size_t> {
    switch (part.field) {
      case Field::kLiteral: return part.literal.size();
      case Field::kYear: return 4;
      case Field::kMonth:
      case Field::kDay: return 2;
      default: return std::nullopt;
    }
  };
  std::size_t fixed = 0;
  std::size_t open = 0;
  for (const Part& part : component) {
    const auto size = fixed_size(part);
    fixed += size.value_or(0);
    open += size ? 0 : 1;
  }
  if (open > 1) return true;  // where one text ends and the next begins is not known
  if (name.size() < fixed + open) return false;
  const std::size_t rest = name.size() - fixed;
  if (open == 0 && rest > 0) return false;
  for (const Part& part : component) {
    const std::string_view value = name.substr(0, fixed_size(part).value_or(rest));
    name.remove_prefix(value.size());
    if (part.field == Field::kLiteral && value != part.literal) return false;
    if (part.field == Field::kUser) facts.user = std::string(value);
    for (const auto& [field, into] :
         {std::pair{Field::kYear, &facts.year}, std::pair{Field::kMonth, &facts.month},
          std::pair{Field::kDay, &facts.day}}) {
      if (part.field != field) continue;
      *into = is_all_digits(value) ? parse_number<unsigned>(value) : std::nullopt;
      if (!*into) return false;
    }
  }
  return true;
}

Layout::Search Layout::search(std::string_view job_id) const {
  Values values;
  values.job_id = safe_value(job_id);
  return search(values, {Field::kLiteral, Field::kJobId});
}

Layout::Search Layout::search(const Event& event) const {
  return search(values_of(event), {Field::kLiteral, Field::kJobId, Field::kCluster,
                                   Field::kScheduler, Field::kYear, Field::kMonth, Field::kDay});
}

Layout::Search Layout::search(const Values& values, const std::vector<Field>& exact_fields) const {
  const auto pattern = [&](const Component& component) {
    Search::Pattern result;
    std::string exact;
    bool open = false;
    for (const Part& p : component) {
      if (std::ranges::count(exact_fields, p.field) != 0) {
        const std::string text = render({p}, values);
        result.glob += glob_literal(text);
        exact += text;
      } else {
        if (!result.glob.ends_with('*') || result.glob.ends_with("\\*")) result.glob += '*';
        open = true;
      }
    }
    if (!open) result.exact = std::move(exact);
    return result;
  };
  Search result;
  for (const Component& component : directories_) result.directories.push_back(pattern(component));
  result.stem = pattern(stem_).glob;
  result.endings = endings();
  result.record_begins = {before_record() + "usage", before_record() + "job-checkpoint"};
  result.record_end = ".json" + after_record();
  return result;
}

std::optional<Layout::Search::Match> Layout::Search::match(
    std::string_view name, const std::vector<FileKind>& kinds) const {
  // With or without the ".2" of a second event on this path.
  const auto is_body = [&](std::string_view body) {
    // Without a stem the ending is the whole name: "sh", "2.sh".
    if (stem.empty())
      return body.empty() ||
             (body.ends_with('.') && is_all_digits(body.substr(0, body.size() - 1)));
    if (glob_match(stem, body)) return true;
    const auto dot = body.rfind('.');
    return dot != std::string_view::npos && is_all_digits(body.substr(dot + 1)) &&
           glob_match(stem, body.substr(0, dot));
  };
  for (const std::string& begin : record_begins) {
    const auto mark = name.rfind(begin);
    if (mark == std::string_view::npos || !name.ends_with(record_end)) continue;
    const char next = name[std::min(mark + begin.size(), name.size() - 1)];
    if ((next == '.' || next == '-') && is_body(name.substr(0, mark)))
      return Match{FileKind::kMetadata, std::string(name)};
  }
  for (const FileKind kind : kinds) {
    const std::string& ending = endings[static_cast<std::size_t>(kind)];
    if (!name.ends_with(ending)) continue;
    const std::string_view body = name.substr(0, name.size() - ending.size());
    if (is_body(body)) return Match{kind, std::string(body)};
  }
  return std::nullopt;
}

}  // namespace scriptorium::file
