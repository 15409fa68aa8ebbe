#include "core/daemon/metrics.h"

#include <array>
#include <charconv>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/text.h"
#include "core/base/time.h"
#include "core/daemon/status_answer.h"

namespace scriptorium {
namespace {

using status_answer::Json;
using status_answer::member;
using Labels = std::vector<std::pair<std::string_view, std::string>>;

std::string number_text(const Json& value) {
  if (value.is_number_unsigned()) return std::to_string(value.get<std::uint64_t>());
  if (value.is_number_integer()) return std::to_string(value.get<std::int64_t>());
  if (value.is_boolean()) return value.get<bool>() ? "1" : "0";
  std::array<char, 32> text{};
  const auto written = std::to_chars(text.data(), text.data() + text.size(), value.get<double>());
  return {text.data(), written.ptr};
}

Labels with(Labels labels, std::string_view name, std::string value) {
  labels.emplace_back(name, std::move(value));
  return labels;
}

std::string text_or_empty(const Json& value) {
  return value.is_string() ? value.get<std::string>() : "";
}

std::string escaped(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c == '\\' || c == '"') result += '\\';
    result += c == '\n' ? std::string_view("\\n") : std::string_view(&c, 1);
  }
  return result;
}

// Families are written one after the other, all samples of one together, as both formats demand.
class Writer {
 public:
  explicit Writer(MetricsFormat format) : open_(format == MetricsFormat::kOpenMetrics) {}

  enum class Type { kGauge, kCounter, kHistogram, kInfo };

  // `name` without the suffix that its type brings.
  void family(const std::string& name, Type type, std::string_view help) {
    name_ = "scriptorium_" + name;
    type_ = type;
    // OpenMetrics names the family, Prometheus each series.
    const std::string shown = open_ ? name_ : name_ + suffix();
    static constexpr std::array<const char*, 4> kWords = {"gauge", "counter", "histogram", "info"};
    const char* word =
        !open_ && type == Type::kInfo ? "gauge" : kWords.at(static_cast<std::size_t>(type));
    text_ += "# HELP " + shown + " " + std::string(help) + "\n# TYPE " + shown + " " + word + "\n";
  }

  // Nothing for what is absent: absent is not 0.
  void sample(const Json& value, const Labels& labels = {}) {
    if (!value.is_number() && !value.is_boolean()) return;
    line(name_ + suffix(), number_text(value), labels);
  }

  void histogram(const Json& value, const Labels& labels) {
    if (!value.is_object()) return;
    for (const Json& bucket : member(value, "buckets")) {
      std::string bound = number_text(member(bucket, "le"));
      if (open_ && bound.find_first_of(".e") == std::string::npos) bound += ".0";
      line(name_ + "_bucket", number_text(member(bucket, "count")), with(labels, "le", bound));
    }
    line(name_ + "_bucket", number_text(member(value, "count")), with(labels, "le", "+Inf"));
    line(name_ + "_sum", number_text(member(value, "sum")), labels);
    line(name_ + "_count", number_text(member(value, "count")), labels);
  }

  std::string end() {
    if (open_) text_ += "# EOF\n";
    return std::move(text_);
  }

 private:
  std::string suffix() const {
    if (type_ == Type::kCounter) return "_total";
    return type_ == Type::kInfo ? "_info" : "";
  }

  void line(const std::string& name, const std::string& value, const Labels& labels) {
    text_ += name;
    for (std::size_t i = 0; i < labels.size(); ++i) {
      text_.append(i == 0 ? "{" : ",").append(labels[i].first).append("=\"") +=
          escaped(labels[i].second);
      text_ += '"';
    }
    if (!labels.empty()) text_ += '}';
    text_ += ' ' + value + '\n';
  }

  const bool open_;
  std::string name_;
  Type type_ = Type::kGauge;
  std::string text_;
};

constexpr auto kGauge = Writer::Type::kGauge;
constexpr auto kCounter = Writer::Type::kCounter;

// One family.
struct Row {
  const char* name;
  Writer::Type type;
  const char* path;  // of the value in the status, from its journal, source or sink
  const char* help;
  // With a label, the status has one value for each of its values: {"cancelled": 3}.
  const char* label = nullptr;
};

