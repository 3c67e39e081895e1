// Checkpoints of PyTorch (.pt, .pth, .bin): what torch.save of Python writes since version 1.6, torch::save of C++ (of
// modules, tensors, optimizers), and TorchScript's programs, of which it takes the tensors. Read without LibTorch and
// without running anything: the pickle inside is taken apart by a machine that knows tensors, plain containers, numbers
// and text. An object of anything else is not read, and does not keep what lies beside it from being read. Reading
// believes nothing: every size is checked before it is used, every record's CRC-32 before its bytes are given away.
// Thread rule: a PtFile may be read from several threads at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "reigen/base/bytes.h"
#include "reigen/format/safetensors.h"

namespace reigen::format {

// Names are the keys and positions on the way, joined by dots: "model.conv1.weight", "state.0.exp_avg". What is not in
// a container is named "tensor", "value" or "object". The tensors of a torch.nn.Module have the names of its
// state_dict(); of C++'s optimizers the state of a parameter its number over all groups: "state.0.exp_avg".
struct PtTensor {
  std::string name;
  TensorType type = TensorType::kF32;
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> strides;  // in elements; 0: expanded
  std::uint64_t first = 0;            // its first element in the storage, in elements
  std::uint64_t bytes = 0;            // in row-major order, as read() gives them
  std::size_t storage = 0;            // equal in tensors that share their elements
  std::uint64_t storage_offset = 0;   // where the storage begins in the file
  std::uint64_t storage_bytes = 0;
};

// A tensor that is there but cannot be read here: of complex numbers of 32 or 128 bits, packed, quantized, sparse,
// conjugated.
struct PtUnreadable {
  std::string name;
  std::string reason;
};

// A number, text, True, False, None, device or type; `text` is as Python prints it, texts without quotes.
struct PtValue {
  std::string name;
  std::string text;
};

// An object made by a class or function that is not known here: a number of NumPy, a path, argparse.Namespace, a
// module. It is not read. Tensors that hang on it are among tensors() and unreadable(), under its name.
struct PtObject {
  std::string name;
  std::string type;  // "numpy._core.multiarray.scalar"
};

struct PtOptions {
  std::size_t max_entries = 1'000'000;          // tensors, values and containers; a file that has more is refused
  std::uint64_t max_repeated_bytes = 8 * kGiB;  // what tensors may hold beyond the file's size: shared, expanded ones
  bool checksums = true;  // false: for files written after torch.serialization.set_crc32_options(False)
};

class PtFile {
 public:
  // Reads directory and pickle and checks that every tensor lies in its storage. Throws IoError (66 missing, 77 not
  // readable) and DataError naming file and offset: a damaged archive or pickle, packed or overlapping records, a name
  // that serves to run programs, containers that hold themselves, a tensor name twice, one of the limits passed,
  // big-endian files; and, saying what to do: files of PyTorch before 1.6, tar files, and other kinds of files.
  explicit PtFile(const std::filesystem::path& path, const PtOptions& options = {});
  ~PtFile();
  PtFile(PtFile&&) noexcept;
  PtFile& operator=(PtFile&&) noexcept;

  const std::vector<PtTensor>& tensors() const;  // in the order of the file's containers
  const std::vector<PtUnreadable>& unreadable() const;
  const std::vector<PtValue>& values() const;
  const std::vector<PtObject>& objects() const;
  bool is_script() const;                             // of torch::save of C++, or TorchScript's
  const PtTensor* find(std::string_view name) const;  // null: not there, or unreadable
  const PtTensor& at(std::string_view name) const;    // throws DataError
  const std::string& path() const;

  // into = the tensor's elements in row-major order, little-endian, whatever its strides; into.size() = tensor.bytes.
  // The first read of a storage checks its CRC-32, for which all of it is read. Needs memory for the part of the
  // storage that the tensor spans when rows are short and strided, else none. Throws IoError (71 without memory), and
  // DataError naming tensor and offset for a wrong CRC-32 and for a file that has shrunk since it was opened.
  void read(const PtTensor& tensor, std::span<std::byte> into) const;

  // Checks the CRC-32 of every record that is not packed, whether a tensor uses it or not. Throws as read does.
  void verify() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace reigen::format
