#include "reigen/parallel/replicas.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>

#include "reigen/format/hash.h"

namespace reigen::parallel {

namespace {

std::uint64_t hash_of(const tensor::NamedTensor& item) {
  at::Tensor flat = item.tensor.detach().contiguous().view({-1});
  if (item.part) flat = flat.narrow(0, item.part->first, item.part->count);
  if (flat.numel() == 0) return 0;
  const at::Tensor here = flat.cpu();
  return format::hash64(here.const_data_ptr(), here.nbytes());
}

// Returns the most frequent value. Of several such values, it returns the one that the lowest rank has.
std::uint64_t most_frequent(const std::vector<std::uint64_t>& values) {
  std::map<std::uint64_t, std::ptrdiff_t> counts;
  for (const std::uint64_t value : values) ++counts[value];
  return *std::max_element(values.begin(), values.end(),
                           [&](std::uint64_t a, std::uint64_t b) { return counts[a] < counts[b]; });
}

// Returns a text such as "rank 2" or "ranks 0, 3". It lists only the first `kMost` ranks by number.
std::string list(const std::vector<int>& ranks) {
  constexpr std::size_t kMost = 8;
  std::vector<int> first = ranks;
  first.resize(std::min(ranks.size(), kMost));
  return fmt::format("{} {}{}", ranks.size() == 1 ? "rank" : "ranks", fmt::join(first, ", "),
                     ranks.size() > kMost ? fmt::format(" and {} more", ranks.size() - kMost) : "");
}

}  // namespace

std::optional<Divergence> compare_replicas(const std::vector<tensor::NamedTensor>& tensors, Communicator ranks,
                                           std::optional<int> called) {
  if (ranks.size() == 1 || tensors.empty()) return std::nullopt;
  const auto count = static_cast<std::size_t>(ranks.size());
  std::vector<std::uint64_t> own;
  own.reserve(tensors.size() + 1);
  for (const tensor::NamedTensor& item : tensors) own.push_back(hash_of(item));
  const auto gather = [&](const std::vector<std::uint64_t>& values) {
    std::vector<std::uint64_t> all(values.size() * count);
    ranks.all_gather(values.data(), all.data(), values.size(), DataType::kInt64, {.tag = "hashes of replicas"});
    return all;
  };
  const std::vector<std::uint64_t> digests = gather({format::hash64(own.data(), own.size() * sizeof(std::uint64_t))});
  if (std::all_of(digests.begin(), digests.end(), [&](std::uint64_t one) { return one == digests.front(); })) {
    return std::nullopt;
  }
  own.push_back(static_cast<std::uint64_t>(called.value_or(ranks.rank())));
  const std::vector<std::uint64_t> all = gather(own);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const auto value = [&](std::size_t rank, std::size_t column) { return all[rank * own.size() + column]; };
    std::vector<std::uint64_t> values;
    for (std::size_t rank = 0; rank < count; ++rank) values.push_back(value(rank, i));
    const std::uint64_t right = most_frequent(values);
    Divergence found{.tensor = tensors[i].name, .ranks = {}, .text = {}};
    std::vector<int> others;
    for (std::size_t rank = 0; rank < count; ++rank) {
      (values[rank] == right ? others : found.ranks).push_back(static_cast<int>(value(rank, tensors.size())));
    }
    if (found.ranks.empty()) continue;
    found.text = fmt::format("{} is another on {} than on {}", found.tensor, list(found.ranks), list(others));
    return found;
  }
  return std::nullopt;
}

}  // namespace reigen::parallel
