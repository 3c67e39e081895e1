#include "comm/tuning/tuned.h"

#include <fmt/format.h>

#include "base/log.h"
#include "base/machine/host_name.h"
#include "comm/forming/forming.h"
#include "comm/tuning/table.h"
#include "reigen/base/error.h"

namespace reigen::comm::tuning {

namespace {

// The first letter of the text that rank 0 writes to the store.
constexpr char kRules = 'r';
constexpr char kMissing = 'm';
constexpr char kUnreadable = 'u';

std::string find_rules(const GroupOptions& options, Family family) {
  try {
    if (const auto table = read_cache(family, options.size)) {
      if (table->host != base::host_name()) {
        base::log_warning("group \"{}\": {} was measured on host {}, this is {}", options.name,
                          cache_path(family, options.size).string(), table->host, base::host_name());
      }
      return kRules + table->rules;
    }
    return kMissing +
           to_string(Report{
               .what =
                   fmt::format("group \"{}\": nothing was tuned for this backend and number of ranks", options.name),
               .got = fmt::format("algorithms \"{}\", backend {}, {} ranks", kTuned, name_of(family), options.size),
               .expected = cache_path(family, options.size).string(),
               .fix = fmt::format("reigen tune -n {} --backend {}", options.size, name_of(family))});
  } catch (const InvalidArgument& error) {
    return std::string(1, kMissing) + error.what();
  } catch (const Error& error) {
    return std::string(1, kUnreadable) + error.what();
  }
}

}  // namespace

std::string rules_in_force(const GroupOptions& options, Family family) {
  if (options.algorithms != kTuned) return options.algorithms;
  if (options.size == 1) return {};
  const auto store = meeting_of(options);
  if (options.rank == 0) store->set("tuned", find_rules(options, family));
  const std::string found = store->get("tuned", Deadline::after(options.join_timeout));
  if (found.front() == kMissing) throw InvalidArgument(found.substr(1));
  if (found.front() == kUnreadable) throw DataError(found.substr(1));
  return found.substr(1);
}

}  // namespace reigen::comm::tuning
