#include "core/daemon/metrics.h"

#include <array>
#include <charconv>
#include <cstdint>
#include <initializer_list>
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

std::string escaped(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c == '\\' || c == '"') result += '\\';
    if (c == '\n') {
      result += "\\n";
    } else {
      result += c;
    }
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
      Labels with = labels;
      with.emplace_back("le", number_text(member(bucket, "le")));
      if (open_ && with.back().second.find_first_of(".e") == std::string::npos)
        with.back().second += ".0";
      line(name_ + "_bucket", number_text(member(bucket, "count")), with);
    }
    Labels with = labels;
    with.emplace_back("le", "+Inf");
    line(name_ + "_bucket", number_text(member(value, "count")), with);
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

using Type = Writer::Type;

struct Row {
  const char* name;
  Type type;
  const char* key;  // in the status
  const char* help;
};

constexpr std::array kJournal = {
    Row{"journal_events", Type::kGauge, "events",
        "Events in the journal that some sink still has to take."},
    Row{"journal_size_bytes", Type::kGauge, "bytes", "Size of the journal on disk."},
    Row{"journal_wal_bytes", Type::kGauge, "wal_bytes",
        "Of it, the write-ahead log, which a long reader keeps from being cut."},
    Row{"journal_over_share_entries", Type::kGauge, "over_share_waiting",
        "Entries that wait in the spool because their user holds his share of the journal."},
    Row{"journal_limit_bytes", Type::kGauge, "limit_bytes",
        "Size at which capture waits (journal_max_bytes)."},
    Row{"journal_full", Type::kGauge, "full",
        "1 while the journal is at its limit and takes nothing from the spool."},
};
constexpr std::array kSource = {
    Row{"source_captured", Type::kCounter, "captured", "Events that this source made durable."},
    Row{"source_incomplete", Type::kCounter, "incomplete",
        "Of them, entries that were taken half written."},
    Row{"source_malformed", Type::kCounter, "malformed",
        "Of them, entries in which something was wrong."},
    Row{"source_superseding", Type::kCounter, "superseding",
        "Of them, scripts that grew after they had been captured."},
    Row{"source_duplicates", Type::kCounter, "duplicates",
        "Entries that were seen again and known already."},
    Row{"source_overflows", Type::kCounter, "overflows",
        "Notification queues that ran over; a scan followed each."},
    Row{"source_scans", Type::kCounter, "scans", "Scans of the whole spool."},
    Row{"source_pending_entries", Type::kGauge, "pending", "Entries that are not whole yet."},
    Row{"source_waiting_for_room", Type::kGauge, "waiting_for_room",
        "Entries that the full journal refused for now."},
    Row{"source_spool_there", Type::kGauge, "spool_there", "1 while the spool directory is there."},
    Row{"source_lag_seconds", Type::kGauge, "lag_seconds",
        "From closed to durable, of the newest event."},
};
// Counters that the status gives by reason.
struct ReasonRow {
  const char* name;
  const char* key;
  const char* label;
  const char* help;
};
constexpr std::array kSourceReasons = {
    ReasonRow{"source_captured_by_way", "captured_by", "way",
              "Captured events by what noticed them."},
    ReasonRow{"source_missed", "missed", "reason",
              "Entries that were seen to appear and could not be read."},
    ReasonRow{"source_ignored", "ignored", "reason", "Entries that were left out on purpose."},
};
constexpr std::array kSinkReasons = {
    ReasonRow{"sink_retries", "retries", "reason",
              "Attempts that the destination did not take, by its reason."},
};
constexpr std::array kSink = {
    Row{"sink_acknowledged", Type::kCounter, "acknowledged",
        "Events that the destination has proved to hold, since the start."},
    Row{"sink_attempts", Type::kCounter, "attempts",
        "Events handed to the sink, each attempt counted."},
    Row{"sink_dead_letters", Type::kGauge, "dead",
        "Events that were given up and are kept with their reason."},
    Row{"sink_waiting_events", Type::kGauge, "waiting", "Events that the sink still has to take."},
    Row{"sink_waiting_bytes", Type::kGauge, "waiting_bytes", "Their size."},
    Row{"sink_refill_events", Type::kGauge, "refill_from_archive",
        "Of them, events that the journal has left to an archive, from which they will be "
        "fetched."},
    Row{"sink_parked_events", Type::kGauge, "parked",
        "Of them, events that were refused alone and are tried on their own time."},
    Row{"sink_in_flight_events", Type::kGauge, "in_flight", "Events that the sink has in hand."},
    Row{"sink_oldest_waiting_seconds", Type::kGauge, "oldest_waiting_seconds",
        "Age of the oldest event that waits; absent if none does."},
};

constexpr std::array kOwners = {
    Row{"source_owners_verified", Type::kCounter, "verified",
        "Events whose owner the scheduler confirmed."},
    Row{"source_owners_waiting", Type::kGauge, "waiting",
        "Events that wait for the scheduler to name their owner."},
    Row{"source_owners_failed_queries", Type::kCounter, "failed_queries",
        "Times that the scheduler could not be asked."},
};
constexpr std::array kOwnersReasons = {
    ReasonRow{"source_owners_unverified", "unverified", "reason",
              "Events that were delivered without a confirmed owner."},
};
constexpr std::array kOwnersLastHour = {
    Row{"source_owners_decided_last_hour", Type::kGauge, "decided",
        "Events of the last hour for which an owner was asked."},
    Row{"source_owners_unverified_last_hour", Type::kGauge, "unverified",
        "Of them, those without a confirmed owner."},
};
constexpr std::array kOwnersLater = {
    Row{"source_owners_later_waiting", Type::kGauge, "waiting",
        "Events that were delivered without a confirmed owner, and whose owner is asked for "
        "again."},
    Row{"source_owners_later_verified", Type::kCounter, "verified",
        "Events whose owner was found later."},
};
constexpr std::array kLoad = {
    Row{"source_scheduler_share_ratio", Type::kGauge, "share",
        "Of the scheduler's time in the last minutes, what our questions took at most."},
};
constexpr std::array kLoadReasons = {
    ReasonRow{"source_scheduler_questions", "questions", "kind",
              "Questions to the scheduler, by what was asked."},
};

