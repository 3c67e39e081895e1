// What a rank says when the memory of its GPU ran out in a step, and a setting with which the step fits.
// Thread rule: used only by the thread of its rank.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "reigen/base/error.h"
#include "reigen/data/loader.h"
#include "reigen/train/config.h"
#include "tensor/device_memory/device_memory.h"
#include "train/model/memory_use.h"
#include "train/model/trained_model.h"
#include "train/run/run.h"

namespace reigen::train {

// A setting with which forward and backward fitted.
struct Fitting {
  std::int64_t micro_batch = 0;
  bool recomputes = false;  // with train.activation_checkpoint 1
};

// What is known after the failure.
struct OutOfMemory {
  std::string text = {};  // LibTorch's message
  std::int64_t step = 0;
  std::string unit = {};                               // in whose forward it was; empty if that is not known
  std::int64_t samples = 0;                            // of this rank in a step
  bool has_micro_batches = true;                       // false: the task is a ManualTask
  MemoryUse held = {};                                 // what the run holds between steps, by the layout
  std::optional<tensor::DeviceMemory> allocator = {};  // what LibTorch's allocator had after the failure
  std::optional<Fitting> fitting = {};
};

// The error with exit code 71. It says what the memory was used for, and names options with which a step takes less:
// first `fitting`, if it is known. If much of the memory is in pieces that no tensor has, it also names the setting of
// LibTorch's allocator that avoids pieces.
Error to_error(const OutOfMemory& what, const Config& config);

// The error of a rank whose GPU had no memory left in the step that follows step run.done. `computed`: it had made
// forward and backward of all micro-batches. If not, it tries forward and backward with half of the samples, a quarter
// and so on, then also with train.activation_checkpoint 1, until they fit, and names what fitted. While it tries, the
// rank sends nothing, so the other ranks wait. Nothing is tried, and the error names options that may help, if other
// ranks would be needed for it (weights that are gathered, mesh.tp, mesh.pp, mesh.cp, SyncBatchNorm) and for a
// ManualTask. The run must end after this: gradients and figures are those of the trials. `text` is LibTorch's message.
Error out_of_memory(const std::string& text, Run& run, TrainedModel& model, const data::Batch& batch, bool computed);

}  // namespace reigen::train
