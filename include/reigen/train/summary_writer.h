// Writes what TensorBoard shows: curves, histograms, images, texts, the modules of a model, and the parameters of a
// run. It needs no trainer.
//
//   reigen::train::SummaryWriter board("runs/mine");
//   board.scalar("loss", loss, step);
//   board.histogram("fc1.weight", model->fc1->weight, step);
//   board.images("first batch", batch, step);                 // [N, 3, H, W]
//   ...
//   tensorboard --logdir runs
//
// The file is in the format of reigen/format/event_file.h, in the given folder. With several ranks, only one of them
// should write. Records are written at least once a second while more of them come. While the disk is full, up to 64
// MiB are kept in memory, and trouble() says why.
// Thread rule: a writer belongs to one thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "reigen/format/event_file.h"
#include "reigen/nn/unit.h"

namespace torch::nn {
class Module;
}  // namespace torch::nn

namespace reigen::train {

class AppendedFile;

struct SummaryOptions {
  // Go on in the newest file of this `name` in the folder, if there is one: keep the records up to this step, and cut
  // off the others, so that a resumed run has no step twice. If it is not set, a new file begins.
  std::optional<std::int64_t> keep_steps = {};
  std::string name = "reigen";  // the file's name ends with it; a trainer's file with "run"
};

class SummaryWriter {
 public:
  // `directory` is created if it is missing. Throws IoError.
  explicit SummaryWriter(const std::filesystem::path& directory, const SummaryOptions& options = {});
  ~SummaryWriter();                              // writes the remaining records; errors are lost, so call flush() first
  SummaryWriter(const SummaryWriter&) = delete;  // two writers would mix their records
  SummaryWriter& operator=(const SummaryWriter&) = delete;

  // Values are rounded to fp32, as TensorBoard has them. All functions throw IoError if more than 64 MiB are kept.
  void scalar(const std::string& tag, double value, std::int64_t step);
  // Several scalars of one step. `time`: seconds since 1970; 0 means now.
  void scalars(const std::vector<std::pair<std::string, double>>& values, std::int64_t step, double time = 0);
  // The distribution of the elements. Those that are not finite are left out. Any number type, device and shape.
  void histogram(const std::string& tag, const at::Tensor& values, std::int64_t step);
  void histogram(const std::string& tag, const format::Histogram& counted, std::int64_t step);
  // image: [C, H, W]. images: [N, C, H, W], drawn as a grid with a line of one pixel between them. C is 1 (grey), 3
  // (RGB) or 4 (RGBA). Numbers of uint8 are 0 to 255; floating-point numbers are 0 to 1, and others are clamped. Throws
  // InvalidArgument for another shape or type.
  void image(const std::string& tag, const at::Tensor& image, std::int64_t step);
  void images(const std::string& tag, const at::Tensor& images, std::int64_t step, std::int64_t columns = 8);
  // TensorBoard reads the text as Markdown.
  void text(const std::string& tag, std::string_view text, std::int64_t step);
  // The tree of modules, with the shapes of parameters and buffers. C++ modules do not tell which module calls which,
  // so only `units` are connected, in their order (Task::units()). Call it once: TensorBoard shows one graph of a run.
  void graph(const torch::nn::Module& module, const std::vector<nn::Unit>& units = {});
  void graph(const std::vector<format::GraphNode>& nodes);
  // The parameters of the run, for TensorBoard's table of runs. `metrics`: tags of scalars that the table shows too.
  // Call it once. The row is that of a running job until hparams_end().
  void hparams(const std::map<std::string, format::HParam>& values, const std::vector<std::string>& metrics);
  void hparams_end(bool succeeded, std::int64_t step);

  void flush();  // throws IoError; what was not written is kept
  // The reason why records are kept in memory and not in the file; empty if none is kept.
  const std::string& trouble() const;
  const std::filesystem::path& path() const { return path_; }
  // Whether the file has no records of earlier steps: it is new.
  bool is_new() const { return is_new_; }

 private:
  std::filesystem::path path_;
  bool is_new_ = true;
  std::unique_ptr<AppendedFile> file_;
};

}  // namespace reigen::train
