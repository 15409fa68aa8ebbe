#include "core/cli/report_mail.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "core/base/fault_point.h"
#include "core/base/file.h"
#include "core/base/text.h"
#include "core/base/time.h"
#include "core/cli/common.h"
#include "core/cli/coordinators.h"
#include "core/cli/exit_codes.h"
#include "core/cli/past_runs.h"
#include "core/cli/report_archive.h"
#include "core/cli/report_reader.h"
#include "core/cli/run_trend.h"
#include "core/cli/signal_stop.h"
#include "core/cli/user_summaries.h"
#include "core/mail/body.h"
#include "core/mail/hand_over.h"
#include "core/mail/ledger.h"
#include "core/mail/message.h"
#include "core/mail/period.h"
#include "core/mail/recipients.h"
#include "core/mail/texts.h"
#include "core/query/unchecked_json.h"

namespace scriptorium::cli {
namespace {

using query::list_at;
using query::text_at;
using query::value_at;

using Json = nlohmann::ordered_json;
using mail::CalendarPeriod;
using mail::HandedOver;
using mail::Ledger;
using mail::MailEntry;
using mail::MailKey;
using mail::MailState;
using mail::Recipient;
using mail::Recipients;
using mail::Texts;

// MailKey::kind
constexpr const char* kUserMail = "user";
constexpr const char* kCoordinatorMail = "coordinator";
constexpr const char* kSiteMail = "site";          // its user is an address
constexpr std::string_view kUserInUrl = "{user}";  // in page_url
constexpr std::int64_t kDay = 86'400;
constexpr std::int64_t kLateAfter = kDay;        // a mail that waits for longer is an error
constexpr std::int64_t kRefuseAfter = 7 * kDay;  // and is given up after this
constexpr std::int64_t kNamedFor = 30 * kDay;    // how long a mail that may be lost is named
// A mail program that hangs (as Postfix does while its queue is read-only) would hold up each mail
// for a minute, and each might be lost: no more are tried in one call.
constexpr std::uint64_t kMostUndecided = 3;
constexpr std::size_t kMostNames = 20;
constexpr std::size_t kMostSecretExamples = 3;
constexpr std::size_t kHitsOfAPage = 1000;

std::int64_t age(Timestamp time, Timestamp now) {
  return (now.nanoseconds - time.nanoseconds) / kSecond;
}

std::string name_of(const MailKey& key) {
  const char* about = key.kind == kCoordinatorMail ? " about accounts" : "";
  return key.user + about + " on " + key.cluster + ", " + key.period;
}

// The site's own sentences, beside the configuration.
std::string texts_folder(const std::string& config_file) {
  return (std::filesystem::path(config_file).parent_path() / "mail").string();
}

mail::RecipientOptions recipient_options(const MailConfig& config) {
  return {.opt_in = config.consent == "opt-in",
          .no_mail_file = config.no_mail,
          .addresses_file = config.addresses,
          .address_command = config.address_command,
          .domain = config.domain,
          .languages_file = config.languages};
}

// What became of the mails of one call.
struct Counts {
  std::uint64_t sent = 0;
  std::uint64_t waiting = 0;
  std::uint64_t refused = 0;
  std::uint64_t undecided = 0;
  std::map<std::string, std::uint64_t> skipped;  // why -> how many
};

// An example of a finding, from the event of its run.
struct Example {
  std::string job, name;
  std::map<std::string, std::string> texts;  // of its findings, by id
  std::vector<std::string> directives;
  std::string condition;
};

Example example_of(const Event& usage_job, const std::shared_ptr<const OpenStores>& stores) {
  const Json event = Json::parse(event_json(usage_job), nullptr, false);
  Example example{.job = shown_job_id(event)};
  if (const Json& name = value_at(event, {"job", "name"}); name.is_string())
    example.name = name.get<std::string>();
  for (const Json& finding : list_at(event, {kUsage, "findings"}))
    example.texts[text_at(finding, {"id"})] = text_at(finding, {"text"}, 2048);
  // As the report of the job suggests it: enough for the earlier runs of its family, too.
  Json suggest = value_at(event, {kUsage, "suggest"});
  if (stores != nullptr) {
    const RunTrend trend = run_trend(event, past_runs(stores->list(), event));
    if (trend.runs > 0) suggest = trend.suggest;
  }
  for (const Json& line : list_at(suggest, {"directives"})) {
    if (line.is_string()) example.directives.push_back(line.get<std::string>());
  }
  example.condition = text_at(suggest, {"condition"});
  return example;
}

// A mail that is to be made.
struct Planned {
  MailKey key;
  Recipient recipient;
  std::vector<std::string> examples;  // keys
};

class MailRun {
 public:
  MailRun(const Arguments& arguments, const ReportConfig& config, CalendarPeriod period,
          Console& console)
      : arguments_(arguments),
        report_(config),
        config_(*config.mail),
        period_(period),
        console_(console),
        signal_(console.owns_process) {}

