#include "core/redact/redactor.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "core/base/fault_point.h"
#include "core/base/file.h"
#include "core/base/sha256.h"
#include "core/base/thrown.h"
#include "core/redact/environment.h"
#include "core/redact/part.h"

namespace scriptorium::redact {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMostCopied = 50;  // secrets that are looked for in the whole job

// The texts of one job. Each is borrowed until finish().
class JobTexts {
 public:
  void add(const char* where, Part::Kind kind, Bytes& bytes) {
    if (bytes == nullptr || bytes->empty()) return;
    parts_.emplace_back(where, kind, *bytes,
                        [&bytes](std::string text) { bytes = make_bytes(std::move(text)); });
  }
  void add(const char* where, std::string& text) {
    if (text.empty()) return;
    parts_.emplace_back(where, Part::Kind::kText, text,
                        [&text](std::string changed) { text = std::move(changed); });
  }
  void add(const char* where, std::optional<std::string>& text) {
    if (text) add(where, *text);
  }
  void add(const char* where, std::vector<std::string>& texts) {
    for (std::string& text : texts) add(where, text);
  }

  // `user` is no secret, even if a password is the same word.
  std::vector<Redaction> finish(const RuleSet& rules, Mode mode, const User& user) {
    for (Part& part : parts_) part.find(rules, mode);
    std::vector<std::string_view> secrets;
    for (const Part& part : parts_) part.list_secrets(secrets);
    std::erase(secrets, user.name.value_or(""));
    std::sort(secrets.begin(), secrets.end());
    secrets.erase(std::unique(secrets.begin(), secrets.end()), secrets.end());
    if (secrets.size() > kMostCopied) secrets.resize(kMostCopied);
    const Rule* const copy = rules.rule(kCopyRule);
    if (!secrets.empty() && copy != nullptr) {
      for (Part& part : parts_) part.find_copies(secrets, *copy);
    }
    std::vector<Redaction> result;
    for (Part& part : parts_) part.finish(result);
    return result;
  }

 private:
  std::vector<Part> parts_;
};

void collect_strings(Json& json, JobTexts& texts, const char* where) {
  if (json.is_string()) return texts.add(where, json.get_ref<std::string&>());
  if (!json.is_structured()) return;
  for (Json& item : json) collect_strings(item, texts, where);
}

// A file of an event that is neither script nor environment; "record" holds assignments.
Part::Kind kind_of(const EventFile& file) {
  if (file.name == "script") return Part::Kind::kScript;
  if (file.name == "environment") return Part::Kind::kVariables;
  return Part::Kind::kAssignments;
}

void add_job(JobTexts& texts, Job& job) {
  texts.add("job.name", job.name);
  texts.add("job.account", job.account);
  texts.add("job.work_dir", job.work_dir);
}

void add_script_info(JobTexts& texts, ScriptInfo& info) {
  texts.add("script.interpreter", info.interpreter);
  texts.add("script.directives", info.directives);
  texts.add("script.modules", info.modules);
  for (Software& used : info.software) texts.add("script.software", used.name);
}

// The JSON with its texts changed; "" stays "".
class ExtraJson {
 public:
  ExtraJson(std::string& json, JobTexts& texts) : json_(json) {
    if (json.empty()) return;
    parsed_ = Json::parse(json, nullptr, false);
    before_ = parsed_;
    collect_strings(parsed_, texts, "details");
  }
  void put() {
    if (parsed_ != before_) json_ = parsed_.dump(-1, ' ', false, Json::error_handler_t::replace);
  }

 private:
  std::string& json_;
  Json parsed_, before_;
};

void set_bytes(EventFile& file, const Bytes& bytes) {
  file.bytes = bytes;
  file.size = bytes->size();
  file.sha256 = sha256_hex(*bytes);
}

// Keeps of an environment what the source's option says, and adds what was dropped.
Bytes filtered(const Bytes& bytes, bool raw, const char* where, const EnvironmentRule& rule,
               std::vector<Redaction>& found) {
  FilteredEnvironment kept =
      raw ? filter_raw_environment(bytes, rule) : filter_environment(bytes, rule);
  if (kept.dropped > 0) {
    found.push_back({.rule = raw ? "environment.unparsable" : "environment",
                     .where = where,
                     .count = kept.dropped});
  }
  return std::move(kept.bytes);
}

Error no_rules() { return {ErrorKind::kPermanent, "redaction failed: no rules are loaded"}; }

}  // namespace

Redactor::Redactor(std::shared_ptr<const RuleSet> rules, Mode mode, EnvironmentRule environment)
    : rules_(std::move(rules)), mode_(mode), environment_(std::move(environment)) {}

std::shared_ptr<const Redactor> Redactor::none() {
  return std::make_shared<const Redactor>(nullptr, Mode::kOff, EnvironmentRule{});
}

