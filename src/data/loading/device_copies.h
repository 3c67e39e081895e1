// Copies batches to a GPU while the GPU computes with earlier batches.
//
// A copy runs on a stream of its own, the same for all epochs of a loader: LibTorch has 32 streams for each GPU, which
// it hands out in turn, so a new stream for each epoch would soon be the stream of a rank. A copy begins after the work
// that was on LibTorch's current stream when add() was called, because LibTorch may hand out memory that this work
// still uses. take() makes the current stream wait for the copy, and the host waits for nothing. Thread rule: one
// thread, which always has the same current stream.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <cstddef>
#include <deque>
#include <optional>

#include "reigen/data/loader.h"

namespace reigen::data {

// A stream of the GPU, for DeviceCopies.
c10::Stream new_stream(const c10::Device& gpu);

class DeviceCopies {
 public:
  explicit DeviceCopies(const c10::Stream& stream) : gpu_(stream.device()), stream_(stream) {}
  ~DeviceCopies();
  DeviceCopies(const DeviceCopies&) = delete;  // the memory of copies that are under way must not be freed twice
  DeviceCopies& operator=(const DeviceCopies&) = delete;

  // Starts the copy of a batch, whose `parts` are empty. The host waits unless the batch is in pinned memory.
  void add(Batch batch);
  // Returns the oldest batch, in memory of the GPU. There must be one.
  Batch take();
  std::size_t size() const { return copies_.size(); }

 private:
  struct Copy {
    Batch batch;
    c10::Event done;
  };
  c10::Stream current() const;

  const c10::Device gpu_;
  const c10::Stream stream_;
  std::deque<Copy> copies_;
};

}  // namespace reigen::data
