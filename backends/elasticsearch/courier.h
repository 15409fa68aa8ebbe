#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "backends/elasticsearch/bulk.h"
#include "backends/elasticsearch/config.h"
#include "backends/elasticsearch/hosts.h"
#include "backends/elasticsearch/http.h"
#include "backends/elasticsearch/outcome.h"
#include "backends/elasticsearch/server.h"
#include "core/api/sink.h"
#include "core/base/guarded.h"

namespace scriptorium::elasticsearch {

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

// The thread of the sink: batches in, settled deliveries out.
// Threads: deliver(), status() from any; the rest is its own thread.
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
  struct Load {
    std::vector<Delivery> deliveries;
    std::size_t next = 0;
    std::size_t body_limit = 0;
  };
  // Documents that a server did not understand a request with, until they were tried apart.
  struct Trial {
    std::size_t open = 0;      // parcels of it that have no answer
    std::size_t requests = 0;  // refused so far
    bool passed = false;       // some of it was taken, so the rest is guilty by itself
    struct Refused {
      Delivery delivery;
      std::string reason;  // short, to be counted by
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
    std::size_t size() const noexcept {
      return body->slice(first, first + deliveries.size()).size();
    }
  };
  struct Inbox {
    std::deque<std::vector<Delivery>> batches;
    std::optional<SteadyTime> stop_at;
  };
  // A document that nobody can judge.
  struct Suspect {
    std::uint32_t refusals = 0;
    SteadyTime since;
    std::uint64_t accepts_seen = 0;
  };
  enum class TemplateState { kUnknown, kAsked, kThere, kMissing };
  struct Template {
    TemplateState state = TemplateState::kUnknown;
    SteadyTime asked_at;
    std::size_t host = 0;
  };

  void run() noexcept;
  bool step();  // false: the end
  void collect(std::optional<SteadyTime>& stop_at);
  void look_for_new_secrets();
  void drop_finished_loads();
  void send_what_may_go();
  bool ready_to_render();
  std::optional<Parcel> render();
  bool template_in_the_way(Delivery& delivery);
  void ask_template(const std::string& family);
  void ask_product();
  void send(Parcel parcel);
  void finish(Http::Done done);
  void finish_template(const std::string& family, const HttpResponse& response);
  void finish_parcel(Parcel parcel, const HttpResponse& response);
  void host_failed(std::size_t host, std::string why);
  void host_worked(std::size_t host);
  void failed(Parcel parcel, const HttpResponse& response);
  void answered(Parcel parcel, const HttpResponse& response);
  void judge_items(Parcel parcel, const HttpResponse& response);
  void settle(Delivery& delivery, const Item& item);
  Replacing replacing() const;
  void may_not_change(const std::string& reason);
  void split(Parcel parcel);
  void too_large(Parcel parcel, const HttpResponse& response);
  void not_understood(Parcel parcel, const std::string& reason, const std::string& words);
  void leave_trial(const std::shared_ptr<Trial>& trial, bool passed);
  void retry_all(Parcel& parcel, const std::string& reason,
                 std::optional<std::chrono::milliseconds> hint = std::nullopt);
  bool next_host(Parcel& parcel);
  bool worn_out(const Delivery& delivery);
  void lower_limit(std::size_t refused_size);
  void complain(const char* id, const char* sentence, const std::string& reason,
                const std::string& host = {});
  void complain_refused(const std::string& reason, const std::string& host = {});
  void note_server(const HttpResponse& response, bool asked);
  void give_up() noexcept;
  std::string words_of(const ServerError& error, const Parcel& parcel) const;

  const ElasticsearchConfig& config_;
  const PluginContext& context_;
  Http http_;
  Hosts hosts_;
  std::deque<Load> loads_;
  std::deque<Parcel> ready_;
  std::map<std::uint64_t, Parcel> under_way_;
  std::map<std::uint64_t, std::string>
      questions_;  // tag -> family whose template is asked for; "" = the product
  std::map<std::string, Template> templates_;
  std::uint64_t last_tag_ = 0;
  std::string signature_;
  std::optional<Credentials> renewal_;  // to be used as soon as nothing is in flight
  std::size_t body_limit_;
  std::uint32_t taken_in_a_row_ = 0;
  std::uint32_t cut_in_a_row_ = 0;
  std::uint32_t closed_in_a_row_ = 0;
  std::uint64_t accepts_ = 0;  // requests of which something was stored
  bool product_asked_ = false;
  std::optional<SteadyTime> no_change_until_;  // the server did not let us change a document;
                                               // absent: never since the start
  std::unordered_map<std::string, Suspect> suspects_;
  std::map<std::string, SteadyTime> complaints_;

  Guarded<CourierStatus> status_;
  Guarded<Inbox> inbox_;
  std::jthread thread_;
};

}  // namespace scriptorium::elasticsearch