constexpr Row kJournal[] = {
    {"journal_events", kGauge, "events", "Events in the journal that some sink still has to take."},
    {"journal_size_bytes", kGauge, "bytes", "Size of the journal on disk."},
    {"journal_wal_bytes", kGauge, "wal_bytes",
     "Of it, the write-ahead log, which a long reader keeps from being cut."},
    {"journal_over_share_entries", kGauge, "over_share_waiting",
     "Entries that wait in the spool because their user holds his share of the journal."},
    {"journal_limit_bytes", kGauge, "limit_bytes",
     "Size at which capture waits (journal_max_bytes)."},
    {"journal_full", kGauge, "full",
     "1 while the journal is at its limit and takes nothing from the spool."},
};
constexpr Row kSource[] = {
    {"source_captured", kCounter, "captured", "Events that this source made durable."},
    {"source_incomplete", kCounter, "incomplete", "Of them, entries that were taken half written."},
    {"source_malformed", kCounter, "malformed", "Of them, entries in which something was wrong."},
    {"source_superseding", kCounter, "superseding",
     "Of them, scripts that grew after they had been captured."},
    {"source_duplicates", kCounter, "duplicates",
     "Entries that were seen again and were already captured."},
    {"source_overflows", kCounter, "overflows",
     "Notification queues that ran over; a scan followed each."},
    {"source_scans", kCounter, "scans", "Scans of the whole spool."},
    {"source_pending_entries", kGauge, "pending", "Entries that are not whole yet."},
    {"source_waiting_for_room", kGauge, "waiting_for_room",
     "Entries that the full journal refused for now."},
    {"source_spool_there", kGauge, "spool_there", "1 while the spool directory is there."},
    {"source_lag_seconds", kGauge, "lag_seconds", "From closed to durable, of the newest event."},
    {"source_captured_by_way", kCounter, "captured_by", "Captured events by what noticed them.",
     "way"},
    {"redactions", kCounter, "redactions",
     "What the rules for secrets found in captured events, removed or only reported.", "rule"},
    {"source_missed", kCounter, "missed", "Entries that were seen to appear and could not be read.",
     "reason"},
    {"source_ignored", kCounter, "ignored", "Entries that were left out on purpose.", "reason"},
    {"source_owners_verified", kCounter, "owners/verified",
     "Events whose owner the scheduler confirmed."},
    {"source_owners_waiting", kGauge, "owners/waiting",
     "Events that wait for the scheduler to name their owner."},
    {"source_owners_failed_queries", kCounter, "owners/failed_queries",
     "Times that the scheduler could not be asked."},
    {"source_owners_unverified", kCounter, "owners/unverified",
     "Events that were delivered without a confirmed owner.", "reason"},
    {"source_owners_decided_last_hour", kGauge, "owners/last_hour/decided",
     "Events of the last hour for which an owner was asked."},
    {"source_owners_unverified_last_hour", kGauge, "owners/last_hour/unverified",
     "Of them, those without a confirmed owner."},
    {"source_owners_later_waiting", kGauge, "owners/later/waiting",
     "Events that were delivered without a confirmed owner, and whose owner is asked for again."},
    {"source_owners_later_verified", kCounter, "owners/later/verified",
     "Events whose owner was found later."},
    {"source_scheduler_share_ratio", kGauge, "owners/scheduler_load/share",
     "Of the scheduler's time in the last minutes, what our questions took at most."},
    {"source_scheduler_questions", kCounter, "owners/scheduler_load/questions",
     "Questions to the scheduler, by what was asked.", "kind"},
};
constexpr Row kSink[] = {
    {"sink_acknowledged", kCounter, "acknowledged",
     "Events that the destination has proved to hold, since the start."},
    {"sink_attempts", kCounter, "attempts", "Events handed to the sink, each attempt counted."},
    {"sink_dead_letters", kGauge, "dead",
     "Events that were given up and are kept with their reason."},
    {"sink_ready", kGauge, "ready", "Whether the sink has started."},
    {"sink_waiting_events", kGauge, "waiting", "Events that the sink still has to take."},
    {"sink_waiting_bytes", kGauge, "waiting_bytes", "Their size."},
    {"sink_refill_events", kGauge, "refill_from_archive",
     "Of them, events that the journal has left to an archive, from which they will be fetched."},
    {"sink_parked_events", kGauge, "parked",
     "Of them, events that were refused alone and are tried on their own time."},
    {"sink_in_flight_events", kGauge, "in_flight", "Events that the sink is handling."},
    {"sink_oldest_waiting_seconds", kGauge, "oldest_waiting_seconds",
     "Age of the oldest event that waits; absent if none does."},
    {"sink_retries", kCounter, "retries",
     "Attempts that the destination did not take, by its reason.", "reason"},
};

constexpr Row kMail[] = {
    {"mail_sent", kGauge, "sent", "Mails that the last report --mail with something to do sent."},
    {"mail_refused", kGauge, "refused", "Of its mails, those that the mail program refused."},
    {"mail_skipped", kGauge, "skipped", "Users to whom it wrote no mail.", "reason"},
    {"mail_waiting", kGauge, "waiting", "Mails that the mail program did not take yet."},
    {"mail_waiting_for_a_day", kGauge, "waiting_for_a_day", "Of them, those that wait for a day."},
};

const Json& at_path(const Json& object, std::string_view path) {
  const Json* at = &object;
  for (std::size_t slash = 0; (slash = path.find('/')) != path.npos; path.remove_prefix(slash + 1))
    at = &member(*at, std::string(path.substr(0, slash)).c_str());
  return member(*at, std::string(path).c_str());
}

