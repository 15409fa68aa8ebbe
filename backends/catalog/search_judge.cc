#include "backends/catalog/search_judge.h"

#include <algorithm>
#include <string>
#include <utility>

#include "backends/catalog/rows.h"

namespace scriptorium::catalog {
namespace {

using Source = Condition::Source;

// A row with this text in one field alone; lists as they are stored, joined.
JobRow row_with(QueryField field, std::string_view text) {
  JobRow row;
  const std::string value(text);
  switch (field) {
    case QueryField::kUser: row.user = value; break;
    case QueryField::kAccount: row.account = value; break;
    case QueryField::kPartition: row.partition = value; break;
    case QueryField::kQos: row.qos = value; break;
    case QueryField::kName: row.name = value; break;
    case QueryField::kCluster: row.cluster = value; break;
    case QueryField::kScheduler: row.scheduler = value; break;
    case QueryField::kWorkDir: row.work_dir = value; break;
    case QueryField::kInterpreter: row.interpreter = value; break;
    case QueryField::kModule: row.modules = split_lines(text); break;
    case QueryField::kDirective: row.directives = split_lines(text); break;
    case QueryField::kSoftware: row.software = split_lines(text); break;
    case QueryField::kState: row.state = value; break;
    case QueryField::kNode: row.nodes = split_lines(text); break;
    case QueryField::kFinding: row.findings = split_lines(text); break;
    default: break;
  }
  return row;
}

Truth truth(bool holds) { return holds ? Truth::kYes : Truth::kNo; }

}  // namespace

Judge::Judge(SearchReader& reader, const Condition& condition, const Visibility& visibility)
    : reader_(reader),
      condition_(condition),
      visible_(reader, visibility),
      environments_(reader, condition),
      memos_(condition.leaves().size()),
      uid_memos_(condition.leaves().size()) {}

void Judge::forget() {
  for (Memo& memo : memos_) memo.answers.clear();
  for (Memo& memo : uid_memos_) memo.answers.clear();
  visible_.forget();
  outcome_job_ = -1;
  environments_.forget();
}

template <typename Decide>
bool Judge::remembered(Memo& memo, std::int64_t id, Decide decide) {
  if (!IdSet::is_small(id)) return decide(reader_.name(id));
  const auto place = static_cast<std::size_t>(id);
  if (place >= memo.answers.size()) memo.answers.resize(std::max(place + 1, place * 3 / 2));
  if (memo.answers[place] == 0) memo.answers[place] = decide(reader_.name(id)) ? 2 : 1;
  return memo.answers[place] == 2;
}

bool VisibleJobs::has(const RawJob& job) {
  if (visibility_.all) return true;
  if ((job.flags & kVerifiedFlag) == 0) return false;
  const auto [answer, is_new] =
      known_.try_emplace({job.cluster, job.user, job.uid, job.account}, false);
  if (is_new) {
    const auto text = [&](std::int64_t id) {
      return id == 0 ? std::nullopt : std::optional<std::string>(reader_.name(id));
    };
    JobRow row;
    row.cluster = text(job.cluster).value_or("");
    row.user = text(job.user);
    row.uid = text(job.uid);
    row.account = text(job.account);
    row.verified = true;
    answer->second = scriptorium::is_visible(row, visibility_);
  }
  return answer->second;
}

const RawOutcome& Judge::outcome_of(const RawJob& job) {
  if (std::exchange(outcome_job_, job.id) != job.id) outcome_ = reader_.outcome(job.id);
  return outcome_;
}

bool Judge::name_holds(std::size_t leaf, std::int64_t id, const Query& query) {
  return id != 0 && remembered(memos_[leaf], id, [&](std::string_view name) {
           return field_matches(query, row_with(query.field, name));
         });
}

bool Judge::outcome_holds(std::size_t leaf, const RawJob& job) {
  const Query& query = condition_.leaves()[leaf].query;
  const RawOutcome& outcome = outcome_of(job);
  switch (query.field) {
    case QueryField::kState: return name_holds(leaf, outcome.state, query);
    case QueryField::kNode: return name_holds(leaf, outcome.nodes, query);
    case QueryField::kFinding: {
      if (name_holds(leaf, outcome.findings, query)) return true;
      JobRow row;
      row.redacted = (job.flags & kRedactedFlag) != 0;
      return row.redacted && field_matches(query, row);
    }
    default: return field_matches(query, outcome.row);
  }
}

bool Judge::field_holds(std::size_t leaf, const RawJob& job) {
  const Query& query = condition_.leaves()[leaf].query;
  if (query.kind == Query::Kind::kField) {
    if (const auto column = name_column(query.field)) {
      if (name_holds(leaf, job.**column, query)) return true;
      return query.field == QueryField::kUser && job.uid != 0 &&
             remembered(uid_memos_[leaf], job.uid, [&](std::string_view uid) {
               JobRow row;
               row.uid = std::string(uid);
               return field_matches(query, row);
             });
    }
  }
  if (condition_.leaves()[leaf].source == Source::kOutcome) return outcome_holds(leaf, job);
  JobRow row;
  switch (query.field) {
    case QueryField::kSubmitted: row.time = Timestamp{job.time}; break;
    case QueryField::kJob: row.id = reader_.job_id(job.id); break;
    case QueryField::kFamily:
      if (job.family != 0) row.family = static_cast<std::uint64_t>(job.family);
      break;
    case QueryField::kArray:
      if (job.array_job != 0) row.array_job_id = std::string(reader_.name(job.array_job));
      break;
    case QueryField::kComplete: row.complete = (job.flags & kIncompleteFlag) == 0; break;
    case QueryField::kSecret: row.redacted = (job.flags & kRedactedFlag) != 0; break;
    case QueryField::kVerified: row.verified = (job.flags & kVerifiedFlag) != 0; break;
    case QueryField::kScript:
      if (job.script != 0) row.script_sha256 = reader_.sha256(job.script);
      break;
    default: break;  // no value, as for a range of a field that has no numbers
  }
  return field_matches(query, row);
}

Truth Judge::by_row(const RawJob& job) {
  return condition_.decide([&](std::size_t leaf) {
    if (condition_.leaves()[leaf].source > Source::kOutcome) return Truth::kOpen;
    return truth(field_holds(leaf, job));
  });
}

Truth Judge::by_script(std::string_view script) {
  return condition_.decide([&](std::size_t index) {
    const Condition::Leaf& leaf = condition_.leaves()[index];
    return leaf.source == Source::kScript ? truth(leaf.text->matches(script)) : Truth::kOpen;
  });
}

std::optional<Judge::Sealed> Judge::sealed_environment(std::int64_t content) {
  const auto place = reader_.place_of(content);
  if (!place || place->block == 0) return std::nullopt;
  const BlockLeaves* const leaves = environments_.of_block(place->block);
  if (leaves == nullptr || place->place >= leaves->size()) return std::nullopt;
  return Sealed{leaves, static_cast<std::int64_t>(place->place)};
}

Truth Judge::by_environment(std::int64_t content) {
  if (const auto sealed = content == 0 ? std::nullopt : sealed_environment(content)) {
    const Truths& truths = sealed->leaves->truths();
    if (!truths.possible.has(sealed->place)) return Truth::kNo;
    return truths.certain.has(sealed->place) ? Truth::kYes : Truth::kOpen;
  }
  const auto text = content == 0 ? std::nullopt : reader_.pending_text(content);
  return condition_.decide([&](std::size_t index) {
    const Condition::Leaf& leaf = condition_.leaves()[index];
    if (leaf.source != Source::kEnvironment) return Truth::kOpen;
    return truth(leaf.holds_in(text ? text->bytes : std::string_view()));
  });
}

bool Judge::matches(const RawJob& job, std::optional<std::string_view> script) {
  std::optional<SearchReader::Text> own_script;
  std::optional<SearchReader::Text> text;
  std::optional<Sealed> sealed;
  bool environment_read = false;
  bool impossible = false;  // with this environment
  const auto read_script = [&] {
    if (!script) {
      if (job.script != 0) own_script = reader_.text(job.script);
      script = own_script ? own_script->bytes : std::string_view();
    }
    return *script;
  };
  const auto holds_in_environment = [&](std::size_t index) {
    if (!std::exchange(environment_read, true) && job.environment != 0) {
      sealed = sealed_environment(job.environment);
      if (!sealed) text = reader_.pending_text(job.environment);
      impossible = sealed && !sealed->leaves->truths().possible.has(sealed->place);
    }
    if (sealed) return sealed->leaves->holds(index, sealed->place);
    return condition_.leaves()[index].holds_in(text ? text->bytes : std::string_view());
  };
  const Truth result = condition_.decide([&](std::size_t index) {
    const Condition::Leaf& leaf = condition_.leaves()[index];
    switch (leaf.source) {
      case Source::kRow:
      case Source::kOutcome: return truth(field_holds(index, job));
      case Source::kScript: return truth(leaf.text->matches(read_script()));
      case Source::kEnvironment: return truth(holds_in_environment(index));
    }
    return Truth::kNo;
  });
  return result == Truth::kYes && !impossible;
}

}  // namespace scriptorium::catalog
