// Reads PyTorch's files (.pt, .pth, .bin): files of Python's torch.save since version 1.6, files of C++'s torch::save
// (of modules, tensors, optimizers), and the tensors of TorchScript programs. The reader needs no LibTorch. It runs no
// code of the file: its own pickle interpreter knows only tensors, plain containers, numbers and text. It does not read
// other objects, but it reads the tensors inside and beside them. The reader trusts nothing in the file: it checks
// every size before it uses it, and every record's CRC-32 before it returns the record's bytes. Thread rule: several
// threads may read from a PtFile at once.
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

// A tensor's name consists of the keys and positions that lead to it, joined by dots: "model.conv1.weight",
// "state.0.exp_avg". An entry outside of any container is named "tensor", "value" or "object". The tensors of a
// torch.nn.Module have the names of its state_dict(). In the files of C++'s optimizers, the names contain the number of
// the parameter, as in "state.0.exp_avg"; the parameters of all groups are numbered consecutively. A storage is a block
// of elements in the file, which several tensors may share.
struct PtTensor {
  std::string name;
  TensorType type = TensorType::kF32;
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> strides;  // in elements; 0 in expanded dimensions
  std::uint64_t first = 0;            // index of the tensor's first element in the storage
  std::uint64_t bytes = 0;            // size of the elements that read() returns
  std::size_t storage = 0;            // number of the storage; equal for tensors that share it
  std::uint64_t storage_offset = 0;   // where the storage begins in the file
  std::uint64_t storage_bytes = 0;
};

// A tensor that is in the file but cannot be read here. Its elements are complex numbers of 32 or 128 bits, or several
// elements share a byte (packed), or the tensor is quantized, sparse or conjugated.
struct PtUnreadable {
  std::string name;
  std::string reason;
};

// A number, string, True, False, None, device or type. `text` is what Python prints for it; a string has no quotes.
struct PtValue {
  std::string name;
  std::string text;
};

// An object of a class or function that the reader does not know: a number of NumPy, a path, argparse.Namespace, a
// module. The object is not read. The tensors inside the object are in tensors() and unreadable(), with names that
// begin with the object's name.
struct PtObject {
  std::string name;
  std::string type;  // "numpy._core.multiarray.scalar"
};

struct PtOptions {
  std::size_t max_entries = 1'000'000;  // tensors, values and containers; a file with more is refused
  // The number of bytes by which all tensors together may exceed the file's size, because they share elements or are
  // expanded.
  std::uint64_t max_repeated_bytes = 8 * kGiB;
  bool checksums = true;  // false: for files written after torch.serialization.set_crc32_options(False)
};

class PtFile {
 public:
  // Reads the archive's directory and the pickle, and checks that every tensor lies in its storage. Throws IoError with
  // exit code 66 for a missing file, and with exit code 77 for a file that is not readable. Throws DataError, naming
  // file and offset, for a damaged archive or pickle, compressed or overlapping records, the name of a function that
  // serves only to run code, containers that contain themselves, two tensors with one name, more entries or bytes than
  // PtOptions allows, and a big-endian file. For files of PyTorch before 1.6, tar files and other kinds of files the
  // DataError also says what to do.
  explicit PtFile(const std::filesystem::path& path, const PtOptions& options = {});
  ~PtFile();
  PtFile(PtFile&&) noexcept;
  PtFile& operator=(PtFile&&) noexcept;

  const std::vector<PtTensor>& tensors() const;  // in the order of the file's containers
  const std::vector<PtUnreadable>& unreadable() const;
  const std::vector<PtValue>& values() const;
  const std::vector<PtObject>& objects() const;
  bool is_script() const;                             // whether C++'s torch::save or TorchScript wrote the file
  const PtTensor* find(std::string_view name) const;  // null if no readable tensor has this name
  const PtTensor& at(std::string_view name) const;    // throws DataError
  const std::string& path() const;

  // Fills `into` with the tensor's elements in row-major order, little-endian, whatever the tensor's strides are.
  // into.size() must be tensor.bytes. The first read from a storage checks the storage's CRC-32, and so reads the whole
  // storage. If the tensor's rows are short or strided, the function allocates memory for the part of the storage that
  // the tensor spans; otherwise it allocates none. Throws IoError, with exit code 71 if there is no memory. Throws
  // DataError, naming tensor and offset, when the CRC-32 is wrong or the file has shrunk since it was opened.
  void read(const PtTensor& tensor, std::span<std::byte> into) const;

  // Checks the CRC-32 of every record that is not compressed, whether a tensor uses it or not. Throws as read() does.
  void verify() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace reigen::format