// The families of the rows; `each(make)` calls make(labels, object) for every source or sink.
template <typename Rows, typename ReasonRows, typename Each>
void write_rows(Writer& out, const Rows& rows, const ReasonRows& reason_rows, const Each& each) {
  for (const Row& row : rows) {
    out.family(row.name, row.type, row.help);
    each([&](const Labels& labels, const Json& object) {
      out.sample(member(object, row.key), labels);
    });
  }
  for (const ReasonRow& row : reason_rows) {
    out.family(row.name, Type::kCounter, row.help);
    each([&](const Labels& labels, const Json& object) {
      const Json& reasons = member(object, row.key);
      if (!reasons.is_object()) return;
      for (const auto& [reason, count] : reasons.items()) {
        Labels with = labels;
        with.emplace_back(row.label, reason);
        out.sample(count, with);
      }
    });
  }
}

void sources(Writer& out, const Json& all) {
  const auto each = [&](const auto& make) {
    for (const auto& [name, source] : all.items()) make(Labels{{"source", name}}, source);
  };
  write_rows(out, kSource, kSourceReasons, each);
  constexpr std::array<ReasonRow, 0> kNoReasons{};
  const auto each_member = [&](std::initializer_list<const char*> path) {
    return [&each, keys = std::vector<const char*>(path)](const auto& make) {
      each([&](const Labels& labels, const Json& source) {
        const Json* at = &source;
        for (const char* key : keys) at = &member(*at, key);
        make(labels, *at);
      });
    };
  };
  write_rows(out, kOwners, kOwnersReasons, each_member({"owners"}));
  write_rows(out, kOwnersLastHour, kNoReasons, each_member({"owners", "last_hour"}));
  write_rows(out, kOwnersLater, kNoReasons, each_member({"owners", "later"}));
  write_rows(out, kLoad, kLoadReasons, each_member({"owners", "scheduler_load"}));
  out.family("source_gap_jobs", Type::kGauge,
             "Job numbers that the scheduler used and that never appeared in the spool.");
  each([&](const Labels& labels, const Json& source) {
    for (const char* state : {"suspected", "confirmed"}) {
      Labels with = labels;
      with.emplace_back("state", state);
      out.sample(member(member(source, "gaps"), state), with);
    }
  });
  out.family("source", Type::kInfo, "How a source captures.");
  each([&](Labels labels, const Json& source) {
    const Json& plugin = member(source, "plugin");
    const Json& way = member(source, "capture");
    if (plugin.is_string()) labels.emplace_back("plugin", plugin.get<std::string>());
    if (way.is_string()) labels.emplace_back("way", way.get<std::string>());
    out.sample(1, labels);
  });
  out.family("source_close_to_durable_seconds", Type::kHistogram,
             "From the script's last write to its event durable in the journal, for what a "
             "notification brought.");
  each([&](const Labels& labels, const Json& source) {
    out.histogram(member(source, "close_to_durable_seconds"), labels);
  });
}

void sinks(Writer& out, const Json& all) {
  const auto each = [&](const auto& make) {
    for (const auto& [name, sink] : all.items()) make(Labels{{"sink", name}}, sink);
  };
  write_rows(out, kSink, kSinkReasons, each);
  out.family("sink_last_success_timestamp_seconds", Type::kGauge,
             "When the sink last acknowledged an event, in Unix time.");
  each([&](const Labels& labels, const Json& sink) {
    const Json& when = member(sink, "last_success");
    if (!when.is_string()) return;
    if (const auto time = parse_rfc3339(when.get<std::string>()))
      out.sample(static_cast<double>(time->nanoseconds) / 1e9, labels);
  });
  out.family("sink", Type::kInfo,
             "What a sink is; configured=\"false\": its name is in the journal only.");
  each([&](Labels labels, const Json& sink) {
    const Json& plugin = member(sink, "plugin");
    labels.emplace_back("plugin", plugin.is_string() ? plugin.get<std::string>() : "");
    labels.emplace_back("configured", member(sink, "configured") == Json(false) ? "false" : "true");
    out.sample(1, labels);
  });
  out.family("sink_captured_to_acknowledged_seconds", Type::kHistogram,
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
  out.family("build", Type::kInfo, "The version that runs.");
  const Json& version = member(status, "version");
  out.sample(1, {{"version", version.is_string() ? version.get<std::string>() : ""}});
  out.family("uptime_seconds", Type::kGauge, "Since the daemon was started.");
  out.sample(member(status, "uptime_seconds"));
  out.family("reload_refused", Type::kGauge,
             "1 while the configuration on disk was refused by the last reload.");
  out.sample(member(status, "reload_refused").is_string() ? 1 : 0);
  const Json& journal = member(status, "journal");
  for (const Row& row : kJournal) {
    out.family(row.name, row.type, row.help);
    out.sample(member(journal, row.key));
  }
  const Json none = Json::object();
  const Json& all_sources = member(status, "sources");
  const Json& all_sinks = member(status, "sinks");
  sources(out, all_sources.is_object() ? all_sources : none);
  sinks(out, all_sinks.is_object() ? all_sinks : none);
  return out.end();
}

}  // namespace scriptorium
