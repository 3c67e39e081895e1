#include "train/watch/board_watch.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <string_view>

#include "optim/passes/blocks.h"
#include "reigen/base/error.h"
#include "reigen/comm/byte_strings.h"
#include "reigen/tensor/tensor_files.h"
#include "tensor/flat/gradient_rows.h"
#include "train/run/agree.h"

namespace reigen::train {
namespace {

struct Place {
  const ParameterRange* range = nullptr;
  std::size_t segment = 0;
};

// The elements of the averaged gradient that this rank counts, which are `part` of its box.
at::Tensor gradient_of(const Place& place, const layout::Part& part) {
  const ParameterRange& range = *place.range;
  const at::Tensor like = range.values();
  void* const data = optim::gradient_data(range, place.segment);
  if (data == nullptr || part.count == 0) return at::empty({0}, like.options());
  if (optim::awaits_average(range)) {  // each rank averages its share
    const at::Tensor mean = at::empty({part.count}, like.options());
    range.rows()->average_into(place.segment, range.gradient_slot(place.segment), part.first, part.count,
                               mean.mutable_data_ptr());
    return mean;
  }
  const auto size = static_cast<std::ptrdiff_t>(like.dtype().itemsize());
  return at::from_blob(static_cast<std::byte*>(data) + part.first * size, {part.count}, like.options());
}

// Pictures as numbers from 0 to 1. A picture that has other numbers is scaled by its own least and largest one.
at::Tensor shown(const at::Tensor& pictures) {
  if (pictures.scalar_type() == at::kByte) return pictures;
  const at::Tensor numbers = pictures.to(at::kFloat).nan_to_num(0.0, 0.0, 0.0);
  if (numbers.numel() == 0) return numbers;
  const at::Tensor least = numbers.amin({1, 2, 3}, true), most = numbers.amax({1, 2, 3}, true);
  const at::Tensor fits = least.ge(0).logical_and(most.le(1));
  return at::where(fits, numbers, (numbers - least) / (most - least).clamp_min(1e-12));
}

}  // namespace

void BoardWatch::begin() {
  cadence_.reset();
  is_due_ = false;
  names_.clear();
  number_.clear();
  const config::LogConfig& log = run_.config.log;
  if (!log.tensorboard) return;
  if (!lines_.new_board().empty()) write_graph();
  if (log.histograms.empty()) return;
  cadence_.emplace(config::parse_duration("log.histograms", log.histograms), data_.loader().size());
  for (const auto& item : run_.task.module().named_parameters()) {
    number_[item.key()] = names_.size();
    names_.push_back(item.key());
  }
}

void BoardWatch::write_graph() {
  const auto shape_of = [&](const std::string& name, const at::Tensor& own) {
    return model_.divided().divides(name) ? model_.divided().whole_shape(name) : own.sizes().vec();
  };
  lines_.write_board(
      [&](SummaryWriter& board) { board.graph(graph_of(run_.task.module(), run_.task.units(), shape_of)); });
}

void BoardWatch::begin_step(std::int64_t step, const data::Batch& batch, double /*waited*/) {
  const config::LogConfig& log = run_.config.log;
  if (step == 1 && log.tensorboard && log.images > 0) write_pictures(batch);
  const InEpoch place{.epoch = batch.epoch, .begin = run_.position, .end = batch.position};
  is_due_ = cadence_ && cadence_->is_due(step, place, run_.world);
}

// The pictures of the global batch lie on the ranks one after the other.
void BoardWatch::write_pictures(const data::Batch& batch) {
  const at::Tensor input = batch.parts.front().input;
  const std::int64_t channels = input.dim() == 4 ? input.size(1) : 0;
  const bool fits = (channels == 1 || channels == 3) && (input.is_floating_point() || input.scalar_type() == at::kByte);
  if (!fits) {
    throw common(InvalidArgument(
        Report{.what = "log.images: the input of the training batches is no batch of pictures",
               .got = fmt::format("[{}] of {}", fmt::join(input.sizes(), ", "), at::toString(input.scalar_type())),
               .expected = "[samples, 1 or 3 channels, height, width] of uint8 or floating-point numbers",
               .fix = "leave log.images out"}));
  }
  using Form = std::array<std::int64_t, 4>;
  std::vector<Form> forms(static_cast<std::size_t>(run_.data.size()));
  const Form form = {batch.count, channels, input.size(2), input.size(3)};
  run_.data.all_gather(form.data(), forms.data()->data(), form.size(), DataType::kInt64, {.tag = "pictures"});
  // Ranks with pictures of another size than rank 0's, which share no grid with them, are left out.
  const bool is_shown = std::equal(form.begin() + 1, form.end(), forms[0].begin() + 1);
  std::int64_t wanted = is_shown ? run_.config.log.images : 0;
  for (int rank = 0; rank < run_.data.rank(); ++rank) wanted -= forms[static_cast<std::size_t>(rank)][0];
  std::vector<at::Tensor> own;
  for (const data::MicroBatch& part : batch.parts) {
    const std::int64_t count = std::clamp<std::int64_t>(wanted, 0, part.count);
    own.push_back(shown(part.input.narrow(0, 0, count)).to(at::kCPU).contiguous());
    wanted -= count;
  }
  const at::Tensor mine = at::cat(own).contiguous();
  const std::string bytes(static_cast<const char*>(mine.const_data_ptr()), mine.nbytes());
  std::vector<at::Tensor> all;
  for (const std::string& some : comm::all_gather_bytes(bytes, run_.data, "pictures")) {
    if (some.empty()) continue;
    const at::Tensor flat = at::empty({static_cast<std::int64_t>(some.size()) / mine.element_size()}, mine.options());
    std::copy(some.begin(), some.end(), static_cast<char*>(flat.mutable_data_ptr()));
    all.push_back(flat.view({-1, forms[0][1], forms[0][2], forms[0][3]}));
  }
  if (all.empty()) return;
  lines_.write_board([&](SummaryWriter& board) { board.images("first batch", at::cat(all), 1); });
}

void BoardWatch::end_phase(Phase phase) {
  if (is_due_ && phase == Phase::kGradients) count_gradients();
}

void BoardWatch::end_step(std::int64_t step) {
  if (!is_due_) return;
  is_due_ = false;
  const at::NoGradGuard no_grad;
  std::vector<Buckets> weights = count_weights();
  Buckets::merge(weights, run_.world);
  gradients_.resize(names_.size());  // a ManualTask may have made no step
  Buckets::merge(gradients_, run_.world);
  write("weights", "weight norm", weights, step);
  write("gradients", "weight gradient norm", gradients_, step);
  gradients_.clear();
}

std::vector<Buckets> BoardWatch::count_weights() const {
  std::vector<Buckets> counted(names_.size());
  for (const tensor::NamedTensor& item : model_.parallel().own_weights()) {
    const auto number = number_.find(item.name);
    if (number == number_.end()) continue;  // a buffer
    const at::Tensor flat = item.tensor.detach().reshape({-1});
    counted[number->second].add(item.part ? flat.narrow(0, item.part->first, item.part->count) : flat);
  }
  return counted;
}

// Counts the gradients of the parameters that step next.
void BoardWatch::count_gradients() {
  const at::NoGradGuard no_grad;
  std::vector<tensor::NamedTensor> items;
  std::map<std::string, Place> places;
  for (const ParameterRange& range : model_.optimizers().due()) {
    for (std::size_t i = 0; i < range.size(); ++i) {
      const tensor::Segment& segment = range.segments()[i];
      if (!segment.counts) continue;
      tensor::NamedTensor item{.name = segment.name, .tensor = segment.parameter};
      tensor::describe_part(item, range, segment, range.divides_averages());
      items.push_back(std::move(item));
      places[segment.name] = {&range, i};
    }
  }
  const double scale = model_.optimization().loss_scale();
  gradients_.resize(names_.size());
  for (const tensor::NamedTensor& item : items) gradients_[number_.at(item.name)] = {};
  for (const tensor::NamedTensor& item : model_.parallel().own(items)) {
    const Place& place = places.at(item.name);
    const layout::Part part = item.part.value_or(layout::whole(item.tensor.sizes().vec()));
    const at::Tensor gradient = gradient_of(place, part);
    gradients_[number_.at(item.name)].add(scale == 1 ? gradient : gradient.to(at::kDouble) / scale);
  }
}

void BoardWatch::write(const char* kind, const char* kind_of_norms, const std::vector<Buckets>& counted,
                       std::int64_t step) {
  lines_.write_board([&](SummaryWriter& board) {
    std::vector<std::pair<std::string, double>> norms;
    for (std::size_t i = 0; i < counted.size(); ++i) {
      const format::Histogram histogram = counted[i].histogram();
      if (histogram.count == 0) continue;  // no backward has reached it
      board.histogram(fmt::format("{}/{}", kind, names_[i]), histogram, step);
      norms.emplace_back(fmt::format("{}/{}", kind_of_norms, names_[i]), std::sqrt(histogram.sum_of_squares));
    }
    if (!norms.empty()) board.scalars(norms, step);
  });
}

}  // namespace reigen::train
