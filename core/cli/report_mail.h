#pragma once

#include <string>
#include <vector>

#include "core/cli/arguments.h"
#include "core/cli/console.h"
#include "core/config/config.h"
#include "core/daemon/check.h"

namespace scriptorium::cli {

// `report --mail`: what users' jobs wasted in a week or a month, to each of them once.
int report_mail(const Arguments& arguments, Console& console);

// What `check` says of it: its mail program, its files, the sentences of each language. Nothing
// where no mails are configured. Call it before privileges are given up: the files may be root's
// alone.
std::vector<Finding> check_mail(const std::string& config_file);

}  // namespace scriptorium::cli
