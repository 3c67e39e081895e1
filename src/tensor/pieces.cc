#include "reigen/tensor/pieces.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <set>
#include <span>

#include "base/check.h"
#include "tensor/stored_type.h"

namespace reigen::tensor {

namespace {

std::span<std::byte> bytes_of(const at::Tensor& contiguous) {
  return {static_cast<std::byte*>(contiguous.data_ptr()), contiguous.nbytes()};
}

void read_one(const checkpoint::Checkpoint& from, std::string_view group, const std::string& name,
              const at::Tensor& contiguous) {
  const checkpoint::Shape shape = contiguous.sizes().vec();
  from.read(group, {.name = name,
                    .type = stored_type(name, contiguous.scalar_type()),
                    .shape = shape,
                    .part = checkpoint::whole(shape),
                    .bytes = bytes_of(contiguous)});
}

const checkpoint::Group& group_of(const checkpoint::Checkpoint& from, std::string_view group) {
  static const checkpoint::Group kNone;
  const auto found = from.manifest().groups.find(std::string(group));
  return found == from.manifest().groups.end() ? kNone : found->second;
}

void require_same_tensors(const checkpoint::Checkpoint& from, std::string_view group,
                          const std::vector<NamedTensor>& tensors) {
  const std::string where = fmt::format("{}: {}", from.path().string(), group);
  std::set<std::string_view> names;
  for (const NamedTensor& item : tensors) {
    names.insert(item.name);
    const checkpoint::StoredTensor* stored = from.manifest().find(group, item.name);
    const std::string expected =
        format::describe(stored_type(item.name, item.tensor.scalar_type()), item.tensor.sizes());
    if (stored == nullptr) {
      throw DataError(Report{.what = fmt::format("{} has no tensor {}", where, item.name),
                             .expected = expected,
                             .fix = "load a checkpoint of the same model"});
    }
    const std::string got = format::describe(stored->type, stored->shape);
    if (got != expected) {
      throw DataError(Report{.what = fmt::format("{} {} does not fit the model", where, item.name),
                             .got = got,
                             .expected = expected,
                             .fix = "load a checkpoint of the same model"});
    }
  }
  for (const checkpoint::StoredTensor& stored : group_of(from, group)) {
    if (!names.contains(stored.name)) throw DataError(fmt::format("{}: the model has no {}", where, stored.name));
  }
}

}  // namespace

Pieces::Pieces(const std::vector<NamedTensor>& tensors) {
  for (const NamedTensor& item : tensors) {
    const at::Tensor& tensor = kept_.emplace_back(item.tensor.detach().contiguous());
    const checkpoint::Shape shape = tensor.sizes().vec();
    pieces_.push_back({.name = item.name,
                       .type = stored_type(item.name, tensor.scalar_type()),
                       .shape = shape,
                       .part = checkpoint::whole(shape),
                       .bytes = bytes_of(tensor)});
  }
}

void read_into(const checkpoint::Checkpoint& from, std::string_view group, const std::vector<NamedTensor>& tensors) {
  require_same_tensors(from, group, tensors);
  const at::NoGradGuard no_grad;
  for (const NamedTensor& item : tensors) {
    const at::Tensor target = item.tensor.detach();
    if (target.is_contiguous()) {
      read_one(from, group, item.name, target);
    } else {
      const at::Tensor loaded = at::empty(target.sizes(), target.options());
      read_one(from, group, item.name, loaded);
      target.copy_(loaded);
    }
  }
}

std::vector<NamedTensor> read_group(const checkpoint::Checkpoint& from, std::string_view group) {
  std::vector<NamedTensor> result;
  for (const checkpoint::StoredTensor& stored : group_of(from, group)) {
    result.push_back({stored.name, at::empty(stored.shape, at::TensorOptions().dtype(scalar_type_of(stored.type)))});
    read_one(from, group, stored.name, result.back().tensor);
  }
  return result;
}

}  // namespace reigen::tensor
