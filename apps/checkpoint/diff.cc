// diff: two sets of tensors, value by value.
#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <cstring>

#include "checkpoint/command.h"
#include "checkpoint/parse.h"
#include "reigen/checkpoint/weights.h"

namespace reigen::apps::checkpoint {

namespace ck = reigen::checkpoint;
using format::TensorType;

namespace {

constexpr int kDiffers = 1;  // as diff(1) has it

template <class T>
T load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof(T));
  return value;
}

double half_to_double(std::uint16_t bits) {
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  const int exponent = (bits >> 10) & 0x1f;
  const int fraction = bits & 0x3ff;
  if (exponent == 31) return fraction != 0 ? std::nan("") : sign * HUGE_VAL;
  if (exponent == 0) return sign * std::ldexp(fraction, -24);
  return sign * std::ldexp(fraction + 1024, exponent - 25);
}

double value_at(TensorType type, const std::byte* at) {
  switch (type) {
    case TensorType::kF64: return load<double>(at);
    case TensorType::kF32: return load<float>(at);
    case TensorType::kF16: return half_to_double(load<std::uint16_t>(at));
    case TensorType::kBF16: return std::bit_cast<float>(static_cast<std::uint32_t>(load<std::uint16_t>(at)) << 16);
    case TensorType::kI64: return static_cast<double>(load<std::int64_t>(at));
    case TensorType::kI32: return load<std::int32_t>(at);
    case TensorType::kI16: return load<std::int16_t>(at);
    case TensorType::kI8: return load<std::int8_t>(at);
    case TensorType::kU8:
    case TensorType::kBool: break;
  }
  return load<std::uint8_t>(at);
}

struct Difference {
  std::int64_t elements = 0;  // whose bits differ
  double largest = 0;
};

Difference compare(const ck::TensorInfo& tensor, const ck::Weights& a, const ck::Weights& b) {
  std::vector<std::byte> left(tensor.bytes());
  std::vector<std::byte> right(tensor.bytes());
  a.read(tensor.name, left);
  b.read(tensor.name, right);
  Difference result;
  const std::size_t size = format::size_of(tensor.type);
  for (std::size_t at = 0; at < left.size(); at += size) {
    if (std::memcmp(left.data() + at, right.data() + at, size) == 0) continue;
    ++result.elements;
    const double distance =
        std::abs(value_at(tensor.type, left.data() + at) - value_at(tensor.type, right.data() + at));
    // A number against none is as far as can be.
    result.largest = std::isnan(distance) ? HUGE_VAL : std::max(result.largest, distance);
  }
  return result;
}

}  // namespace

int diff(const Arguments& arguments) {
  std::string path_a;
  std::string path_b;
  std::string group = "model";
  double tolerance = 0;
  CLI::App app(
      "Compares the tensors of two checkpoints or files of weights, of any kind and layout.\n"
      "Exit code 0: the same, 1: they differ.",
      "reigen checkpoint diff");
  app.add_option("A", path_a, "a checkpoint, a run, a .safetensors, a folder of Hugging Face, a .pt")->required();
  app.add_option("B", path_b, "the other")->required();
  app.add_option("--group", group, "of checkpoints: model, optimizer (default model)");
  app.add_option("--tolerance", tolerance, "differences up to it do not count (default 0: all bits)")
      ->check(CLI::NonNegativeNumber);
  if (!parse(app, arguments)) return 0;
  const ck::Weights a(path_a, group);
  const ck::Weights b(path_b, group);
  std::size_t same = 0;
  std::size_t different = 0;
  for (const ck::TensorInfo& tensor : a.tensors()) {
    const ck::TensorInfo* other = b.find(tensor.name);
    std::string how;
    if (other == nullptr) {
      how = "only in " + path_a;
    } else if (other->type != tensor.type || other->shape != tensor.shape) {
      how = fmt::format("{} and {}", format::describe(tensor.type, tensor.shape),
                        format::describe(other->type, other->shape));
    } else if (const Difference found = compare(tensor, a, b);
               found.elements > 0 && found.largest >= tolerance && !(tolerance > 0 && found.largest == tolerance)) {
      how = fmt::format("{} of {} elements, by {:.3g} at most", found.elements, ck::numel(tensor.shape), found.largest);
    }
    ++(how.empty() ? same : different);
    if (!how.empty()) fmt::print("{:<48} {}\n", tensor.name, how);
  }
  for (const ck::TensorInfo& tensor : b.tensors()) {
    if (a.find(tensor.name) != nullptr) continue;
    ++different;
    fmt::print("{:<48} only in {}\n", tensor.name, path_b);
  }
  fmt::print("{} tensors are the same, {} differ\n", same, different);
  return different > 0 ? kDiffers : 0;
}

}  // namespace reigen::apps::checkpoint
