#include "parallel/weights/kept_slices.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "reigen/tensor/data_type.h"
#include "tensor/calls.h"
#include "tensor/memory/shared_tensor.h"

namespace reigen::parallel {

KeptSlices::KeptSlices(const Communicator& world, int ranks, std::size_t flats, const Device& device)
    : group_(*world.split(world.rank() / ranks, world.rank())), pool_(group_, device), kept_(flats) {}

void KeptSlices::keep(std::size_t flat, const at::Tensor& values, at::ScalarType type, std::uint64_t generation) {
  forget(flat);
  const std::int64_t begin = begin_of(values.numel(), group_.rank());
  const std::int64_t count = begin_of(values.numel(), group_.rank() + 1) - begin;
  Kept& kept = kept_[flat];
  kept.generation = generation;
  const std::size_t bytes = static_cast<std::size_t>(count) * c10::elementSize(type);
  kept.memory = pool_.take(std::max<std::size_t>(bytes, 1));  // with more ranks than elements a slice may be empty
  kept.slice = tensor::tensor_over(kept.memory.get(), count, type, values.device());
  kept.slice.copy_(values.narrow(0, begin, count));
}

bool KeptSlices::has(std::size_t flat, at::ScalarType type, std::uint64_t generation) const {
  const Kept& kept = kept_[flat];
  return kept.memory && kept.slice.scalar_type() == type && kept.generation == generation;
}

Work KeptSlices::gather(std::size_t flat, std::int64_t count, void* into, const std::string& tag) {
  std::vector<std::size_t> counts;
  for (int rank = 0; rank < group_.size(); ++rank) {
    counts.push_back(static_cast<std::size_t>(begin_of(count, rank + 1) - begin_of(count, rank)));
  }
  const Kept& kept = kept_[flat];
  return group_.start_all_gather_v(kept.memory.get(), into, counts, tensor::to_data_type(kept.slice.scalar_type()),
                                   {.tag = tag, .after = tensor::stream_of(kept.slice)});
}

void KeptSlices::forget(std::size_t flat) {
  Kept& kept = kept_[flat];
  pool_.give_back(std::move(kept.memory));
  kept = {};
}

}  // namespace reigen::parallel
