// Ranks that were started with different options would train something nobody asked for, or hang: they compare first.
#include <fmt/format.h>

#include <algorithm>

#include "reigen/base/error.h"
#include "reigen/train/config.h"
#include "train/config_text.h"

namespace reigen::train {

void require_same(const Config& config, Communicator& world) {
  const auto size = static_cast<std::size_t>(world.size());
  // Hash and length in one call: the texts travel only when they differ.
  Config copy = config;
  std::string text;
  for (const Field& field : fields(copy)) {
    if (field.may_differ) continue;
    text += field.name() + " = " + quote_toml(value_text(field)) + '\n';
  }
  const std::uint64_t mine[2] = {hash_of(config), text.size()};
  std::vector<std::uint64_t> all(2 * size);
  world.all_gather(mine, all.data(), 2, DataType::kInt64, {.tag = "configuration"}).wait();
  std::uint64_t longest = 0;
  bool same = true;
  for (std::size_t rank = 0; rank < size; ++rank) {
    same = same && all[2 * rank] == all[0];
    longest = std::max(longest, all[2 * rank + 1]);
  }
  if (same) return;

  text.resize(longest);
  std::string texts(longest * size, '\0');
  world.all_gather(text.data(), texts.data(), longest, DataType::kUint8, {.tag = "configuration text"}).wait();
  for (std::size_t rank = 1; rank < size; ++rank) {
    if (all[2 * rank] == all[0]) continue;
    const std::string first(texts.c_str(), all[1]);
    const std::string other(texts.c_str() + longest * rank, all[2 * rank + 1]);
    const auto [key, values] = first_difference(first, other);
    throw InvalidArgument(Report{.what = fmt::format("ranks were started with different configurations: {}", key),
                                 .got = fmt::format("{} on rank {}", values.second, rank),
                                 .expected = fmt::format("{} as on rank 0", values.first),
                                 .fix = "give every rank the same options, variables and configuration file"});
  }
}

}  // namespace reigen::train
