// Memory for flat buffers, by where it shall lie. All buffers of a model's ranges come from one resource, which also
// counts them: what a run reports as its memory is what was taken here.
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
  // The elements that this rank accounts for: of a common buffer its share, of another what it writes. The rest of a
  // buffer that is not common never takes memory.
  std::int64_t first = 0;
  std::int64_t last = 0;
  bool travels = false;  // collectives read and write it: it lies in memory from Communicator::allocate
};

class MemoryResource {
 public:
  // `directory`: where files of Medium::kDisk lie.
  MemoryResource(Communicator ranks, std::filesystem::path directory)
      : ranks_(std::move(ranks)), directory_(std::move(directory)) {}

  // One-dimensional, zero. Collective for a common buffer, which needs ranks of one machine: else BackendError. Throws
  // IoError where the disk has no room.
  at::Tensor take(layout::Role role, const FlatBuffer& buffer);
  // Leaves the ranks: nothing that is taken from now on is common or travels.
  void leave() { ranks_ = Communicator(); }
  // Counts a tensor that was made elsewhere.
  void note(layout::Role role, const at::Tensor& tensor, std::int64_t bytes);
  // Of what was taken and is still there.
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
