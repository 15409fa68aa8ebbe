#include "core/query/stores.h"

#include <algorithm>
#include <utility>

#include "core/base/thrown.h"

namespace scriptorium::query {
namespace {

// Enters a plugin: what it throws becomes an error.
template <typename Call>
auto guarded(Call&& call) noexcept -> decltype(call()) {
  try {
    return call();
  } catch (...) {
    return Error{ErrorKind::kPermanent, "its plugin throws: " + thrown_text()};
  }
}

}  // namespace

void order_by_speed(std::vector<Store>& stores) {
  std::vector<std::pair<Searchable::Speed, std::size_t>> order;
  for (std::size_t i = 0; i < stores.size(); ++i)
    order.emplace_back(stores[i].searchable->speed(), i);
  std::sort(order.begin(), order.end());
  std::vector<Store> ordered;
  for (const auto& [speed, index] : order) ordered.push_back(std::move(stores[index]));
  stores = std::move(ordered);
}

std::vector<Store> indexed(std::vector<Store> stores) {
  std::erase_if(stores, [](const Store& store) {
    return store.searchable->speed() != Searchable::Speed::kIndexed;
  });
  return stores;
}

Asked<Searchable::Answer> search_fastest(const std::vector<Store>& stores,
                                         const Searchable::Request& request) {
  Asked<Searchable::Answer> asked;
  for (const Store& store : stores) {
    auto answer = guarded([&] { return store.searchable->search(request); });
    if (!answer) {
      asked.refused.push_back({store.name, answer.error()});
      continue;
    }
    asked.answer = *std::move(answer);
    asked.store = &store;
    break;
  }
  return asked;
}

Pages each_page(std::vector<Store> stores, Searchable::Request request,
                const std::function<void(const Searchable::Answer&)>& use) {
  Pages pages;
  while (true) {
    auto asked = search_fastest(stores, request);
    for (Refusal& refusal : asked.refused) pages.refused.push_back(std::move(refusal));
    pages.answered = asked.store != nullptr;
    if (!pages.answered) return pages;
    stores = {Store(*asked.store)};
    use(asked.answer);
    if (!asked.answer.finished || asked.answer.next.empty() || asked.answer.next == request.after)
      return pages;
    request.after = asked.answer.next;
  }
}

Asked<std::vector<Searchable::Record>> get_fastest(const std::vector<Store>& stores,
                                                   const Searchable::Selector& selector,
                                                   const Visibility& visibility,
                                                   std::size_t limit) {
  Asked<std::vector<Searchable::Record>> asked;
  for (const Store& store : stores) {
    auto records = guarded([&] { return store.searchable->get(selector, visibility, limit); });
    if (!records) {
      asked.refused.push_back({store.name, records.error()});
      continue;
    }
    asked.store = &store;
    asked.answer = *std::move(records);
    if (!asked.answer.empty()) break;
  }
  return asked;
}

}  // namespace scriptorium::query
