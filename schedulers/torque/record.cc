#include "schedulers/torque/record.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <utility>

#include "core/base/ascii.h"

namespace scriptorium::torque {
namespace {

using namespace std::literals;

// ---- XML

// Deeper than any record: job, attributes, Resource_List, walltime.
constexpr std::size_t kMaxDepth = 8;

bool is_space(char c) noexcept { return c == ' ' || (c >= '\t' && c <= '\r'); }
bool is_name_start(char c) noexcept { return is_letter(c) || c == '_'; }
bool is_name_char(char c) noexcept {
  return is_name_start(c) || is_digit(c) || c == '-' || c == '.';
}

void append_utf8(std::string& text, std::uint32_t code) {
  if (code < 0x80) {
    text += static_cast<char>(code);
  } else if (code < 0x800) {
    text += static_cast<char>(0xC0U | (code >> 6U));
    text += static_cast<char>(0x80U | (code & 0x3FU));
  } else if (code < 0x10000) {
    text += static_cast<char>(0xE0U | (code >> 12U));
    text += static_cast<char>(0x80U | ((code >> 6U) & 0x3FU));
    text += static_cast<char>(0x80U | (code & 0x3FU));
  } else {
    text += static_cast<char>(0xF0U | (code >> 18U));
    text += static_cast<char>(0x80U | ((code >> 12U) & 0x3FU));
    text += static_cast<char>(0x80U | ((code >> 6U) & 0x3FU));
    text += static_cast<char>(0x80U | (code & 0x3FU));
  }
}

// "#233" or "#xE9" to its number; nothing for what is not a character.
std::optional<std::uint32_t> character_reference(std::string_view name) {
  if (!name.starts_with('#')) return std::nullopt;
  name.remove_prefix(1);
  const bool hexadecimal = name.starts_with('x');
  if (hexadecimal) name.remove_prefix(1);
  std::uint32_t code = 0;
  const auto [end, error] =
      std::from_chars(name.data(), name.data() + name.size(), code, hexadecimal ? 16 : 10);
  if (error != std::errc{} || end != name.data() + name.size() || code == 0 || code > 0x10FFFF)
    return std::nullopt;
  if (code >= 0xD800 && code <= 0xDFFF) return std::nullopt;
  return code;
}

// The text between two tags as it was before it was written; what is not a reference stays as it
// is.
std::string decode(std::string_view text) {
  constexpr std::size_t kLongestReference = 10;  // "&#x10FFFF;"
  constexpr std::array<std::pair<std::string_view, char>, 5> kNamed{
      {{"amp"sv, '&'}, {"lt"sv, '<'}, {"gt"sv, '>'}, {"quot"sv, '"'}, {"apos"sv, '\''}}};
  std::string result;
  result.reserve(text.size());
  while (!text.empty()) {
    const std::size_t ampersand = text.find('&');
    result += text.substr(0, ampersand);
    if (ampersand == std::string_view::npos) return result;
    text.remove_prefix(ampersand);
    const std::size_t end = text.substr(0, kLongestReference).find(';');
    const std::string_view name =
        end == std::string_view::npos ? std::string_view{} : text.substr(1, end - 1);
    const auto* const named =
        std::find_if(kNamed.begin(), kNamed.end(), [&](const auto& n) { return n.first == name; });
    if (named != kNamed.end()) {
      result += named->second;
    } else if (const auto code = character_reference(name)) {
      append_utf8(result, *code);
    } else {
      result += '&';
      text.remove_prefix(1);
      continue;
    }
    text.remove_prefix(end + 1);
  }
  return result;
}

class XmlReader {
 public:
  explicit XmlReader(std::string_view text) : text_(text) { record_.format = Record::Format::kXml; }

  std::optional<Record> read() {
    skip_blanks();
    if (text_.substr(at_).starts_with("<?xml")) {
      const std::size_t end = text_.find("?>", at_);
      if (end == std::string_view::npos) return std::nullopt;
      at_ = end + 2;
    }
    skip_blanks();
    while (at_ < text_.size() && !whole_) {
      const std::size_t tag = text_.find('<', at_);
      if (tag == std::string_view::npos) break;
      at_ = tag + 1;
      if (!read_tag()) return std::nullopt;
    }
    if (!whole_) return std::nullopt;
    skip_blanks();
    if (at_ != text_.size()) record_.regular = false;
    return std::move(record_);
  }

 private:
  struct Open {
    std::string_view name;
    std::size_t content = 0;  // where it begins
    bool has_children = false;
  };

  void skip_blanks() noexcept {
    while (at_ < text_.size() && is_space(text_[at_])) ++at_;
  }

