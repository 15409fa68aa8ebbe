#pragma once

#include <string>

#include "core/cli/arguments.h"
#include "core/cli/console.h"
#include "core/config/config.h"

namespace scriptorium::cli {

// `report --mail`: what users' jobs wasted in a week or a month, to each of them once.
int report_mail(const Arguments& arguments, Console& console);

// What `status` says of it; "" where no mails are configured or the last run cannot be read.
std::string mail_status_text(const MailConfig& config, const Console& console);

}  // namespace scriptorium::cli
