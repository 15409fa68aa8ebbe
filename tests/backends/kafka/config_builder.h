#pragma once

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "backends/kafka/config.h"
#include "core/api/options.h"

namespace scriptorium::test {

// A table of options as core would make it of kafka.toml, each key on a line of its own from line 2
// on.
class ConfigBuilder {
 public:
  using Data = decltype(Value::data);

  ConfigBuilder& set(const std::string& key, Data data) {
    table_.entries.push_back({key, Value{std::move(data), {"kafka.toml", ++line_}}});
    return *this;
  }
  ConfigBuilder& set(const std::string& key, const char* text) {
    return set(key, Data(std::string(text)));
  }
  ConfigBuilder& set(const std::string& key, int number) {
    return set(key, Data(std::int64_t{number}));
  }
  ConfigBuilder& set(const std::string& key, bool flag) { return set(key, Data(flag)); }
  // [sink.kafka.librdkafka], or another table of properties; a property with dots stands under its
  // whole name.
  ConfigBuilder& property(const std::string& name, Data data,
                          const std::string& table = "librdkafka") {
    auto found = std::find_if(table_.entries.begin(), table_.entries.end(),
                              [&](const TableEntry& e) { return e.key == table; });
    if (found == table_.entries.end()) {
      ++line_;
      table_.entries.push_back({table, Value{Table{.entries = {},
                                                   .position = {"kafka.toml", line_},
                                                   .path = "sink.kafka." + table},
                                             {"kafka.toml", line_}}});
      found = table_.entries.end() - 1;
    }
    std::get<Table>(found->value.data)
        .entries.push_back({name, Value{std::move(data), {"kafka.toml", ++line_}}});
    return *this;
  }
  ConfigBuilder& property(const std::string& name, const char* text) {
    return property(name, Data(std::string(text)));
  }
  ConfigBuilder& property(const std::string& name, int number) {
    return property(name, Data(std::int64_t{number}));
  }

  const Table& table() const { return table_; }
  // Every problem, one a line.
  std::string problems() const {
    Problems problems;
    kafka::parse_config(table_, problems);
    std::string text;
    for (const Problem& p : problems.list()) text += p.text() + '\n';
    return text;
  }
  kafka::KafkaConfig config() const {
    Problems problems;
    kafka::KafkaConfig made = kafka::parse_config(table_, problems);
    if (!problems.empty()) throw std::runtime_error(problems.list().front().text());
    return made;
  }

 private:
  Table table_{.entries = {}, .position = {"kafka.toml", 1}, .path = "sink.kafka"};
  std::uint32_t line_ = 1;
};

}  // namespace scriptorium::test