// The families of the rows; `each(make)` calls make(labels, object) for every source or sink.
template <typename Each>
void write_rows(Writer& out, std::span<const Row> rows, const Each& each) {
  for (const Row& row : rows) {
    out.family(row.name, row.type, row.help);
    each([&](const Labels& labels, const Json& object) {
      const Json& value = at_path(object, row.path);
      if (row.label == nullptr) return out.sample(value, labels);
      if (!value.is_object()) return;
      for (const auto& [key, count] : value.items())
        out.sample(count, with(labels, row.label, key));
    });
  }
}

void write_sources(Writer& out, const Json& all) {
  const auto each = [&](const auto& make) {
    for (const auto& [name, source] : all.items()) make(Labels{{"source", name}}, source);
  };
  write_rows(out, kSource, each);
  out.family("source_gap_jobs", kGauge,
             "Job numbers that the scheduler used and that never appeared in the spool.");
  each([&](const Labels& labels, const Json& source) {
    for (const char* state : {"suspected", "confirmed"})
      out.sample(member(member(source, "gaps"), state), with(labels, "state", state));
  });
  out.family("source", Writer::Type::kInfo, "How a source captures.");
  each([&](Labels labels, const Json& source) {
    const Json& plugin = member(source, "plugin");
    const Json& method = member(source, "capture");
    if (plugin.is_string()) labels.emplace_back("plugin", plugin.get<std::string>());
    if (method.is_string()) labels.emplace_back("way", method.get<std::string>());
    out.sample(1, labels);
  });
  out.family("source_close_to_durable_seconds", Writer::Type::kHistogram,
             "From the script's last write to its event durable in the journal, for what a "
             "notification brought.");
  each([&](const Labels& labels, const Json& source) {
    out.histogram(member(source, "close_to_durable_seconds"), labels);
  });
}

void write_sinks(Writer& out, const Json& all) {
  const auto each = [&](const auto& make) {
    for (const auto& [name, sink] : all.items()) make(Labels{{"sink", name}}, sink);
  };
  write_rows(out, kSink, each);
  out.family("sink_last_success_timestamp_seconds", kGauge,
             "When the sink last acknowledged an event, in Unix time.");
  each([&](const Labels& labels, const Json& sink) {
    if (const auto time = parse_rfc3339(text_or_empty(member(sink, "last_success"))))
      out.sample(static_cast<double>(time->nanoseconds) / 1e9, labels);
  });
  out.family("sink", Writer::Type::kInfo,
             "What a sink is; configured=\"false\": its name is in the journal only.");
  each([&](const Labels& labels, const Json& sink) {
    const bool configured = member(sink, "configured") != Json(false);
    out.sample(1, with(with(labels, "plugin", text_or_empty(member(sink, "plugin"))), "configured",
                       configured ? "true" : "false"));
  });
  out.family("sink_captured_to_acknowledged_seconds", Writer::Type::kHistogram,
             "From captured (durable some milliseconds later) to acknowledged by the destination.");
  each([&](const Labels& labels, const Json& sink) {
    out.histogram(member(sink, "captured_to_acknowledged_seconds"), labels);
  });
}

}  // namespace

const char* content_type(MetricsFormat format) noexcept {
  return format == MetricsFormat::kOpenMetrics
             ? "application/openmetrics-text; version=1.0.0; charset=utf-8"
             : "text/plain; version=0.0.4; charset=utf-8";
}

std::string render_metrics(const std::string& status_json, MetricsFormat format) {
  const Json status = Json::parse(status_json, nullptr, false);
  Writer out(format);
  out.family("build", Writer::Type::kInfo, "The version that runs.");
  out.sample(1, {{"version", text_or_empty(member(status, "version"))}});
  out.family("uptime_seconds", kGauge, "Since the daemon was started.");
  out.sample(member(status, "uptime_seconds"));
  out.family("reload_refused", kGauge,
             "1 while the configuration on disk was refused by the last reload.");
  out.sample(member(status, "reload_refused").is_string() ? 1 : 0);
  write_rows(out, kJournal, [&](const auto& make) { make(Labels{}, member(status, "journal")); });
  const Json none = Json::object();
  const auto all = [&](const char* key) -> const Json& {
    return member(status, key).is_object() ? member(status, key) : none;
  };
  write_sources(out, all("sources"));
  write_sinks(out, all("sinks"));
  if (const Json& mail = member(status, "mail"); mail.is_object()) {
    write_rows(out, kMail, [&](const auto& make) { make(Labels{}, mail); });
    out.family("mail_may_be_lost", kGauge, "Users who may have got no mail, as status names them.");
    if (const Json& names = member(mail, "may_be_lost"); names.is_array()) out.sample(names.size());
    out.family("mail_last_run_timestamp_seconds", kGauge,
               "When report --mail last had something to do, in Unix time.");
    if (const auto time = parse_rfc3339(text_or_empty(member(mail, "time"))))
      out.sample(static_cast<double>(time->nanoseconds) / static_cast<double>(kSecond));
  }
  return out.end();
}

}  // namespace scriptorium
