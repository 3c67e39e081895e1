// Reads whole tensors by their names. The source is a file that another program saved, or a checkpoint of this library.
//
//   const Weights weights("pytorch_model.bin");
//   for (const TensorInfo& tensor : weights.tensors()) { ... weights.read(tensor.name, bytes); }
//
// The source may be:
// - a safetensors file;
// - a file of Python's torch.save, of C++'s torch::save or of TorchScript (.pt, .pth, .bin; no code in it is run);
// - a folder of a Hugging Face model, with model.safetensors or pytorch_model.bin, or with several files that an index
//   lists (model.safetensors.index.json or pytorch_model.bin.index.json);
// - a checkpoint of this library, of which one group of tensors is read ("model", "optimizer");
// - the folder of a run, whose newest whole checkpoint is read.
// The content of a file decides its kind, not its name. This class only reads, and does not need LibTorch. Thread rule:
// one thread at a time may use a Weights object.
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

// An item of a file that cannot be read here: a tensor of a type that safetensors files do not have, or an object of a
// Python class.
struct Unread {
  std::string name;
  std::string what;  // for a tensor: why it cannot be read; for an object: its class
};

// Chooses tensors by prefixes of their names. If `only` is not empty, tensors whose names begin with none of its
// prefixes are left out. Tensors whose names begin with a prefix in `skip` are left out in any case.
struct Selection {
  std::vector<std::string> only = {};
  std::vector<std::string> skip = {};
};

class Weights {
 public:
  // `group` is the group of tensors to read if the source is a checkpoint. The constructor first reads every byte of a
  // checkpoint and compares the hashes. Throws IoError, with exit code 66 for a path that does not exist and for a
  // folder without weights. Throws DataError naming the damage, or naming the kind of a file that holds no weights.
  explicit Weights(const std::filesystem::path& path, const std::string& group = "model");
  // The averaged weights that a run has saved next to its weights (optim/ema.h). For tensors that are not averaged,
  // such as buffers, the values are those of the model. Throws DataError when the checkpoint has no averages.
  static Weights averages_of(const std::filesystem::path& path);
  // Whether the checkpoint has averages. Reads its manifest only. Throws as Checkpoint.
  static bool has_averages(const std::filesystem::path& path);

  const std::string& kind() const { return kind_; }  // "a PyTorch file"
  const std::filesystem::path& path() const { return path_; }
  const std::vector<TensorInfo>& tensors() const { return tensors_; }    // sorted by name
  const TensorInfo* find(std::string_view name) const;                   // null if no readable tensor has this name
  const std::vector<Unread>& unreadable() const { return unreadable_; }  // tensors that cannot be read, sorted by name
  const std::vector<Unread>& objects() const { return objects_; }  // other objects, which are not read, sorted by name

  // Removes everything that the selection leaves out.
  void select(const Selection& selection);
  std::vector<std::string> unmatched(const Selection& selection) const;  // prefixes with which no name begins
  // Throws DataError naming the tensors that cannot be read, if there are any.
  void require_readable() const;
  // What the numbers in the model's inputs and targets mean, as the run saved it. The keys are "meaning.classes" and
  // others (docs/files.md).
  const std::map<std::string, std::string>& metadata() const { return metadata_; }

  // Fills `into` with the tensor's elements in row-major order, little-endian. Throws DataError when there is no tensor
  // of that name, or when the file is damaged.
  void read(const std::string& name, std::span<std::byte> into) const;

  // Reads every byte, and compares the checksums that PyTorch files contain. Safetensors files have no checksums, so
  // only their structure is checked. Throws DataError naming the damage. Needs memory for the largest tensor.
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
  std::vector<std::function<void(std::span<std::byte>)>> readers_;  // one for each entry of tensors_
  std::vector<Unread> unreadable_;
  std::vector<Unread> objects_;
  std::vector<std::function<void()>> verifiers_;  // one for each file that has checksums
};

// The checkpoint that `path` names: the checkpoint itself, or the newest whole one in a directory of checkpoints or of
// a run. Logs a warning for each damaged checkpoint that it passes over. Throws IoError with exit code 66 when there is
// no checkpoint, and DataError when no checkpoint is whole.
Checkpoint find_checkpoint(const std::filesystem::path& path);
bool is_checkpoint(const std::filesystem::path& path);
bool is_model_folder(const std::filesystem::path& path);  // a folder of a Hugging Face model

}  // namespace reigen::checkpoint
