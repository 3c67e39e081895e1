// tf.train.Example: a map from names to lists of bytes, floats or integers, in the wire format of protocol buffers.
// Source: tensorflow/core/example/example.proto and feature.proto.
// Thread rule: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace reigen::container {

enum class FeatureKind : std::uint8_t { kNone, kBytes, kFloats, kIntegers };

struct Feature {
  std::string_view name;
  FeatureKind kind = FeatureKind::kNone;
  std::string_view list = {};  // the message with the values
};

// The features refer to the message. Nothing if the message is no Example.
std::optional<std::vector<Feature>> parse_example(std::string_view message);
// The values of a list; nothing if it is damaged. Both forms of numbers, packed and one by one, are read.
std::optional<std::vector<std::string_view>> bytes_in(std::string_view list);
std::optional<std::vector<std::byte>> floats_in(std::string_view list);    // as fp32, little-endian
std::optional<std::vector<std::byte>> integers_in(std::string_view list);  // as int64, little-endian

// Writes an Example feature by feature.
class ExampleWriter {
 public:
  void bytes(std::string_view name, std::span<const std::byte> value);
  void floats(std::string_view name, std::span<const std::byte> values);    // fp32, little-endian
  void integers(std::string_view name, std::span<const std::byte> values);  // int64, little-endian
  std::string message() const;

 private:
  void feature(std::string_view name, FeatureKind kind, const std::string& list);

  std::string features_;
};

}  // namespace reigen::container
