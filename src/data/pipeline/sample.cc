#include "reigen/data/sample.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/check.h"
#include "reigen/base/error.h"

namespace reigen::data {

Sample::Value* Sample::find(std::string_view name) {
  const auto found = std::find_if(values_.begin(), values_.end(), [&](const auto& one) { return one.first == name; });
  return found == values_.end() ? nullptr : &found->second;
}

bool Sample::has(std::string_view name) const { return const_cast<Sample*>(this)->find(name) != nullptr; }

void Sample::refuse(std::string_view name, const char* expected) const {
  std::vector<std::string> there;
  for (const auto& [its_name, value] : values_) {
    there.push_back(fmt::format("{} ({})", its_name, std::holds_alternative<at::Tensor>(value) ? "tensor" : "picture"));
  }
  throw InvalidArgument(Report{.what = fmt::format("{} has no {} '{}'", where_, expected, name),
                               .got = fmt::format("{}", fmt::join(there, ", ")),
                               .fix = "use one of these names, or set() the value in a map() before"});
}

at::Tensor& Sample::tensor(std::string_view name) {
  Value* value = find(name);
  if (value == nullptr || !std::holds_alternative<at::Tensor>(*value)) refuse(name, "tensor");
  return std::get<at::Tensor>(*value);
}

image::Draft& Sample::picture(std::string_view name) {
  Value* value = find(name);
  if (value == nullptr || !std::holds_alternative<image::Draft>(*value)) refuse(name, "picture");
  return std::get<image::Draft>(*value);
}

void Sample::set(std::string_view name, at::Tensor tensor) {
  REIGEN_CHECK(!name.empty(), "a value of {} needs a name", where_);
  REIGEN_CHECK(tensor.defined() && tensor.device().is_cpu(), "{} of {} must be a tensor in the CPU's memory", name,
               where_);
  if (Value* value = find(name)) {
    *value = std::move(tensor);
  } else {
    values_.emplace_back(std::string(name), std::move(tensor));
  }
}

void Sample::set(std::string_view name, image::Draft picture) {
  REIGEN_CHECK(!name.empty(), "a value of {} needs a name", where_);
  if (Value* value = find(name)) {
    *value = std::move(picture);
  } else {
    values_.emplace_back(std::string(name), std::move(picture));
  }
}

void Sample::erase(std::string_view name) {
  std::erase_if(values_, [&](const auto& one) { return one.first == name; });
}

}  // namespace reigen::data
