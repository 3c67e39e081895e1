#include "format/json/json_part.h"

#include <fmt/format.h>

#include <algorithm>

#include "reigen/base/error.h"

namespace reigen::format {

namespace {

constexpr std::size_t kShownJson = 60;

std::string shown_json(const nlohmann::json& value) {
  std::string text = value.dump(-1, ' ', /*ensure_ascii=*/true);
  if (text.size() > kShownJson) text = text.substr(0, kShownJson) + "...";
  return text;
}

}  // namespace

JsonPart::JsonPart(const nlohmann::json* value, const JsonPart& parent, const std::string& step)
    : value_(value), file_(parent.file_), fix_(parent.fix_), path_(parent.path_) {
  if (!path_.empty() && !step.starts_with('[')) path_ += '.';
  path_ += step;
}

std::string JsonPart::where() const { return path_.empty() ? file_ : fmt::format("{}: {}", file_, path_); }

JsonPart JsonPart::at(const std::string& key) const {
  static const nlohmann::json kNull;
  if (!value_->is_object()) refuse("an object", "has the wrong type");
  const auto found = value_->find(key);
  return {found == value_->end() ? &kNull : &*found, *this, key};
}

std::vector<JsonPart> JsonPart::elements() const {
  if (!value_->is_array()) refuse("a list", "has the wrong type");
  std::vector<JsonPart> parts;
  parts.reserve(value_->size());
  for (const auto& one : *value_) parts.push_back(JsonPart(&one, *this, fmt::format("[{}]", parts.size())));
  return parts;
}

std::vector<std::pair<std::string, JsonPart>> JsonPart::members() const {
  if (!value_->is_object()) refuse("an object", "has the wrong type");
  std::vector<std::pair<std::string, JsonPart>> parts;
  parts.reserve(value_->size());
  for (const auto& [key, one] : value_->items()) parts.emplace_back(key, JsonPart(&one, *this, key));
  return parts;
}

std::string JsonPart::text(std::string_view missing) const {
  if (is_null()) return std::string(missing);
  if (!value_->is_string()) refuse("a text", "has the wrong type");
  return value_->get<std::string>();
}

bool JsonPart::flag(bool missing) const {
  if (is_null()) return missing;
  if (!value_->is_boolean()) refuse("true or false", "has the wrong type");
  return value_->get<bool>();
}

std::int64_t JsonPart::number() const {
  const bool fits =
      value_->is_number_integer() && (!value_->is_number_unsigned() || value_->get<std::uint64_t>() <= INT64_MAX);
  if (!fits) refuse("a whole number", "has the wrong type");
  return value_->get<std::int64_t>();
}

double JsonPart::real() const {
  if (!value_->is_number()) refuse("a number", "has the wrong type");
  return value_->get<double>();
}

void JsonPart::allow(std::initializer_list<std::string_view> keys) const {
  if (!value_->is_object()) refuse("an object", "has the wrong type");
  for (const auto& [key, one] : value_->items()) {
    if (std::find(keys.begin(), keys.end(), key) == keys.end()) at(key).refuse("no such entry");
  }
}

void JsonPart::refuse(const std::string& expected, const std::string& what) const {
  throw DataError(Report{
      .what = fmt::format("{} {}", where(), what), .got = shown_json(*value_), .expected = expected, .fix = fix_});
}

nlohmann::json parse_json(std::string_view content, const std::string& file) {
  const auto refuse = [&](const std::string& got) {
    return DataError(Report{.what = fmt::format("{} is damaged", file),
                            .got = got,
                            .expected = "an object in JSON",
                            .fix = "check that this is the right file, or fetch it again"});
  };
  try {
    nlohmann::json json = nlohmann::json::parse(content);
    if (!json.is_object()) throw refuse(fmt::format("a JSON {}", json.type_name()));
    return json;
  } catch (const nlohmann::json::parse_error& error) {
    throw refuse(fmt::format("no JSON at byte {}", error.byte));
  } catch (const nlohmann::json::exception& error) {
    throw refuse(error.what());
  }
}

}  // namespace reigen::format
