#include "train/config/option_owners.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "reigen/base/error.h"

namespace reigen::train {

std::string owners_text(const std::vector<OptionOwners>& all, const std::string& key) {
  const auto owners = std::find_if(all.begin(), all.end(), [&](const OptionOwners& one) { return one.key == key; });
  return owners == all.end() ? "" : fmt::format("for {}: ", fmt::join(owners->names, ", "));
}

void require_owner(const std::vector<OptionOwners>& all, const Field& field, const std::string& choice,
                   const std::string& chosen) {
  const auto owners =
      std::find_if(all.begin(), all.end(), [&](const OptionOwners& one) { return one.key == field.key; });
  if (owners == all.end()) return;
  if (std::find(owners->names.begin(), owners->names.end(), chosen) != owners->names.end()) return;
  throw InvalidArgument(Report{
      .what = fmt::format("{} = {}: {} has no {}", field.name(), value_text(field), chosen, field.key),
      .fix = fmt::format("choose {} {}, or leave {} out", choice, fmt::join(owners->names, " or "), field.name())});
}

}  // namespace reigen::train
