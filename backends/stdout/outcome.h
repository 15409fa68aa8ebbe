#pragma once

#include "core/base/error.h"

// What an answer of write() means for the events that it was to bring out. Pure.
namespace scriptorium::stdout_sink {

// Always a retry: what is not written now may be written later, by a reader that came back.
Error write_error(int code);

}  // namespace scriptorium::stdout_sink
