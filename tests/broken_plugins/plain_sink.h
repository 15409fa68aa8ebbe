#pragma once

#include <memory>
#include <vector>

#include "core/api/plugin.h"

// What every test plugin here shares: no options, and a sink that acknowledges everything.
namespace scriptorium::broken {

class PlainSink : public Sink {
 public:
  void deliver(std::vector<Delivery> batch) override {
    for (Delivery& delivery : batch) delivery.acknowledge();
  }
};

inline std::vector<OptionInfo> no_options() { return {}; }
inline void no_check(const Table& table, Problems& problems) {
  static_cast<void>(table);
  static_cast<void>(problems);
}
inline Result<std::unique_ptr<Sink>> create_plain(const Table& table,
                                                  const PluginContext& context) {
  static_cast<void>(table);
  static_cast<void>(context);
  return std::unique_ptr<Sink>(new PlainSink());
}

}  // namespace scriptorium::broken
