// Records to write and to compare in tests.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "container/sample.h"
#include "reigen/container/container.h"
#include "reigen/container/writer.h"

namespace reigen::container {

// The values of a record as text, so that gtest can compare and print them.
inline std::vector<std::string> texts_of(const Record& record) {
  std::vector<std::string> texts;
  for (const Value& value : record.values()) texts.emplace_back(text_of(value.bytes));
  return texts;
}

inline std::string picture_text(int i) {
  return std::string("\xff\xd8\xff", 3) +
         std::string(static_cast<std::size_t>(i % 7) * 1500, static_cast<char>('a' + i % 26)) + std::to_string(i);
}

// Samples of every kind of field, with values of all sizes, empty ones too.
inline std::vector<Field> all_fields() {
  return {{.name = "input", .kind = FieldKind::kPicture},
          {.name = "target", .kind = FieldKind::kLabel},
          {.name = "boxes", .kind = FieldKind::kTensor, .type = format::TensorType::kF32, .shape = {2, 3}},
          {.name = "note", .kind = FieldKind::kBytes},
          {.name = "überaus_lang_" + std::string(150, 'x'),
           .kind = FieldKind::kTensor,
           .type = format::TensorType::kU8,
           .shape = {4}}};
}

inline Record sample_of(int i) {
  RecordParts parts(5);
  parts.own(copy_of(bytes_of_text(picture_text(i))));
  parts.label(i % 3);
  std::vector<std::byte> boxes(6 * sizeof(float));
  for (int k = 0; k < 6; ++k) {
    const float number = static_cast<float>(i) + static_cast<float>(k) / 8;
    std::memcpy(boxes.data() + sizeof number * static_cast<std::size_t>(k), &number, sizeof number);
  }
  parts.own(std::move(boxes));
  parts.own(copy_of(bytes_of_text(i % 4 == 0 ? "" : "note of " + std::to_string(i))));
  parts.own(std::vector<std::byte>(4, static_cast<std::byte>(i)));
  return parts.build();
}

inline void write_samples(const std::filesystem::path& path, WriterOptions options, int count) {
  if (options.fields.empty()) options.fields = all_fields();
  options.classes = {"cat", "dog", "Ärger"};
  if (options.shards > 1) options.count = count;
  const auto writer = make_writer(path, options);
  for (int i = 0; i < count; ++i) writer->add(sample_of(i));
  writer->finish();
}

}  // namespace reigen::container
