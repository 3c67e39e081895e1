#include "comm/tuning/tuned.h"

#include <fmt/format.h>

#include "base/error_record.h"
#include "base/log.h"
#include "base/machine/host_name.h"
#include "comm/forming/forming.h"
#include "comm/tuning/table.h"
#include "reigen/base/error.h"

namespace reigen::comm::tuning {

namespace {

// The first letter of the text that rank 0 writes to the store. It says whether rules or an error follow.
constexpr char kRules = 'r';
constexpr char kError = 'e';

std::string find_rules(const GroupOptions& options, Family family) {
  try {
    if (const auto table = read_cache(family, options.size)) {
      if (table->host != base::host_name()) {
        base::log_warning("group \"{}\": {} was measured on host {}, this is {}", options.name,
                          cache_path(family, options.size).string(), table->host, base::host_name());
      }
      return kRules + table->rules;
    }
    throw InvalidArgument(Report{
        .what = fmt::format("group \"{}\": nothing was tuned for this backend and number of ranks", options.name),
        .got = fmt::format("algorithms \"{}\", backend {}, {} ranks", kTuned, name_of(family), options.size),
        .expected = cache_path(family, options.size).string(),
        .fix = fmt::format("reigen tune -n {} --backend {}", options.size, name_of(family))});
  } catch (...) {  // rank 0 sends an error too, because the other ranks wait for an answer
    return kError + base::encode(base::record_of(std::current_exception()));
  }
}

}  // namespace

std::string rules_in_force(const GroupOptions& options, Family family) {
  if (options.algorithms != kTuned) return options.algorithms;
  if (options.size == 1) return {};
  const auto store = meeting_of(options);
  if (options.rank == 0) store->set("tuned", find_rules(options, family));
  const std::string found = store->get("tuned", Deadline::after(options.join_timeout));
  if (found.front() == kError) base::raise(base::decode_error(std::string_view(found).substr(1)), true);
  return found.substr(1);
}

}  // namespace reigen::comm::tuning
