#include "tune/print.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "base/machine/cores.h"
#include "comm/tuning/explain.h"

namespace reigen::apps::tune {

namespace {

namespace tuning = comm::tuning;

// Returns "up to 16K" or "below 24K", whichever is shorter.
std::string upper_bound(std::size_t last) {
  const std::string with = tuning::exact_bytes(last);
  const std::string without = tuning::exact_bytes(last + 1);
  return without.size() < with.size() ? "below " + without : "up to " + with;
}

std::string lower_bound(std::size_t first) {
  const std::string with = tuning::exact_bytes(first);
  const std::string without = tuning::exact_bytes(first - 1);
  return without.size() < with.size() ? "above " + without : "from " + with;
}

std::string sizes_of(const std::vector<tuning::Span>& spans, const std::string& algorithm) {
  std::string text;
  for (const auto& span : spans) {
    if (span.taken.algorithm != algorithm) continue;
    if (!text.empty()) text += ", ";
    const bool first = span.from == 0;
    const bool last = span.to == SIZE_MAX;
    if (first && last) text += "all";
    if (!first) text += lower_bound(span.from);
    if (!first && !last) text += " ";
    if (!last) text += upper_bound(span.to);
  }
  return text.empty() ? "-" : text;
}

}  // namespace

void print_table(const tuning::Table& table) {
  const comm::AlgorithmChoice choice(table.rules, table.family);
  const bool cores_for_all = base::have_cores(table.ranks);
  fmt::print("{:<16}{:<20}{:>12}{:>16}  {}\n", "# operation", "algorithm", "alpha (us)", "1/beta (GB/s)", "sizes");
  for (const auto kind : comm::kRuledKinds) {
    const auto spans = tuning::spans(choice, kind, table.ranks, cores_for_all);
    for (const std::string& name : comm::algorithm_names(table.family, kind)) {
      const auto timing = std::find_if(table.timings.begin(), table.timings.end(), [&](const tuning::Timing& one) {
        return one.kind == kind && one.algorithm == name;
      });
      const bool measured = timing != table.timings.end();
      const bool moves = measured && timing->line.beta > 0;
      fmt::print("{:<16}{:<20}{:>12}{:>16}  {}\n", comm::name_of(kind), name,
                 measured ? fmt::format("{:.2f}", timing->line.alpha * 1e6) : "-",
                 moves ? fmt::format("{:.2f}", 1e-9 / timing->line.beta) : "-", sizes_of(spans, name));
    }
  }
  std::fflush(stdout);
}

}  // namespace reigen::apps::tune
