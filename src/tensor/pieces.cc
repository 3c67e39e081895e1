#include "reigen/tensor/pieces.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <map>
#include <set>
#include <span>

#include "base/check.h"
#include "tensor/flat/transient_flat.h"
#include "tensor/memory/away_memory.h"
#include "tensor/stored_type.h"

namespace reigen::tensor {

namespace {

// The bytes of the part, of which `contiguous` has the elements of all parts.
std::span<std::byte> bytes_of(const layout::PlainPart& one, const at::Tensor& contiguous) {
  const std::size_t size = contiguous.itemsize();
  return {static_cast<std::byte*>(contiguous.data_ptr()) + static_cast<std::size_t>(one.local) * size,
          static_cast<std::size_t>(one.part.count) * size};
}

layout::Part part_of(const NamedTensor& item) {
  return item.part ? *item.part : layout::whole(item.tensor.sizes().vec());
}

bool is_empty(const NamedTensor& item) { return item.part && item.part->count == 0; }

// What this rank has of a tensor: all of it, or the elements of its part.
at::Tensor held(const NamedTensor& item) {
  const at::Tensor all = item.tensor.detach();
  if (!item.is_divided()) return all;
  return all.contiguous().view({-1}).narrow(0, item.part->first, item.part->count);
}

InvalidArgument of_divided_weights(const std::string& name, const char* what, const char* fix) {
  return InvalidArgument(Report{.what = fmt::format("[checkpoint] {} {}", name, what),
                                .got = "a weight of which this rank holds its share only (shard parameters)",
                                .fix = fix});
}

// Reads this rank's part into the tensor's memory. Files can only be read into contiguous memory of the host. For any
// other tensor the values are read into such memory first, and then copied.
void read_one(const checkpoint::Checkpoint& from, std::string_view group, const NamedTensor& item) {
  if (is_empty(item)) return;
  at::Tensor target = held(item);
  const bool is_direct =
      target.is_cpu() && target.is_contiguous() && (!item.is_divided() || item.tensor.is_contiguous());
  const at::Tensor read = is_direct ? target : at::empty(target.sizes(), target.options().device(at::kCPU));
  for (const layout::PlainPart& one : layout::plain_parts(item.whole_shape(), part_of(item))) {
    from.read(group, {.name = item.name,
                      .type = stored_type(item.name, item.tensor.scalar_type()),
                      .shape = item.whole_shape(),
                      .part = one.part,
                      .bytes = bytes_of(one, read)});
  }
  if (is_direct) return;
  if (item.is_divided() && !item.tensor.is_contiguous()) {
    at::Tensor all = item.tensor.detach().contiguous();
    all.view({-1}).narrow(0, item.part->first, item.part->count).copy_(read);
    item.tensor.detach().copy_(all);
  } else {
    target.copy_(read);
  }
}

const checkpoint::Group& group_of(const checkpoint::Checkpoint& from, std::string_view group) {
  static const checkpoint::Group kNone;
  const auto found = from.manifest().groups.find(std::string(group));
  return found == from.manifest().groups.end() ? kNone : found->second;
}

void require_same_tensors(const checkpoint::Checkpoint& from, std::string_view group,
                          const std::vector<NamedTensor>& tensors, const IsElsewhere& is_elsewhere) {
  const std::string where = fmt::format("{}: {}", from.path().string(), group);
  std::set<std::string_view> names;
  for (const NamedTensor& item : tensors) {
    names.insert(item.name);
    const checkpoint::StoredTensor* stored = from.manifest().find(group, item.name);
    const std::string expected =
        format::describe(stored_type(item.name, item.tensor.scalar_type()), item.whole_shape());
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
    if (is_elsewhere && is_elsewhere(stored.name)) continue;
    if (!names.contains(stored.name)) throw DataError(fmt::format("{}: the model has no {}", where, stored.name));
  }
}

}  // namespace

Pieces::Pieces(const std::vector<NamedTensor>& tensors) {
  for (const NamedTensor& item : tensors) {
    if (is_empty(item)) continue;
    if (is_away(item.tensor)) {
      throw of_divided_weights(item.name, "is not there to be saved",
                               "give data_parallel's own_weights(), or call gather_weights() on all ranks before");
    }
    const at::Tensor& given = kept_.emplace_back(held(item).cpu().contiguous());
    for (const layout::PlainPart& one : layout::plain_parts(item.whole_shape(), part_of(item))) {
      pieces_.push_back({.name = item.name,
                         .type = stored_type(item.name, item.tensor.scalar_type()),
                         .shape = item.whole_shape(),
                         .part = one.part,
                         .bytes = bytes_of(one, given)});
    }
  }
}

void read_into(const checkpoint::Checkpoint& from, std::string_view group, const std::vector<NamedTensor>& tensors,
               const IsElsewhere& is_elsewhere) {
  require_same_tensors(from, group, tensors, is_elsewhere);
  for (const NamedTensor& item : tensors) {
    if (is_empty(item) || (!is_away(item.tensor) && !is_transient(item.tensor))) continue;
    throw of_divided_weights(item.name, "cannot be read into", "use data_parallel's load()");
  }
  const at::NoGradGuard no_grad;
  for (const NamedTensor& item : tensors) read_one(from, group, item);
}

std::vector<NamedTensor> read_group(const checkpoint::Checkpoint& from, std::string_view group,
                                    const std::vector<NamedTensor>& own, const IsElsewhere& is_elsewhere) {
  std::map<std::string_view, const NamedTensor*> divided;
  for (const NamedTensor& item : own) {
    if (item.is_divided()) divided[item.name] = &item;
  }
  std::vector<NamedTensor> result;
  for (const checkpoint::StoredTensor& stored : group_of(from, group)) {
    if (is_elsewhere && is_elsewhere(stored.name)) continue;
    const auto found = divided.find(stored.name);
    if (found != divided.end()) {
      result.push_back(*found->second);
    } else {
      const at::ScalarType type = scalar_type_of(stored.name, stored.type);
      result.push_back({stored.name, at::empty(stored.shape, at::TensorOptions().dtype(type))});
    }
    read_one(from, group, result.back());
  }
  return result;
}

}  // namespace reigen::tensor
