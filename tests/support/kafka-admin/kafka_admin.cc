// kafka-admin: what Kafka's own command line tools do and its jars do not bring: makes and removes
// topics, changes their settings, gives and takes rights. For the tests against real brokers;
// through librdkafka's admin API.
#include <librdkafka/rdkafka.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace {

constexpr int kTimeoutMs = 60'000;

[[noreturn]] void usage() {
  std::fputs(
      "usage: kafka-admin [-X PROPERTY=VALUE]... BROKERS COMMAND ...\n"
      "  create TOPIC [partitions=N] [replicas=2,3,1] [SETTING=VALUE]...   replicas: which "
      "brokers, the leader first\n"
      "  delete TOPIC\n"
      "  set TOPIC SETTING=VALUE...                                        what is not named goes "
      "back to its default\n"
      "  allow|revoke PRINCIPAL TOPIC OPERATION...                         \"User:alice\" jobs "
      "write describe\n"
      "  leader TOPIC                                                      prints the id of "
      "partition 0's leader, -1 for none\n"
      "Exit 1 with the broker's own words if it refuses.\n",
      stderr);
  std::exit(64);
}

[[noreturn]] void fail(const std::string& words) {
  std::fprintf(stderr, "kafka-admin: %s\n", words.c_str());
  std::exit(1);
}

struct Deleter {
  void operator()(rd_kafka_t* p) const { rd_kafka_destroy(p); }
  void operator()(rd_kafka_queue_t* p) const { rd_kafka_queue_destroy(p); }
  void operator()(rd_kafka_event_t* p) const { rd_kafka_event_destroy(p); }
  void operator()(rd_kafka_AdminOptions_t* p) const { rd_kafka_AdminOptions_destroy(p); }
  void operator()(rd_kafka_NewTopic_t* p) const { rd_kafka_NewTopic_destroy(p); }
  void operator()(rd_kafka_DeleteTopic_t* p) const { rd_kafka_DeleteTopic_destroy(p); }
  void operator()(rd_kafka_ConfigResource_t* p) const { rd_kafka_ConfigResource_destroy(p); }
  void operator()(rd_kafka_AclBinding_t* p) const { rd_kafka_AclBinding_destroy(p); }
};
template <typename T>
using Owned = std::unique_ptr<T, Deleter>;

using Settings = std::vector<std::pair<std::string, std::string>>;

std::pair<std::string, std::string> split(const std::string& text) {
  const auto equals = text.find('=');
  if (equals == std::string::npos) usage();
  return {text.substr(0, equals), text.substr(equals + 1)};
}

// One connection, one queue for the answers.
class Admin {
 public:
  Admin(const std::string& brokers, const Settings& properties) {
    char words[512];
    rd_kafka_conf_t* conf = rd_kafka_conf_new();
    const auto set = [&](const std::string& key, const std::string& value) {
      if (rd_kafka_conf_set(conf, key.c_str(), value.c_str(), words, sizeof words) !=
          RD_KAFKA_CONF_OK)
        fail(words);
    };
    set("bootstrap.servers", brokers);
    set("log_level", "0");
    for (const auto& [key, value] : properties) set(key, value);
    handle_.reset(rd_kafka_new(RD_KAFKA_PRODUCER, conf, words, sizeof words));
    if (!handle_) fail(words);
    queue_.reset(rd_kafka_queue_new(handle_.get()));
  }

  rd_kafka_t* handle() const { return handle_.get(); }
  rd_kafka_queue_t* queue() const { return queue_.get(); }

  Owned<rd_kafka_AdminOptions_t> options(rd_kafka_admin_op_t operation) const {
    Owned<rd_kafka_AdminOptions_t> options(rd_kafka_AdminOptions_new(handle_.get(), operation));
    char words[512];
    rd_kafka_AdminOptions_set_request_timeout(options.get(), kTimeoutMs, words, sizeof words);
    // Topics: the answer comes once the controller has made them on all brokers.
    rd_kafka_AdminOptions_set_operation_timeout(options.get(), kTimeoutMs, words, sizeof words);
    return options;
  }

  Owned<rd_kafka_event_t> answer() const {
    Owned<rd_kafka_event_t> event(rd_kafka_queue_poll(queue_.get(), kTimeoutMs + 5000));
    if (!event) fail("no answer");
    if (rd_kafka_event_error(event.get()) != RD_KAFKA_RESP_ERR_NO_ERROR)
      fail(rd_kafka_event_error_string(event.get()));
    return event;
  }

