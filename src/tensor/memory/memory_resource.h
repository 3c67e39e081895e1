// Provides the memory of flat buffers. As the layout says, the memory is private, common (one memory of all ranks), on
// a GPU, on a disk, or pinned memory of the host. All buffers of a model's ranges come from one resource. The resource
// also counts their bytes, which a run reports as its memory. Thread rule: one thread at a time.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
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
  // The elements [first, last) whose bytes are counted for this rank: its share of a common buffer, or the elements of
  // a private buffer that this rank writes. The rest of a private buffer never takes memory.
  std::int64_t first = 0;
  std::int64_t last = 0;
  bool travels = false;  // whether collectives use the buffer; if so, its memory is from Communicator::allocate
};

class MemoryResource {
 public:
  // `directory` is the folder for the files of Medium::kDisk. `gpu` is the device of Medium::kDevice and
  // of Medium::kPinned.
  MemoryResource(Communicator ranks, std::filesystem::path directory, const at::Device& gpu = at::kCPU)
      : ranks_(std::move(ranks)), directory_(std::move(directory)), gpu_(gpu) {}

  // Returns a one-dimensional tensor of zeros. For a common buffer the call is collective, and the ranks must be on one
  // machine, else take() throws BackendError. take() throws IoError if the disk has no room.
  at::Tensor take(layout::Role role, const FlatBuffer& buffer);
  // Drops the ranks' group. From now on no buffer may be taken that is common or that collectives use.
  void leave() { ranks_ = Communicator(); }
  // Counts the bytes of a tensor whose memory take() did not provide.
  void note(layout::Role role, const at::Tensor& tensor, std::int64_t bytes);
  // The bytes of tensors with this role that were taken or noted, and that still live.
  std::int64_t bytes(layout::Role role) const;
  // Those of all roles whose memory on the GPU is the group's (Communicator::allocate), not LibTorch's allocator's.
  std::int64_t bytes_of_the_group() const;

 private:
  struct Taken {
    layout::Role role = layout::Role::kValue;
    std::int64_t bytes = 0;
    bool is_of_the_group = false;
    c10::weak_intrusive_ptr<c10::StorageImpl> storage;
  };
  at::Tensor make(const FlatBuffer& buffer);
  at::Tensor make_on_gpu(const FlatBuffer& buffer);
  bool is_of_the_group(const FlatBuffer& buffer) const;

  Communicator ranks_;
  std::filesystem::path directory_;
  at::Device gpu_;
  std::vector<Taken> taken_;
};

}  // namespace reigen::tensor
