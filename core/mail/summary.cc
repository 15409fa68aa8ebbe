#include "core/mail/summary.h"

namespace scriptorium::mail {

double Sum::wasted_core_hours() const noexcept {
  return (static_cast<double>(unused_core_seconds) +
          kCoreHoursOfGpuHour * static_cast<double>(unused_gpu_seconds)) /
         3600;
}

}  // namespace scriptorium::mail
