#pragma once

#include <cstdint>
#include <memory>

#include "core/api/executables.h"
#include "core/api/free_source.h"
#include "core/api/options.h"
#include "core/api/sink.h"
#include "core/api/spool_adapter.h"
#include "core/base/result.h"

namespace scriptorium {

// Incremented whenever the layout or meaning of anything in core/api changes;
// tests/core/api/abi/abi_layout_test.cc fails if that is forgotten.
inline constexpr std::uint32_t kPluginAbiVersion = 14;

// Compiler, libstdc++ ABI and a hash of core/api and core/base, as "g++-12.2.0/cxx11/5f3a...".
// Daemon and plugin can exchange C++ types because their stamps must be equal. Set by the build
// (cmake/build_stamp.cmake).
#ifndef SCRIPTORIUM_BUILD_STAMP
#error \
    "SCRIPTORIUM_BUILD_STAMP is not set: build plugins with scriptorium_add_plugin() from find_package(Scriptorium)"
#endif

enum class PluginKind : std::uint32_t { kSink = 1, kSpoolAdapter = 2, kFreeSource = 3 };

// The only symbol that a plugin exports:
//   extern "C" SCRIPTORIUM_EXPORT const scriptorium::PluginDescriptor scriptorium_plugin = {
//       .kind = PluginKind::kSink, .name = "null", .summary = "...",
//       .options = &describe, .check = &check, .create_sink = &create};
// The loader compares abi_version, then descriptor_size, then build_stamp before it calls anything.
struct PluginDescriptor {
  std::uint32_t abi_version = kPluginAbiVersion;  // read first; never moves
  std::uint32_t descriptor_size = sizeof(PluginDescriptor);
  const char* build_stamp = SCRIPTORIUM_BUILD_STAMP;
  PluginKind kind = PluginKind::kSink;
  const char* name = nullptr;     // "kafka"; the file is NAME.so
  const char* summary = nullptr;  // one line for `scriptorium plugins`

  // All options of an instance, for configuration checks, `scriptorium plugins NAME` and the
  // reference page.
  std::vector<OptionInfo> (*options)() = nullptr;
  // Parses and cross-checks an instance's table without side effects; reports all problems.
  void (*check)(const Table& table, Problems& problems) = nullptr;

  // Exactly one of these is set, according to `kind`. Core calls it once per instance, after
  // check() found no problem, in a separate thread while the main thread waits. It must return
  // within 30 s and do no network I/O.
  Result<std::unique_ptr<Sink>> (*create_sink)(const Table& table,
                                               const PluginContext& context) = nullptr;
  Result<std::unique_ptr<SpoolAdapter>> (*create_spool_adapter)(
      const Table& table, const PluginContext& context) = nullptr;
  Result<std::unique_ptr<FreeSource>> (*create_free_source)(const Table& table,
                                                            const PluginContext& context) = nullptr;
};

#define SCRIPTORIUM_EXPORT __attribute__((visibility("default")))

}  // namespace scriptorium
