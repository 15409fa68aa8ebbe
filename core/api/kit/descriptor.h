#pragma once

#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/api/plugin.h"

// Builds a plugin's descriptor from the three things that differ between plugins: its options, its
// config parser and its class.
//
//   std::vector<OptionInfo> options();
//   KafkaConfig parse_config(const Table& table, Problems& problems);
//
//   extern "C" SCRIPTORIUM_EXPORT const scriptorium::PluginDescriptor scriptorium_plugin =
//       scriptorium::sink_plugin<KafkaSink, &options, &parse_config>("kafka", "...");
namespace scriptorium {

// For a plugin without its own options. Core has the options that every sink or source takes.
struct NoConfig {};
inline std::vector<OptionInfo> no_options() { return {}; }
inline NoConfig read_no_config(const Table& /*table*/, Problems& /*problems*/) { return {}; }

namespace kit_detail {

// Uses Class::create(config, context) if it exists, otherwise a constructor that takes both, only
// the config, or nothing.
template <typename Base, typename Class, typename Config>
Result<std::unique_ptr<Base>> make(Config config, const PluginContext& context) {
  if constexpr (requires { Class::create(std::move(config), context); }) {
    auto made = Class::create(std::move(config), context);
    if (!made) return made.error();
    return std::unique_ptr<Base>(*std::move(made));
  } else if constexpr (std::is_constructible_v<Class, Config, const PluginContext&>) {
    return std::unique_ptr<Base>(std::make_unique<Class>(std::move(config), context));
  } else if constexpr (std::is_constructible_v<Class, Config>) {
    return std::unique_ptr<Base>(std::make_unique<Class>(std::move(config)));
  } else {
    return std::unique_ptr<Base>(std::make_unique<Class>());
  }
}

template <typename Base, typename Class, auto kRead>
Result<std::unique_ptr<Base>> create(const Table& table, const PluginContext& context) {
  Problems problems;
  auto config = kRead(table, problems);
  // Core called check() before and found no problem, so this is not expected.
  if (!problems.empty()) return Error{ErrorKind::kInvalidConfig, problems.list().front().text()};
  return make<Base, Class>(std::move(config), context);
}

template <auto kOptions, auto kRead>
constexpr PluginDescriptor descriptor(PluginKind kind, const char* name, const char* summary) {
  return {.kind = kind,
          .name = name,
          .summary = summary,
          .options = kOptions,
          .check = [](const Table& table, Problems& problems) {
            static_cast<void>(kRead(table, problems));
          }};
}

}  // namespace kit_detail

template <typename Class, auto kOptions = &no_options, auto kRead = &read_no_config>
constexpr PluginDescriptor sink_plugin(const char* name, const char* summary) {
  auto made = kit_detail::descriptor<kOptions, kRead>(PluginKind::kSink, name, summary);
  made.create_sink = &kit_detail::create<Sink, Class, kRead>;
  return made;
}

template <typename Class, auto kOptions = &no_options, auto kRead = &read_no_config>
constexpr PluginDescriptor spool_adapter_plugin(const char* name, const char* summary) {
  auto made = kit_detail::descriptor<kOptions, kRead>(PluginKind::kSpoolAdapter, name, summary);
  made.create_spool_adapter = &kit_detail::create<SpoolAdapter, Class, kRead>;
  return made;
}

template <typename Class, auto kOptions = &no_options, auto kRead = &read_no_config>
constexpr PluginDescriptor free_source_plugin(const char* name, const char* summary) {
  auto made = kit_detail::descriptor<kOptions, kRead>(PluginKind::kFreeSource, name, summary);
  made.create_free_source = &kit_detail::create<FreeSource, Class, kRead>;
  return made;
}

}  // namespace scriptorium