  int run();

 private:
  bool is_dry() const noexcept { return !arguments_.eml_dir.empty(); }
  // Not only of users, or the coordinators of an account, that were named.
  bool is_for_all() const noexcept {
    return arguments_.users.empty() && arguments_.account.empty();
  }
  bool is_for(const std::string& user) const {
    const auto& users = arguments_.users;
    return users.empty() || std::find(users.begin(), users.end(), user) != users.end();
  }
  bool stopped() const { return signal_.token().stop_requested(); }
  bool has_given_up() const { return counts_.undecided >= kMostUndecided; }
  Timestamp now() const { return system_clock().now(); }
  MailKey key_of(const char* kind, const Person& person) const {
    return {.kind = kind, .cluster = person.first, .user = person.second, .period = period_.name()};
  }
  const Texts& texts_of(const std::string& language);

  bool open_or_say(int& code);
  int retry_waiting();
  bool gather_or_say(int& code);
  bool is_due(const MailKey& key);
  // Adds a mail to a user, unless there is a reason why there is none, which is counted or said.
  void plan_for(const MailKey& key, const mail::Sum& sum, std::vector<std::string> examples);
  void plan_for_users();
  int plan_for_coordinators();
  void plan_for_site();
  const Recipient& recipient(const std::string& login);
  bool read_examples();
  void find_secrets();
  int send_all();
  mail::Message message_of(const Planned& planned);
  int hand_over(const MailKey& key, const std::string& recipient, const std::string& message);
  int write_eml(const Planned& planned);
  int finish();
  void write_status(const std::vector<std::pair<MailKey, MailEntry>>& undecided,
                    std::uint64_t waiting, std::uint64_t late) const;

