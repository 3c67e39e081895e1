// The commands inspect and verify.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>

#include "checkpoint/command.h"
#include "checkpoint/directory.h"
#include "checkpoint/parse.h"
#include "reigen/checkpoint/checkpoint.h"
#include "reigen/checkpoint/weights.h"

namespace reigen::apps::checkpoint {

namespace fs = std::filesystem;
namespace ck = reigen::checkpoint;

namespace {

std::string bytes_text(std::uint64_t bytes) {
  if (bytes < 10'000) return fmt::format("{} bytes", bytes);
  if (bytes < 10'000'000) return fmt::format("{:.1f} kB", static_cast<double>(bytes) / 1e3);
  if (bytes < 10'000'000'000) return fmt::format("{:.1f} MB", static_cast<double>(bytes) / 1e6);
  return fmt::format("{:.1f} GB", static_cast<double>(bytes) / 1e9);
}

void print_row(const std::string& name, format::TensorType type, const ck::Shape& shape) {
  fmt::print("  {:<48} {:<5} [{}]\n", name, format::name_of(type), fmt::join(shape, ", "));
}

void print_checkpoint(const ck::Checkpoint& checkpoint, bool with_tensors) {
  const ck::Manifest& m = checkpoint.manifest();
  fmt::print("{}: a checkpoint of step {}, {}\n", checkpoint.path().string(), m.step, bytes_text(m.bytes()));
  fmt::print("  written by reigen {} on {} {}{}\n", m.version, m.world_size, m.world_size == 1 ? "rank" : "ranks",
             m.mesh.empty() ? "" : ", mesh:");
  for (const auto& [axis, size] : m.mesh) fmt::print("    {} {}\n", axis, size);
  fmt::print("  goes on in epoch {} after {} samples; global batch {}, seed {}, {} steps of the optimizer\n",
             m.epoch + 1, m.position, m.global_batch, m.seed, m.optimizer_steps);
  for (const ck::StoredFile& file : m.files) fmt::print("  {:<48} {}\n", file.name, bytes_text(file.bytes));
  for (const auto& [group, tensors] : m.groups) {
    std::int64_t elements = 0;
    std::size_t pieces = 0;
    for (const ck::StoredTensor& tensor : tensors) {
      elements += reigen::layout::numel(tensor.shape);
      pieces += tensor.pieces.size();
    }
    fmt::print("  {}: {} tensors in {} pieces, {} elements\n", group, tensors.size(), pieces, elements);
    if (!with_tensors) continue;
    for (const ck::StoredTensor& tensor : tensors) print_row(tensor.name, tensor.type, tensor.shape);
  }
}

void print_weights(const std::string& path, const ck::Weights& weights, bool with_tensors) {
  std::uint64_t bytes = 0;
  std::uint64_t elements = 0;
  for (const ck::TensorInfo& tensor : weights.tensors()) {
    bytes += tensor.bytes();
    elements += tensor.elements();
  }
  fmt::print("{}: {}, {} tensors, {} elements, {}\n", path, weights.kind(), weights.tensors().size(), elements,
             bytes_text(bytes));
  if (const std::size_t count = weights.unreadable().size(); count > 0) {
    fmt::print("  {} {} cannot be read\n", count, count == 1 ? "tensor" : "tensors");
  }
  if (const std::size_t count = weights.objects().size(); count > 0) {
    fmt::print("  {} {} not read\n", count, count == 1 ? "object is" : "objects are");
  }
  if (!with_tensors) return;
  for (const ck::TensorInfo& tensor : weights.tensors()) print_row(tensor.name, tensor.type, tensor.shape);
  for (const ck::Unread& tensor : weights.unreadable()) fmt::print("  {}\n", unread_row(tensor));
  for (const ck::Unread& object : weights.objects()) fmt::print("  {}\n", unread_row(object));
}

// All checkpoints at a path: the checkpoint itself, or those in a directory of checkpoints or of a run.
std::vector<fs::path> checkpoints_of(const fs::path& path) {
  if (ck::is_checkpoint(path)) return {path};
  for (const fs::path& directory : {path, path / "checkpoints"}) {
    std::vector<fs::path> found = ck::list(directory);
    if (!found.empty()) return found;
  }
  return {ck::find_checkpoint(path).path()};  // throws an error that says that there is none
}

// True for files of weights from other programs, which have no hashes of Reigen. A file model.safetensors does not
// decide this: a finished run has one next to its checkpoints, and a checkpoint that has lost its manifest contains
// one. Both count as Reigen's, so verify looks for their manifests and hashes.
bool is_foreign(const fs::path& path) {
  std::error_code ignored;
  if (fs::is_regular_file(path, ignored)) return true;
  const bool ours = ck::is_checkpoint(path) || ck::step_of(path) || fs::exists(path / "checkpoints", ignored);
  return !ours && ck::is_model_folder(path) && ck::list(path).empty();
}

// Files of weights from other programs have no hashes, so the output says what was checked instead.
void verify_weights(const std::string& path) {
  const ck::Weights weights(path);
  weights.verify();
  std::uint64_t bytes = 0;
  for (const ck::TensorInfo& tensor : weights.tensors()) bytes += tensor.bytes();
  fmt::print("{}: whole, {} tensors, {} ({})\n", path, weights.tensors().size(), bytes_text(bytes),
             weights.kind() == "a safetensors file" ? "its form; safetensors files have no checksums" : weights.kind());
}

// Prints the damage of the checkpoint. Returns true if it has no damage.
bool is_whole(const fs::path& path) {
  std::vector<std::string> damage;
  try {
    const ck::Checkpoint checkpoint(path);
    damage = checkpoint.damage();
    if (damage.empty()) {
      fmt::print("{}: whole, {}\n", path.string(), bytes_text(checkpoint.manifest().bytes()));
      return true;
    }
  } catch (const DataError& error) {
    damage.emplace_back(error.what());
  } catch (const IoError& error) {
    damage.emplace_back(error.what());
  }
  for (const std::string& line : damage) fmt::print("{}\n", line);
  return false;
}

}  // namespace

int inspect(const Arguments& arguments) {
  std::string path;
  bool with_tensors = false;
  CLI::App app("What a checkpoint or a file of weights holds. Looks at names and sizes; verify reads the bytes.",
               "reigen checkpoint inspect");
  app.add_option("PATH", path, "a checkpoint, a run, a .safetensors, a folder of Hugging Face, a .pt")->required();
  app.add_flag("--tensors", with_tensors, "list the tensors");
  if (!parse(app, arguments)) return 0;
  if (ck::is_checkpoint(path)) {
    print_checkpoint(ck::Checkpoint(path), with_tensors);
    return 0;
  }
  const ck::Weights weights(path);
  if (ck::is_checkpoint(weights.path())) {
    print_checkpoint(ck::Checkpoint(weights.path()), with_tensors);
    return 0;
  }
  print_weights(path, weights, with_tensors);
  return 0;
}

int verify(const Arguments& arguments) {
  std::vector<std::string> paths;
  CLI::App app(
      "Reads every byte of checkpoints, and of files of weights, and names what is damaged. Exit code 65 when "
      "something is.",
      "reigen checkpoint verify");
  app.add_option("PATH", paths,
                 "checkpoints, or directories of them or of runs: all in them; a .safetensors, a folder of Hugging "
                 "Face, a .pt")
      ->required();
  if (!parse(app, arguments)) return 0;
  auto code = ExitCode::kOk;
  for (const std::string& path : paths) {
    try {
      if (is_foreign(path)) {
        verify_weights(path);
        continue;
      }
      for (const fs::path& checkpoint : checkpoints_of(path)) {
        if (!is_whole(checkpoint)) code = ExitCode::kBadData;
      }
    } catch (const Error& error) {
      fmt::print("{}\n", error.what());
      if (code == ExitCode::kOk) code = error.exit_code();
    }
  }
  return static_cast<int>(code);
}

}  // namespace reigen::apps::checkpoint
