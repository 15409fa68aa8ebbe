#pragma once

#include <fcntl.h>

#include <cerrno>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "core/api/plugin.h"
#include "core/base/file.h"

// What test plugins share.
namespace scriptorium::broken {

// Acknowledges everything.
class PlainSink : public Sink {
 public:
  void deliver(std::vector<Delivery> batch) override {
    for (Delivery& delivery : batch) delivery.acknowledge();
  }
};

inline std::vector<OptionInfo> no_options() { return {}; }
inline void no_check(const Table&, Problems&) {}
inline Result<std::unique_ptr<Sink>> create_plain(const Table&, const PluginContext&) {
  return std::unique_ptr<Sink>(new PlainSink());
}

// A T, which is a sink or a spool adapter and is made of what schema() reads.
template <auto schema, typename T>
constexpr PluginDescriptor describe(const char* name, const char* summary) {
  constexpr bool kIsSink = std::is_base_of_v<Sink, T>;
  using Interface = std::conditional_t<kIsSink, Sink, SpoolAdapter>;
  PluginDescriptor descriptor{
      .kind = kIsSink ? PluginKind::kSink : PluginKind::kSpoolAdapter,
      .name = name,
      .summary = summary,
      .options = [] { return schema().options(); },
      .check = [](const Table& table, Problems& problems) { schema().parse(table, problems); }};
  const auto create = [](const Table& table,
                         const PluginContext&) -> Result<std::unique_ptr<Interface>> {
    Problems problems;
    return std::unique_ptr<Interface>(new T(schema().parse(table, problems)));
  };
  if constexpr (kIsSink) {
    descriptor.create_sink = create;
  } else {
    descriptor.create_spool_adapter = create;
  }
  return descriptor;
}

// Acknowledges the delivery once the file has its line.
inline void note_and_acknowledge(const std::string& file, const std::string& line,
                                 Delivery& delivery) {
  const UniqueFd fd{::open(file.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600)};
  const auto noted = fd ? write_fd(fd.get(), line + "\n") : system_error("open " + file, errno);
  if (noted) {
    delivery.acknowledge();
  } else {
    delivery.retry(noted.error().message());
  }
}

}  // namespace scriptorium::broken