  const Arguments& arguments_;
  const ReportConfig& report_;
  const MailConfig& config_;
  const CalendarPeriod period_;
  Console& console_;
  const SignalStop signal_;
  std::optional<Ledger> ledger_;
  std::optional<Recipients> recipients_;
  std::map<std::string, Recipient> known_recipients_;  // by login
  std::map<std::string, Texts> texts_;                 // by language
  UsagePlaces places_;
  UsageRecords* place_ = nullptr;  // the one that answered
  std::optional<UserSummaries> summaries_;
  Coordinators coordinators_;
  std::vector<Planned> planned_;
  std::map<std::string, std::shared_ptr<const Event>> examples_;  // by key
  struct Secrets {
    std::uint64_t jobs = 0;
    std::vector<std::string> examples;  // ids, the newest first
  };
  std::map<Person, Secrets> secrets_;
  CommandRunner runner_;
  Counts counts_;
};

// Reports what is wrong with the sentences, and uses the others.
const Texts& MailRun::texts_of(const std::string& language) {
  const std::string& name = language.empty() ? config_.language : language;
  const auto known = texts_.find(name);
  if (known != texts_.end()) return known->second;
  Problems problems;
  const auto made =
      texts_.emplace(name, Texts::load(name, texts_folder(arguments_.config_file), problems));
  print_problems(problems, console_);
  return made.first->second;
}

bool MailRun::open_or_say(int& code) {
  auto recipients = Recipients::read(recipient_options(config_));
  if (!recipients) {
    code = fail(console_, recipients.error());
    return false;
  }
  recipients_.emplace(*std::move(recipients));
  if (is_dry()) {
    if (auto made = make_directories(arguments_.eml_dir, 0700); !made) {
      code = fail(console_, made.error());
      return false;
    }
    return true;
  }
  auto ledger = Ledger::open(config_.state_dir);
  if (!ledger) {
    code = ledger.error().kind() == ErrorKind::kTransient
               ? fail(console_, ledger.error().message(), kExitTryAgain)
               : fail(console_, ledger.error());
    return false;
  }
  ledger_.emplace(*std::move(ledger));
  return true;
}

// Of any period.
int MailRun::retry_waiting() {
  for (const auto& [key, entry] : ledger_->all(MailState::kWaiting)) {
    if (stopped() || has_given_up()) break;
    if (age(entry.since, now()) > kRefuseAfter) {
      ++counts_.refused;
      if (auto given_up = ledger_->refused(key, "given up after a week: " + entry.reason, now());
          !given_up)
        return fail(console_, given_up.error());
      continue;
    }
    const auto message = ledger_->message(key);
    if (!message) {
      ++counts_.refused;
      console_.err << "scriptorium: the mail to " << printable(name_of(key))
                   << " is given up: " << printable(message.error().message()) << "\n";
      if (auto gone = ledger_->refused(key, "its message is gone", now()); !gone)
        return fail(console_, gone.error());
      continue;
    }
    if (const int code = hand_over(key, entry.recipient, *message); code != kExitGood) return code;
  }
  return kExitGood;
}

bool MailRun::gather_or_say(int& code) {
  places_ = usage_places_or_say(arguments_, console_, code);
  if (places_.list.empty()) return false;
  const Searchable::RunRequest request{
      .from = period_.before, .until = period_.until, .origin = true};
  for (const auto& place : places_.list) {
    summaries_.emplace(period_);  // without what a place said before it failed
    if (!place->runs(request, [&](const JobRun& run) { summaries_->add(run); })) continue;
    place_ = place.get();
    return true;
  }
  code = kExitUnavailable;
  return false;
}

bool MailRun::is_due(const MailKey& key) {
  if (!ledger_) return true;
  const MailState state = ledger_->find(key).state;
  const bool is_unsent = state == MailState::kClaimed || state == MailState::kRefused;
  if (arguments_.resend ? is_unsent : state == MailState::kNone) return true;
  ++counts_.skipped[arguments_.resend              ? "not lost"
                    : state == MailState::kTaken   ? "sent before"
                    : state == MailState::kWaiting ? "waiting"
                    : state == MailState::kRefused ? "refused before"
                                                   : "may be lost"];
  return false;
}

const Recipient& MailRun::recipient(const std::string& login) {
  const auto known = known_recipients_.find(login);
  if (known != known_recipients_.end()) return known->second;
  const Recipient& found = known_recipients_.emplace(login, recipients_->find(login)).first->second;
  const bool is_choice = found.why_not == mail::kOptedOut || found.why_not == mail::kNotOptedIn;
  if (!found.detail.empty() && (!is_choice || !arguments_.users.empty())) {
    console_.err << "scriptorium: no mail for " << printable(login) << ": " << found.why_not << ": "
                 << printable(found.detail) << "\n";
  }
  return found;
}

void MailRun::plan_for(const MailKey& key, const mail::Sum& sum,
                       std::vector<std::string> examples) {
  if (sum.jobs < static_cast<std::uint64_t>(config_.min_jobs) ||
      sum.wasted_core_hours() < config_.min_wasted_core_hours) {
    ++counts_.skipped["below the thresholds"];
    return;
  }
  if (!is_due(key)) return;
  const Recipient& to = recipient(key.user);
  if (to.address.empty()) {
    ++counts_.skipped[to.why_not];
    return;
  }
  planned_.push_back({key, to, std::move(examples)});
}

void MailRun::plan_for_users() {
  const std::vector<Person> people = summaries_->people();
  for (const std::string& user : arguments_.users) {
    if (std::none_of(people.begin(), people.end(),
                     [&](const Person& p) { return p.second == user; }))
      ++counts_.skipped["no job of this user ended then"];
  }
  for (const Person& person : people) {
    if (stopped()) return;
    if (!is_for(person.second)) continue;
    plan_for(key_of(kUserMail, person), summaries_->sum(person), summaries_->examples(person));
  }
}

// Where the scheduler cannot be asked now, the others get theirs, and the next call tries it again.
int MailRun::plan_for_coordinators() {
  auto found = find_coordinators(arguments_.config_file, signal_.token());
  if (!found) return fail(console_, found.error());
  coordinators_ = *std::move(found);
  bool is_known = arguments_.account.empty();
  for (const auto& [person, accounts] : coordinators_) {
    if (stopped()) return kExitGood;
    if (!arguments_.account.empty() && !accounts.contains(arguments_.account)) continue;
    is_known = true;
    if (!is_for(person.second)) continue;
    const mail::Summary summary = summaries_->of_accounts(person, accounts, false);
    if (summary.now.jobs > 0) plan_for(key_of(kCoordinatorMail, person), summary.now, {});
  }
  if (is_known) return kExitGood;
  return fail(console_,
              "--account: no scheduler here has a coordinator of " + printable(arguments_.account),
              kExitNoInput);
}

void MailRun::plan_for_site() {
  for (const std::string& cluster : summaries_->clusters()) {
    for (const std::string& address : config_.site) {
      const MailKey key = key_of(kSiteMail, {cluster, address});
      if (is_due(key)) planned_.push_back({key, {.address = *mail_address(address)}, {}});
    }
  }
}

bool MailRun::read_examples() {
  std::set<std::string> wanted;
  for (const Planned& planned : planned_)
    wanted.insert(planned.examples.begin(), planned.examples.end());
  if (wanted.empty()) return true;
  Searchable::RunRequest request{.from = period_.from, .until = period_.until, .origin = true};
  request.with_event = [&](const JobRun& run) { return wanted.contains(run.key); };
  return place_->runs(request, [&](const JobRun& run) {
    if (run.event != nullptr) examples_.emplace(run.key, run.event);
  });
}

// Where a sink can be searched quickly; a file tree would have to be read as a whole.
void MailRun::find_secrets() {
  std::vector<query::Store> stores;
  if (places_.stores != nullptr) stores = query::indexed(places_.stores->list());
  if (stores.empty()) return;
  Query secret{.kind = Query::Kind::kField, .field = QueryField::kSecret, .text = "true"};
  Query submitted{.kind = Query::Kind::kRange, .field = QueryField::kSubmitted};
  submitted.from = period_.from.nanoseconds;
  submitted.to = period_.until.nanoseconds - 1;
  Searchable::Request request{.limit = kHitsOfAPage};
  request.query.kind = Query::Kind::kAnd;
  request.query.children = {std::move(secret), std::move(submitted)};
  request.most_lines = 0;
  request.stop = signal_.token();
  const auto pages = query::each_page(stores, request, [&](const Searchable::Answer& answer) {
    for (const Searchable::Hit& hit : answer.hits) {
      if (!hit.job.verified || !hit.job.user) continue;
      Secrets& secrets = secrets_[{hit.job.cluster, *hit.job.user}];
      if (++secrets.jobs <= kMostSecretExamples) secrets.examples.push_back(hit.job.id);
    }
  });
  if (pages.answered) return;
  say_refusals(pages.refused, console_);
  secrets_.clear();  // no number is better than one that is too small
}

mail::Message MailRun::message_of(const Planned& planned) {
  const MailKey& key = planned.key;
  const Person person{key.cluster, key.user};
  const bool is_own = key.kind == kUserMail;
  mail::Summary summary =
      is_own ? summaries_->summary(person)
      : key.kind == kSiteMail
          ? summaries_->of_cluster(key.cluster)
          : summaries_->of_accounts(person, coordinators_.at(person), config_.account_names);
  std::map<std::string, Example> examples;  // by key
  for (std::size_t i = 0; i < planned.examples.size(); ++i) {
    mail::CostlyFinding& finding = summary.findings[i];
    const auto event = examples_.find(planned.examples[i]);
    if (event == examples_.end()) continue;
    const bool is_new = !examples.contains(event->first);
    if (is_new) examples.emplace(event->first, example_of(*event->second, places_.stores));
    const Example& example = examples.at(event->first);
    finding.job = example.job;
    finding.job_name = example.name;
    if (const auto text = example.texts.find(finding.id); text != example.texts.end())
      finding.text = text->second;
    // All that the job could ask for, so once is enough.
    if (!is_new) continue;
    finding.directives = example.directives;
    finding.condition = example.condition;
  }
  if (const auto found = secrets_.find(person); is_own && found != secrets_.end()) {
    summary.secret_jobs = found->second.jobs;
    summary.secret_examples = found->second.examples;
  }
  const Texts& texts = texts_of(planned.recipient.language);
  const std::string sender = *mail_address(config_.from);
  const std::string unsubscribe =
      config_.unsubscribe.empty() ? sender : *mail_address(config_.unsubscribe);
  std::string page = is_own ? report_.page_url : "";
  if (const std::size_t user = page.find(kUserInUrl); user != std::string::npos)
    page.replace(user, kUserInUrl.size(), key.user);
  mail::MailBody body =
      mail::body_of(summary, texts, {.page_url = std::move(page), .unsubscribe = unsubscribe});
  const std::size_t at = sender.find('@');
  return {.from = config_.from,
          .to = planned.recipient.address,
          .subject = std::move(body.subject),
          .date = now(),
          .zone = local_offset,
          .id = key.id(),
          .domain = at == std::string::npos ? "" : sender.substr(at + 1),
          .unsubscribe = unsubscribe,
          .language = texts.language(),
          .text = std::move(body.text),
          .html = std::move(body.html)};
}

// Whatever ends this process in here: the mail is either not claimed and not given to anybody, or
// it is claimed and never given again without --resend.
int MailRun::hand_over(const MailKey& key, const std::string& recipient,
                       const std::string& message) {
  FAULT_POINT("mail.before_claim");
  if (auto claimed = ledger_->claim(key, recipient, now()); !claimed)
    return fail(console_, claimed.error());
  FAULT_POINT("mail.claimed");
  const HandedOver result = mail::hand_over(runner_, config_.sendmail, *mail_address(config_.from),
                                            recipient, message, {});
  FAULT_POINT("mail.handed_over");
  Result<void> noted;
  switch (result.kind) {
    case HandedOver::Kind::kTaken:
      ++counts_.sent;
      noted = ledger_->taken(key, now());
      break;
    case HandedOver::Kind::kLater:
      ++counts_.waiting;
      noted = ledger_->wait(key, result.reason, message, now());
      break;
    case HandedOver::Kind::kRefused:
      ++counts_.refused;
      noted = ledger_->refused(key, result.reason, now());
      break;
    case HandedOver::Kind::kUndecided: ++counts_.undecided; break;  // it stays claimed
  }
  FAULT_POINT("mail.noted");
  if (!result.reason.empty()) {
    console_.err << "scriptorium: the mail to " << printable(name_of(key)) << ": "
                 << printable(result.reason, 512) << "\n";
  }
  return noted ? kExitGood : fail(console_, noted.error());
}

int MailRun::write_eml(const Planned& planned) {
  const MailKey& key = planned.key;
  const char* about = key.kind == kCoordinatorMail ? "-accounts" : "";
  const std::string name = key.user + about + "-" + key.period + "-" + key.cluster;
  const bool is_plain = name.find('/') == std::string::npos && printable(name) == name;
  const std::string path = arguments_.eml_dir + "/" + (is_plain ? name : key.id()) + ".eml";
  const auto written = replace_file(path, mail::message_text(message_of(planned)), 0600);
  if (!written) return fail(console_, written.error());
  ++counts_.sent;
  return kExitGood;
}

int MailRun::send_all() {
  std::size_t number = 0;
  for (const Planned& planned : planned_) {
    if (stopped() || has_given_up()) break;
    ++number;
    if (console_.out_is_terminal)
      console_.err << "\r\033[K" << number << " of " << planned_.size() << " mails" << std::flush;
    const int code = is_dry() ? write_eml(planned)
                              : hand_over(planned.key, planned.recipient.address,
                                          mail::message_text(message_of(planned)));
    if (code != kExitGood) return code;
  }
  if (console_.out_is_terminal && number > 0) console_.err << "\r\033[K" << std::flush;
  if (!stopped() && !has_given_up()) return kExitGood;
  console_.err << "scriptorium: " << (stopped() ? "stopped" : "the mail program does not answer")
               << "; " << count_of(planned_.size() - number, "mail") << " not tried\n";
  return stopped() ? kExitTryAgain : kExitGood;  // finish() names the users
}

// A call that found nothing to do leaves what the last one did.
void MailRun::write_status(const std::vector<std::pair<MailKey, MailEntry>>& undecided,
                           std::uint64_t waiting, std::uint64_t late) const {
  const std::string file = config_.status_file();
  Json status = Json::parse(read_file(file).value_or(""), nullptr, false);
  if (!status.is_object() || place_ != nullptr || counts_.sent + counts_.refused > 0) {
    status = {{"time", format_rfc3339(now(), TimePrecision::kSeconds)},
              {"period", period_.name()},
              {"sent", counts_.sent},
              {"refused", counts_.refused},
              {"skipped", counts_.skipped}};
  }
  Json names = Json::array();
  for (const auto& [key, entry] : undecided) names.push_back(name_of(key));
  status["waiting"] = waiting;
  status["waiting_for_a_day"] = late;
  status["may_be_lost"] = std::move(names);
  const auto written =
      replace_file(file, status.dump(2, ' ', false, Json::error_handler_t::replace) + "\n", 0644);
  if (!written) fail(console_, written.error());
}

int MailRun::finish() {
  console_.out << period_.name() << ": " << count_of(counts_.sent, "mail")
               << (is_dry() ? " written to " + printable(arguments_.eml_dir) : " sent");
  if (place_ == nullptr) console_.out << "; everybody was considered before";
  if (counts_.waiting > 0) console_.out << ", " << counts_.waiting << " to be tried again";
  if (counts_.refused > 0) console_.out << ", " << counts_.refused << " refused";
  console_.out << "\n";
  for (const auto& [why, count] : counts_.skipped)
    console_.out << "  " << count << " not written: " << why << "\n";
  if (is_dry()) return kExitGood;

  auto undecided = ledger_->all(MailState::kClaimed);
  std::erase_if(undecided,
                [&](const auto& mail) { return age(mail.second.since, now()) > kNamedFor; });
  const auto waiting = ledger_->all(MailState::kWaiting);
  const auto late = static_cast<std::uint64_t>(
      std::count_if(waiting.begin(), waiting.end(),
                    [&](const auto& mail) { return age(mail.second.since, now()) > kLateAfter; }));
  write_status(undecided, waiting.size(), late);
  if (late > 0) {
    console_.err << "scriptorium: " << count_of(late, "mail")
                 << " could not be handed over for more than a day; the last reason: "
                 << printable(waiting.front().second.reason, 512) << "\n";
  }
  for (std::size_t i = 0; i < std::min(undecided.size(), kMostNames); ++i) {
    const MailKey& key = undecided[i].first;
    console_.err << "scriptorium: may have got no mail: " << printable(name_of(key))
                 << "; to send it again: scriptorium report --mail --resend "
                 << (key.kind == kSiteMail ? "--all" : "--user " + printable(key.user))
                 << " --period " << key.period << "\n";
  }
  if (undecided.size() > kMostNames)
    console_.err << "scriptorium: and " << undecided.size() - kMostNames << " more\n";
  if (!undecided.empty()) return kExitTryAgain;
  return late > 0 || counts_.refused > 0 ? kExitUnavailable : kExitGood;
}

int MailRun::run() {
  int code = kExitGood;
  if (!open_or_say(code)) return code;
  if (!is_dry() && is_for_all() && !arguments_.resend) {
    if (code = retry_waiting(); code != kExitGood) return code;
    if (ledger_->is_done(kUserMail, period_.name())) return finish();
  }
  if (!gather_or_say(code)) return code;
  if (summaries_->empty() && !stopped()) {
    // Not done: perhaps the archive is not there yet.
    return fail(console_, "no job that ended in " + period_.name() + " is in the archive",
                kExitNoInput);
  }
  if (arguments_.account.empty()) plan_for_users();
  const int asked = plan_for_coordinators();
  if (is_for_all() && !stopped()) plan_for_site();
  if (!read_examples()) return kExitUnavailable;
  if (!planned_.empty()) find_secrets();
  if (code = send_all(); code != kExitGood) return code;
  if (!is_dry() && is_for_all() && !arguments_.resend && !has_given_up() && asked == kExitGood) {
    if (auto done = ledger_->done(kUserMail, period_.name(), now()); !done)
      return fail(console_, done.error());
  }
  code = finish();
  return code == kExitGood ? asked : code;
}

}  // namespace

int report_mail(const Arguments& arguments, Console& console) {
  Problems problems;
  const Config config = load_config(arguments.config_file, problems);
  if (print_problems(problems, console)) return kExitConfig;
  if (!config.report.mail) {
    return fail(
        console,
        arguments.config_file + ": no table [report.mail]; write it with from = \"ADDRESS\"",
        kExitConfig);
  }
  const auto period = mail::read_period(arguments.period, system_clock().now(), local_offset);
  if (!period) {
    return fail(console,
                "--period: \"" + printable(arguments.period) +
                    "\" is neither week, month, a week such as 2026-W46, nor a month such as "
                    "2026-10, or is not over yet",
                kExitUsage);
  }
  return MailRun(arguments, config.report, *period, console).run();
}

std::vector<Finding> check_mail(const std::string& config_file) {
  Problems problems;
  const Config config = load_config(config_file, problems);
  if (!problems.empty() || !config.report.mail) return {};
  const MailConfig& mail = *config.report.mail;
  std::vector<Finding> findings;
  // None of this keeps the daemon from its work.
  const auto add = [&](Finding::Level level, std::string text) {
    findings.push_back({.level = level, .subject = "report.mail", .text = std::move(text)});
  };
  if (::access(mail.sendmail.c_str(), X_OK) != 0) {
    add(Finding::Level::kWarning, "sendmail: " + system_error(mail.sendmail, errno).message() +
                                      "; install a mail program, or name it");
  }
  if (const auto read = Recipients::read(recipient_options(mail)); !read)
    add(Finding::Level::kWarning, printable(read.error().message(), 1024));
  const std::string folder = texts_folder(config_file);
  std::vector<std::string> languages = Texts::languages(folder);
  if (std::find(languages.begin(), languages.end(), mail.language) == languages.end())
    languages.push_back(mail.language);
  Problems of_texts;
  for (const std::string& language : languages) Texts::load(language, folder, of_texts);
  for (const Problem& problem : of_texts.list()) add(Finding::Level::kWarning, problem.text());
  if (findings.empty()) add(Finding::Level::kOk, "mails to users, in " + mail.language);
  return findings;
}

}  // namespace scriptorium::cli
