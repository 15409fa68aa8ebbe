#pragma once

#include <memory>
#include <string>

#include "core/capture/assemble.h"
#include "core/capture/capture_status.h"
#include "core/capture/guarded_adapter.h"
#include "core/capture/spool_access.h"
#include "core/config/config.h"
#include "core/journal/journal.h"
#include "core/redact/redactor.h"

namespace scriptorium {

struct CaptureOptions {
  std::string name;  // of the source instance
  SourceConfig common;
  EventOrigin origin;
  bool resolve_first = false;  // the events wait for an OwnerResolver
  // Files that this process writes on the spool's file system (its archive, say) are not entries.
  bool skip_own_writes = true;
  GuardedAdapter::AroundParse around_parse;  // may be empty
  // Applies to what the adapter parsed, before the journal.
  std::shared_ptr<const redact::Redactor> redactor = redact::Redactor::none();
};

// What every part of one source's capture uses. The parts borrow it for their life.
struct CaptureContext {
  const CaptureOptions& options;
  SpoolAccess& access;
  const GuardedAdapter& adapter;
  Journal& journal;
  std::shared_ptr<CaptureReport> report;  // shared with callbacks that the journal holds
  const Clock& clock;

  // Closed files are read through their notification, even if their names are gone.
  bool has_content_notifications() const { return access.fanotify_fd() >= 0; }
  bool has_inotify_only() const { return access.fanotify_fd() < 0 && access.inotify_fd() >= 0; }
};

}  // namespace scriptorium