 private:
  Owned<rd_kafka_t> handle_;
  Owned<rd_kafka_queue_t> queue_;
};

void check_topics(const rd_kafka_topic_result_t** results, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    if (rd_kafka_topic_result_error(results[i]) == RD_KAFKA_RESP_ERR_NO_ERROR) continue;
    const char* words = rd_kafka_topic_result_error_string(results[i]);
    fail(words != nullptr ? words : rd_kafka_err2str(rd_kafka_topic_result_error(results[i])));
  }
}

void create(const Admin& admin, const std::string& name, const Settings& settings) {
  int partitions = 1;
  std::vector<std::int32_t> replicas;
  Settings topic_settings;
  for (const auto& [key, value] : settings) {
    if (key == "partitions") {
      partitions = std::atoi(value.c_str());
    } else if (key == "replicas") {
      for (const char* at = value.c_str(); *at != '\0'; at += *at == ',') {
        char* end = nullptr;
        replicas.push_back(static_cast<std::int32_t>(std::strtol(at, &end, 10)));
        if (end == at) usage();
        at = end;
      }
    } else {
      topic_settings.emplace_back(key, value);
    }
  }
  char words[512];
  Owned<rd_kafka_NewTopic_t> topic(
      rd_kafka_NewTopic_new(name.c_str(), partitions, -1, words, sizeof words));
  if (!topic) fail(words);
  for (int i = 0; i < partitions && !replicas.empty(); ++i) {
    if (rd_kafka_NewTopic_set_replica_assignment(topic.get(), i, replicas.data(), replicas.size(),
                                                 words, sizeof words) != 0)
      fail(words);
  }
  for (const auto& [key, value] : topic_settings)
    rd_kafka_NewTopic_set_config(topic.get(), key.c_str(), value.c_str());
  rd_kafka_NewTopic_t* topics[] = {topic.get()};
  rd_kafka_CreateTopics(admin.handle(), topics, 1,
                        admin.options(RD_KAFKA_ADMIN_OP_CREATETOPICS).get(), admin.queue());
  const auto event = admin.answer();
  size_t count = 0;
  const auto** results =
      rd_kafka_CreateTopics_result_topics(rd_kafka_event_CreateTopics_result(event.get()), &count);
  check_topics(results, count);
}

void remove(const Admin& admin, const std::string& name) {
  Owned<rd_kafka_DeleteTopic_t> topic(rd_kafka_DeleteTopic_new(name.c_str()));
  rd_kafka_DeleteTopic_t* topics[] = {topic.get()};
  rd_kafka_DeleteTopics(admin.handle(), topics, 1,
                        admin.options(RD_KAFKA_ADMIN_OP_DELETETOPICS).get(), admin.queue());
  const auto event = admin.answer();
  size_t count = 0;
  const auto** results =
      rd_kafka_DeleteTopics_result_topics(rd_kafka_event_DeleteTopics_result(event.get()), &count);
  check_topics(results, count);
}

void set(const Admin& admin, const std::string& name, const Settings& settings) {
  Owned<rd_kafka_ConfigResource_t> resource(
      rd_kafka_ConfigResource_new(RD_KAFKA_RESOURCE_TOPIC, name.c_str()));
  for (const auto& [key, value] : settings)
    rd_kafka_ConfigResource_set_config(resource.get(), key.c_str(), value.c_str());
  rd_kafka_ConfigResource_t* resources[] = {resource.get()};
  rd_kafka_AlterConfigs(admin.handle(), resources, 1,
                        admin.options(RD_KAFKA_ADMIN_OP_ALTERCONFIGS).get(), admin.queue());
  const auto event = admin.answer();
  size_t count = 0;
  const auto** results = rd_kafka_AlterConfigs_result_resources(
      rd_kafka_event_AlterConfigs_result(event.get()), &count);
  for (size_t i = 0; i < count; ++i) {
    if (rd_kafka_ConfigResource_error(results[i]) == RD_KAFKA_RESP_ERR_NO_ERROR) continue;
    const char* words = rd_kafka_ConfigResource_error_string(results[i]);
    fail(words != nullptr ? words : rd_kafka_err2str(rd_kafka_ConfigResource_error(results[i])));
  }
}

