// diff: compares two sets of tensors value by value.
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

#include "checkpoint/command.h"
#include "checkpoint/element.h"
#include "checkpoint/parse.h"
#include "reigen/checkpoint/weights.h"

namespace reigen::apps::checkpoint {

namespace ck = reigen::checkpoint;
namespace {

constexpr int kDiffers = 1;  // as in diff(1)

struct Difference {
  std::uint64_t elements = 0;  // number of elements whose bits differ
  double largest = 0;
};

Difference compare(const ck::TensorInfo& tensor, const ck::Weights& a, const ck::Weights& b) {
  std::vector<std::byte> left(tensor.bytes());
  std::vector<std::byte> right(tensor.bytes());
  a.read(tensor.name, left);
  b.read(tensor.name, right);
  Difference result;
  if (left == right) return result;
  for (std::uint64_t i = 0; i < tensor.elements(); ++i) {
    const std::uint64_t mine = bits_at(tensor.type, left, i);
    const std::uint64_t theirs = bits_at(tensor.type, right, i);
    if (mine == theirs) continue;
    ++result.elements;
    result.largest = std::max(result.largest, distance(tensor.type, mine, theirs));
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
  ck::Selection selection;
  app.add_option("A", path_a, "a checkpoint, a run, a .safetensors, a folder of Hugging Face, a .pt")->required();
  app.add_option("B", path_b, "the other")->required();
  app.add_option("--group", group, "of checkpoints: model, optimizer (default model)");
  app.add_option("--tolerance", tolerance, "differences up to it do not count (default 0: all bits)")
      ->check(CLI::NonNegativeNumber);
  add_selection(app, selection);
  if (!parse(app, arguments)) return 0;
  ck::Weights a(path_a, group);
  ck::Weights b(path_b, group);
  select_from({&a, &b}, selection);
  a.require_readable();
  b.require_readable();
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
      how = fmt::format("{} of {} elements, by {:.3g} at most", found.elements, tensor.elements(), found.largest);
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
