#pragma once

#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "core/api/logger.h"
#include "core/base/result.h"
#include "core/cli/arguments.h"
#include "core/cli/console.h"
#include "core/cli/open_stores.h"
#include "core/page/server.h"
#include "core/query/stores.h"
#include "core/serve/caller.h"

// The page of `scriptorium serve`.
namespace scriptorium::cli {

// Makes the pages from these stores.
page::Server::Service page_service(
    std::unique_ptr<page::Gate> gate, std::vector<query::Store> stores,
    std::function<Result<serve::Caller>(const std::string&)> find_caller,
    std::function<Result<void>(const Logger::Fields&)> record);

// `serve --open`: the page for the caller alone, at an address of this host that is printed, until
// a signal or the end of the terminal.
int open_page(const Arguments& arguments, Console& console);

// Says why there is no store with an index; returns the exit code.
int say_no_index(const OpenStores& open, Console& console);

void wait_for(const std::stop_token& stop);

}  // namespace scriptorium::cli
