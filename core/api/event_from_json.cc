#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "core/api/event.h"
#include "core/base/text.h"

// JSON of schema 1 back to an event: what the journal keeps of one beside its files.
//
// A sink that is behind reads every event through here, so what event_json() writes itself is read
// straight from the text. Whatever is not just so (other members, other types, escapes that it
// would not write, damage) is left to the second way, with a tree of nlohmann/json, which alone
// decides what is an error.
namespace scriptorium {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kSchema = "scriptorium.event/1";

// ---- the first way

// Takes JSON from the front of a text. Once something is not as expected, it is lost and takes
// nothing more.
class Taker {
 public:
  explicit Taker(std::string_view text) : at_(text.data()), end_(text.data() + text.size()) {}

  bool lost() const { return lost_; }
  void lose() { lost_ = true; }
  bool at_end() const { return !lost_ && at_ == end_; }

  // Calls member(name) for each member of an object; that takes the value.
  template <typename Member>
  void object(Member member) {
    take('{');
    if (peek('}')) return take('}');
    while (!lost_) {
      const std::string name = string();
      take(':');
      if (lost_) return;
      member(std::string_view(name));
      if (!peek(',')) return take('}');
      take(',');
    }
  }
  template <typename Item>
  void list(Item item) {
    take('[');
    if (peek(']')) return take(']');
    while (!lost_) {
      item();
      if (!peek(',')) return take(']');
      take(',');
    }
  }
  std::string string() {
    take('"');
    std::string text;
    while (!lost_) {
      const char* const from = at_;
      while (at_ != end_ && *at_ != '"' && *at_ != '\\' && static_cast<unsigned char>(*at_) >= 0x20)
        ++at_;
      text.append(from, at_);
      if (peek('"')) break;
      take('\\');
      text += escaped();
    }
    take('"');
    return text;
  }
  std::uint64_t number() {
    std::uint64_t number = 0;
    const char* const from = at_;
    const auto [rest, error] = std::from_chars(at_, end_, number);
    // No other form of the same number, and no fraction.
    const bool plain = error == std::errc{} && (*from != '0' || rest == from + 1) &&
                       (rest == end_ || *rest == ',' || *rest == '}');
    if (lost_ || !plain) return lose(), 0;
    at_ = rest;
    return number;
  }
  bool boolean() {
    const bool value = peek('t');
    const std::string_view word = value ? "true" : "false";
    if (lost_ || static_cast<std::size_t>(end_ - at_) < word.size() ||
        std::string_view(at_, word.size()) != word) {
      lose();
      return false;
    }
    at_ += word.size();
    return value;
  }
  Timestamp time() {
    const auto time = parse_rfc3339(string());
    if (!time) lose();
    return time.value_or(Timestamp{});
  }

 private:
  bool peek(char c) const { return !lost_ && at_ != end_ && *at_ == c; }
  void take(char c) {
    if (!peek(c)) return lose();
    ++at_;
  }
  char escaped() {
    const char c = lost_ || at_ == end_ ? '\0' : *at_++;
    switch (c) {
      case '"':
      case '\\': return c;
      case 'n': return '\n';
      case 't': return '\t';
      case 'r': return '\r';
      case 'b': return '\b';
      case 'f': return '\f';
      case 'u': break;
      default: lose(); return '\0';
    }
    unsigned int code = 0;
    if (end_ - at_ < 4 || std::from_chars(at_, at_ + 4, code, 16).ptr != at_ + 4 || code > 0x7F) {
      lose();
      return '\0';
    }
    at_ += 4;
    return static_cast<char>(code);
  }

  const char* at_;
  const char* end_;
  bool lost_ = false;
};

// An event from what event_json() wrote; nothing if it is not just that.
class Reader {
 public:
  explicit Reader(std::string_view json) : in_(json) {}

  std::optional<Event> read() {
    in_.object([this](std::string_view name) { member(name); });
    constexpr unsigned kRequired = kSchemaSeen | kId | kKind | kTime | kCapturedAt | kCapture |
                                   kComplete | kCluster | kScheduler | kHost | kJobId | kVerified;
    if (!in_.at_end() || (seen_ & kRequired) != kRequired) return std::nullopt;
    if (environment_size_)
      event_.environment_format = raw_ ? EnvironmentFormat::kRaw : EnvironmentFormat::kNulEnded;
    return std::move(event_);
  }

