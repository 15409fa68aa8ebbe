#include "core/mail/summary.h"

namespace scriptorium::mail {

Sum& Sum::operator+=(const Sum& other) noexcept {
  jobs += other.jobs;
  core_seconds += other.core_seconds;
  unused_core_seconds += other.unused_core_seconds;
  gpu_seconds += other.gpu_seconds;
  unused_gpu_seconds += other.unused_gpu_seconds;
  return *this;
}

double Sum::wasted_core_hours() const noexcept {
  return (static_cast<double>(unused_core_seconds) +
          kCoreHoursOfGpuHour * static_cast<double>(unused_gpu_seconds)) /
         3600;
}

}  // namespace scriptorium::mail
