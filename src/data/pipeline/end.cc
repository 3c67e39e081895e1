// The end of a pipeline: samples become the tensors of batches.
#include <ATen/ops/empty.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <utility>
#include <variant>

#include "base/check.h"
#include "data/loading/global_batch.h"
#include "data/pipeline/memory.h"
#include "data/pipeline/mixed.h"
#include "data/pipeline/source.h"
#include "reigen/base/error.h"

namespace reigen::data {

at::Tensor TensorPool::take(at::IntArrayRef sizes, c10::ScalarType type) {
  const std::lock_guard lock(mutex_);
  // A view or an autograd graph holds the storage, so its count shows them.
  const auto is_free = [](const at::Tensor& one) { return one.use_count() == 1 && one.storage().use_count() == 1; };
  for (const at::Tensor& one : tensors_) {
    if (is_free(one) && one.sizes() == sizes && one.scalar_type() == type) return one;
  }
  // A free tensor that does not fit belongs to batches of another shape. The oldest goes, unless there are few.
  if (tensors_.size() >= kFew) {
    const auto oldest = std::find_if(tensors_.begin(), tensors_.end(), is_free);
    tensors_.erase(oldest == tensors_.end() ? tensors_.begin() : oldest);
  }
  tensors_.push_back(at::empty(sizes, type));
  return tensors_.back();
}

namespace {

// The type and shape of a value of one sample.
struct Form {
  std::string name;
  c10::ScalarType type = c10::kFloat;
  std::vector<std::int64_t> shape;
  bool operator==(const Form&) const = default;
};

std::string text_of(const Form& form) {
  return fmt::format("{} {} [{}]", form.name, c10::toString(form.type), fmt::join(form.shape, ", "));
}

std::string text_of(const std::vector<Form>& forms) {
  std::vector<std::string> texts;
  for (const Form& form : forms) texts.push_back(text_of(form));
  return fmt::format("{}", fmt::join(texts, "; "));
}

c10::ScalarType type_of(image::PixelType type) {
  switch (type) {
    case image::PixelType::kF32: return c10::kFloat;
    case image::PixelType::kBf16: return c10::kBFloat16;
    case image::PixelType::kU8: return c10::kByte;
  }
  return c10::kFloat;
}

std::vector<Form> forms_of(const Sample& sample, const image::Output& output) {
  std::vector<Form> forms;
  for (const auto& [name, value] : sample.values()) {
    if (const auto* tensor = std::get_if<at::Tensor>(&value)) {
      forms.push_back({name, tensor->scalar_type(), tensor->sizes().vec()});
      continue;
    }
    const image::Size size = std::get<image::Draft>(value).size();
    if (output.layout == image::Layout::kPlanes) {
      forms.push_back({name, type_of(output.type), {3, size.height, size.width}});
    } else {
      forms.push_back({name, type_of(output.type), {size.height, size.width, 3}});
    }
  }
  return forms;
}

void write(const Sample::Value& value, const image::Output& output, image::Workspace& workspace, std::byte* to) {
  if (const auto* draft = std::get_if<image::Draft>(&value)) {
    draft->write(output, to, workspace);
    return;
  }
  const at::Tensor tensor = std::get<at::Tensor>(value).contiguous();
  if (tensor.nbytes() > 0) std::memcpy(to, tensor.const_data_ptr(), tensor.nbytes());
}

void put(Samples& samples, const std::string& name, at::Tensor tensor) {
  if (name == "input") {
    samples.input = std::move(tensor);
  } else if (name == "target") {
    samples.target = std::move(tensor);
  } else {
    samples.more.emplace_back(name, std::move(tensor));
  }
}

// Rows of the batch's tensors. The first sample that is made decides the shapes, and the memory is then taken.
class Rows : public BatchMaker {
 public:
  Rows(SourcePtr from, std::shared_ptr<BatchMemory> memory, const image::Output& output, BatchRows rows)
      : from_(std::move(from)),
        memory_(std::move(memory)),
        output_(output),
        pass_(rows.pass),
        indices_(std::move(rows.indices)) {}

  void make(std::size_t row) override {
    const Sample sample = from_->sample(pass_, indices_[row]);
    const std::vector<Form> forms = forms_of(sample, output_);
    take_memory(forms, sample);
    auto workspace = memory_->workspaces.take();
    for (std::size_t value = 0; value < forms.size(); ++value) {
      const at::Tensor& whole = tensors_[value];
      const std::size_t bytes = whole.nbytes() / indices_.size();
      write(sample.values()[value].second, output_, *workspace,
            static_cast<std::byte*>(whole.mutable_data_ptr()) + row * bytes);
    }
  }

  // A tensor says nothing about its layout, so it is planes by definition. Is asked after a sample was made.
  image::Layout layout_of_input() const { return input_is_picture_ ? output_.layout : image::Layout::kPlanes; }

  Samples finish(std::span<const std::size_t> rows) override {
    Samples samples;
    for (std::size_t value = 0; value < forms_.size(); ++value) {
      at::Tensor& whole = tensors_[value];
      const std::size_t bytes = whole.nbytes() / indices_.size();
      auto* begin = static_cast<std::byte*>(whole.mutable_data_ptr());
      for (std::size_t at = 0; at < rows.size() && rows.size() < indices_.size(); ++at) {
        if (at != rows[at]) std::memcpy(begin + at * bytes, begin + rows[at] * bytes, bytes);
      }
      const auto count = static_cast<std::int64_t>(rows.size());
      // A tensor of its own, so that nothing that a program does to it stays with the memory.
      put(samples, forms_[value].name, whole.detach().narrow(0, 0, count));
    }
    tensors_.clear();  // the batch alone holds its tensors now
    return samples;
  }

