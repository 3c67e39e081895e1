#include "comm/call/algorithm_choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <span>

#include "comm/shared_memory/ways.h"
#include "reigen/base/bytes.h"
#include "reigen/base/error.h"

namespace reigen::comm {

namespace {

constexpr std::array kFamilies = {Family::kTcp, Family::kSharedMemory};

[[noreturn]] void refuse(const std::string& what, const std::string& got, const std::string& expected) {
  throw InvalidArgument(Report{.what = what,
                               .got = "\"" + got + "\"",
                               .expected = expected,
                               .fix = "write all_reduce:ring or broadcast:ring@>1M, separated by commas"});
}

OperationKind parse_kind(const std::string& word, const std::string& rule) {
  std::vector<std::string> names;
  for (const OperationKind kind : kRuledKinds) {
    if (word == name_of(kind)) return kind;
    names.emplace_back(name_of(kind));
  }
  refuse("unknown operation in a choice of algorithms", rule, fmt::format("{}", fmt::join(names, ", ")));
}

std::optional<std::uint8_t> place_of(Family family, OperationKind kind, const std::string& word) {
  const auto names = algorithm_names(family, kind);
  const auto found = std::find(names.begin(), names.end(), word);
  if (found == names.end()) return std::nullopt;
  return static_cast<std::uint8_t>(found - names.begin());
}

[[noreturn]] void refuse_algorithm(OperationKind kind, const std::string& word, const std::string& rule,
                                   std::span<const Family> families) {
  std::string expected;
  for (const Family family : families) {
    expected += fmt::format("{}{}", expected.empty() ? "" : "; ", fmt::join(algorithm_names(family, kind), ", "));
    if (families.size() > 1) expected += fmt::format(" ({})", name_of(family));
  }
  refuse(fmt::format("{} has no algorithm \"{}\"", name_of(kind), word), rule, expected);
}

// A rule as the user wrote it. It is not known yet which family (tcp or shared_memory) has the algorithm that the rule
// names.
struct Written {
  OperationKind kind;
  std::string algorithm;
  AlgorithmChoice::Rule rule;
};

Written parse(const std::string& text) {
  const std::size_t colon = text.find(':');
  if (colon == std::string::npos) refuse("a choice of algorithms without ':'", text, "OPERATION:ALGORITHM");
  const std::size_t at = std::min(text.find('@'), text.size());
  const OperationKind kind = parse_kind(text.substr(0, colon), text);
  Written written{kind, at > colon ? text.substr(colon + 1, at - colon - 1) : "", {.text = text}};
  if (at == text.size()) return written;
  const char sign = at + 1 < text.size() ? text[at + 1] : ' ';
  if (sign != '>' && sign != '<') refuse("a choice of algorithms with a size that has no sign", text, "@>1M or @<1M");
  const std::size_t bytes = parse_bytes(text.substr(at + 2));
  if (sign == '>') {
    written.rule.least = bytes + 1;
  } else if (bytes > 0) {
    written.rule.most = bytes - 1;
  } else {
    refuse("a choice of algorithms that fits no size", text, "@<1 or more");
  }
  return written;
}

std::vector<Written> parse_all(const std::string& rules) {
  std::vector<Written> all;
  for (std::size_t at = 0; at < rules.size();) {
    const std::size_t end = std::min(rules.find(',', at), rules.size());
    all.push_back(parse(rules.substr(at, end - at)));
    at = end + 1;
  }
  return all;
}

void check(const std::vector<Written>& rules, std::span<const Family> families) {
  for (const Written& written : rules) {
    const bool known = std::any_of(families.begin(), families.end(), [&](Family family) {
      return place_of(family, written.kind, written.algorithm).has_value();
    });
    if (!known) refuse_algorithm(written.kind, written.algorithm, written.rule.text, families);
  }
}

}  // namespace

const char* name_of(Family family) { return family == Family::kTcp ? "tcp" : "shared_memory"; }

std::vector<std::string> algorithm_names(Family family, OperationKind kind) {
  if (family == Family::kSharedMemory) return shared_memory::way_names(kind);
  std::vector<std::string> names;
  for (const auto& algorithm : schedule::algorithms(kind)) names.push_back(algorithm.name);
  return names;
}

void check_algorithms(const std::string& rules, std::span<const Family> families) {
  if (rules == kTuned) return;
  check(parse_all(rules), families);
}

std::size_t whole_bytes(const Call& call, int ranks) {
  std::size_t count = call.count;
  switch (call.kind) {
    case OperationKind::kAllToAllV: return 0;
    case OperationKind::kAllReduce:
    case OperationKind::kBroadcast:
    case OperationKind::kReduce: break;
    default: count = is_uneven(call.kind) ? begin_of(call.counts, ranks) : call.count * static_cast<std::size_t>(ranks);
  }
  return count * size_of(call.type);
}

AlgorithmChoice::AlgorithmChoice(const std::string& rules, Family family) : family_(family) {
  const std::vector<Written> all = parse_all(rules);
  check(all, kFamilies);
  for (const Written& written : all) {
    const auto place = place_of(family, written.kind, written.algorithm);
    if (!place) continue;
    auto& own = by_kind_[static_cast<std::size_t>(written.kind)];
    own.push_back(written.rule);
    own.back().place = *place;
    empty_ = false;
  }
}

const AlgorithmChoice::Rule* AlgorithmChoice::find(OperationKind kind, std::size_t bytes,
                                                   std::uint32_t possible) const {
  for (const Rule& rule : rules(kind)) {
    if (bytes >= rule.least && bytes <= rule.most && (possible >> rule.place & 1) != 0) return &rule;
  }
  return nullptr;
}

const schedule::Algorithm& choose_schedule(const AlgorithmChoice& choice, OperationKind kind, std::size_t bytes,
                                           int ranks) {
  const auto* const rule = choice.find(kind, bytes);
  return rule != nullptr ? schedule::algorithms(kind)[rule->place] : schedule::usual(kind, bytes, ranks);
}

}  // namespace reigen::comm
