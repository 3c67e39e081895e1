// Ranks that were started with different options would train something nobody asked for, or hang: they compare first.
#include <fmt/format.h>

#include "comm/agree.h"
#include "reigen/base/error.h"
#include "reigen/train/config.h"
#include "train/config/config_text.h"

namespace reigen::train {

void require_same(const Config& config, const Communicator& world) {
  Config copy = config;
  std::vector<std::string> lines;
  for (const Field& field : fields(copy)) {
    if (!field.may_differ) lines.push_back(field.name() + " = " + quote_toml(value_text(field)));
  }
  const auto difference = comm::find_difference(lines, world, "configuration");
  if (!difference) return;
  const std::string key = difference->first.substr(0, difference->first.find(" = "));
  const auto value = [&](const std::string& line) {
    return line.starts_with(key + " = ") ? line.substr(key.size() + 3) : "other options (another version)";
  };
  throw InvalidArgument(Report{.what = fmt::format("ranks were started with different configurations: {}", key),
                               .got = fmt::format("{} on rank {}", value(difference->other), difference->rank),
                               .expected = fmt::format("{} as on rank 0", value(difference->first)),
                               .fix = "give every rank the same options, variables and configuration file"});
}

}  // namespace reigen::train
