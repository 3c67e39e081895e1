#include "reigen/train/summary_writer.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <png.h>

#include <algorithm>
#include <system_error>

#include "reigen/base/error.h"
#include "reigen/train/metrics_writer.h"
#include "train/files/appended_file.h"
#include "train/files/summary_values.h"

namespace reigen::train {
namespace {

namespace fs = std::filesystem;

// The newest event file of this name in the folder; empty if there is none.
fs::path newest_file(const fs::path& directory, const std::string& name) {
  fs::path newest;
  std::error_code error;
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end; entry.increment(error)) {
    if (!format::is_event_file_name(entry->path().filename().string(), name)) continue;
    if (newest.empty() || newest.filename() < entry->path().filename()) newest = entry->path();
  }
  if (error) throw IoError(fmt::format("cannot read the folder {}: {}", directory.string(), error.message()));
  return newest;
}

fs::path new_file(const fs::path& directory, const std::string& name, double now) {
  for (;;) {
    fs::path path = directory / format::event_file_name(now, name);
    std::error_code ignored;
    if (!fs::exists(fs::symlink_status(path, ignored))) return path;
  }
}

// [C, H, W] to bytes [H, W, C].
at::Tensor pixels_of(const at::Tensor& image) {
  const bool is_byte = image.scalar_type() == at::kByte;
  const std::int64_t channels = image.dim() == 3 ? image.size(0) : 0;
  const bool has_channels = channels == 1 || channels == 3 || channels == 4;
  if (!has_channels || image.numel() == 0 || (!is_byte && !image.is_floating_point())) {
    throw InvalidArgument(
        Report{.what = "[summary] the tensor is no image",
               .got = fmt::format("shape [{}], {}", fmt::join(image.sizes(), ", "), at::toString(image.scalar_type())),
               .expected = "[1, 3 or 4 channels, height, width] of uint8, or of numbers from 0 to 1"});
  }
  at::Tensor bytes = image.detach().to(at::kCPU);
  if (!is_byte) bytes = bytes.to(at::kDouble).nan_to_num(0.0).clamp(0, 1).mul(255).round().to(at::kByte);
  return bytes.permute({1, 2, 0}).contiguous();
}

std::string png_of(const at::Tensor& pixels) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.height = static_cast<png_uint_32>(pixels.size(0));
  image.width = static_cast<png_uint_32>(pixels.size(1));
  const std::int64_t channels = pixels.size(2);
  image.format = channels == 1 ? PNG_FORMAT_GRAY : channels == 3 ? PNG_FORMAT_RGB : PNG_FORMAT_RGBA;
  png_alloc_size_t size = 0;
  const void* const data = pixels.const_data_ptr<std::uint8_t>();
  std::string bytes;
  if (png_image_write_to_memory(&image, nullptr, &size, 0, data, 0, nullptr) != 0) {
    bytes.resize(size);
    if (png_image_write_to_memory(&image, bytes.data(), &size, 0, data, 0, nullptr) != 0) {
      bytes.resize(size);
      return bytes;
    }
  }
  throw Error(ExitCode::kBug, fmt::format("[summary] libpng cannot write the image: {}", image.message));
}

// All images in rows of `columns`, with a line of one pixel between them.
at::Tensor grid_of(const at::Tensor& images, std::int64_t columns) {
  if (images.dim() != 4 || images.size(0) == 0 || columns < 1) {
    throw InvalidArgument(Report{.what = "[summary] the tensor is no batch of images",
                                 .got = fmt::format("shape [{}], {} columns", fmt::join(images.sizes(), ", "), columns),
                                 .expected = "[number, channels, height, width], and 1 column or more"});
  }
  const std::int64_t count = images.size(0), height = images.size(2), width = images.size(3);
  columns = std::min(columns, count);
  const std::int64_t rows = (count + columns - 1) / columns;
  at::Tensor grid = at::zeros({images.size(1), rows * (height + 1) - 1, columns * (width + 1) - 1}, images.options());
  for (std::int64_t i = 0; i < count; ++i) {
    grid.narrow(1, i / columns * (height + 1), height).narrow(2, i % columns * (width + 1), width).copy_(images[i]);
  }
  return grid;
}

format::EventTime now_at(std::int64_t step) { return {.wall_time = seconds_since_1970(), .step = step}; }

}  // namespace

SummaryWriter::SummaryWriter(const fs::path& directory, const SummaryOptions& options) {
  std::error_code error;
  fs::create_directories(directory, error);
  if (error) throw IoError(fmt::format("cannot make the folder {}: {}", directory.string(), error.message()));
  const double now = seconds_since_1970();
  if (options.keep_steps) path_ = newest_file(directory, options.name);
  if (path_.empty()) {
    path_ = new_file(directory, options.name, now);
    file_ = std::make_unique<AppendedFile>(path_);
  } else {
    const std::int64_t last = *options.keep_steps;
    std::size_t length = 0;
    file_ = std::make_unique<AppendedFile>(path_, [&](std::string_view content) {
      length = format::read_events(
          content, [last](const format::Event& event) { return event.when.step <= last && !event.ends_session; });
      return length;
    });
    is_new_ = length == 0;
  }
  if (is_new_) file_->append(format::first_event(now));
}

SummaryWriter::~SummaryWriter() = default;

void SummaryWriter::scalar(const std::string& tag, double value, std::int64_t step) { scalars({{tag, value}}, step); }

void SummaryWriter::scalars(const std::vector<std::pair<std::string, double>>& values, std::int64_t step, double time) {
  file_->append(format::scalars_event({time > 0 ? time : seconds_since_1970(), step}, values));
}

void SummaryWriter::histogram(const std::string& tag, const at::Tensor& values, std::int64_t step) {
  Buckets buckets;
  buckets.add(values);
  histogram(tag, buckets.histogram(), step);
}

void SummaryWriter::histogram(const std::string& tag, const format::Histogram& counted, std::int64_t step) {
  file_->append(format::histogram_event(now_at(step), tag, counted));
}

void SummaryWriter::image(const std::string& tag, const at::Tensor& image, std::int64_t step) {
  const at::Tensor pixels = pixels_of(image);
  file_->append(format::image_event(now_at(step), tag, static_cast<int>(pixels.size(1)),
                                    static_cast<int>(pixels.size(0)), static_cast<int>(pixels.size(2)),
                                    png_of(pixels)));
}

void SummaryWriter::images(const std::string& tag, const at::Tensor& images, std::int64_t step, std::int64_t columns) {
  image(tag, grid_of(images, columns), step);
}

void SummaryWriter::text(const std::string& tag, std::string_view text, std::int64_t step) {
  file_->append(format::text_event(now_at(step), tag, text));
}

void SummaryWriter::graph(const torch::nn::Module& module, const std::vector<nn::Unit>& units) {
  graph(graph_of(module, units));
}

void SummaryWriter::graph(const std::vector<format::GraphNode>& nodes) {
  file_->append(format::graph_event(now_at(0), nodes));
}

void SummaryWriter::hparams(const std::map<std::string, format::HParam>& values,
                            const std::vector<std::string>& metrics) {
  file_->append(format::hparams_experiment_event(now_at(0), values, metrics));
  file_->append(format::hparams_begin_event(now_at(0), values));
}

void SummaryWriter::hparams_end(bool succeeded, std::int64_t step) {
  file_->append(format::hparams_end_event(now_at(step), succeeded));
}

void SummaryWriter::flush() { file_->flush(); }

const std::string& SummaryWriter::trouble() const { return file_->trouble(); }

}  // namespace reigen::train
