// A part of a JSON file that knows its place, so that every refusal names it. Thread rule: no shared state.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace reigen::format {

class JsonPart {
 public:
  // `file` is the file's name in quotes. `fix` ends every refusal.
  JsonPart(const nlohmann::json& value, std::string file, std::string fix)
      : value_(&value), file_(std::move(file)), fix_(std::move(fix)) {}

  const nlohmann::json& value() const { return *value_; }
  bool is_null() const { return value_->is_null(); }
  std::string where() const;  // "'tokenizer.json': model.vocab"

  // The part under `key`; null if there is none. Throws DataError if this part is no object.
  JsonPart at(const std::string& key) const;
  std::vector<JsonPart> elements() const;                         // of a list; throws DataError for another part
  std::vector<std::pair<std::string, JsonPart>> members() const;  // of an object; throws DataError likewise

  // The value, or `missing` for null. Throw DataError for a value of another type.
  std::string text(std::string_view missing = {}) const;
  bool flag(bool missing = false) const;
  std::int64_t number() const;  // a whole number
  double real() const;

  // Throws DataError for a member that is not among the keys.
  void allow(std::initializer_list<std::string_view> keys) const;
  // Throws DataError: "WHERE is not supported", with the value that was got.
  [[noreturn]] void refuse(const std::string& expected, const std::string& what = "is not supported") const;

 private:
  JsonPart(const nlohmann::json* value, const JsonPart& parent, const std::string& step);

  const nlohmann::json* value_;
  std::string file_;
  std::string fix_;
  std::string path_;
};

// Parses a file's content. Throws DataError, naming the byte, for wrong JSON, and for JSON that is no object.
nlohmann::json parse_json(std::string_view content, const std::string& file);

}  // namespace reigen::format
