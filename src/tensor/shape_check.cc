#include "tensor/shape_check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "base/hash.h"
#include "reigen/base/error.h"
#include "reigen/tensor/data_type.h"
#include "tensor/differentiable.h"

namespace reigen::tensor {
namespace {

constexpr std::int64_t kMostDimensions = 64;

struct Described {
  std::int64_t type = 0;
  std::int64_t gradient = 0;
  std::int64_t dimensions = 0;
  std::array<std::int64_t, kMostDimensions> sizes = {};

  bool fits(const Described& other) const {
    return type == other.type && gradient == other.gradient && dimensions == other.dimensions &&
           std::equal(sizes.begin() + 1, sizes.end(), other.sizes.begin() + 1);
  }
  std::string text() const {
    return fmt::format("{} [{}]{}", c10::toString(static_cast<at::ScalarType>(type)),
                       fmt::join(sizes.begin(), sizes.begin() + dimensions, ", "),
                       gradient != 0 ? ", requires a gradient" : "");
  }
};

Described describe(const char* operation, const at::Tensor& tensor) {
  if (tensor.dim() > kMostDimensions) {
    throw InvalidArgument(Report{.what = fmt::format("[{}] too many dimensions", operation),
                                 .got = fmt::format("{}", tensor.dim()),
                                 .expected = fmt::format("at most {}", kMostDimensions)});
  }
  Described result{.type = static_cast<std::int64_t>(tensor.scalar_type()),
                   .gradient = wants_gradient({tensor}) ? 1 : 0,
                   .dimensions = tensor.dim()};
  std::copy(tensor.sizes().begin(), tensor.sizes().end(), result.sizes.begin());
  return result;
}

[[noreturn]] void refuse_scalar(const char* operation) {
  throw InvalidArgument(Report{.what = fmt::format("[{}] a tensor without dimensions has no rows", operation),
                               .got = "a tensor of shape []",
                               .expected = "one dimension or more",
                               .fix = "tensor.unsqueeze(0) makes it one row"});
}

}  // namespace

void check_tensors(const char* operation, const std::vector<at::Tensor>& tensors, const Communicator& world) {
  const Device device = world.device();
  const auto is_reached = [&](const at::Tensor& tensor) {
    if (tensor.device().is_cpu()) return true;
    return tensor.device().is_cuda() && !device.is_cpu() && tensor.device().index() == device.index;
  };
  for (const at::Tensor& tensor : tensors) {
    std::string got;
    if (!tensor.defined()) {
      got = "an undefined tensor";
    } else if (tensor.layout() != at::kStrided) {
      got = fmt::format("a sparse tensor");
    } else if (!is_reached(tensor)) {
      got = fmt::format("a tensor on {}", tensor.device().str());
    } else {
      to_data_type(tensor.scalar_type());
      continue;
    }
    throw InvalidArgument(Report{.what = fmt::format("[{}] this tensor cannot be communicated", operation),
                                 .got = got,
                                 .expected = device.is_cpu() ? "a dense tensor on the CPU"
                                                             : "a dense tensor on the CPU or on " + to_string(device),
                                 .fix = "convert it first: .cpu(), .to_dense(); a group carries the memory of a GPU "
                                        "if it was made with InitOptions::device"});
  }
}

void check_no_gradient(const char* operation, const std::vector<at::Tensor>& tensors) {
  if (!wants_gradient(tensors)) return;
  const std::string name(operation);
  throw InvalidArgument(
      Report{.what = fmt::format("[{}] autograd cannot follow a change in place", operation),
             .got = "a tensor that requires a gradient",
             .expected = "none, or a torch::NoGradGuard around the call",
             .fix = fmt::format("{}() gives a new tensor and a gradient", name.substr(0, name.size() - 1))});
}

void check_has_rows(const char* operation, const at::Tensor& tensor) {
  if (tensor.dim() == 0) refuse_scalar(operation);
}

std::string shapes_tag(const std::vector<at::Tensor>& tensors) {
  std::string shapes;
  for (const at::Tensor& tensor : tensors) {
    shapes += tensor.dim() == 0 ? "[scalar]" : fmt::format("[{}]", fmt::join(tensor.sizes(), ", "));
  }
  const char* gradient = wants_gradient(tensors) ? " with gradient" : "";
  if (shapes.size() + std::string(gradient).size() <= comm::kLongestTag) return shapes + gradient;
  return fmt::format("{} tensors {:08x}{}", tensors.size(), base::fnv1a(shapes) >> 32U, gradient);
}

std::vector<std::int64_t> rows_of_all(const char* operation, const at::Tensor& tensor, const Communicator& world) {
  const Described mine = describe(operation, tensor);
  constexpr std::size_t kNumbers = sizeof(Described) / sizeof(std::int64_t);
  std::vector<Described> all(static_cast<std::size_t>(world.size()));
  world.all_gather(&mine, all.data(), kNumbers, DataType::kInt64, {.tag = "shapes"});
  std::vector<std::int64_t> rows;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    rows.push_back(all[rank].sizes[0]);
    if (all[rank].fits(all[0])) continue;
    throw InvalidArgument(Report{
        .what =
            fmt::format("[{}] the tensor of rank {} of {} does not fit that of rank 0", operation, rank, world.size()),
        .got = fmt::format("rank {}: {}", rank, all[rank].text()),
        .expected = fmt::format("rank 0: {}; only the first dimension may differ", all[0].text()),
        .fix = "give the same type and the same other dimensions on every rank"});
  }
  if (mine.dimensions == 0) refuse_scalar(operation);
  return rows;
}

}  // namespace reigen::tensor