 private:
  enum Seen : unsigned {
    kSchemaSeen = 1U << 0U,
    kId = 1U << 1U,
    kKind = 1U << 2U,
    kTime = 1U << 3U,
    kCapturedAt = 1U << 4U,
    kCapture = 1U << 5U,
    kComplete = 1U << 6U,
    kCluster = 1U << 7U,
    kScheduler = 1U << 8U,
    kHost = 1U << 9U,
    kJob = 1U << 10U,
    kJobId = 1U << 11U,
    kUser = 1U << 12U,
    kVerified = 1U << 13U,
    kScript = 1U << 14U,
    kFiles = 1U << 15U,
    kRedactions = 1U << 16U,
    kProblems = 1U << 17U,
    kLossy = 1U << 18U,
  };
  // Of two members of one name the last would count.
  void once(Seen what) {
    if ((seen_ & what) != 0) in_.lose();
    seen_ |= what;
  }

  void member(std::string_view name) {
    if (name == "schema") {
      once(kSchemaSeen);
      if (in_.string() != kSchema) in_.lose();
    } else if (name == "id") {
      once(kId);
      event_.id = in_.string();
    } else if (name == "kind") {
      once(kKind);
      event_.kind = in_.string();
    } else if (name == "time") {
      once(kTime);
      event_.time = in_.time();
    } else if (name == "captured_at") {
      once(kCapturedAt);
      event_.captured_at = in_.time();
    } else if (name == "capture") {
      once(kCapture);
      event_.capture = in_.string();
    } else if (name == "complete") {
      once(kComplete);
      event_.complete = in_.boolean();
    } else if (name == "cluster") {
      once(kCluster);
      event_.cluster = in_.string();
    } else if (name == "scheduler") {
      once(kScheduler);
      event_.scheduler = in_.string();
    } else if (name == "host") {
      in_.object([this](std::string_view part) {
        once(kHost);
        part == "name" ? void(event_.host = in_.string()) : in_.lose();
      });
    } else {
      larger_member(name);
    }
  }

  void larger_member(std::string_view name) {
    if (name == "job") {
      once(kJob);
      in_.object([this](std::string_view part) { job(part); });
    } else if (name == "user") {
      once(kUser);
      in_.object([this](std::string_view part) { user(part); });
    } else if (name == "script") {
      once(kScript);
      event_.script.emplace();
      in_.object([this](std::string_view part) { script(part); });
    } else if (name == "environment_format") {
      raw_ = true;
      static_cast<void>(in_.string());
    } else if (name == "environment_size") {
      environment_size_ = true;
      static_cast<void>(in_.number());
    } else if (name == "files") {
      once(kFiles);
      in_.list([this] { file(); });
    } else if (name == "redactions") {
      once(kRedactions);
      in_.list([this] { redaction(); });
    } else if (name == "problems") {
      once(kProblems);
      texts(event_.problems);
    } else if (name == "supersedes") {
      optional(event_.supersedes);
    } else if (name == "replaces") {
      optional(event_.replaces);
    } else if (name == "lossy") {
      once(kLossy);
      texts(event_.lossy);
    } else {
      in_.lose();
    }
  }

  void optional(std::optional<std::string>& text) {
    if (text) in_.lose();
    text = in_.string();
  }
  void texts(std::vector<std::string>& list) {
    if (!list.empty()) in_.lose();
    in_.list([&] { list.push_back(in_.string()); });
  }

  void job(std::string_view name) {
    Job& job = event_.job;
    if (name == "id") {
      once(kJobId);
      job.id = in_.string();
    } else if (name == "name") {
      optional(job.name);
    } else if (name == "array") {
      array();
    } else if (name == "het") {
      het();
    } else if (name == "account") {
      optional(job.account);
    } else if (name == "partition") {
      optional(job.partition);
    } else if (name == "qos") {
      optional(job.qos);
    } else if (name == "submitted_at") {
      if (job.submitted_at) in_.lose();
      job.submitted_at = in_.time();
    } else if (name == "work_dir") {
      optional(job.work_dir);
    } else {
      in_.lose();
    }
  }

  void array() {
    if (event_.job.array) in_.lose();
    JobArray& array = event_.job.array.emplace();
    bool has_id = false;
    in_.object([&](std::string_view name) {
      if (name == "job_id" && !has_id) {
        has_id = true;
        array.job_id = in_.string();
      } else if (name == "task_id") {
        optional(array.task_id);
      } else if (name == "task_spec") {
        optional(array.task_spec);
      } else {
        in_.lose();
      }
    });
    if (!has_id) in_.lose();
  }

