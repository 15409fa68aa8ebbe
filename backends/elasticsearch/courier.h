#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "backends/elasticsearch/bulk.h"
#include "backends/elasticsearch/config.h"
#include "backends/elasticsearch/hosts.h"
#include "backends/elasticsearch/http.h"
#include "backends/elasticsearch/outcome.h"
#include "backends/elasticsearch/server.h"
#include "backends/elasticsearch/suspects.h"
#include "backends/elasticsearch/template_gate.h"
#include "core/api/kit/inbox.h"
#include "core/api/kit/learned_size.h"
#include "core/api/kit/repeat_limit.h"
#include "core/api/sink.h"
#include "core/base/guarded.h"

namespace scriptorium::elasticsearch {

// Minimum interval between two requests that only a person can make succeed.
inline constexpr std::chrono::milliseconds kSlowly{60'000};

// What `status` shows.
struct CourierStatus {
  ServerInfo server;
  std::vector<Hosts::Host> hosts;
  std::uint64_t created = 0;
  std::uint64_t replaced = 0;
  std::uint64_t duplicates = 0;
  std::uint64_t failure_store = 0;
  std::uint64_t scripts_cut = 0;
  std::uint64_t environments_cut = 0;
  std::uint64_t bytes_raw = 0;
  std::uint64_t bytes_sent = 0;
  std::uint64_t requests = 0;
  std::uint64_t splits = 0;
  std::uint64_t body_limit = 0;
  std::map<long, std::uint64_t> http;  // answers by status
  std::map<std::string, std::uint64_t>
      failures;  // requests without an answer, by to_string(Failure)
  std::vector<std::string> missing_templates;
};

// The thread of the sink: batches in, settled deliveries out. courier.cc makes and sends requests,
// courier_answers.cc settles their deliveries.
// Owns:    the deliveries from deliver() until they are settled.
// Threads: deliver(), stop() and status() from any; the rest is its own thread.
class Courier {
 public:
  Courier(const ElasticsearchConfig& config, const Credentials& credentials,
          const PluginContext& context);
  ~Courier();
  Courier(const Courier&) = delete;
  Courier& operator=(const Courier&) = delete;

  void deliver(std::vector<Delivery> batch);
  // Returns when the thread has ended, soon after `deadline`.
  void stop(SteadyTime deadline);
  CourierStatus status() const;

 private:
  // A batch of core's, of which deliveries[next..] were not rendered yet.
  struct Batch {
    std::vector<Delivery> deliveries;
    std::size_t next = 0;
    std::size_t body_limit = 0;
    bool rendered() const noexcept { return next == deliveries.size(); }
  };
  // Documents of a request that a server did not understand, until each was tried apart.
  struct Trial {
    std::size_t open = 0;      // parcels of it that have no answer
    std::size_t requests = 0;  // refused so far
    bool passed = false;       // some of it was taken, so the rest is guilty by itself
    struct Refused {
      Delivery delivery;
      std::string reason;  // short: retries are counted by it
      std::string full;    // with the server's words
    };
    std::vector<Refused> refused;
  };
  // A request: documents [first, first + deliveries.size()) of a body.
  struct Parcel {
    std::shared_ptr<const Body> body;
    Replacing replacing = Replacing::kInPlace;  // as the body was rendered
    std::size_t first = 0;
    std::vector<Delivery> deliveries;
    std::vector<std::size_t> tried;  // hosts
    std::size_t host = 0;
    std::shared_ptr<Trial> trial;
    bool without_expect = false;
    std::string_view bytes() const { return body->slice(first, first + deliveries.size()); }
    std::size_t size() const { return bytes().size(); }
    // The second half of the documents, which this parcel no longer has.
    Parcel take_second_half();
  };

  void run() noexcept;
  bool step();                          // false: the end
  std::optional<SteadyTime> collect();  // the deadline of stop()
  void check_for_new_secrets();
  void drop_rendered_batches();
  void send_what_may_go();
  bool ready_to_render();
  std::optional<Parcel> render();
  // False: it has no document, and is settled.
  bool renderable(Delivery& delivery, Replacing replacing) const;
  void ask_template(const std::string& family);
  void ask_product();
  void send(Parcel parcel);
  HttpRequest request_for(const Parcel& parcel) const;
  void give_up() noexcept;

  void finish(Http::Done done);
  void finish_template(const std::string& family, const HttpResponse& response);
  void finish_parcel(Parcel parcel, const HttpResponse& response);
  void host_failed(std::size_t host, std::string why);
  void host_worked(std::size_t host);
  void note_server(const HttpResponse& response, bool asked);

  void failed(Parcel parcel, const HttpResponse& response);
  void count_closed_connections(const std::string& reason, HttpResponse::Failure failure,
                                const std::string& host);
  void answered(Parcel parcel, const HttpResponse& response);
  void settle_items(Parcel parcel, const HttpResponse& response);
  void count_items(const std::vector<Item>& items);
  void settle(Delivery& delivery, const Item& item, bool others_accepted);
  std::string family(const Delivery& delivery) const;
  void stored(Delivery& delivery, const Item& item);
  Replacing replacing() const;
  void may_not_change(const std::string& reason);
  void split(Parcel parcel);
  void too_large(Parcel parcel, const HttpResponse& response);
  void not_understood(Parcel parcel, const std::string& reason, const std::string& words);
  void leave_trial(const std::shared_ptr<Trial>& trial, bool passed);
  void retry_all(Parcel& parcel, const std::string& reason,
                 std::optional<std::chrono::milliseconds> hint = std::nullopt);
  bool has_next_host(const Parcel& parcel) const;
  void lower_limit(std::size_t refused_size);
  // Once for each reason, and again while it lasts.
  void log_problem(const char* id, const char* sentence, const std::string& reason,
                   const std::string& host = {});
  void log_refused(const std::string& reason, const std::string& host = {});
  std::string words_of(const ServerError& error, const Parcel& parcel) const;

  const ElasticsearchConfig& config_;
  const PluginContext& context_;
  Http http_;
  Hosts hosts_;
  std::deque<Batch> batches_;
  std::deque<Parcel> ready_;
  std::map<std::uint64_t, Parcel> under_way_;
  std::map<std::uint64_t, std::string>
      questions_;  // tag -> family whose template is asked for; "" = the product
  TemplateGate templates_;
  std::uint64_t last_tag_ = 0;
  std::string signature_;
  std::optional<Credentials> renewal_;  // to be used as soon as nothing is in flight
  LearnedSize body_limit_;
  std::uint32_t cut_in_a_row_ = 0;
  std::uint32_t closed_in_a_row_ = 0;
  bool product_asked_ = false;
  // The server did not let us change a document; absent: never since the start.
  std::optional<SteadyTime> no_change_until_;
  Suspects suspects_;
  RepeatLimit problems_;

  Guarded<CourierStatus> status_;
  Inbox<std::vector<Delivery>> inbox_;
  std::jthread thread_;
};

}  // namespace scriptorium::elasticsearch