  std::string_view take_name() noexcept {
    const std::size_t begin = at_;
    if (at_ < text_.size() && is_letter(text_[at_])) {
      while (at_ < text_.size() && is_name_char(text_[at_])) ++at_;
    }
    return text_.substr(begin, at_ - begin);
  }

  // Behind a '<'. False if the text cannot be a record any more.
  bool read_tag() {
    if (text_.substr(at_).starts_with('/')) {
      const std::size_t content_end = at_ - 1;
      ++at_;
      const std::string_view name = take_name();
      skip_blanks();
      if (at_ >= text_.size()) return false;
      if (text_[at_] != '>') {
        record_.regular = false;
        return true;
      }
      ++at_;
      return close(name, content_end);
    }
    const std::string_view name = take_name();
    if (name.empty()) {  // a comment, a document type, a '<' that was not escaped: pbs_server
                         // writes none of them
      record_.regular = false;
      return true;
    }
    bool empty = false;
    if (!skip_flags(empty)) return false;
    if (open_.empty() && (name != "job" || empty)) return false;
    if (!open_.empty()) open_.back().has_children = true;
    if (empty) return true;
    if (open_.size() == kMaxDepth) return false;
    open_.push_back({name, at_});
    return true;
  }

  // ` flags="1"` and the tag's end.
  bool skip_flags(bool& empty) {
    char quote = '\0';
    while (at_ < text_.size()) {
      const char c = text_[at_++];
      if (quote != '\0') {
        if (c == quote) quote = '\0';
      } else if (c == '"' || c == '\'') {
        quote = c;
      } else if (c == '>') {
        empty = text_[at_ - 2] == '/';
        return true;
      } else if (c == '<') {
        record_.regular = false;
      }
    }
    return false;
  }

  bool close(std::string_view name, std::size_t content_end) {
    if (open_.empty()) return false;
    if (open_.back().name != name) {
      record_.regular = false;
      // One that is open further out ends all within; another one is not a tag of ours.
      const auto same =
          std::find_if(open_.rbegin(), open_.rend(), [&](const Open& o) { return o.name == name; });
      if (same == open_.rend()) return true;
      open_.erase(same.base(), open_.end());
      open_.back().has_children = true;
    }
    if (!open_.back().has_children)
      keep(text_.substr(open_.back().content, content_end - open_.back().content));
    open_.pop_back();
    whole_ = open_.empty();
    return true;
  }

  void keep(std::string_view content) {
    const std::string_view name = open_.back().name;
    if (open_.size() == 2) {
      std::string* const header = name == "jobid"
                                      ? &record_.job_id
                                      : (name == "fileprefix" ? &record_.file_prefix : nullptr);
      if (header == nullptr) return;
      if (!header->empty()) record_.regular = false;
      *header = decode(content);
    } else if (open_.size() >= 3 && open_[1].name == "attributes") {
      const bool nested = open_.size() == 4;
      if (open_.size() > 4) return;
      record_.attributes.push_back({std::string(open_[2].name),
                                    nested ? std::string(name) : std::string(), decode(content)});
    }
  }

  const std::string_view text_;
  std::size_t at_ = 0;
  std::vector<Open> open_;
  bool whole_ = false;
  Record record_;
};

// ---- binary

// A dump on LP64, little endian: the fixed part, then for each attribute a header of 88 bytes (its
// first 64 are pointers), the name, the resource and the value, each with its NUL. The fixed part's
// size is not the same in all versions, so the first attribute is found by its name, which always
// is Job_Name.
constexpr std::size_t kHeader = 88;
constexpr std::size_t kSizes = 64;  // where in a header the lengths are
constexpr std::int32_t kEnd = -711;
constexpr std::size_t kJobId = 40;
constexpr std::size_t kFixed = 2240;  // of 4.2, the only one whose other offsets are known
constexpr std::size_t kFilePrefix = 1087;
constexpr std::size_t kMaxFilePrefix = 62;

std::int32_t int_at(std::string_view bytes, std::size_t at) noexcept {
  std::uint32_t value = 0;
  for (std::size_t i = 4; i > 0; --i)
    value = value << 8U | static_cast<std::uint8_t>(bytes[at + i - 1]);
  return static_cast<std::int32_t>(value);
}

std::string_view text_at(std::string_view bytes, std::size_t at, std::size_t most) noexcept {
  const std::string_view field = bytes.substr(std::min(at, bytes.size()), most);
  return field.substr(0, field.find('\0'));
}

// The attribute at `at`, which moves behind it. Nothing if its lengths do not fit.
std::optional<Attribute> take_attribute(std::string_view bytes, std::size_t& at) {
  if (bytes.size() - at < kHeader) return std::nullopt;
  const std::int32_t whole = int_at(bytes, at + kSizes);
  std::array<std::size_t, 3> lengths{};
  std::size_t sum = kHeader;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    const std::int32_t length = int_at(bytes, at + kSizes + 4 * (i + 1));
    if (length < 0) return std::nullopt;
    lengths[i] = static_cast<std::size_t>(length);
    sum += lengths[i];
  }
  if (whole < 0 || static_cast<std::size_t>(whole) != sum || sum > bytes.size() - at ||
      lengths[0] < 2)
    return std::nullopt;
  std::array<std::string, 3> texts;
  std::size_t from = at + kHeader;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    std::string_view text = bytes.substr(from, lengths[i]);
    while (text.ends_with('\0')) text.remove_suffix(1);  // lists end with two
    texts[i] = text;
    from += lengths[i];
  }
  at += sum;
  return Attribute{std::move(texts[0]), std::move(texts[1]), std::move(texts[2])};
}

