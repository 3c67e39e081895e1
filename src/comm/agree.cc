#include "comm/agree.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <exception>
#include <sstream>

#include "base/check.h"
#include "base/error_record.h"
#include "base/hash.h"
#include "base/machine/host_name.h"
#include "reigen/comm/byte_strings.h"

namespace reigen::comm {

namespace {

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// Fails if `what` is too long for the tags that are made of it. The longest of these tags is "sizes of WHAT", for a
// call in all_gather_bytes(). Some of these tags are used only after an error. Without this check, a `what` that is too
// long would be noticed only then.
void require_short(const std::string& what) {
  constexpr std::size_t kBefore = 9;
  REIGEN_ASSERT(what.size() + kBefore <= kLongestTag, "\"{}\" is too long for a tag", what);
}

// The result that a function returned, or the error that the function threw.
template <class Result>
struct Outcome {
  Result result = {};
  std::optional<base::ErrorRecord> error = {};
};

template <class Body>
auto outcome_of(const Body& body) {
  Outcome<std::invoke_result_t<Body>> outcome;
  try {
    outcome.result = body();
  } catch (...) {
    outcome.error = base::record_of(std::current_exception());
  }
  return outcome;
}

// Each rank passes its own error, or none. Returns if no rank has an error. Otherwise every rank throws the error of
// the lowest rank that has one.
void settle(std::optional<base::ErrorRecord> error, const Communicator& group, const std::string& what, Scope scope) {
  require_short(what);
  const auto size = static_cast<std::size_t>(group.size());
  const std::uint8_t own = error ? 1 : 0;
  std::vector<std::uint8_t> all(size);
  group.all_gather(&own, all.data(), 1, DataType::kUint8, {.tag = what});
  const auto first = std::find(all.begin(), all.end(), 1);
  if (first == all.end()) return;
  const int root = static_cast<int>(first - all.begin());
  const bool named = scope == Scope::kJob ? root != 0 : size > 1;
  std::string text;
  if (group.rank() == root) {
    if (named) {
      error->text = fmt::format("rank {} of {} ({}): {}", root, size, base::host_name(), error->text);
    }
    text = base::encode(*error);
  }
  base::raise(base::decode_error(broadcast_bytes(text, root, group, what)), scope == Scope::kJob);
}

}  // namespace

void attempt(Communicator group, const std::string& what, const std::function<void()>& body, Scope scope) {
  settle(outcome_of([&] {
           body();
           return 0;
         }).error,
         group, what, scope);
}

std::vector<std::string> attempt_all(Communicator group, const std::string& what,
                                     const std::function<std::string()>& body) {
  const auto outcome = outcome_of(body);
  settle(outcome.error, group, what, Scope::kGroup);
  return all_gather_bytes(outcome.result, group, what);
}

std::string attempt_first(Communicator group, const std::string& what, const std::function<std::string()>& body) {
  require_short(what);
  std::string told;  // the letter 'r' and the result of `body`, or the letter 'e' and the error of `body`
  if (group.rank() == 0) {
    const auto outcome = outcome_of(body);
    told = outcome.error ? "e" + base::encode(*outcome.error) : "r" + outcome.result;
  }
  told = broadcast_bytes(told, 0, group, what);
  if (told.at(0) == 'e') base::raise(base::decode_error(std::string_view(told).substr(1)));
  return told.substr(1);
}

std::optional<Difference> find_difference(const std::vector<std::string>& lines, Communicator group,
                                          const std::string& what) {
  require_short(what);
  if (group.size() == 1) return std::nullopt;
  const std::string text = fmt::format("{}\n", fmt::join(lines, "\n"));
  using Digest = std::array<std::uint64_t, 2>;
  const Digest mine{base::fnv1a(text), text.size()};
  std::vector<Digest> digests(static_cast<std::size_t>(group.size()));
  group.all_gather(mine.data(), digests.data(), sizeof(Digest), DataType::kUint8, {.tag = what});
  const auto differs = [&](const Digest& one) { return one != digests[0]; };
  const auto other = std::find_if(digests.begin(), digests.end(), differs);
  if (other == digests.end()) return std::nullopt;
  const int rank = static_cast<int>(other - digests.begin());
  const std::vector<std::string> first = lines_of(broadcast_bytes(text, 0, group, what));
  const std::vector<std::string> second = lines_of(broadcast_bytes(text, rank, group, what));
  std::size_t at = 0;
  while (at < first.size() && at < second.size() && first[at] == second[at]) ++at;
  const auto line = [at](const std::vector<std::string>& all) { return at < all.size() ? all[at] : std::string(); };
  return Difference{.rank = rank, .other = line(second), .first = line(first)};
}

}  // namespace reigen::comm