  void het() {
    if (event_.job.het) in_.lose();
    HetJob& het = event_.job.het.emplace();
    bool has_id = false;
    bool has_synthetic = false;
    in_.object([&](std::string_view name) {
      if (name == "job_id" && !has_id) {
        has_id = true;
        het.job_id = in_.string();
      } else if (name == "component" && !het.component) {
        const std::uint64_t component = in_.number();
        if (component > ~std::uint32_t{0}) in_.lose();
        het.component = static_cast<std::uint32_t>(component);
      } else if (name == "synthetic" && !has_synthetic) {
        has_synthetic = true;
        het.synthetic = in_.boolean();
      } else {
        in_.lose();
      }
    });
    if (!has_id || !has_synthetic) in_.lose();
  }

  void user(std::string_view name) {
    User& user = event_.user;
    if (name == "name") {
      optional(user.name);
    } else if (name == "id") {
      optional(user.id);
    } else if (name == "group") {
      in_.object([&](std::string_view part) {
        part == "name" ? optional(user.group_name)
        : part == "id" ? optional(user.group_id)
                       : in_.lose();
      });
    } else if (name == "verified") {
      once(kVerified);
      user.verified = in_.boolean();
    } else if (name == "unverified_reason") {
      optional(user.unverified_reason);
    } else {
      in_.lose();
    }
  }

  void script(std::string_view name) {
    ScriptInfo& script = *event_.script;
    if (name == "size") {
      static_cast<void>(in_.number());  // those of the file
    } else if (name == "sha256") {
      static_cast<void>(in_.string());
    } else if (name == "interpreter") {
      optional(script.interpreter);
    } else if (name == "directives") {
      texts(script.directives);
    } else if (name == "modules") {
      texts(script.modules);
    } else {
      in_.lose();
    }
  }

  void file() {
    EventFile& file = event_.files.emplace_back();
    unsigned seen = 0;
    in_.object([&](std::string_view name) {
      if (name == "name") {
        seen += 1U;
        file.name = in_.string();
      } else if (name == "size") {
        seen += 4U;
        file.size = in_.number();
      } else if (name == "sha256") {
        seen += 16U;
        file.sha256 = in_.string();
      } else {
        in_.lose();
      }
    });
    if (seen != 1U + 4U + 16U) in_.lose();
  }

  void redaction() {
    Redaction& redaction = event_.redactions.emplace_back();
    unsigned seen = 0;
    in_.object([&](std::string_view name) {
      if (name == "rule") {
        seen += 1U;
        redaction.rule = in_.string();
      } else if (name == "where") {
        seen += 4U;
        redaction.where = in_.string();
      } else if (name == "count") {
        seen += 16U;
        redaction.count = in_.number();
      } else {
        in_.lose();
      }
    });
    if (seen != 1U + 4U + 16U) in_.lose();
  }

