// Named whole tensors from wherever they come: what others have saved, and what this library has.
//
//   const Weights weights("pytorch_model.bin");
//   for (const TensorInfo& tensor : weights.tensors()) { ... weights.read(tensor.name, bytes); }
//
// Reads a safetensors file; a folder of Hugging Face (model.safetensors or pytorch_model.bin, or their parts with an
// index, model.safetensors.index.json or pytorch_model.bin.index.json); a file of torch.save, of C++'s torch::save or
// of TorchScript (.pt, .pth, .bin; nothing in it is run); a group of a checkpoint of this library; and the folder of a
// run, of which it takes the newest whole checkpoint. What a file is, its content says and not its name. Pure reading,
// without LibTorch. Thread rule: one thread at a time.
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
  std::uint64_t bytes() const { return format::bytes_of(type, shape).value_or(0); }
  std::uint64_t elements() const { return bytes() * 8 / format::bits_of(type); }
};

// What a file has and nobody can read here: a tensor of a type that safetensors files do not have, an object of a
// program.
struct Unread {
  std::string name;
  std::string what;  // why it cannot be read; of an object its class
};

// Beginnings of names. `only`: what begins with none of them is left out, unless it is empty; then what begins with one
// of `skip`.
struct Selection {
  std::vector<std::string> only = {};
  std::vector<std::string> skip = {};
};

class Weights {
 public:
  // `group` is of a checkpoint, of which every byte is read and compared with its hash first. Throws IoError (66
  // nothing there), DataError naming what is damaged, or what it is when it is no file of weights.
  explicit Weights(const std::filesystem::path& path, const std::string& group = "model");
  // The average of the weights that a run has saved beside them (optim/ema.h): of each its average, and what is not
  // averaged, as buffers, as it is. Throws DataError where the checkpoint has none.
  static Weights averages_of(const std::filesystem::path& path);

  const std::string& kind() const { return kind_; }  // "a PyTorch file"
  const std::filesystem::path& path() const { return path_; }
  const std::vector<TensorInfo>& tensors() const { return tensors_; }    // by name
  const TensorInfo* find(std::string_view name) const;                   // null: not there, or unreadable
  const std::vector<Unread>& unreadable() const { return unreadable_; }  // tensors that cannot be read, by name
  const std::vector<Unread>& objects() const { return objects_; }        // what is no tensor and was not read, by name

  // Takes out what is not selected.
  void select(const Selection& selection);
  std::vector<std::string> unmatched(const Selection& selection) const;  // the beginnings that no name has
  // Throws DataError naming tensors that cannot be read, where there are any.
  void require_readable() const;
  // What their run knew of the numbers in inputs and targets: "meaning.classes" and the like (docs/files.md).
  const std::map<std::string, std::string>& metadata() const { return metadata_; }

  // into = the tensor, row-major. Throws DataError for a name that is not there, and when the file is damaged.
  void read(const std::string& name, std::span<std::byte> into) const;

  // Reads every byte, of PyTorch files with their checksums; of safetensors files, which have none, the form is looked
  // at. Throws DataError naming what is damaged. Memory: the largest tensor.
  void verify() const;

 private:
  Weights() = default;
  void sort();
  void take_out(const std::vector<std::size_t>& order);
  void take_file(const std::filesystem::path& path);
  void take_meaning(const std::map<std::string, std::string>& from);
  void take_averages(const std::shared_ptr<Checkpoint>& from);
  void take_safetensors(const std::filesystem::path& path);
  void take_index(const std::filesystem::path& path);
  void take_pt_parts(const std::filesystem::path& path, const std::map<std::string, std::string>& index);
  void take_checkpoint(const std::shared_ptr<Checkpoint>& from, const std::string& group);
  void take_pt(const std::filesystem::path& path);

  std::filesystem::path path_;
  std::string kind_;
  std::vector<TensorInfo> tensors_;
  std::map<std::string, std::string> metadata_;
  std::vector<std::function<void(std::span<std::byte>)>> readers_;  // of tensors_
  std::vector<Unread> unreadable_;
  std::vector<Unread> objects_;
  std::vector<std::function<void()>> verifiers_;  // of files that can look at themselves
};

// The checkpoint that a path means: itself, the newest whole one of a directory of them, or of a run's; what is passed
// over is logged as a warning. Throws IoError
// (66), DataError when none is whole.
Checkpoint find_checkpoint(const std::filesystem::path& path);
bool is_checkpoint(const std::filesystem::path& path);
bool is_model_folder(const std::filesystem::path& path);  // of Hugging Face

}  // namespace reigen::checkpoint
