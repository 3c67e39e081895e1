// One sample on its way through a pipeline (pipeline.h): values with names, of which each is a tensor or a picture.
// Thread rule: a Sample belongs to one thread at a time.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "reigen/image/draft.h"

namespace reigen::data {

class Sample {
 public:
  // A picture is an image::Draft: it is decoded at the end of the pipeline, where all operations on it are known.
  using Value = std::variant<at::Tensor, image::Draft>;

  // `where` names the sample in messages: "train.lmdb, sample 17".
  Sample(std::int64_t index, std::string where) : index_(index), where_(std::move(where)) {}

  std::int64_t index() const { return index_; }
  const std::string& where() const { return where_; }
  const std::vector<std::pair<std::string, Value>>& values() const { return values_; }

  bool has(std::string_view name) const;
  // The value of this name. Throws InvalidArgument, with the names and kinds that there are, if there is no such value,
  // or if it is of the other kind.
  at::Tensor& tensor(std::string_view name = "target");
  image::Draft& picture(std::string_view name = "input");

  // Adds a value, or replaces the value of this name. A tensor must be in the CPU's memory.
  void set(std::string_view name, at::Tensor tensor);
  void set(std::string_view name, image::Draft picture);
  void erase(std::string_view name);  // does nothing if there is no such value

 private:
  Value* find(std::string_view name);
  [[noreturn]] void refuse(std::string_view name, const char* expected) const;

  std::int64_t index_;
  std::string where_;
  std::vector<std::pair<std::string, Value>> values_;  // a few, in the order in which they were added
};

}  // namespace reigen::data
