#include "comm/control/rank_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "comm/call/mismatch_reports.h"

namespace reigen::comm::control {

const CallRecord* RankState::find(std::uint64_t sequence) const {
  if (records.empty() || sequence < records.front().sequence || sequence > records.back().sequence) return nullptr;
  return &records[sequence - records.front().sequence];
}

std::string RankState::last_call() const {
  if (records.empty()) return "it had not called anything yet";
  return fmt::format("its last call was #{} {}", records.back().sequence, describe(records.back().call));
}

std::string encode(const RankState& state) {
  std::string text = fmt::format("{} {} {}\n", state.left ? 1 : 0, state.beat, state.calls);
  for (const auto& [sequence, call] : state.records) text += fmt::format("{} {}\n", sequence, encode(call));
  return text;
}

RankState decode_state(const std::string& text) {
  std::istringstream in(text);
  RankState state;
  std::string line;
  in >> state.left >> state.beat >> state.calls;
  std::getline(in, line);
  std::uint64_t sequence = 0;
  while (in >> sequence) {
    in.get();
    std::getline(in, line);
    state.records.push_back({sequence, decode_signature(line)});
  }
  return state;
}

std::optional<Mismatch> find_mismatch(const std::vector<RankState>& states, const std::string& group) {
  std::uint64_t first = UINT64_MAX;
  std::uint64_t last = 0;
  for (const RankState& state : states) {
    if (state.records.empty()) continue;
    first = std::min(first, state.records.front().sequence);
    last = std::max(last, state.records.back().sequence + 1);
  }
  for (std::uint64_t sequence = first; sequence < last; ++sequence) {
    std::size_t base = states.size();
    for (std::size_t q = 0; q < states.size(); ++q) {
      const CallRecord* other = states[q].find(sequence);
      if (other == nullptr) continue;
      if (base == states.size()) base = q;
      const CallRecord& expected = *states[base].find(sequence);
      if (*other == expected) continue;
      const std::string text =
          calls_differ(group, sequence, what_differs(expected.call, other->call),
                       {static_cast<int>(base), expected.call}, {static_cast<int>(q), other->call});
      return Mismatch{{AbortCause::Kind::kMismatch, -1, text}, static_cast<int>(base)};
    }
  }
  return std::nullopt;
}

std::string encode(const AbortCause& cause) {
  return fmt::format("{} {} {}", static_cast<std::uint32_t>(cause.kind), cause.rank, cause.text);
}

AbortCause decode_cause(const std::string& text) {
  std::istringstream in(text);
  std::uint32_t kind = 0;
  AbortCause cause;
  in >> kind >> cause.rank;
  in.get();
  cause.kind = static_cast<AbortCause::Kind>(kind);
  cause.text.assign(std::istreambuf_iterator<char>(in), {});
  return cause;
}

}  // namespace reigen::comm::control
