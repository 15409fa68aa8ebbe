#include "schedulers/usage/counter_files.h"

#include <sys/resource.h>

#include <algorithm>
#include <cerrno>

#include "schedulers/usage/counters.h"

namespace scriptorium::usage {

CounterFiles::CounterFiles(Files& files, std::size_t most_kept, Logger& log, const Clock& clock)
    : files_(files),
      most_kept_(most_kept),
      log_(log),
      clock_(clock),
      buffer_(std::size_t{64} << 10) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) == 0)
    most_kept_ = std::min<std::size_t>(most_kept_, limit.rlim_cur / 2);
}

void CounterFiles::refused(const std::string& path, int code) {
  ++unreadable_;
  if (!logged_.allows(path.substr(path.rfind('/') + 1), clock_.steady())) return;
  log_.warning("USAGE_UNREADABLE",
               "a counter of a job may not be read, so what it counts is absent from the events",
               {{"file", path}, {"reason", system_error("open", -code).message()}});
}

JobFiles::~JobFiles() {
  for (Slot& slot : slots_) close(slot);
}

std::optional<std::string_view> JobFiles::text(const ReadScope& scope, const CounterFile& file) {
  const ControlGroup& group = scope.groups.of(file.controller);
  Slot& slot = slots_.at(file.slot);
  if (!group.there || (slot.missing && !scope.retry)) return std::nullopt;
  UniqueFd opened;
  if (!slot.fd) {
    shared_.path_.assign(group.path).append("/").append(file.name);
    opened = UniqueFd(shared_.files_.open(shared_.path_));
    const int code = opened.get();
    slot.missing = code == -ENOENT;
    if (code == -EACCES || code == -EPERM) shared_.refused(shared_.path_, code);
    if (code < 0) return std::nullopt;
  }
  auto& buffer = shared_.buffer_;
  const int fd = opened ? opened.get() : slot.fd.get();
  const long got = shared_.files_.read(fd, buffer.data(), buffer.size(), 0);
  if (got < 0) {
    close(slot);
    return std::nullopt;
  }
  if (opened && file.kept && shared_.kept_ < shared_.most_kept_) {
    slot.fd = std::move(opened);
    slot.controller = file.controller;
    ++shared_.kept_;
  }
  return std::string_view(buffer.data(), static_cast<std::size_t>(got));
}

void JobFiles::number(const ReadScope& scope, const CounterFile& file,
                      std::optional<std::uint64_t>& into) {
  if (const auto found = text(scope, file)) into = whole_number(*found);
}

void JobFiles::close(Controller controller) {
  for (Slot& slot : slots_) {
    if (slot.controller == controller) close(slot);
  }
}

void JobFiles::close(Slot& slot) {
  if (!slot.fd) return;
  slot.fd.reset();
  --shared_.kept_;
}

}  // namespace scriptorium::usage