bool is_end(std::string_view bytes, std::size_t at) noexcept {
  return bytes.size() >= at && bytes.size() - at >= kSizes + 4 &&
         int_at(bytes, at + kSizes) == kEnd;
}

std::optional<Record> read_binary(std::string_view bytes) {
  const std::size_t name = bytes.find("Job_Name\0"sv, kHeader + kJobId);
  if (name == std::string_view::npos) return std::nullopt;
  const std::size_t fixed = name - kHeader;
  Record record;
  record.format = Record::Format::kBinary;
  record.job_id = text_at(bytes, kJobId, std::min(kMaxJobId, fixed - kJobId));
  if (fixed == kFixed) record.file_prefix = text_at(bytes, kFilePrefix, kMaxFilePrefix);
  std::size_t at = fixed;
  while (!is_end(bytes, at)) {
    auto attribute = take_attribute(bytes, at);
    if (!attribute) return std::nullopt;
    record.attributes.push_back(*std::move(attribute));
  }
  return record;
}

bool is_variable_name(std::string_view text) noexcept {
  // bash passes its functions as BASH_FUNC_name%% or BASH_FUNC_name().
  return !text.empty() && is_name_start(text.front()) &&
         std::all_of(text.begin(), text.end(), [](char c) {
           return is_name_start(c) || is_digit(c) || c == '%' || c == '(' || c == ')' || c == '.' ||
                  c == '-' || c == ':';
         });
}

// True if a new "NAME=" begins here.
bool begins_variable(std::string_view rest) noexcept {
  constexpr std::size_t kLongestName = 256;
  const std::size_t equals = rest.substr(0, kLongestName).find('=');
  return equals != std::string_view::npos && is_variable_name(rest.substr(0, equals));
}

}  // namespace

const std::string* Record::find(std::string_view name, std::string_view resource) const noexcept {
  for (const Attribute& a : attributes) {
    if (a.name == name && a.resource == resource) return &a.value;
  }
  return nullptr;
}

std::size_t Record::count(std::string_view name) const noexcept {
  return static_cast<std::size_t>(std::count_if(
      attributes.begin(), attributes.end(), [&](const Attribute& a) { return a.name == name; }));
}

std::optional<Record> read_record(std::string_view bytes) {
  constexpr std::size_t kSmallest = 4;
  if (bytes.size() < kSmallest) return std::nullopt;
  // PBS_JOB_VERSION 0x000203NN, little endian.
  if (static_cast<std::uint8_t>(bytes[3]) == 0 && bytes[2] == 2 && bytes[1] == 3)
    return read_binary(bytes);
  return XmlReader(bytes).read();
}

std::string guess_environment(std::string_view variable_list, Record::Format format) {
  const char separator = format == Record::Format::kXml ? ',' : '\n';
  std::string result;
  result.reserve(variable_list.size() + 1);
  if (format == Record::Format::kBinary && variable_list.ends_with('\n'))
    variable_list.remove_suffix(1);
  while (!variable_list.empty()) {
    std::size_t end = variable_list.find(separator);
    while (end != std::string_view::npos && !begins_variable(variable_list.substr(end + 1))) {
      end = variable_list.find(separator, end + 1);
    }
    std::string_view variable = variable_list.substr(0, end);
    variable_list.remove_prefix(end == std::string_view::npos ? variable_list.size() : end + 1);
    // No byte of the list is NUL in a regular record; one that is would make two strings of one.
    result += variable.substr(0, variable.find('\0'));
    result += '\0';
  }
  return result;
}

}  // namespace scriptorium::torque
