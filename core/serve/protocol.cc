#include "core/serve/protocol.h"

#include <algorithm>
#include <concepts>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <type_traits>
#include <utility>

namespace scriptorium::serve {
namespace {

using Json = nlohmann::json;

// Deeper than any message: a query of kMostQueryDepth levels, each a map in a list.
constexpr int kMostDepth = 128;
constexpr std::uint32_t kMoreFollows = std::uint32_t{1} << 31;
constexpr std::size_t kHeadBytes = 4;

// ---- the members of each type, for both directions

template <typename T, typename U>
concept Is = std::same_as<std::remove_const_t<T>, U>;

void fields(auto& f, Is<Query> auto& q) {
  f("kind", q.kind);
  f("children", q.children);
  f("part", q.part);
  f("field", q.field);
  f("text", q.text);
  f("name", q.name);
  f("prefix", q.prefix);
  f("ignore_case", q.ignore_case);
  f("from", q.from);
  f("to", q.to);
  f("percent", q.percent);
  f("position", q.position);
}

void fields(auto& f, Is<JobRow> auto& j) {
  f("cluster", j.cluster);
  f("scheduler", j.scheduler);
  f("id", j.id);
  f("time", j.time);
  f("event_id", j.event_id);
  f("name", j.name);
  f("array_job_id", j.array_job_id);
  f("array_task_spec", j.array_task_spec);
  f("het_job_id", j.het_job_id);
  f("user", j.user);
  f("uid", j.uid);
  f("group", j.group);
  f("verified", j.verified);
  f("account", j.account);
  f("partition", j.partition);
  f("qos", j.qos);
  f("work_dir", j.work_dir);
  f("interpreter", j.interpreter);
  f("directives", j.directives);
  f("modules", j.modules);
  f("software", j.software);
  f("script_sha256", j.script_sha256);
  f("script_size", j.script_size);
  f("environment_size", j.environment_size);
  f("complete", j.complete);
  f("redacted", j.redacted);
  f("family", j.family);
  f("state", j.state);
  f("exit_code", j.exit_code);
  f("exit_signal", j.exit_signal);
  f("started_at", j.started_at);
  f("ended_at", j.ended_at);
  f("elapsed_seconds", j.elapsed_seconds);
  f("cpu_seconds", j.cpu_seconds);
  f("cpus", j.cpus);
  f("cpu_ratio", j.cpu_ratio);
  f("memory_peak_bytes", j.memory_peak_bytes);
  f("memory_limit_bytes", j.memory_limit_bytes);
  f("gpus", j.gpus);
  f("gpu_ratio", j.gpu_ratio);
  f("time_limit_seconds", j.time_limit_seconds);
  f("nodes", j.nodes);
  f("findings", j.findings);
  f("lives", j.lives);
  f("runs", j.runs);
  f("failed_runs", j.failed_runs);
}

void fields(auto& f, Is<JobRun::Program> auto& p) {
  f("name", p.name);
  f("share", p.share);
}

void fields(auto& f, Is<JobRun> auto& r) {
  f("user", r.user);
  f("uid", r.uid);
  f("verified", r.verified);
  f("account", r.account);
  f("partition", r.partition);
  f("ended_at", r.ended_at);
  f("core_seconds", r.core_seconds);
  f("gpu_seconds", r.gpu_seconds);
  f("unused_core_seconds", r.unused_core_seconds);
  f("unused_gpu_seconds", r.unused_gpu_seconds);
  f("nodes", r.nodes);
  f("findings", r.findings);
  f("programs", r.programs);
  f("modules", r.modules);
  f("cluster", r.cluster);
  f("key", r.key);
  f("event", r.event);
}

void fields(auto& f, Is<Searchable::Request> auto& r) {
  f("query", r.query);
  f("limit", r.limit);
  f("after", r.after);
  f("most_lines", r.most_lines);
  f("context_lines", r.context_lines);
  f("count", r.count);
  f("facets", r.facets);
  f("facet_values", r.facet_values);
  f("exact", r.exact);
}

void fields(auto& f, Is<Searchable::Selector> auto& s) {
  f("id", s.id);
  f("cluster", s.cluster);
  f("time", s.time);
}

void fields(auto& f, Is<Searchable::RunRequest> auto& r) {
  f("from", r.from);
  f("until", r.until);
  f("modules", r.modules);
  f("origin", r.origin);
  f("most_wasteful", r.most_wasteful);
}

void fields(auto& f, Is<Ask> auto& a) {
  f("call", a.call);
  f("store", a.store);
  f("search", a.search);
  f("seconds", a.seconds);
  f("selector", a.selector);
  f("family", a.family);
  f("before", a.before);
  f("limit", a.limit);
  f("runs", a.runs);
}

void fields(auto& f, Is<Searchable::Line> auto& l) {
  f("part", l.part);
  f("number", l.number);
  f("text", l.text);
  f("marks", l.marks);
}

void fields(auto& f, Is<Searchable::Hit> auto& h) {
  f("job", h.job);
  f("lines", h.lines);
}

void fields(auto& f, Is<Searchable::FacetValue> auto& v) {
  f("value", v.value);
  f("jobs", v.jobs);
}

void fields(auto& f, Is<Searchable::Facet> auto& v) {
  f("field", v.field);
  f("values", v.values);
  f("exact", v.exact);
  f("over", v.over);
}

void fields(auto& f, Is<Searchable::Count> auto& c) {
  f("jobs", c.jobs);
  f("at_least", c.at_least);
}

void fields(auto& f, Is<Searchable::Answer> auto& a) {
  f("next", a.next);
  f("finished", a.finished);
  f("searched_back_to", a.searched_back_to);
  f("count", a.count);
  f("facets", a.facets);
  f("problems", a.problems);
}

void fields(auto& f, Is<Searchable::Record> auto& r) {
  f("job", r.job);
  f("event", r.event);
  f("later", r.later);
  f("problems", r.problems);
}

void fields(auto& f, Is<Reply> auto& r) {
  f("kind", r.kind);
  f("protocol", r.protocol);
  f("hits", r.hits);
  f("records", r.records);
  f("rows", r.rows);
  f("runs", r.runs);
  f("answer", r.answer);
  f("problems", r.problems);
  f("error", r.error);
  f("message", r.message);
}

// The enumerator with the highest number.
template <typename E>
constexpr E kLast = E{};
template <>
constexpr Query::Kind kLast<Query::Kind> = Query::Kind::kVariable;
template <>
constexpr JobPart kLast<JobPart> = JobPart::kEnvironment;
template <>
constexpr QueryField kLast<QueryField> = QueryField{kQueryFieldCount - 1};
template <>
constexpr Ask::Call kLast<Ask::Call> = Ask::Call::kRuns;
template <>
constexpr Reply::Kind kLast<Reply::Kind> = Reply::Kind::kError;
template <>
constexpr ErrorKind kLast<ErrorKind> = ErrorKind::kCorrupt;

// ---- to CBOR

template <typename T>
Json json_of(const T& value);
template <typename T>
Json json_of(const std::optional<T>& value);
template <typename A, typename B>
Json json_of(const std::pair<A, B>& value);
template <typename T>
Json json_of(const std::vector<T>& values);
Json json_of(const Timestamp& time);
Json json_of(const std::shared_ptr<const Event>& event);

template <typename T>
Json json_of(const std::optional<T>& value) {
  return value ? json_of(*value) : Json();
}
template <typename A, typename B>
Json json_of(const std::pair<A, B>& value) {
  return Json::array({json_of(value.first), json_of(value.second)});
}
template <typename T>
Json json_of(const std::vector<T>& values) {
  Json list = Json::array();
  for (const T& value : values) list.push_back(json_of(value));
  return list;
}
Json json_of(const Timestamp& time) { return time.nanoseconds; }
Json json_of(const std::shared_ptr<const Event>& event) {
  if (event == nullptr) return {};
  Json files = Json::array();
  for (const EventFile& file : event->files) {
    files.push_back(file.bytes == nullptr ? Json()
                                          : Json::binary({file.bytes->begin(), file.bytes->end()}));
  }
  return {{"record",
           event_json(*event, {.script_text = false, .environment = false, .exact_times = true})},
          {"files", std::move(files)}};
}

struct Writer {
  // Most members of most jobs are absent.
  template <typename T>
  void operator()(const char* name, const T& value) {
    Json json = json_of(value);
    if (!json.is_null()) into[name] = std::move(json);
  }
  Json into = Json::object();
};

template <typename T>
Json json_of(const T& value) {
  if constexpr (std::is_enum_v<T>) {
    return static_cast<std::uint64_t>(value);
  } else if constexpr (std::is_arithmetic_v<T> || std::is_same_v<T, std::string>) {
    return value;
  } else {
    Writer writer;
    fields(writer, value);
    return std::move(writer.into);
  }
}

template <typename T>
std::string to_bytes(const T& message) {
  std::string bytes;
  Json::to_cbor(json_of(message), bytes);
  return bytes;
}

// ---- from CBOR; false: not what json_of() makes

template <typename T>
bool read(const Json& json, T& value);
template <typename T>
bool read(const Json& json, std::optional<T>& value);
template <typename A, typename B>
bool read(const Json& json, std::pair<A, B>& value);
template <typename T>
bool read(const Json& json, std::vector<T>& values);
bool read(const Json& json, Timestamp& time);
bool read(const Json& json, std::shared_ptr<const Event>& event);

template <typename T>
bool read(const Json& json, std::optional<T>& value) {
  T inner{};
  const bool is_good = read(json, inner);
  value = std::move(inner);
  return is_good;
}
template <typename A, typename B>
bool read(const Json& json, std::pair<A, B>& value) {
  return json.is_array() && json.size() == 2 && read(json[0], value.first) &&
         read(json[1], value.second);
}
template <typename T>
bool read(const Json& json, std::vector<T>& values) {
  return json.is_array() && std::all_of(json.begin(), json.end(), [&](const Json& item) {
           return read(item, values.emplace_back());
         });
}
bool read(const Json& json, Timestamp& time) { return read(json, time.nanoseconds); }
bool read(const Json& json, std::shared_ptr<const Event>& event) {
  if (json.is_null()) return true;
  std::string record;
  if (!json.is_object() || !json.contains("files") || !json.contains("record") ||
      !read(json["record"], record))
    return false;
  auto made = event_from_json(record);
  const Json& files = json["files"];
  if (!made || !files.is_array() || files.size() != made->files.size()) return false;
  for (std::size_t i = 0; i < files.size(); ++i) {
    if (files[i].is_null()) continue;
    if (!files[i].is_binary()) return false;
    const auto& bytes = files[i].get_binary();
    made->files[i].bytes = make_bytes({bytes.begin(), bytes.end()});
  }
  event = std::make_shared<const Event>(*std::move(made));
  return true;
}

struct Reader {
  template <typename T>
  void operator()(const char* name, T& value) {
    const auto found = from.find(name);
    if (found != from.end()) good = good && read(*found, value);
  }
  const Json& from;
  bool good = true;
};

template <typename T>
bool read_number(const Json& json, T& value) {
  if (json.is_number_unsigned()) {
    const auto number = json.get<std::uint64_t>();
    value = static_cast<T>(number);
    return number <= static_cast<std::uint64_t>(std::numeric_limits<T>::max());
  }
  value = static_cast<T>(json.is_number_integer() ? json.get<std::int64_t>() : 0);
  return json.is_number_integer() && std::is_signed_v<T>;
}

template <typename T>
bool read(const Json& json, T& value) {
  if constexpr (std::is_enum_v<T>) {
    std::uint64_t number = 0;
    if (!read_number(json, number) || number > static_cast<std::uint64_t>(kLast<T>)) return false;
    value = static_cast<T>(number);
    return true;
  } else if constexpr (std::is_same_v<T, bool>) {
    if (json.is_boolean()) value = json.get<bool>();
    return json.is_boolean();
  } else if constexpr (std::is_floating_point_v<T>) {
    if (json.is_number()) value = json.get<T>();
    return json.is_number();
  } else if constexpr (std::is_integral_v<T>) {
    return read_number(json, value);
  } else if constexpr (std::is_same_v<T, std::string>) {
    if (json.is_string()) value = json.get_ref<const std::string&>();
    return json.is_string();
  } else {
    if (!json.is_object()) return false;
    Reader reader{json};
    fields(reader, value);
    return reader.good;
  }
}

// Stops where the parser, which calls itself for each level, would use too much of the stack.
class ShallowBuilder : public nlohmann::detail::json_sax_dom_parser<Json> {
 public:
  explicit ShallowBuilder(Json& into) : json_sax_dom_parser(into, false) {}
  bool start_object(std::size_t size) { return enter() && json_sax_dom_parser::start_object(size); }
  bool start_array(std::size_t size) { return enter() && json_sax_dom_parser::start_array(size); }
  bool end_object() { return leave() && json_sax_dom_parser::end_object(); }
  bool end_array() { return leave() && json_sax_dom_parser::end_array(); }