rd_kafka_AclOperation_t operation(std::string_view name) {
  if (name == "write") return RD_KAFKA_ACL_OPERATION_WRITE;
  if (name == "describe") return RD_KAFKA_ACL_OPERATION_DESCRIBE;
  if (name == "read") return RD_KAFKA_ACL_OPERATION_READ;
  usage();
}

void change_right(const Admin& admin, bool give, const std::string& principal,
                  const std::string& topic, std::string_view what) {
  char words[512];
  const auto kind = RD_KAFKA_RESOURCE_TOPIC;
  const auto pattern = RD_KAFKA_RESOURCE_PATTERN_LITERAL;
  const auto permission = RD_KAFKA_ACL_PERMISSION_TYPE_ALLOW;
  Owned<rd_kafka_AclBinding_t> binding(
      give ? rd_kafka_AclBinding_new(kind, topic.c_str(), pattern, principal.c_str(), "*",
                                     operation(what), permission, words, sizeof words)
           : rd_kafka_AclBindingFilter_new(kind, topic.c_str(), pattern, principal.c_str(), "*",
                                           operation(what), permission, words, sizeof words));
  if (!binding) fail(words);
  rd_kafka_AclBinding_t* bindings[] = {binding.get()};
  size_t count = 0;
  if (give) {
    rd_kafka_CreateAcls(admin.handle(), bindings, 1,
                        admin.options(RD_KAFKA_ADMIN_OP_CREATEACLS).get(), admin.queue());
    const auto event = admin.answer();
    const auto** results =
        rd_kafka_CreateAcls_result_acls(rd_kafka_event_CreateAcls_result(event.get()), &count);
    for (size_t i = 0; i < count; ++i) {
      const rd_kafka_error_t* error = rd_kafka_acl_result_error(results[i]);
      if (error != nullptr) fail(rd_kafka_error_string(error));
    }
    return;
  }
  rd_kafka_DeleteAcls(admin.handle(), bindings, 1,
                      admin.options(RD_KAFKA_ADMIN_OP_DELETEACLS).get(), admin.queue());
  const auto event = admin.answer();
  const auto** results =
      rd_kafka_DeleteAcls_result_responses(rd_kafka_event_DeleteAcls_result(event.get()), &count);
  for (size_t i = 0; i < count; ++i) {
    const rd_kafka_error_t* error = rd_kafka_DeleteAcls_result_response_error(results[i]);
    if (error != nullptr) fail(rd_kafka_error_string(error));
  }
}

void print_leader(const Admin& admin, const std::string& name) {
  rd_kafka_topic_t* topic = rd_kafka_topic_new(admin.handle(), name.c_str(), nullptr);
  const struct rd_kafka_metadata* metadata = nullptr;
  const auto error = rd_kafka_metadata(admin.handle(), 0, topic, &metadata, kTimeoutMs);
  rd_kafka_topic_destroy(topic);
  if (error != RD_KAFKA_RESP_ERR_NO_ERROR) fail(rd_kafka_err2str(error));
  const bool known = metadata->topic_cnt == 1 && metadata->topics[0].partition_cnt > 0;
  std::printf("%d\n", known ? metadata->topics[0].partitions[0].leader : -1);
  rd_kafka_metadata_destroy(metadata);
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> words(argv + 1, argv + argc);
  Settings properties;
  while (words.size() >= 2 && words[0] == "-X") {
    properties.push_back(split(words[1]));
    words.erase(words.begin(), words.begin() + 2);
  }
  if (words.size() < 3) usage();
  const Admin admin(words[0], properties);
  const std::string command = words[1];
  const std::string subject = words[2];
  const std::vector<std::string> rest(words.begin() + 3, words.end());
  const auto settings = [&] {
    Settings result;
    for (const auto& word : rest) result.push_back(split(word));
    return result;
  };
  if (command == "create") {
    create(admin, subject, settings());
  } else if (command == "delete") {
    remove(admin, subject);
  } else if (command == "set") {
    set(admin, subject, settings());
  } else if (command == "leader") {
    print_leader(admin, subject);
  } else if ((command == "allow" || command == "revoke") && rest.size() >= 2) {
    for (std::size_t i = 1; i < rest.size(); ++i)
      change_right(admin, command == "allow", subject, rest[0], rest[i]);
  } else {
    usage();
  }
  return 0;
}
