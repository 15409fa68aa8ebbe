#pragma once

#include <pthread.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>

namespace scriptorium {

// Sets the calling thread's name as `top -H` and `perf` show it, such as "capture:slurm". The
// kernel keeps 15 bytes.
inline void name_thread(std::string_view role, std::string_view instance = {}) {
  constexpr std::size_t kMostBytes = 15;
  std::string name(role);
  if (!instance.empty()) name.append(":").append(instance);
  name.resize(std::min(name.size(), kMostBytes));
  ::pthread_setname_np(::pthread_self(), name.c_str());
}

}  // namespace scriptorium
