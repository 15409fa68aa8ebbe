#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "core/api/searchable.h"
#include "core/base/result.h"

// Which of a site's searchable sinks answers a question: the fastest one that can.
// Threads: as Searchable.
namespace scriptorium::query {

// A searchable sink of the configuration. Borrows the sink, which must outlive it.
struct Store {
  std::string name;
  Searchable* searchable = nullptr;
};

// The fastest first; stores of one speed keep their order.
void order_by_speed(std::vector<Store>& stores);

// Those with an index, which answer at once.
std::vector<Store> indexed(std::vector<Store> stores);

// A store that was asked and could not answer.
struct Refusal {
  std::string store;
  Error error;
};

// `store` is null if no store could answer; then `refused` says why for each of them.
template <typename Answer>
struct Asked {
  Answer answer;
  const Store* store = nullptr;
  std::vector<Refusal> refused;
};

// Asks the stores in their order until one answers. A plugin that throws counts as a refusal.
Asked<Searchable::Answer> search_fastest(const std::vector<Store>& stores,
                                         const Searchable::Request& request);

// Asks in order until a store has the job. If `store` is set and the answer is empty, at least one
// store was asked, and none has the job.
Asked<std::vector<Searchable::Record>> get_fastest(const std::vector<Store>& stores,
                                                   const Searchable::Selector& selector,
                                                   const Visibility& visibility, std::size_t limit);

// Calls `use` with each page of an answer, all of them from the fastest store that answers the
// first one: `after` means nothing to another.
struct Pages {
  bool answered = false;  // false: no store, or not all that there is
  std::vector<Refusal> refused;
};
Pages each_page(std::vector<Store> stores, Searchable::Request request,
                const std::function<void(const Searchable::Answer&)>& use);

}  // namespace scriptorium::query
