#include "schedulers/torque/parse.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <utility>

#include "core/api/job_script.h"
#include "core/base/ascii.h"
#include "core/base/number.h"
#include "core/base/text.h"
#include "schedulers/torque/record.h"

namespace scriptorium::torque {
namespace {

using namespace std::literals;

constexpr std::string_view kScript = "SC";
constexpr std::string_view kArrayRecord = "TA";
constexpr std::string_view kJobRecord = "JB";
constexpr std::string_view kNewRecord = "JC";
constexpr std::array kRead{kScript, kArrayRecord, kJobRecord};
constexpr std::size_t kMaxFileName = 255;
constexpr std::size_t kMaxAccountName = 256;
constexpr std::size_t kMaxText = 4096;  // of what is only a hint

std::string_view leading_number(std::string_view text) noexcept {
  return text.substr(0, static_cast<std::size_t>(
                            std::find_if_not(text.begin(), text.end(), is_digit) - text.begin()));
}

// "12-7.host": the record of one task of array 12.
bool is_task_stem(std::string_view stem) noexcept {
  stem.remove_prefix(leading_number(stem).size());
  if (!stem.starts_with('-')) return false;
  stem.remove_prefix(1);
  const std::string_view task = leading_number(stem);
  return !task.empty() && (task.size() == stem.size() || stem[task.size()] == '.');
}

bool is_control(char c) noexcept { return static_cast<unsigned char>(c) < 0x20 || c == '\x7f'; }

std::string_view bytes_of(const SpoolFile& file) noexcept {
  return file.bytes ? std::string_view(*file.bytes) : std::string_view();
}

struct FoundRecord {
  const SpoolFile* file = nullptr;
  Record record;
};

// The newest record that can be read. The server saves it several times while a job is taken, each
// time with a little more in it; after a tie, the place that lasts is as good as any.
std::optional<FoundRecord> newest_record(const SpoolEntry& entry) {
  std::optional<FoundRecord> newest;
  for (const std::string_view name : {kArrayRecord, kJobRecord, kNewRecord}) {
    const SpoolFile* file = entry.file(name);
    if (file == nullptr || (newest && file->stat.mtime_ns <= newest->file->stat.mtime_ns)) continue;
    if (auto record = read_record(bytes_of(*file))) newest = FoundRecord{file, *std::move(record)};
  }
  return newest;
}

const SpoolFile* unreadable_record(const SpoolEntry& entry) noexcept {
  for (const std::string_view name : {kNewRecord, kArrayRecord, kJobRecord}) {
    if (const SpoolFile* file = entry.file(name); file != nullptr && !bytes_of(*file).empty())
      return file;
  }
  return nullptr;
}

// qsub -I: an interactive job, which has no script.
bool is_interactive(const Record& record) noexcept {
  const std::string* value = record.find("interactive");
  return value != nullptr && !value->empty() && *value != "0" && *value != "False";
}

std::optional<std::string> text_of(const Record& record, std::string_view name,
                                   std::string_view resource = {}) {
  const std::string* value = record.find(name, resource);
  if (value == nullptr || value->empty() || value->size() > kMaxText) return std::nullopt;
  return *value;
}

std::optional<Timestamp> time_of(const Record& record, std::string_view name) {
  constexpr std::int64_t kLatest = INT64_MAX / kSecond;
  const std::string* value = record.find(name);
  if (value == nullptr) return std::nullopt;
  const auto seconds = parse_number<std::int64_t>(*value);
  if (!seconds || *seconds <= 0 || *seconds >= kLatest) return std::nullopt;
  return Timestamp{*seconds * kSecond};
}

// A name that a user can have on a Unix system: anything else in its place is nobody's.
bool is_account_name(std::string_view name) noexcept {
  return !name.empty() && name.size() <= kMaxAccountName && name != "." && name != ".." &&
         name.front() != '-' && std::none_of(name.begin(), name.end(), [](char c) {
           return is_control(c) || c == ' ' || c == '/' || c == ':' || c == ',' || c == '"' ||
                  c == '\\';
         });
}

// The record names the files it belongs to. What does not fit was put here by hand.
bool belongs_to(const Record& record, std::string_view stem) noexcept {
  if (!record.file_prefix.empty()) return record.file_prefix == stem;
  return leading_number(record.job_id) == leading_number(stem);
}

bool is_job_id(std::string_view id) noexcept {
  return !id.empty() && is_digit(id.front()) && id.size() <= kMaxJobId &&
         std::none_of(id.begin(), id.end(), is_control);
}

void read_array(const Record& record, Job& job) {
  const std::size_t open = job.id.find('[');
  const std::size_t close = job.id.find(']');
  if (open == std::string::npos || close == std::string::npos || close < open) return;
  JobArray& array = job.array.emplace();
  array.job_id = job.id.substr(0, open + 1) + job.id.substr(close);
  if (close > open + 1) array.task_id = job.id.substr(open + 1, close - open - 1);
  array.task_spec = text_of(record, "job_array_request");
}

// The server itself set Job_Owner, from the connection that the job came through; users can forge
// everything else.
void read_owner(const Record& record, ParsedJob& parsed) {
  const std::string* owner = record.find("Job_Owner");
  if (owner == nullptr) {
    parsed.problems.emplace_back("record: no Job_Owner");
    return;
  }
  const std::string_view name = std::string_view(*owner).substr(0, owner->rfind('@'));
  if (!is_account_name(name)) {
    parsed.problems.emplace_back("record: Job_Owner is no name of a user");
    return;
  }
  parsed.user.name = std::string(name);
  parsed.user.verified = record.regular && record.count("Job_Owner") == 1;
  if (!record.regular)
    parsed.problems.emplace_back(
        "record: not as pbs_server writes it, so its owner is not believed");
  if (record.regular && !parsed.user.verified)
    parsed.problems.emplace_back("record: more than one Job_Owner");

  // A manager's qsub -P makes somebody else the owner; -u makes the job run as somebody else, who
  // need not know of it.
  std::string details;
  const auto add = [&details](std::string_view key, std::string_view value) {
    details.append(details.empty() ? "" : ",")
        .append("\"")
        .append(key)
        .append("\":\"")
        .append(value)
        .append("\"");
  };
  const std::string* proxy = record.find("proxy_user");
  if (proxy != nullptr && is_account_name(*proxy) && is_utf8(*proxy)) add("proxy_user", *proxy);
  const std::string* runs_as = record.find("euser");
  if (runs_as != nullptr && *runs_as != name && is_account_name(*runs_as) && is_utf8(*runs_as))
    add("run_as", *runs_as);
  if (!details.empty()) parsed.extra_json = "{\"details\":{" + details + "}}";
  if (runs_as != nullptr && *runs_as == name) parsed.user.group_name = text_of(record, "egroup");
}

void read_variables(const Record& record, ParsedJob& parsed) {
  // The server writes a list with a control character in it as an empty one: that is unknown, and
  // not none.
  const std::string* list = record.find("Variable_List");
  if (list == nullptr || list->empty()) return;
  parsed.environment = make_bytes(guess_environment(*list, record.format));
  parsed.environment_format = EnvironmentFormat::kNulEnded;
  parsed.environment_guessed = true;
}

std::optional<std::string> work_directory(const Record& record, const ParsedJob& parsed) {
  if (auto directory = text_of(record, "init_work_dir")) return directory;
  if (!parsed.environment) return std::nullopt;
  for (const Variable& v : split_environment(*parsed.environment)) {
    if (v.name == "PBS_O_WORKDIR" && v.value.starts_with('/') && v.value.size() <= kMaxText)
      return std::string(v.value);
  }
  return std::nullopt;
}

// Takes the next word between blanks off `rest`.
std::string_view take_word(std::string_view& rest) noexcept {
  rest.remove_prefix(std::min(rest.find_first_not_of(' '), rest.size()));
  const std::string_view word = rest.substr(0, rest.find(' '));
  rest.remove_prefix(word.size());
  return word;
}

// What qsub takes for a directive: "#PBS", unless its -C said otherwise.
std::string directive_prefix(const Record& record) {
  std::string prefix = "#PBS";
  const std::string* arguments = record.find("submit_args");
  if (arguments == nullptr || arguments->size() > kMaxText) return prefix;
  std::string_view rest = *arguments;
  while (!rest.empty()) {
    const std::string_view word = take_word(rest);
    if (!word.starts_with("-C")) continue;
    std::string_view given = word.size() > 2 ? word.substr(2) : take_word(rest);
    if (given.size() >= 2 && given.front() == '"' && given.back() == '"')
      given = given.substr(1, given.size() - 2);
    prefix = given;
  }
  return prefix;
}

void read_record_into(const Record& record, std::string_view stem, ParsedJob& parsed) {
  if (!belongs_to(record, stem)) {
    parsed.problems.emplace_back("record: it says that it belongs to files of another name");
    return;
  }
  if (is_job_id(record.job_id)) {
    parsed.job.id = record.job_id;
  } else {
    parsed.problems.emplace_back("record: its job id is none; the files' name stands for it");
  }
  parsed.job.name = text_of(record, "Job_Name");
  parsed.job.account = text_of(record, "Account_Name");
  parsed.job.partition = text_of(record, "queue");
  parsed.job.qos = text_of(record, "Resource_List", "qos");
  parsed.job.submitted_at = time_of(record, "ctime");
  read_array(record, parsed.job);
  read_owner(record, parsed);
  read_variables(record, parsed);
  parsed.job.work_dir = work_directory(record, parsed);
}

}  // namespace

SpoolPath classify_path(std::string_view path) noexcept {
  const SpoolPath foreign;
  std::string_view name = path;
  if (name.size() == 1 && is_digit(name.front())) return {SpoolPath::Role::kDirectory, {}, {}};
  if (name.size() > 2 && is_digit(name[0]) && name[1] == '/') name.remove_prefix(2);
  if (name.empty() || !is_digit(name.front()) || name.size() > kMaxFileName ||
      name.find('/') != std::string_view::npos)
    return foreign;
  const std::size_t dot = name.rfind('.');
  if (dot == std::string_view::npos) return foreign;
  const std::string_view file = name.substr(dot + 1);
  const std::string_view entry = path.substr(0, path.size() - file.size() - 1);
  if (file == kScript) return {SpoolPath::Role::kEntryFile, entry, file};
  const bool record = file == kJobRecord || file == kArrayRecord || file == kNewRecord;
  // A spool of large arrays holds hundreds of thousands of these; their script and all that counts
  // are the array's.
  if (!record || is_task_stem(name.substr(0, dot))) return foreign;
  return {SpoolPath::Role::kEntryRecord, entry, file};
}

std::string path_of_file(std::string_view entry, std::string_view file) {
  return std::string(entry).append(".").append(file);
}

std::span<const std::string_view> entry_files() noexcept { return kRead; }

Assessment assess_entry(const SpoolEntry& entry) {
  using State = Assessment::State;
  const SpoolFile* script = entry.file(kScript);
  const auto found = newest_record(entry);
  if (script == nullptr) {
    if (found && is_interactive(found->record))
      return {.state = State::kIgnore, .reason = "interactive job"};
    return {.state = State::kIncomplete, .reason = "script missing"};
  }
  const std::uint64_t size = script->stat.size;
  if (size == 0) return {.state = State::kIncomplete, .reason = "script empty"};
  if (!found) return {.state = State::kIncomplete, .reason = "record missing"};
  if (size % kScriptChunk == 0) {
    // More may come. Up to 4.2 the record is saved before the script, and again when the whole job
    // was taken; since 6.1 it follows the first chunk, and nothing says whether there is
    // another one: qsub may have been killed.
    if (found->record.format == Record::Format::kBinary &&
        found->file->stat.mtime_ns > script->stat.mtime_ns)
      return {.state = State::kComplete};
    return {.state = State::kDoubtful, .settle = kChunkGap};
  }
  if (size > kScriptChunk) return {.state = State::kSettling, .settle = kLongScriptRest};
  return {.state = State::kComplete};
}

Result<ParsedJob> parse_entry(const SpoolEntry& entry) {
  const SpoolFile* script = entry.file(kScript);
  if (script == nullptr) return Error(ErrorKind::kVanished, "job without a script");
  const std::string_view stem = std::string_view(entry.key).substr(entry.key.rfind('/') + 1);

  ParsedJob parsed;
  parsed.job.id = std::string(stem);
  parsed.script_file = std::string(kScript);
  parsed.script = script->bytes ? script->bytes : make_bytes({});
  DirectiveSyntax syntax = kQsubSyntax;
  std::string prefix;
  if (const auto found = newest_record(entry)) {
    read_record_into(found->record, stem, parsed);
    prefix = directive_prefix(found->record);
    syntax.prefix = prefix;
    parsed.mixed_files.push_back({.name = "record", .bytes = found->file->bytes});
  } else if (const SpoolFile* broken = unreadable_record(entry)) {
    parsed.problems.push_back("record: " + std::to_string(broken->bytes->size()) +
                              " bytes that are no whole record");
    parsed.mixed_files.push_back({.name = "record", .bytes = broken->bytes});
  } else {
    parsed.problems.emplace_back("record: missing");
  }
  parsed.script_info = read_script_info(*parsed.script, syntax);
  if (script->stat.size > 0 && script->stat.size % kScriptChunk == 0 &&
      assess_entry(entry).state != Assessment::State::kComplete) {
    parsed.problems.push_back(
        "script: " + std::to_string(script->stat.size) +
        " bytes, whole chunks only; its end may be missing, as after a killed qsub");
  }
  return parsed;
}

}  // namespace scriptorium::torque
