// The manifest of a checkpoint (manifest.json), and the rules by which a directory of files is a checkpoint.
//
//   {"content": {"format": "reigen checkpoint", "format_version": 2, "step": 100, ...,
//                "files": [{"name": "model.safetensors", "bytes": ..., "header_bytes": ..., "header_xxh64": "..."}],
//                "tensors": {"model": [{"name": "conv1.weight", "type": "F32", "shape": [32, 1, 3, 3],
//                  "pieces": [{"file": 0, "at": 1024, "first": 0, "count": 288, "xxh64": "..."}]}]}},
//    "xxh64": hash of the content's text}
//
// A piece is a part of a tensor in one file: the elements "first" to "first" + "count" of a box of the tensor, in
// row-major order. A piece whose box is not the whole tensor has "box_offset" and "box_shape". The header and the
// pieces of a file fill the file without gap or overlap, so every byte has a hash. The pieces of a tensor fill the
// tensor without gap or overlap. The functions only convert and check values; they do not read or write files. Thread
// rule: the functions have no shared state.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "reigen/checkpoint/piece.h"
#include "reigen/format/safetensors.h"

namespace reigen::checkpoint {

struct StoredPiece {
  Part part = {};          // the box, "first" and "count"
  std::size_t file = 0;    // index in Manifest::files
  std::uint64_t at = 0;    // position of the first byte in the file
  std::uint64_t hash = 0;  // XXH64 of the piece's bytes
};

struct StoredTensor {
  std::string name;
  format::TensorType type = format::TensorType::kF32;
  Shape shape = {};
  std::vector<StoredPiece> pieces = {};
};

struct StoredFile {
  std::string name;
  std::uint64_t bytes = 0;
  std::uint64_t header_bytes = 0;  // bytes before the first tensor
  std::uint64_t header_hash = 0;
};

// The tensors of one group, such as "model" or "optimizer".
using Group = std::vector<StoredTensor>;

struct Manifest {
  std::int64_t step = 0;      // number of steps done
  std::int64_t epoch = 0;     // epoch of the next sample
  std::int64_t position = 0;  // samples of this epoch that all ranks together have used
  std::int64_t global_batch = 0;
  std::int64_t seed = 0;
  std::int64_t world_size = 1;                                  // number of ranks of the run that wrote the checkpoint
  std::int64_t optimizer_steps = 0;                             // how often the optimizer's step() was called
  std::vector<std::pair<std::string, std::int64_t>> mesh = {};  // axes and sizes, outer to inner; may be empty
  std::map<std::string, std::string> options = {};              // the run's options, as text
  // The fields from here on are set by save().
  std::string version = {};  // version of the program that wrote the checkpoint
  std::vector<StoredFile> files = {};
  std::map<std::string, Group> groups = {};

  std::uint64_t bytes() const;                                                    // size of all files
  const StoredTensor* find(std::string_view group, std::string_view name) const;  // null if there is no such tensor
};

// Every manifest has exactly one text: to_text(from_text(text)) == text. So no byte of the text can change unnoticed.
std::string to_text(const Manifest& manifest);

// `where` is the file's path, for messages. Throws DataError naming the fault: damage, numbers out of range, pieces
// that overlap or leave holes in a file. Throws an Error with exit code 76 when the manifest has another version of the
// format. Does not look for holes in tensors; check_coverage() does. The memory is proportional to the length of the
// text.
Manifest from_text(std::string_view text, const std::string& where);

// Throws DataError when the pieces of a tensor overlap or leave a hole. The time is proportional to the number of
// pieces.
void check_coverage(const Manifest& manifest, const std::string& where);

// Keys with this prefix say what the numbers in a model's inputs and targets mean: "meaning.classes" =
// "[\"cat\",\"dog\"]". They are in Manifest::options and in a model's metadata. The value is a JSON list, in which a
// backslash is written \\ and a byte that is not UTF-8 is written like \xE9 (Python's unicode_escape reads both).
inline constexpr std::string_view kMeaning = "meaning.";

inline constexpr std::int64_t kFormatVersion = 2;
inline constexpr std::size_t kManifestMax = std::size_t{1} << 30;

}  // namespace reigen::checkpoint
