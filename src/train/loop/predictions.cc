#include "train/loop/predictions.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstring>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <utility>

#include "reigen/base/error.h"
#include "reigen/comm/byte_strings.h"
#include "train/run/agree.h"

namespace reigen::train {

namespace {

using Predictions = std::vector<data::NamedTensor>;

// Name, type and shape of a row of one tensor.
struct Form {
  std::string name;
  at::ScalarType type = at::kFloat;
  std::vector<std::int64_t> row = {};

  std::string text() const { return fmt::format("{} {} [{}]", name, c10::toString(type), fmt::join(row, ", ")); }
};

// As JSON: ranks exchange it, and people can read it in an error.
std::string form_text(const Predictions& tensors) {
  nlohmann::json forms = nlohmann::json::array();
  for (const auto& [name, tensor] : tensors) {
    forms.push_back({{"name", name},
                     {"type", c10::toString(tensor.scalar_type())},
                     {"number", static_cast<int>(tensor.scalar_type())},
                     {"row", tensor.sizes().slice(1).vec()}});
  }
  return forms.dump();
}

std::vector<Form> forms_in(const std::string& text) {
  std::vector<Form> forms;
  for (const auto& one : nlohmann::json::parse(text)) {
    forms.push_back({.name = one.at("name").get<std::string>(),
                     .type = static_cast<at::ScalarType>(one.at("number").get<int>()),
                     .row = one.at("row").get<std::vector<std::int64_t>>()});
  }
  return forms;
}

std::string for_people(const std::string& text) {
  std::vector<std::string> words;
  for (const Form& one : forms_in(text)) words.push_back(one.text());
  return fmt::format("{}", fmt::join(words, "; "));
}

void require_rows(const Predictions& tensors, std::int64_t rows) {
  if (tensors.empty()) throw InvalidArgument(Report{.what = "predict_step() returned no tensor"});
  for (const auto& [name, tensor] : tensors) {
    if (tensor.defined() && tensor.dim() >= 1 && tensor.size(0) == rows) continue;
    std::ostringstream shape;
    if (tensor.defined()) shape << tensor.sizes();
    throw InvalidArgument(
        Report{.what = fmt::format("predict_step() returned \"{}\" without a row for each sample", name),
               .got = tensor.defined() ? "shape " + shape.str() : "an undefined tensor",
               .expected = fmt::format("a first dimension of {}", rows)});
  }
}

void require_form(const std::string& got, const std::string& expected) {
  if (got == expected) return;
  throw InvalidArgument(Report{.what = "predict_step() returned tensors of two forms",
                               .got = for_people(got),
                               .expected = for_people(expected),
                               .fix = "return the same names, types and shapes for every batch"});
}

std::int64_t rows_of(const data::Samples& batch) {
  std::int64_t rows = 0;
  batch.for_each([&](std::string_view, const at::Tensor& one) { rows = one.size(0); });
  return rows;
}

// The rows of all ranks one below the other, on rank 0 of `group`. `own` is undefined on a rank without samples.
at::Tensor gather_rows(const at::Tensor& own, const Form& form, const Communicator& group) {
  std::vector<at::Tensor> parts;
  // One rank after the other, so that a rank needs memory for its own rows and those of one other rank.
  for (int rank = 0; rank < group.size(); ++rank) {
    std::string bytes;
    if (rank == group.rank() && own.defined())
      bytes.assign(static_cast<const char*>(own.const_data_ptr()), own.nbytes());
    bytes = comm::broadcast_bytes(std::move(bytes), rank, group, "predictions");
    if (group.rank() != 0) continue;
    std::int64_t row = static_cast<std::int64_t>(c10::elementSize(form.type));
    for (const std::int64_t size : form.row) row *= size;
    std::vector<std::int64_t> shape = form.row;
    shape.insert(shape.begin(), row > 0 ? static_cast<std::int64_t>(bytes.size()) / row : 0);
    const at::Tensor part = at::empty(shape, form.type);
    if (!bytes.empty()) std::memcpy(part.mutable_data_ptr(), bytes.data(), bytes.size());
    parts.push_back(part);
  }
  return parts.empty() ? at::Tensor() : at::cat(parts);
}

}  // namespace

Predictions predictions_of(Run& run, Evaluation& evaluation, const data::Dataset& data) {
  if (run.config.mesh.pp > 1 || run.config.mesh.cp > 1) {
    throw common(
        InvalidArgument(Report{.what = "predictions with mesh.pp or mesh.cp are not possible yet",
                               .got = fmt::format("mesh.pp {}, mesh.cp {}", run.config.mesh.pp, run.config.mesh.cp),
                               .expected = "1 and 1",
                               .fix = "--mesh.pp 1 --mesh.cp 1: any layout reads the checkpoint of another"}));
  }
  std::vector<Predictions> batches;
  const auto step = [&](const data::Samples& batch, bool counts) {
    Predictions said = run.task.predict_step(batch);
    require_rows(said, rows_of(batch));
    for (auto& [name, tensor] : said) tensor = tensor.detach().to(at::kCPU).contiguous();
    if (!batches.empty()) require_form(form_text(said), form_text(batches.front()));
    if (counts) batches.push_back(std::move(said));
  };
  static_cast<void>(evaluation.run({.data = data, .step = step, .most = run.most_of_trial()}));
  const std::vector<std::string> texts =
      comm::all_gather_bytes(batches.empty() ? std::string() : form_text(batches.front()), run.data, "predictions");
  std::string expected;
  together(run.data, "predictions", [&] {
    for (const std::string& text : texts) {
      if (expected.empty()) expected = text;
      if (!text.empty()) require_form(text, expected);
    }
  });
  Predictions all;
  const std::vector<Form> forms = forms_in(expected);
  for (std::size_t i = 0; i < forms.size(); ++i) {
    std::vector<at::Tensor> rows;
    for (const Predictions& batch : batches) rows.push_back(batch[i].second);
    at::Tensor whole = gather_rows(rows.empty() ? at::Tensor() : at::cat(rows), forms[i], run.data);
    if (run.is_first()) all.emplace_back(forms[i].name, std::move(whole));
  }
  return all;
}

}  // namespace reigen::train