 private:
  bool enter() { return ++depth_ <= kMostDepth; }
  bool leave() { return --depth_ >= 0; }
  int depth_ = 0;
};

template <typename T>
Result<T> from_bytes(std::string_view bytes) try {
  Json json;
  ShallowBuilder builder(json);
  T message;
  if (Json::sax_parse(bytes.begin(), bytes.end(), &builder, Json::input_format_t::cbor) &&
      read(json, message))
    return message;
  return Error{ErrorKind::kPermanent, "a message is not understood"};
} catch (const Json::exception& e) {
  return Error{ErrorKind::kPermanent, std::string("a message is not understood: ") + e.what()};
}

// A parser makes no other query, and evaluators rely on it.
bool is_sound(const Query& query) {
  const std::size_t children = query.children.size();
  const bool fits = query.kind == Query::Kind::kAnd || query.kind == Query::Kind::kOr
                        ? children >= 2
                        : children == (query.kind == Query::Kind::kNot ? 1U : 0U);
  return fits && std::all_of(query.children.begin(), query.children.end(), is_sound);
}

}  // namespace

Reply refusal(const Error& error) {
  return {.kind = Reply::Kind::kError, .error = error.kind(), .message = error.message()};
}

std::string encode(const Ask& ask) { return to_bytes(ask); }
std::string encode(const Reply& reply) { return to_bytes(reply); }

Result<Ask> decode_ask(std::string_view bytes) {
  auto ask = from_bytes<Ask>(bytes);
  if (ask && !is_sound(ask->search.query))
    return Error{ErrorKind::kPermanent, "a query is not understood"};
  return ask;
}
Result<Reply> decode_reply(std::string_view bytes) { return from_bytes<Reply>(bytes); }

std::vector<std::string> frames_of(std::string_view message) {
  std::vector<std::string> frames;
  do {
    const std::string_view part = message.substr(0, kMostFrameBytes);
    message.remove_prefix(part.size());
    const auto head =
        static_cast<std::uint32_t>(part.size()) | (message.empty() ? 0 : kMoreFollows);
    std::string& frame = frames.emplace_back();
    frame.reserve(kHeadBytes + part.size());
    for (const int shift : {24, 16, 8, 0}) frame += static_cast<char>(head >> shift & 0xFF);
    frame += part;
  } while (!message.empty());
  return frames;
}

Result<std::optional<std::string>> FrameReader::next() {
  while (received_.size() >= kHeadBytes) {
    std::uint32_t head = 0;
    for (std::size_t i = 0; i < kHeadBytes; ++i)
      head = head << 8 | static_cast<unsigned char>(received_[i]);
    const std::size_t size = head & ~kMoreFollows;
    if (size > kMostFrameBytes || size > most_bytes_ - message_.size())
      return Error{ErrorKind::kPermanent, "a message is too long"};
    if (size == 0 && (head & kMoreFollows) != 0)
      return Error{ErrorKind::kPermanent, "a message is not understood"};
    if (received_.size() < kHeadBytes + size) break;
    message_.append(received_, kHeadBytes, size);
    received_.erase(0, kHeadBytes + size);
    if ((head & kMoreFollows) == 0) return std::optional<std::string>(std::exchange(message_, {}));
  }
  return std::optional<std::string>{};
}

}  // namespace scriptorium::serve
