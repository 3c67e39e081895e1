// Named whole tensors from wherever they come: what others have saved, and what this library has.
//
//   const Weights weights("pytorch_model.bin");
//   for (const TensorInfo& tensor : weights.tensors()) { ... weights.read(tensor.name, bytes); }
//
// Reads a safetensors file; a folder of Hugging Face (model.safetensors or pytorch_model.bin, or their parts with an
// index, model.safetensors.index.json or pytorch_model.bin.index.json); a PyTorch file of a state dict (.pt, .pth,
// .bin; nothing in it is run); a group of a checkpoint of this library; and the folder of a run, of which it takes the
// newest whole checkpoint. Pure reading, without LibTorch. Thread rule: one thread at a time.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "reigen/checkpoint/checkpoint.h"
#include "reigen/checkpoint/piece.h"

namespace reigen::checkpoint {

struct TensorInfo {
  std::string name;
  format::TensorType type = format::TensorType::kF32;
  Shape shape = {};
  std::uint64_t bytes() const { return static_cast<std::uint64_t>(numel(shape)) * format::size_of(type); }
};

class Weights {
 public:
  // `group` is of a checkpoint, of which every byte is read and compared with its hash first. Throws IoError (66
  // nothing there), DataError naming what is damaged, not known, or not made of plain tensors.
  explicit Weights(const std::filesystem::path& path, const std::string& group = "model");
  // The average of the weights that a run has saved beside them (optim/ema.h): of each its average, and what is not
  // averaged, as buffers, as it is. Throws DataError where the checkpoint has none.
  static Weights averages_of(const std::filesystem::path& path);

  const std::string& kind() const { return kind_; }  // "a PyTorch file"
  const std::filesystem::path& path() const { return path_; }
  const std::vector<TensorInfo>& tensors() const { return tensors_; }  // by name
  const TensorInfo* find(std::string_view name) const;                 // null: not there

  // into = the tensor, row-major. Throws DataError for a name that is not there, and when the file is damaged.
  void read(const std::string& name, std::span<std::byte> into) const;

 private:
  Weights() = default;
  void sort();
  void take_averages(const std::shared_ptr<Checkpoint>& from);
  void take_safetensors(const std::filesystem::path& path);
  void take_index(const std::filesystem::path& path);
  void take_pt_parts(const std::filesystem::path& path, const std::map<std::string, std::string>& index);
  void take_checkpoint(const std::shared_ptr<Checkpoint>& from, const std::string& group);
  void take_pt(const std::filesystem::path& path);

  std::filesystem::path path_;
  std::string kind_;
  std::vector<TensorInfo> tensors_;
  std::vector<std::function<void(std::span<std::byte>)>> readers_;  // of tensors_
};

// The checkpoint that a path means: itself, the newest whole one of a directory of them, or of a run's; what is passed
// over is logged as a warning. Throws IoError
// (66), DataError when none is whole.
Checkpoint find_checkpoint(const std::filesystem::path& path);
bool is_checkpoint(const std::filesystem::path& path);

}  // namespace reigen::checkpoint
