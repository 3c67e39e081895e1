#include "comm/algorithm_choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "reigen/base/bytes.h"
#include "reigen/base/error.h"

namespace reigen::comm {

namespace {

constexpr std::array kKinds = {OperationKind::kAllReduce, OperationKind::kReduceScatter, OperationKind::kAllGather,
                               OperationKind::kBroadcast, OperationKind::kReduce,        OperationKind::kGather,
                               OperationKind::kScatter,   OperationKind::kAllToAll,      OperationKind::kBarrier};

[[noreturn]] void refuse(const std::string& what, const std::string& got, const std::string& expected) {
  throw InvalidArgument(Report{.what = what,
                               .got = "\"" + got + "\"",
                               .expected = expected,
                               .fix = "write all_reduce:ring or broadcast:ring@>1M, separated by commas"});
}

OperationKind parse_kind(const std::string& word, const std::string& rule) {
  std::vector<std::string> names;
  for (const OperationKind kind : kKinds) {
    if (word == name_of(kind)) return kind;
    names.emplace_back(name_of(kind));
  }
  refuse("unknown operation in a choice of algorithms", rule, fmt::format("{}", fmt::join(names, ", ")));
}

const schedule::Algorithm* parse_algorithm(OperationKind kind, const std::string& word, const std::string& rule) {
  if (const auto* found = schedule::find(kind, word)) return found;
  std::vector<std::string> names;
  for (const auto& algorithm : schedule::algorithms(kind)) names.push_back(algorithm.name);
  refuse(fmt::format("{} has no algorithm \"{}\"", name_of(kind), word), rule,
         fmt::format("{}", fmt::join(names, ", ")));
}

}  // namespace

AlgorithmChoice::AlgorithmChoice(const std::string& rules) {
  for (std::size_t at = 0; at < rules.size();) {
    const std::size_t end = std::min(rules.find(',', at), rules.size());
    rules_.push_back(parse(rules.substr(at, end - at)));
    at = end + 1;
  }
}

AlgorithmChoice::Rule AlgorithmChoice::parse(const std::string& text) {
  const std::size_t colon = text.find(':');
  if (colon == std::string::npos) refuse("a choice of algorithms without ':'", text, "OPERATION:ALGORITHM");
  const std::size_t at = std::min(text.find('@'), text.size());
  const OperationKind kind = parse_kind(text.substr(0, colon), text);
  const std::string word = at > colon ? text.substr(colon + 1, at - colon - 1) : "";
  Rule rule{.kind = kind, .algorithm = parse_algorithm(kind, word, text)};
  if (at == text.size()) return rule;
  const char sign = at + 1 < text.size() ? text[at + 1] : ' ';
  if (sign != '>' && sign != '<') refuse("a choice of algorithms with a size that has no sign", text, "@>1M or @<1M");
  const std::size_t bytes = parse_bytes(text.substr(at + 2));
  rule.has_above = sign == '>';
  (rule.has_above ? rule.above : rule.below) = bytes;
  return rule;
}

const schedule::Algorithm& AlgorithmChoice::choose(OperationKind kind, std::size_t bytes, int ranks) const {
  for (const Rule& rule : rules_) {
    if (rule.kind == even_kind(kind) && (!rule.has_above || bytes > rule.above) && bytes < rule.below)
      return *rule.algorithm;
  }
  return schedule::usual(kind, bytes, ranks);
}

}  // namespace reigen::comm
