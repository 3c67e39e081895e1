// Layouts of tensors on several ranks, and a check that one layout can read the checkpoint of another.
#pragma once

#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "reigen/checkpoint/checkpoint.h"

namespace reigen::testing_checkpoint {

using checkpoint::Part;
using checkpoint::Shape;
using format::TensorType;

struct Tensor {
  std::string name;
  TensorType type = TensorType::kF32;
  Shape shape;

  std::size_t element() const { return format::size_of(type); }
  std::size_t bytes() const { return static_cast<std::size_t>(layout::numel(shape)) * element(); }
  // Random bytes; their seed is the tensor's name and `salt`.
  std::vector<std::byte> values(std::uint64_t salt) const {
    std::vector<std::byte> result(bytes());
    std::mt19937_64 random(salt * 1000003 + std::hash<std::string>()(name));
    for (std::byte& byte : result) byte = static_cast<std::byte>(random());
    return result;
  }
};

// Sizes of every kind: none, one, odd, fewer rows than ranks.
inline std::vector<Tensor> some_tensors() {
  return {{"conv.weight", TensorType::kF32, {7, 3, 3, 3}},
          {"conv.bias", TensorType::kF32, {7}},
          {"fc.weight", TensorType::kF64, {13, 11}},
          {"half", TensorType::kBF16, {129}},
          {"scalar", TensorType::kF32, {}},
          {"one", TensorType::kI64, {1}},
          {"empty", TensorType::kF32, {0, 5}},
          {"flags", TensorType::kBool, {2, 257}}};
}

// Which elements of a tensor a rank holds. Each element is on exactly one rank.
enum class Layout {
  kFirst,    // rank 0 has everything
  kTurns,    // whole tensors in turns
  kFlat,     // equal runs of elements
  kRows,     // boxes of rows
  kColumns,  // boxes along the last dimension
  kGrid,     // boxes along the last dimension, cut into flat runs: two axes
};
inline constexpr Layout kLayouts[] = {Layout::kFirst, Layout::kTurns,   Layout::kFlat,
                                      Layout::kRows,  Layout::kColumns, Layout::kGrid};

inline std::pair<std::int64_t, std::int64_t> share(std::int64_t count, int rank, int ranks) {
  return {count * rank / ranks, count * (rank + 1) / ranks};
}

inline Part cut(const Shape& shape, std::size_t dimension, int rank, int ranks) {
  Part part = layout::whole(shape);
  const auto [begin, end] = share(shape[dimension], rank, ranks);
  part.offset[dimension] = begin;
  part.shape[dimension] = end - begin;
  part.count = layout::numel(part.shape);
  return part;
}

inline std::vector<Part> parts_of(const Shape& shape, std::size_t index, Layout layout, int rank, int ranks) {
  const std::int64_t count = layout::numel(shape);
  const bool is_scalar = shape.empty();
  switch (layout) {
    case Layout::kFirst: return rank == 0 ? std::vector<Part>{layout::whole(shape)} : std::vector<Part>{};
    case Layout::kTurns:
      return static_cast<int>(index) % ranks == rank ? std::vector<Part>{layout::whole(shape)} : std::vector<Part>{};
    case Layout::kFlat: break;
    case Layout::kRows:
      if (!is_scalar) return {cut(shape, 0, rank, ranks)};
      break;
    case Layout::kColumns:
      if (!is_scalar) return {cut(shape, shape.size() - 1, rank, ranks)};
      break;
    case Layout::kGrid:
      if (!is_scalar && ranks % 2 == 0) {
        Part part = cut(shape, shape.size() - 1, rank % 2, 2);
        const auto [begin, end] = share(part.count, rank / 2, ranks / 2);
        part.first = begin;
        part.count = end - begin;
        return {part};
      }
      break;
  }
  const auto [begin, end] = share(count, rank, ranks);
  return {layout::flat_part(shape, begin, end - begin)};
}

// The bytes of a part of a tensor's values.
inline std::vector<std::byte> bytes_of(const Tensor& tensor, const Part& part, const std::vector<std::byte>& values) {
  std::vector<std::byte> result(static_cast<std::size_t>(part.count) * tensor.element());
  layout::Runs runs(tensor.shape, part);
  while (const auto run = runs.next()) {
    std::memcpy(result.data() + static_cast<std::size_t>(run->local) * tensor.element(),
                values.data() + static_cast<std::size_t>(run->global) * tensor.element(),
                static_cast<std::size_t>(run->count) * tensor.element());
  }
  return result;
}

// The parts that a rank holds, and their memory.
struct Held {
  std::vector<std::vector<std::byte>> memory;
  checkpoint::Contents contents;
};

inline Held hold(const std::vector<Tensor>& tensors, Layout layout, int rank, int ranks, std::uint64_t salt) {
  Held held;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const Tensor& tensor = tensors[i];
    for (const char* group : {"model", "optimizer"}) {
      const auto values = tensor.values(salt + (group[0] == 'o' ? 1 : 0));
      for (const Part& part : parts_of(tensor.shape, i, layout, rank, ranks)) {
        held.memory.push_back(bytes_of(tensor, part, values));
        held.contents[group].push_back({.name = tensor.name,
                                        .type = tensor.type,
                                        .shape = tensor.shape,
                                        .part = part,
                                        .bytes = held.memory.back()});
      }
    }
  }
  return held;
}

// The parts of a rank in this layout whose values in the checkpoint are wrong.
inline std::vector<std::string> differences(const checkpoint::Checkpoint& from, const std::vector<Tensor>& tensors,
                                            Layout layout, int rank, int ranks, std::uint64_t salt) {
  std::vector<std::string> result;
  for (const auto& [group, pieces] : hold(tensors, layout, rank, ranks, salt).contents) {
    for (const checkpoint::Piece& piece : pieces) {
      std::vector<std::byte> got(piece.bytes.size());
      from.read(group, {piece.name, piece.type, piece.shape, piece.part, got});
      if (!std::equal(got.begin(), got.end(), piece.bytes.begin())) result.push_back(group + " " + piece.name);
    }
  }
  return result;
}

}  // namespace reigen::testing_checkpoint
