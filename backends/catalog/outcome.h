#pragma once

#include "backends/catalog/store.h"
#include "core/api/delivery.h"

// What the store's answer means for a delivery. Pure.
namespace scriptorium::catalog {

// An event that can never be stored is rejected. Everything else is tried again: a full disk, a
// lock that another process keeps, and damage, which a person repairs while the events wait in the
// journal.
void settle(Delivery& delivery, const Stored& stored);

}  // namespace scriptorium::catalog
