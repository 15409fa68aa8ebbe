#include "backends/kafka/properties.h"

#include <librdkafka/rdkafka.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <variant>

#include "backends/kafka/handles.h"
#include "core/base/ascii.h"
#include "core/base/text.h"

namespace scriptorium::kafka {
namespace {

// Properties that are ours to set.
struct Own {
  std::string_view property;
  std::string_view option;
};
constexpr std::array kOwn = {
    Own{"bootstrap.servers", "brokers"},
    Own{"metadata.broker.list", "brokers"},
    Own{"security.protocol", "security_protocol"},
    Own{"sasl.mechanism", "sasl_mechanism"},
    Own{"sasl.mechanisms", "sasl_mechanism"},
    Own{"sasl.username", "sasl_username"},
    Own{"sasl.password", "sasl_password_file"},
    Own{"sasl.kerberos.service.name", "kerberos_service_name"},
    Own{"sasl.kerberos.principal", "kerberos_principal"},
    Own{"sasl.kerberos.keytab", "kerberos_keytab_file"},
    Own{"ssl.ca.location", "tls_ca_file"},
    Own{"ssl.certificate.location", "tls_certificate_file"},
    Own{"ssl.key.location", "tls_key_file"},
    Own{"ssl.key.password", "tls_key_password_file"},
    Own{"compression.codec", "compression"},
    Own{"compression.type", "compression"},
    Own{"message.max.bytes", "message_max_bytes"},
    Own{"enable.idempotence", "enable_idempotence"},
};

// Properties that would break the promise with any other value than `allowed` ("" = with every
// value).
struct Unsafe {
  std::string_view property;
  std::string_view allowed;
  std::string_view why;
};
constexpr std::string_view kAcks =
    "an acknowledgement by fewer than all replicas in sync can be lost with one broker";
constexpr std::string_view kTimeout =
    "events wait in the journal for as long as it takes; one that librdkafka gave up on may be "
    "stored all the same, and would be "
    "sent twice";
constexpr std::string_view kRetries =
    "a delivery that librdkafka gave up on may be stored all the same, and would be sent twice";
constexpr std::array kUnsafe = {
    Unsafe{"acks", "all", kAcks},
    Unsafe{"request.required.acks", "all", kAcks},
    Unsafe{"message.timeout.ms", "0", kTimeout},
    Unsafe{"delivery.timeout.ms", "0", kTimeout},
    Unsafe{"retries", "2147483647", kRetries},
    Unsafe{"message.send.max.retries", "2147483647", kRetries},
    Unsafe{"delivery.report.only.error", "false", "the delivery report is the acknowledgement"},
    Unsafe{"queuing.strategy", "fifo", "the events of a job would come in another order"},
    Unsafe{"transactional.id", "",
           "no transaction is ever committed here, so no consumer would read the events"},
    Unsafe{"enabled_events", "", "reports would not come where the sink waits for them"},
    Unsafe{"log.queue", "true", "the sink serves librdkafka's log itself"},
    Unsafe{"plugin.library.paths", "", "code is loaded only from plugin_dirs"},
};

// Values that are secrets: only from a file.
constexpr std::array<std::string_view, 4> kSecret = {"ssl.keystore.password", "ssl.key.pem",
                                                     "sasl.oauthbearer.client.secret",
                                                     "sasl.oauthbearer.config"};

bool is_secret(std::string_view name) { return std::ranges::find(kSecret, name) != kSecret.end(); }

struct Item {
  std::string name;
  const Value* value = nullptr;
};

// `a.b.c = 1` is a table in a table in a table.
void flatten(const Table& table, const std::string& prefix, std::vector<Item>& into) {
  for (const TableEntry& entry : table.entries) {
    const std::string name = prefix.empty() ? entry.key : prefix + "." + entry.key;
    if (const auto* inner = std::get_if<Table>(&entry.value.data)) {
      flatten(*inner, name, into);
    } else {
      into.push_back({name, &entry.value});
    }
  }
}

// The value as librdkafka reads it; false for a list.
bool value_text(const Value& value, std::string& text) {
  if (const auto* s = std::get_if<std::string>(&value.data)) {
    text = *s;
  } else if (const auto* i = std::get_if<std::int64_t>(&value.data)) {
    text = std::to_string(*i);
  } else if (const auto* b = std::get_if<bool>(&value.data)) {
    text = *b ? "true" : "false";
  } else if (const auto* d = std::get_if<double>(&value.data)) {
    text = options_detail::default_text(*d);
  } else {
    return false;
  }
  return true;
}

// Every property with its other names, which only the table for people has.
std::vector<std::string> known_names() {
  char* text = nullptr;
  std::size_t size = 0;
  std::FILE* stream = ::open_memstream(&text, &size);
  if (stream == nullptr) return {};
  rd_kafka_conf_properties_show(stream);
  std::fclose(stream);
  const std::unique_ptr<char, decltype(&std::free)> owned(text, &std::free);
  std::vector<std::string> names;
  std::string_view rest(text, size);
  while (!rest.empty()) {
    std::string_view line = take_until(rest, '\n');
    const std::string_view name = take_until(line, ' ');
    if (!name.empty() && is_lower(name.front())) names.emplace_back(name);
  }
  return names;
}

std::string words_of(const char* text) {
  return "librdkafka " + std::string(rd_kafka_version_str()) +
         " says: " + printable(trim_end(text, "\n"));
}

// What is wrong with it; nothing if it may go to librdkafka.
struct PropertyVerdict {
  std::string problem;
  std::string allowed;
  std::string did_you_mean;
};

PropertyVerdict refuse(const std::string& name, const std::string& text, PropertyTable kind) {
  if (const auto own = std::ranges::find(kOwn, name, &Own::property); own != kOwn.end()) {
    return {.problem = "has an option of its own: use " + std::string(own->option)};
  }
  const auto unsafe = std::ranges::find(kUnsafe, name, &Unsafe::property);
  const bool all_replicas = unsafe != kUnsafe.end() && unsafe->why == kAcks && text == "-1";
  if (unsafe != kUnsafe.end() && !all_replicas &&
      (unsafe->allowed.empty() || text != unsafe->allowed)) {
    return {.problem = "would break the promise: " + std::string(unsafe->why),
            .allowed = unsafe->allowed.empty()
                           ? "leave it out"
                           : "leave it out, or " + std::string(unsafe->allowed)};
  }
  if (kind == PropertyTable::kValues && is_secret(name)) {
    return {.problem =
                "is a secret: put it into a file, and the file's name under the same property in "
                "librdkafka_secret_files"};
  }
  return {};
}

PropertyVerdict ask_librdkafka(rd_kafka_conf_t* conf, const std::string& name,
                               const std::string& text, PropertyTable kind) {
  std::array<char, 512> words{};
  // The file's contents are not known here, and need not fit this property's range to be asked
  // for.
  const char* value = kind == PropertyTable::kValues ? text.c_str() : "";
  switch (rd_kafka_conf_set(conf, name.c_str(), value, words.data(), words.size())) {
    case RD_KAFKA_CONF_OK: return {};
    case RD_KAFKA_CONF_UNKNOWN: {
      return {.problem = words_of(words.data()),
              .did_you_mean = did_you_mean(name, known_names()).value_or("")};
    }
    default:
      if (kind == PropertyTable::kSecretFiles) return {};
      return {.problem = words_of(words.data())};
  }
}

}  // namespace

std::vector<Property> read_properties(const Value& value, const Table& parent, std::string_view key,
                                      PropertyTable kind, Problems& problems) {
  std::vector<Property> result;
  const auto* table = std::get_if<Table>(&value.data);
  const std::string path = options_detail::join_key(parent.path, key);
  if (table == nullptr) {
    problems.add(parent, key, "wrong type", "a table of librdkafka's properties: [" + path + "]");
    return result;
  }
  const Owned<rd_kafka_conf_t> scratch(rd_kafka_conf_new());
  std::vector<Item> items;
  flatten(*table, {}, items);
  for (const Item& item : items) {
    std::string text;
    PropertyVerdict verdict;
    if (!value_text(*item.value, text)) {
      verdict = {.problem = "wrong type", .allowed = "string, integer, true or false"};
    } else if (kind == PropertyTable::kSecretFiles &&
               !std::holds_alternative<std::string>(item.value->data)) {
      verdict = {.problem = "wrong type", .allowed = "string: the name of a file"};
    } else if (text.find('\0') != std::string::npos) {
      verdict = {.problem = "holds a NUL byte"};
    } else {
      verdict = refuse(item.name, text, kind);
      if (verdict.problem.empty()) verdict = ask_librdkafka(scratch.get(), item.name, text, kind);
    }
    if (verdict.problem.empty()) {
      result.emplace_back(item.name, std::move(text));
      continue;
    }
    // Not with its value if that may be a password.
    const bool hide = is_secret(item.name) || item.name.find("password") != std::string::npos ||
                      item.name.find("secret") != std::string::npos ||
                      item.name.find("pem") != std::string::npos;
    problems.add({.position = item.value->position,
                  .key = path + "." + printable(item.name, 80),
                  .problem = std::move(verdict.problem),
                  .allowed = std::move(verdict.allowed),
                  .given = hide ? Secret::text() : item.value->text(),
                  .did_you_mean = std::move(verdict.did_you_mean)});
  }
  return result;
}

}  // namespace scriptorium::kafka