  Taker in_;
  Event event_;
  unsigned seen_ = 0;
  bool raw_ = false;
  bool environment_size_ = false;
};

// ---- the second way

// Members that Event has fields for; the other members of a record go back into extra_json.
constexpr std::string_view kKnown[] = {"schema",
                                       "id",
                                       "kind",
                                       "time",
                                       "captured_at",
                                       "capture",
                                       "complete",
                                       "cluster",
                                       "scheduler",
                                       "host",
                                       "job",
                                       "user",
                                       "script",
                                       "environment",
                                       "files",
                                       "redactions",
                                       "problems",
                                       "lossy",
                                       "supersedes",
                                       "replaces",
                                       "environment_size",
                                       "environment_format"};

// The same for the objects into which extra_json is merged.
struct KnownMembers {
  std::string_view object;
  std::vector<std::string_view> members;
};
const std::vector<KnownMembers>& known_members() {
  static const std::vector<KnownMembers> kList = {
      {"host", {"name"}},
      {"job",
       {"id", "name", "array", "het", "account", "partition", "qos", "submitted_at", "work_dir"}},
      {"user", {"name", "id", "group", "verified", "unverified_reason"}},
      {"script", {"text", "encoding", "size", "sha256", "interpreter", "directives", "modules"}}};
  return kList;
}

std::optional<std::string> optional_text(const Json& json, const char* key) {
  const auto found = json.find(key);
  if (found == json.end() || found->is_null()) return std::nullopt;
  return found->get<std::string>();
}

Timestamp required_time(const Json& json, const char* key) {
  const auto time = parse_rfc3339(json.at(key).get_ref<const std::string&>());
  if (!time) throw std::invalid_argument(std::string(key) + " is not a time");
  return *time;
}

Event read(const Json& json) {
  if (json.at("schema").get<std::string>() != kSchema)
    throw std::invalid_argument("schema is not scriptorium.event/1");
  Event event;
  event.id = json.at("id").get<std::string>();
  event.kind = json.at("kind").get<std::string>();
  event.time = required_time(json, "time");
  event.captured_at = required_time(json, "captured_at");
  event.capture = json.at("capture").get<std::string>();
  event.complete = json.at("complete").get<bool>();
  event.cluster = json.at("cluster").get<std::string>();
  event.scheduler = json.at("scheduler").get<std::string>();
  event.host = json.at("host").at("name").get<std::string>();
  const Json& job = json.at("job");
  event.job.id = job.at("id").get<std::string>();
  event.job.name = optional_text(job, "name");
  if (const auto array = job.find("array"); array != job.end()) {
    event.job.array =
        JobArray{array->at("job_id").get<std::string>(), optional_text(*array, "task_id"),
                 optional_text(*array, "task_spec")};
  }
  if (const auto het = job.find("het"); het != job.end()) {
    event.job.het = HetJob{.job_id = het->at("job_id").get<std::string>(),
                           .synthetic = het->at("synthetic").get<bool>()};
    if (const auto component = het->find("component"); component != het->end())
      event.job.het->component = component->get<std::uint32_t>();
  }
  event.job.account = optional_text(job, "account");
  event.job.partition = optional_text(job, "partition");
  event.job.qos = optional_text(job, "qos");
  if (job.contains("submitted_at")) event.job.submitted_at = required_time(job, "submitted_at");
  event.job.work_dir = optional_text(job, "work_dir");
  const Json& user = json.at("user");
  event.user.name = optional_text(user, "name");
  event.user.id = optional_text(user, "id");
  if (const auto group = user.find("group"); group != user.end()) {
    event.user.group_name = optional_text(*group, "name");
    event.user.group_id = optional_text(*group, "id");
  }
  event.user.verified = user.at("verified").get<bool>();
  event.user.unverified_reason = optional_text(user, "unverified_reason");
  if (const auto script = json.find("script"); script != json.end()) {
    ScriptInfo& info = event.script.emplace();
    info.interpreter = optional_text(*script, "interpreter");
    if (script->contains("directives"))
      info.directives = script->at("directives").get<std::vector<std::string>>();
    if (script->contains("modules"))
      info.modules = script->at("modules").get<std::vector<std::string>>();
  }
  if (json.contains("files")) {
    for (const Json& f : json.at("files")) {
      event.files.push_back({f.at("name").get<std::string>(), f.at("size").get<std::uint64_t>(),
                             f.at("sha256").get<std::string>(), nullptr});
    }
  }
  if (json.contains("environment_size")) {
    event.environment_format = json.contains("environment_format") ? EnvironmentFormat::kRaw
                                                                   : EnvironmentFormat::kNulEnded;
  }
  if (json.contains("redactions")) {
    for (const Json& r : json.at("redactions")) {
      event.redactions.push_back({r.at("rule").get<std::string>(), r.at("where").get<std::string>(),
                                  r.at("count").get<std::uint64_t>()});
    }
  }
  if (json.contains("problems"))
    event.problems = json.at("problems").get<std::vector<std::string>>();
  event.supersedes = optional_text(json, "supersedes");
  event.replaces = optional_text(json, "replaces");
  if (json.contains("lossy")) event.lossy = json.at("lossy").get<std::vector<std::string>>();
  Json extra = Json::object();
  for (const auto& [key, value] : json.items()) {
    if (std::find(std::begin(kKnown), std::end(kKnown), key) == std::end(kKnown))
      extra[key] = value;
  }
  for (const auto& [object, members] : known_members()) {
    const auto found = json.find(object);
    if (found == json.end()) continue;
    for (const auto& [key, value] : found->items()) {
      if (std::find(members.begin(), members.end(), key) == members.end())
        extra[std::string(object)][key] = value;
    }
  }
  if (!extra.empty()) event.extra_json = extra.dump();
  return event;
}

}  // namespace

Result<Event> event_from_json(std::string_view json) try {
  if (is_utf8(json)) {
    if (auto event = Reader(json).read()) return *std::move(event);
  }
  return read(Json::parse(json));
} catch (const std::exception& e) {
  // what() may quote the input, which may hold a script.
  const auto* parse = dynamic_cast<const Json::parse_error*>(&e);
  return Error{ErrorKind::kCorrupt,
               parse != nullptr
                   ? "event metadata: not JSON at byte " + std::to_string(parse->byte)
                   : std::string("event metadata: a member is missing or of another type")};
}

}  // namespace scriptorium
