// Provides the memory of flat buffers, in the place where each is to lie. All buffers of a model's ranges come from
// one resource, which also counts them: a run reports as its memory what was taken here.
// Thread rule: one thread at a time.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <vector>

#include "reigen/comm/communicator.h"
#include "reigen/layout/layout.h"

namespace reigen::tensor {

struct FlatBuffer {
  std::int64_t count = 0;  // elements
  at::ScalarType type = at::kFloat;
  layout::Residence residence = {};
  // The elements that this rank accounts for: its share of a common buffer, or the elements that it writes of another
  // buffer. The rest of a buffer that is not common never takes memory.
  std::int64_t first = 0;
  std::int64_t last = 0;
  bool travels = false;  // collectives read and write it: it lies in memory from Communicator::allocate
};

class MemoryResource {
 public:
  // `directory`: where files of Medium::kDisk lie.
  MemoryResource(Communicator ranks, std::filesystem::path directory)
      : ranks_(std::move(ranks)), directory_(std::move(directory)) {}

  // Returns a one-dimensional tensor of zeros. For a common buffer the call is collective, and the ranks must be on
  // one machine: else it throws BackendError. It throws IoError where the disk has no room.
  at::Tensor take(layout::Role role, const FlatBuffer& buffer);
  // Leaves the ranks' group: buffers that are taken from now on are neither common, nor do they travel.
  void leave() { ranks_ = Communicator(); }
  // Counts a tensor that was made elsewhere.
  void note(layout::Role role, const at::Tensor& tensor, std::int64_t bytes);
  // The bytes of tensors that were taken or noted, and that still live.
  std::int64_t bytes(layout::Role role) const;

 private:
  struct Taken {
    layout::Role role = layout::Role::kValue;
    std::int64_t bytes = 0;
    c10::weak_intrusive_ptr<c10::StorageImpl> storage;
  };
  at::Tensor make(const FlatBuffer& buffer);

  Communicator ranks_;
  std::filesystem::path directory_;
  std::vector<Taken> taken_;
};

}  // namespace reigen::tensor