// The option `environment`, before any rule.
std::vector<Redaction> Redactor::drop_variables(ParsedJob& job) const {
  std::vector<Redaction> result;
  const bool raw = job.environment_format == EnvironmentFormat::kRaw || job.environment_guessed;
  job.environment = filtered(job.environment, raw, "environment", environment_, result);
  // Treated as an environment that cannot be parsed: all of it or nothing.
  std::erase_if(job.mixed_files, [&](EventFile& file) {
    return filtered(file.bytes, true, file.name.c_str(), environment_, result) == nullptr;
  });
  return result;
}

Result<std::vector<Redaction>> Redactor::redact(ParsedJob& job) const try {
  std::vector<Redaction> result = drop_variables(job);
  if (mode_ == Mode::kOff) return result;
  if (rules_ == nullptr) return no_rules();
  if (const int code = FAULT_ERROR("redact.fails"); code != 0)
    return system_error("redaction failed", code);
  JobTexts texts;
  texts.add("script", Part::Kind::kScript, job.script);
  texts.add("environment", Part::Kind::kVariables, job.environment);
  for (EventFile& file : job.mixed_files)
    texts.add(file.name.c_str(), Part::Kind::kAssignments, file.bytes);
  for (EventFile& file : job.more_files)
    texts.add(file.name.c_str(), Part::Kind::kAssignments, file.bytes);
  add_job(texts, job.job);
  add_script_info(texts, job.script_info);
  texts.add("problems", job.problems);
  ExtraJson extra(job.extra_json, texts);
  merge(result, texts.finish(*rules_, mode_, job.user));
  extra.put();
  return result;
} catch (...) {
  return Error(ErrorKind::kPermanent, "redaction failed: " + thrown_text());
}

void Redactor::drop_variables(Event& event) const {
  const auto file = std::ranges::find(event.files, "environment", &EventFile::name);
  if (file == event.files.end() || file->bytes == nullptr) return;
  const bool raw = event.environment_format == EnvironmentFormat::kRaw;
  std::vector<Redaction> dropped;
  const Bytes kept = filtered(file->bytes, raw, "environment", environment_, dropped);
  merge(event.redactions, std::move(dropped));
  if (kept == nullptr) {
    event.files.erase(file);
    event.environment_format = EnvironmentFormat::kNone;
  } else if (kept != file->bytes) {
    set_bytes(*file, kept);
  }
}

Result<void> Redactor::redact(Event& event) const try {
  drop_variables(event);
  if (mode_ == Mode::kOff) return {};
  if (rules_ == nullptr) return no_rules();
  JobTexts texts;
  const std::vector<EventFile> before = event.files;
  for (EventFile& file : event.files) texts.add(file.name.c_str(), kind_of(file), file.bytes);
  add_job(texts, event.job);
  if (event.script) add_script_info(texts, *event.script);
  texts.add("problems", event.problems);
  ExtraJson extra(event.extra_json, texts);
  merge(event.redactions, texts.finish(*rules_, mode_, event.user));
  extra.put();
  for (std::size_t i = 0; i < before.size(); ++i) {
    EventFile& file = event.files[i];
    if (file.bytes == before[i].bytes) continue;
    set_bytes(file, file.bytes);
  }
  return {};
} catch (...) {
  return Error(ErrorKind::kPermanent, "redaction failed: " + thrown_text());
}

Result<void> Redactor::redact_texts(Event& event) const try {
  if (mode_ == Mode::kOff) return {};
  if (rules_ == nullptr) return no_rules();
  JobTexts texts;
  add_job(texts, event.job);
  merge(event.redactions, texts.finish(*rules_, mode_, event.user));
  return {};
} catch (...) {
  return Error(ErrorKind::kPermanent, "redaction failed: " + thrown_text());
}

void remove_payload(Event& event, const std::string& reason) {
  event.files.clear();
  event.environment_format = EnvironmentFormat::kNone;
  event.script.reset();
  event.job.name.reset();
  event.job.work_dir.reset();
  event.job.account.reset();
  event.extra_json.clear();
  event.complete = false;
  event.problems = {reason};
}

void merge(std::vector<Redaction>& into, std::vector<Redaction> more) {
  const auto add_places = [](auto& places, auto& added) {
    for (auto& place : added) {
      if (places.size() >= kMostRedactionPlaces) return;
      if (std::find(places.begin(), places.end(), place) == places.end())
        places.push_back(std::move(place));
    }
  };
  for (Redaction& one : more) {
    const auto same = std::find_if(into.begin(), into.end(), [&](const Redaction& r) {
      return r.rule == one.rule && r.where == one.where && r.kept == one.kept;
    });
    if (same == into.end()) {
      into.push_back(std::move(one));
      continue;
    }
    same->count += one.count;
    add_places(same->lines, one.lines);
    add_places(same->names, one.names);
  }
}

}  // namespace scriptorium::redact
