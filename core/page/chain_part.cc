#include "core/page/chain_part.h"

#include <algorithm>
#include <cstddef>
#include <set>
#include <string>

#include "core/base/text.h"

namespace scriptorium::page {
namespace {

using List = kainjow::mustache::list;
using query::CheckpointChain;
using query::CheckpointLife;
using query::CheckpointStep;

// Of all programs of a job: one that is saved and resumed each hour has 168 a week.
constexpr std::size_t kMostChainRows = 200;

// "not saved on n1: tcp (3 times)", of the last of them.
std::string refusals_text(const std::vector<CheckpointStep>& refused) {
  const CheckpointStep& last = refused.back();
  const std::string text = checkpoint_words(last) + (last.node.empty() ? "" : " on " + last.node) +
                           (last.reason.empty() ? "" : ": " + last.reason);
  return refused.size() == 1 ? text : words("times", {text, std::to_string(refused.size())});
}

// "" = all is verified.
std::string trust_text(const CheckpointLife& life,
                       const std::vector<CheckpointStep>& refused_next) {
  bool is_verified = life.is_verified;
  std::set<std::string> writers = life.writers;
  for (const CheckpointStep& step : refused_next) {
    is_verified = is_verified && step.is_verified;
    if (!step.writer.empty()) writers.insert(step.writer);
  }
  if (is_verified || writers.empty()) return is_verified ? "" : words("unverified");
  std::string names;
  for (const std::string& name : writers) names += (names.empty() ? "" : ", ") + name;
  return words("unverified_by", {names});
}

std::string remarks_on(const CheckpointLife& life,
                       const std::vector<CheckpointStep>& refused_next) {
  std::string text;
  const auto add = [&text](const std::string& remark) {
    text += (text.empty() ? "" : "; ") + remark;
  };
  if (!life.unsaved.empty()) add(refusals_text(life.unsaved));
  if (life.ended) {
    const auto& code = life.ended->exit_code;
    add(checkpoint_words(*life.ended) + " " + local_text(life.ended->time) +
        (code ? ": " + words("exit_code", {std::to_string(*code)}) : ""));
  }
  if (!refused_next.empty()) add(refusals_text(refused_next));
  if (const std::string trust = trust_text(life, refused_next); !trust.empty()) add(trust);
  return text;
}

Values life_row(const CheckpointLife& life, std::size_t number,
                const std::vector<CheckpointStep>& refused_next) {
  Values row;
  row.set("number", std::to_string(number));
  row.set("node", life.node);
  row.set("resumed", life.resumed ? local_text(life.resumed->time) : "");
  const auto& away = life.resumed ? life.resumed->away_seconds : std::nullopt;
  row.set("away", away ? format_seconds(*away) : "");
  std::string saved;
  std::string size;
  std::string frozen;
  if (!life.saves.empty()) {
    const CheckpointStep& last = life.saves.back();
    saved = local_text(last.time);
    if (life.saves.size() > 1)
      saved = words("times_last", {saved, std::to_string(life.saves.size())});
    if (last.image_bytes) size = format_bytes(*last.image_bytes);
    if (last.frozen_seconds) frozen = format_seconds(*last.frozen_seconds);
  }
  row.set("saved", saved);
  row.set("size", size);
  row.set("frozen", frozen);
  row.set("remarks", remarks_on(life, refused_next));
  return row;
}

// The last `most` lives.
List life_rows(const CheckpointChain& chain, std::size_t most) {
  List rows;
  for (std::size_t i = chain.lives.size() - std::min(most, chain.lives.size());
       i < chain.lives.size(); ++i) {
    const bool is_last = i + 1 == chain.lives.size();
    rows.push_back(
        life_row(chain.lives[i], i + 1, is_last ? chain.refused : chain.lives[i + 1].refused));
  }
  // Nothing but refused attempts.
  if (chain.lives.empty() && !chain.refused.empty())
    rows.push_back(life_row({.node = chain.refused.back().node}, 1, chain.refused));
  return rows;
}

}  // namespace

Values chain_part(const std::vector<CheckpointChain>& chains) {
  List programs;
  std::size_t room = kMostChainRows;
  std::size_t left_out = 0;
  for (const CheckpointChain& chain : chains) {
    const List rows = life_rows(chain, room);
    room -= std::min(room, rows.size());
    left_out += chain.lives.size() - std::min(chain.lives.size(), rows.size());
    if (rows.empty()) continue;
    Values program;
    const auto with_id = std::ranges::find_if(
        chain.steps, [](const CheckpointStep& step) { return step.root_pid.has_value(); });
    const bool is_named = chains.size() > 1 && with_id != chain.steps.end();
    program.set("program",
                is_named ? Values(words("chain_program", {std::to_string(*with_id->root_pid)}))
                         : Values(false));
    program.set("rows", rows);
    programs.push_back(std::move(program));
  }
  if (programs.empty()) return Values(false);
  Values part;
  part.set("programs", programs);
  const std::string sum = query::checkpoint_sum_text(chains);
  part.set("sum", sum.empty() ? Values(false) : Values(sum));
  part.set("left_out", left_out == 0 ? Values(false)
                                     : Values(words("chain_left_out", {std::to_string(left_out)})));
  return part;
}

}  // namespace scriptorium::page
