#include "container/tar/parts.h"

#include <fmt/format.h>

#include <utility>

#include "container/folder/walk.h"
#include "container/meta.h"
#include "container/sample.h"
#include "container/tar/npy.h"
#include "reigen/base/error.h"

namespace reigen::container {
namespace {

bool is_label(std::span<const std::byte> bytes) {
  try {
    label_of_text(bytes, "");
    return true;
  } catch (const DataError&) {
    return false;
  }
}

Candidate candidate_of(const TarPart& part) {
  Candidate one{.stored = part.ending, .field = {.name = usual_name(part.ending)}};
  if (begins_as_picture(part.bytes) || names_picture(part.ending)) {
    one.field.kind = FieldKind::kPicture;
  } else if (const auto npy = lower(part.ending).ends_with("npy") ? parse_npy(part.bytes) : std::nullopt;
             npy && npy->type) {
    one.field.kind = FieldKind::kTensor;
    one.field.type = *npy->type;
    one.field.shape = npy->shape;
    if (one.field.name.ends_with(".npy")) one.field.name.resize(one.field.name.size() - 4);
  } else {
    one.may_be_label = is_label(part.bytes);
  }
  return one;
}

// A file says its type and shape. Two shapes may have the same number of bytes, so the bytes alone do not decide.
void require_form(const Npy& npy, const Field& field, const std::string& place) {
  std::vector<std::int64_t> expected = field.shape;
  if (!expected.empty() && expected[0] == -1 && !npy.shape.empty()) expected[0] = npy.shape[0];
  const bool has_type = !npy.type || *npy.type == field.type;
  if (has_type && npy.shape == expected) return;
  throw DataError(
      Report{.what = fmt::format("a tensor of another type or shape in {}", place),
             .got = fmt::format("{} in '{}'", format::describe(npy.type.value_or(field.type), npy.shape), field.name),
             .expected = format::describe(field.type, field.shape),
             .fix = "every sample must have the type and shape of the first"});
}

}  // namespace

Record TarFields::record_of(std::vector<std::vector<std::byte>> files, const std::string& place) const {
  RecordParts parts(fields.size());
  auto held = std::make_shared<std::vector<std::vector<std::byte>>>(std::move(files));
  for (std::size_t i = 0; i < fields.size(); ++i) {
    const std::span<const std::byte> bytes = (*held)[i];
    if (fields[i].kind == FieldKind::kLabel) {
      parts.label(label_of_text(bytes, place) - label_offset);
    } else if (fields[i].kind == FieldKind::kTensor) {
      const auto npy = parse_npy(bytes);
      if (!npy) {
        fail_damaged(place, fmt::format("{} bytes in .{}, which are no such tensor", bytes.size(), endings[i]),
                     fmt::format("a .npy file of {}", describe(fields[i])));
      }
      require_form(*npy, fields[i], place);
      parts.view(npy->data);
    } else {
      parts.view(bytes);
    }
  }
  Record record = parts.build(std::move(held));
  check_record(record, fields, classes, place);
  return record;
}

TarFields fields_of_tar(const ShardSet& set, const OpenOptions& options, const std::vector<TarPart>& first) {
  std::vector<Candidate> candidates;
  TarFields result{.fields = {}, .endings = {}, .stored = {}, .classes = {}, .label_offset = options.label_offset};
  if (set.meta) {
    candidates = candidates_of(*set.meta);
    result.classes = set.meta->classes;
  } else {
    for (const TarPart& part : first) candidates.push_back(candidate_of(part));
  }
  for (const Candidate& one : candidates) result.stored.push_back(one.stored);
  for (const Chosen& chosen : choose(candidates, options, set.name)) {
    result.fields.push_back(chosen.field);
    result.endings.push_back(candidates[chosen.candidate].stored);
  }
  result.are_all = set.meta && result.fields.size() == set.meta->fields.size() && options.label_offset == 0;
  return result;
}

}  // namespace reigen::container
