// Keeps a unit's weights between its forward and its backward, divided among a small group of ranks. Each rank of the
// group keeps one slice. So the next gather of the weights is a call of this group alone.
//
//   keep(i):    kept = weights_i[slice of this rank]
//   gather(i):  weights_i = kept slices of the group, in rank order; receives (ranks - 1)/ranks of the elements
//
// Thread rule: one thread at a time.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "parallel/exchange/block_pool.h"
#include "reigen/comm/communicator.h"

namespace reigen::parallel {

class KeptSlices {
 public:
  // Makes groups of `ranks` consecutive ranks; world.size() is a multiple of `ranks`. `flats`: the number of flat
  // ranges (buffers that each contain several weights), which are on `device`. Collective.
  KeptSlices(const Communicator& world, int ranks, std::size_t flats, const Device& device);

  // Keeps a copy of this rank's slice of the values, converted to `type`. `generation`: a number that changes with each
  // change of the weights, so that has() returns false for a slice that is out of date.
  void keep(std::size_t flat, const at::Tensor& values, at::ScalarType type, std::uint64_t generation);
  bool has(std::size_t flat, at::ScalarType type, std::uint64_t generation) const;
  // Starts to gather the group's slices of a flat range of `count` elements into `into`. On a GPU the call begins after
  // LibTorch's current stream. This rank's slice remains until forget().
  Work gather(std::size_t flat, std::int64_t count, void* into, const std::string& tag);
  void forget(std::size_t flat);
  std::int64_t allocations() const { return pool_.allocations(); }
  // The blocks of the pool that were too small for gather(). BlockPool says when they may be freed.
  bool has_retired() const { return pool_.has_retired(); }
  void free_retired() { pool_.free_retired(); }

 private:
  struct Kept {
    std::shared_ptr<void> memory;
    at::Tensor slice = {};  // over the memory
    std::uint64_t generation = 0;
  };
  std::int64_t begin_of(std::int64_t count, int rank) const { return count * rank / group_.size(); }

  Communicator group_;
  BlockPool pool_;
  std::vector<Kept> kept_;
};

}  // namespace reigen::parallel
