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

std::span<std::byte> bytes_of(const at::Tensor& contiguous) {
  return {static_cast<std::byte*>(contiguous.data_ptr()), contiguous.nbytes()};
}

layout::Part part_of(const NamedTensor& item) {
  return item.part ? *item.part : layout::whole(item.tensor.sizes().vec());
}

bool is_empty(const NamedTensor& item) { return item.part && item.part->count == 0; }

// The bytes that a rank has of a contiguous tensor.
std::span<std::byte> held_bytes(const NamedTensor& item) {
  const std::span<std::byte> all = bytes_of(item.tensor);
  if (!item.is_divided()) return all;
  const auto size = static_cast<std::size_t>(item.tensor.element_size());
  return all.subspan(static_cast<std::size_t>(item.part->first) * size,
                     static_cast<std::size_t>(item.part->count) * size);
}

InvalidArgument of_divided_weights(const std::string& name, const char* what, const char* fix) {
  return InvalidArgument(Report{.what = fmt::format("[checkpoint] {} {}", name, what),
                                .got = "a weight of which this rank holds its share only (shard parameters)",
                                .fix = fix});
}

void read_bytes(const checkpoint::Checkpoint& from, std::string_view group, const NamedTensor& contiguous) {
  from.read(group, {.name = contiguous.name,
                    .type = stored_type(contiguous.name, contiguous.tensor.scalar_type()),
                    .shape = contiguous.whole_shape(),
                    .part = part_of(contiguous),
                    .bytes = held_bytes(contiguous)});
}

// Reads this rank's part in place. Files are read into memory of the host, so a tensor of a GPU is read into a copy.
void read_one(const checkpoint::Checkpoint& from, std::string_view group, const NamedTensor& item) {
  if (is_empty(item)) return;
  const at::Tensor target = item.tensor.detach();
  const NamedTensor read{item.name, target.cpu().contiguous(), item.part, item.shape};
  read_bytes(from, group, read);
  if (!read.tensor.is_same(target) && !read.tensor.is_alias_of(target)) target.copy_(read.tensor);
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
    NamedTensor contiguous = item;
    contiguous.tensor = kept_.emplace_back(item.tensor.detach().cpu().contiguous());
    pieces_.push_back({.name = item.name,
                       .type = stored_type(item.name, item.tensor.scalar_type()),
                       .shape = item.whole_shape(),
                       .part = part_of(contiguous),
                       .bytes = held_bytes(contiguous)});
  }
}

void read_into(const checkpoint::Checkpoint& from, std::string_view group, const std::vector<NamedTensor>& tensors) {
  require_same_tensors(from, group, tensors);
  for (const NamedTensor& item : tensors) {
    if (is_empty(item) || (!is_away(item.tensor) && !is_transient(item.tensor))) continue;
    throw of_divided_weights(item.name, "cannot be read into", "use data_parallel's load()");
  }
  const at::NoGradGuard no_grad;
  for (const NamedTensor& item : tensors) read_one(from, group, item);
}

std::vector<NamedTensor> read_group(const checkpoint::Checkpoint& from, std::string_view group,
                                    const std::vector<NamedTensor>& own) {
  std::map<std::string_view, const NamedTensor*> divided;
  for (const NamedTensor& item : own) {
    if (item.is_divided()) divided[item.name] = &item;
  }
  std::vector<NamedTensor> result;
  for (const checkpoint::StoredTensor& stored : group_of(from, group)) {
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
