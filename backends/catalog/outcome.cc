#include "backends/catalog/outcome.h"

namespace scriptorium::catalog {

void settle(Delivery& delivery, const Stored& stored) {
  if (stored.kind != Stored::Kind::kFailed) return delivery.acknowledge();
  if (!stored.error) return delivery.retry("the catalog did not store the event");
  switch (stored.error->kind()) {
    case ErrorKind::kPermanent: return delivery.reject(stored.error->message());
    case ErrorKind::kCorrupt:
      return delivery.retry("the catalog is damaged: " + stored.error->message());
    default: return delivery.retry(stored.error->message());
  }
}

}  // namespace scriptorium::catalog
