#include "optim/passes/whole_gradients.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "optim/kernels/kernels.h"
#include "optim/passes/run_rule.h"
#include "reigen/base/error.h"

namespace reigen::optim {
namespace {

// Norms of gradients whose sums are made in other orders differ by less than this, relative to each other.
constexpr double kRounding = 0.02;

struct Seen {
  double first = 0;  // the elements that this rank compares
  double count = 0;
  double norm = 0;
};

Seen seen(const Update& update) {
  const std::int64_t first = std::clamp(update.begin, std::int64_t{0}, update.block.count);
  const kernels::Block own = own_block(update);
  const double squares = kernels::kernels().squares(update.layout, own.gradients, own.count);
  return {static_cast<double>(first), static_cast<double>(own.count), std::sqrt(squares)};
}

}  // namespace

void compare_whole_gradients(const std::vector<Update>& updates, const std::vector<std::string>& names,
                             const Communicator& owners) {
  std::vector<Seen> own;
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < updates.size(); ++i) {
    if (updates[i].box_owners != nullptr) continue;
    own.push_back(seen(updates[i]));
    places.push_back(i);
  }
  std::vector<Seen> all(own.size() * static_cast<std::size_t>(owners.size()));
  owners.all_gather(own.data(), all.data(), own.size() * sizeof(Seen), DataType::kUint8,
                    {.tag = "gradients of whole weights"});
  for (int rank = 1; rank < owners.size(); ++rank) {
    for (std::size_t i = 0; i < own.size(); ++i) {
      const Seen& a = all[i];
      const Seen& b = all[static_cast<std::size_t>(rank) * own.size() + i];
      const bool is_comparable =
          a.first == b.first && a.count == b.count && std::isfinite(a.norm) && std::isfinite(b.norm);
      if (!is_comparable || std::abs(a.norm - b.norm) <= kRounding * std::max(a.norm, b.norm)) continue;
      throw InvalidArgument(Report{
          .what = fmt::format("[tensor_parallel] ranks have different gradients of {}, of which each has the whole",
                              names[places[i]]),
          .got = fmt::format("norms {:.6g} on rank 0 and {:.6g} on rank {} of those that divide layers", a.norm, b.norm,
                             rank),
          .expected = "the same up to rounding",
          .fix = "name the module in the plan: by shared() if it computes with this rank's features only, by "
                 "sequence() if with this rank's part of the sequence; and give all these ranks the same batch"});
    }
  }
}

}  // namespace reigen::optim
