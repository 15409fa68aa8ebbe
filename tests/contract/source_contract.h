#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/api/spool_adapter.h"

namespace scriptorium::test {

// What the contract suite must know of a spool adapter. A new one is added to source_cases.cc, and
// nothing else.
struct SourceCase {
  std::string name;
  std::function<std::unique_ptr<SpoolAdapter>(const std::string& root,
                                              const PluginContext& context)>
      make;
  // The files of one job as its scheduler leaves them, in the order in which they are written: path
  // below the root, bytes. `number` is below 1000; `script` has no NUL and does not end in
  // whitespace that a scheduler might drop.
  std::function<std::vector<std::pair<std::string, std::string>>(int number,
                                                                 std::string_view script)>
      files;
  std::string folder = "spool";  // the root's own name, for an adapter that looks at it
};

const std::vector<SourceCase>& source_cases();

}  // namespace scriptorium::test