 private:
  void take_memory(const std::vector<Form>& forms, const Sample& sample) {
    const std::lock_guard lock(mutex_);
    if (first_.empty()) {
      REIGEN_CHECK(!forms.empty(), "{} has no values", sample.where());
      for (const Form& form : forms) {
        std::vector<std::int64_t> sizes = {static_cast<std::int64_t>(indices_.size())};
        sizes.insert(sizes.end(), form.shape.begin(), form.shape.end());
        tensors_.push_back(memory_->tensors.take(sizes, form.type));
      }
      forms_ = forms;
      input_is_picture_ = std::any_of(sample.values().begin(), sample.values().end(), [](const auto& one) {
        return one.first == "input" && std::holds_alternative<image::Draft>(one.second);
      });
      first_ = sample.where();
    } else if (forms != forms_) {
      // No DataError: which sample comes first depends on threads, and data.max_bad must not leave out sound samples.
      throw InvalidArgument(
          Report{.what = fmt::format("{} does not fit into a batch with {}", sample.where(), first_),
                 .got = text_of(forms),
                 .expected = text_of(forms_),
                 .fix = "bring the samples to one shape (image::resize, center_crop), give collate(), or take only the "
                        "values that are needed: data::open(path, {.fields = {{\"input\", ...}, ...}})"});
    }
  }

  const SourcePtr from_;
  const std::shared_ptr<BatchMemory> memory_;
  const image::Output output_;
  const Pass pass_;
  const std::vector<std::int64_t> indices_;
  std::mutex mutex_;  // of what the first sample sets
  std::string first_;
  std::vector<Form> forms_;
  bool input_is_picture_ = false;
  std::vector<at::Tensor> tensors_;
};

// Samples of any shapes, which a function of the user joins.
class Collated : public BatchMaker {
 public:
  Collated(SourcePtr from, std::shared_ptr<BatchMemory> memory, EndOptions options, BatchRows rows)
      : from_(std::move(from)),
        memory_(std::move(memory)),
        options_(std::move(options)),
        pass_(rows.pass),
        indices_(std::move(rows.indices)),
        made_(indices_.size()) {}

  void make(std::size_t row) override {
    const Sample sample = from_->sample(pass_, indices_[row]);
    const std::vector<Form> forms = forms_of(sample, options_.output);
    auto workspace = memory_->workspaces.take();
    for (std::size_t value = 0; value < forms.size(); ++value) {
      at::Tensor tensor = at::empty(forms[value].shape, forms[value].type);
      write(sample.values()[value].second, options_.output, *workspace,
            static_cast<std::byte*>(tensor.mutable_data_ptr()));
      put(made_[row], forms[value].name, std::move(tensor));
    }
  }

  Samples finish(std::span<const std::size_t> rows) override {
    std::vector<Samples> samples;
    for (const std::size_t row : rows) samples.push_back(std::move(made_[row]));
    try {
      return options_.collate(samples);
    } catch (...) {
      throw_from_step("collate() of the pipeline", where_of(rows));
    }
  }

 private:
  // "samples 3, 7, 9, ... of 'train.lmdb'"
  std::string where_of(std::span<const std::size_t> rows) const {
    constexpr std::size_t kNamed = 8;
    std::vector<std::string> shown;
    for (const std::size_t row : rows.first(std::min(rows.size(), kNamed)))
      shown.push_back(std::to_string(indices_[row]));
    if (rows.size() > kNamed) shown.emplace_back("...");
    return fmt::format("samples {} of '{}'", fmt::join(shown, ", "), from_->name());
  }

  const SourcePtr from_;
  const std::shared_ptr<BatchMemory> memory_;
  const EndOptions options_;
  const Pass pass_;
  const std::vector<std::int64_t> indices_;
  std::vector<Samples> made_;
};

class End : public Dataset {
 public:
  End(SourcePtr from, EndOptions options) : from_(std::move(from)), options_(std::move(options)) {}

  std::int64_t size() const override { return from_->size(); }
  const std::string& name() const override { return from_->name(); }
  Meaning meaning() const override { return from_->meaning(); }
  std::int64_t terms(std::int64_t index) const override { return from_->terms(index); }

  std::unique_ptr<BatchMaker> batch_in(BatchRows rows) const override {
    if (options_.collate) return std::make_unique<Collated>(from_, memory_, options_, std::move(rows));
    auto plain = std::make_unique<Rows>(from_, memory_, options_.output, rows);
    if (!options_.mixing || rows.partners.empty()) return plain;
    const Rows* const made = plain.get();
    return mixed(
        std::move(plain), *options_.mixing, std::move(rows),
        [this](const Pass& pass, std::int64_t index) { return gather_in(pass, std::span(&index, 1)); },
        [made] { return made->layout_of_input(); });
  }

  Samples gather_in(const Pass& pass, std::span<const std::int64_t> indices) const override {
    const auto maker = batch_in({.pass = pass, .indices = {indices.begin(), indices.end()}});
    return made_alone(*maker, indices.size());
  }

  Samples gather(std::span<const std::int64_t> indices) const override { return gather_in({}, indices); }

 private:
  SourcePtr from_;
  EndOptions options_;
  // Is shared with the batches that are being made, which may outlive the dataset.
  std::shared_ptr<BatchMemory> memory_ = std::make_shared<BatchMemory>();
};

}  // namespace

DatasetPtr dataset_of(SourcePtr from, const EndOptions& options) {
  return std::make_shared<End>(std::move(from), options);
}

}  // namespace reigen::data
