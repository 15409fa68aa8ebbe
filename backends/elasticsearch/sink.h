#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "backends/elasticsearch/config.h"
#include "backends/elasticsearch/courier.h"
#include "backends/elasticsearch/http.h"
#include "core/api/sink.h"

namespace scriptorium::elasticsearch {

// Writes each event as one document, under the event's id, by bulk requests; acknowledged is what
// the server's answer says of that very document. A document that is there already is acknowledged
// as well: nothing is written twice. An event that `replaces` another takes over the document of
// that one, so the first event's id stays the document's.
//
// deliver() hands its batch to a thread that renders, sends and judges, and returns; so a server
// that hangs holds no call of core's. While one request is at the server the next body is made. A
// request that one server could not take goes to the next at once; all waiting is core's.
//
// Owns:    one thread, its connections, the bodies under way: requests_in_flight times
// request_max_bytes, and a document. Threads: as Sink says; deliver() from several at once.
class ElasticsearchSink final : public Sink {
 public:
  // Reads the files of the secrets; kInvalidConfig if that fails.
  static Result<std::unique_ptr<ElasticsearchSink>> create(ElasticsearchConfig config,
                                                           const PluginContext& context);
  ~ElasticsearchSink() override;

  Result<void> check() override;
  Result<void> start() override;
  void deliver(std::vector<Delivery> batch) override;
  // What is under way may end until `deadline`; the rest becomes a retry.
  void stop(SteadyTime deadline) override;
  Result<std::vector<StoredJob>> find(std::string_view job_id) override;
  Result<std::string> setup(bool print) override;
  std::string status_json() const override;

 private:
  ElasticsearchSink(ElasticsearchConfig config, Credentials credentials,
                    const PluginContext& context);

  const ElasticsearchConfig config_;
  const Credentials credentials_;
  const PluginContext context_;
  std::unique_ptr<Courier> courier_;
};

}  // namespace scriptorium::elasticsearch
