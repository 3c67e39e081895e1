#include "reigen/checkpoint/weights.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "checkpoint/directory.h"
#include "format/input_file.h"
#include "reigen/format/pt_file.h"

namespace reigen::checkpoint {

namespace fs = std::filesystem;

namespace {

constexpr const char* kIndexes[] = {"model.safetensors.index.json", "pytorch_model.bin.index.json"};
constexpr const char* kModel = "model.safetensors";
constexpr std::string_view kAverage = ".ema";  // behind the name of what it is of
constexpr std::uint64_t kIndexMax = std::uint64_t{256} << 20;

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

// Zip archives, as PyTorch writes them since 1.6.
bool begins_as_zip(const fs::path& path) {
  const format::InputFile file(path);
  std::array<std::byte, 4> begin{};
  return file.read_at(0, begin) == 4 && begin[0] == std::byte{'P'} && begin[1] == std::byte{'K'};
}

std::map<std::string, std::string> files_of_index(const fs::path& path) {
  const auto damaged = [&](const std::string& how) {
    return DataError(Report{.what = fmt::format("{} is no index of files of weights: {}", path.string(), how),
                            .expected = R"({"weight_map": {"tensor": "file", ...}})"});
  };
  const format::InputFile file(path);
  if (file.size() > kIndexMax) throw damaged(fmt::format("{} bytes", file.size()));
  std::string text(static_cast<std::size_t>(file.size()), '\0');
  text.resize(file.read_at(0, std::as_writable_bytes(std::span(text.data(), text.size()))));
  const auto json = nlohmann::json::parse(text, nullptr, false);
  const auto map = json.is_object() ? json.find("weight_map") : json.end();
  if (!json.is_object() || map == json.end() || !map->is_object()) throw damaged("no weight_map");
  std::map<std::string, std::string> result;
  for (const auto& [tensor, name] : map->items()) {
    const bool plain = name.is_string() && !name.get_ref<const std::string&>().empty() &&
                       name.get_ref<const std::string&>().find('/') == std::string::npos;
    if (!plain) throw damaged(fmt::format("{} is in {}", tensor, name.dump()));
    result[tensor] = name.get<std::string>();
  }
  return result;
}

}  // namespace

bool is_checkpoint(const fs::path& path) { return is_there(path / kManifestName); }

Checkpoint find_checkpoint(const fs::path& path) {
  if (is_checkpoint(path)) return Checkpoint(path);
  std::vector<std::string> damaged;
  std::optional<Checkpoint> newest;
  for (const fs::path& directory : {path, path / "checkpoints"}) {
    if (!is_there(directory)) continue;
    Search search = find_newest(directory);
    damaged.insert(damaged.end(), search.damaged.begin(), search.damaged.end());
    const bool is_newer = search.newest && (!newest || search.newest->manifest().step > newest->manifest().step);
    if (is_newer) newest = std::move(search.newest);
  }
  if (newest) {
    for (const std::string& text : damaged) base::log_warning("passed over a damaged checkpoint: {}", text);
    return std::move(*newest);
  }
  if (!damaged.empty()) {
    throw DataError(Report{.what = fmt::format("no checkpoint in {} is whole", path.string()),
                           .got = damaged.front(),
                           .fix = "reigen checkpoint verify names all damage"});
  }
  throw IoError(Report{.what = fmt::format("there is no checkpoint in {}", path.string()),
                       .expected = "a checkpoint (step_N), a directory of them, or of a run",
                       .fix = "give the path of one"},
                ExitCode::kInputMissing);
}

namespace {

// Every byte of it as it was written. Of several the newest whole one was found by that.
std::shared_ptr<Checkpoint> whole_checkpoint(const fs::path& path) {
  auto found = std::make_shared<Checkpoint>(find_checkpoint(path));
  if (is_checkpoint(path)) found->verify();
  return found;
}

}  // namespace

Weights::Weights(const fs::path& path, const std::string& group) : path_(path) {
  std::error_code error;
  if (fs::is_directory(path, error)) {
    if (is_checkpoint(path) || is_there(path / "checkpoints") || !list(path).empty()) {
      take_checkpoint(whole_checkpoint(path), group);
    } else if (is_there(path / kIndexes[0])) {
      take_index(path / kIndexes[0]);
    } else if (is_there(path / kModel)) {
      take_safetensors(path / kModel);
    } else if (is_there(path / kIndexes[1])) {
      take_index(path / kIndexes[1]);
    } else if (is_there(path / "pytorch_model.bin")) {
      take_pt(path / "pytorch_model.bin");
    } else {
      throw IoError(Report{.what = fmt::format("{} holds no weights", path.string()),
                           .expected = fmt::format("{}, pytorch_model.bin, their parts with {} or {}, or checkpoints",
                                                   kModel, kIndexes[0], kIndexes[1]),
                           .fix = "give the path of a file, of a folder of Hugging Face, or of a run"},
                    ExitCode::kInputMissing);
    }
  } else if (begins_as_zip(path)) {
    take_pt(path);
  } else if (path.filename().string().ends_with(".index.json")) {
    take_index(path);
  } else if (path.extension() == ".safetensors") {
    take_safetensors(path);
  } else if (path.extension() == ".pt" || path.extension() == ".pth" || path.extension() == ".bin") {
    take_pt(path);  // which says what is wrong with it
  } else {
    take_safetensors(path);
  }
  sort();
}

Weights Weights::averages_of(const fs::path& path) {
  const auto from = whole_checkpoint(path);
  Weights result;
  result.take_checkpoint(from, "model");
  result.take_averages(from);
  result.sort();
  return result;
}

void Weights::sort() {
  std::vector<std::size_t> order(tensors_.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return tensors_[a].name < tensors_[b].name; });
  std::vector<TensorInfo> tensors;
  decltype(readers_) readers;
  for (const std::size_t i : order) {
    tensors.push_back(std::move(tensors_[i]));
    readers.push_back(std::move(readers_[i]));
  }
  tensors_ = std::move(tensors);
  readers_ = std::move(readers);
}

const TensorInfo* Weights::find(std::string_view name) const {
  const auto found =
      std::lower_bound(tensors_.begin(), tensors_.end(), name,
                       [](const TensorInfo& tensor, std::string_view word) { return tensor.name < word; });
  return found != tensors_.end() && found->name == name ? &*found : nullptr;
}

void Weights::read(const std::string& name, std::span<std::byte> into) const {
  const TensorInfo* tensor = find(name);
  if (tensor == nullptr) throw DataError(fmt::format("{} has no tensor {}", path_.string(), name));
  REIGEN_CHECK(into.size() == tensor->bytes(), "{} has {} bytes, not {}", name, tensor->bytes(), into.size());
  readers_[static_cast<std::size_t>(tensor - tensors_.data())](into);
}

void Weights::take_safetensors(const fs::path& path) {
  kind_ = "a safetensors file";
  const auto file = std::make_shared<format::SafetensorsFile>(path);
  for (const format::TensorEntry& entry : file->tensors()) {
    tensors_.push_back({entry.name, entry.type, entry.shape});
    readers_.emplace_back([file, &entry](std::span<std::byte> into) { file->read(entry, into); });
  }
}

void Weights::take_index(const fs::path& path) {
  const std::map<std::string, std::string> index = files_of_index(path);
  const auto is_pt = [](const auto& entry) { return !entry.second.ends_with(".safetensors"); };
  if (std::any_of(index.begin(), index.end(), is_pt)) {
    take_pt_parts(path, index);
    kind_ = "a Hugging Face folder";
    return;
  }
  kind_ = "a Hugging Face folder";
  std::map<std::string, std::shared_ptr<format::SafetensorsFile>> files;
  for (const auto& [tensor, name] : index) {
    auto& file = files[name];
    if (!file) file = std::make_shared<format::SafetensorsFile>(path.parent_path() / name);
    const format::TensorEntry& entry = file->at(tensor);
    tensors_.push_back({entry.name, entry.type, entry.shape});
    readers_.emplace_back([file, &entry](std::span<std::byte> into) { file->read(entry, into); });
  }
}

// All of each part: the index says of each tensor where it is, and must be right.
void Weights::take_pt_parts(const fs::path& path, const std::map<std::string, std::string>& index) {
  std::set<std::string> names;
  for (const auto& [tensor, name] : index) names.insert(name);
  std::map<std::string, std::string> found;
  for (const std::string& name : names) {
    const std::size_t first = tensors_.size();
    take_pt(path.parent_path() / name);
    for (std::size_t i = first; i < tensors_.size(); ++i) {
      const auto [place, is_new] = found.emplace(tensors_[i].name, name);
      if (is_new) continue;
      throw DataError(fmt::format("{}: {} is in {} and in {}", path.string(), tensors_[i].name, place->second, name));
    }
  }
  for (const auto& [tensor, name] : index) {
    const auto place = found.find(tensor);
    if (place != found.end() && place->second == name) continue;
    throw DataError(Report{.what = fmt::format("{} has no tensor {}", (path.parent_path() / name).string(), tensor),
                           .expected = fmt::format("what {} says", path.string())});
  }
}

void Weights::take_checkpoint(const std::shared_ptr<Checkpoint>& from, const std::string& group) {
  kind_ = "a checkpoint";
  path_ = from->path();
  const auto found = from->manifest().groups.find(group);
  if (found == from->manifest().groups.end()) {
    std::vector<std::string> names;
    for (const auto& [name, tensors] : from->manifest().groups) names.push_back(name);
    throw DataError(Report{.what = fmt::format("{} has no group \"{}\"", path_.string(), group),
                           .got = fmt::format("{}", fmt::join(names, ", "))});
  }
  for (const StoredTensor& stored : found->second) {
    tensors_.push_back({stored.name, stored.type, stored.shape});
    readers_.emplace_back([from, group, &stored](std::span<std::byte> into) {
      from->read(group, {stored.name, stored.type, stored.shape, whole(stored.shape), into});
    });
  }
}

void Weights::take_averages(const std::shared_ptr<Checkpoint>& from) {
  bool has_any = false;
  const auto& groups = from->manifest().groups;
  const auto optimizer = groups.find("optimizer");
  for (std::size_t i = 0; optimizer != groups.end() && i < tensors_.size(); ++i) {
    const auto found = std::find_if(
        optimizer->second.begin(), optimizer->second.end(),
        [&, name = tensors_[i].name + std::string(kAverage)](const StoredTensor& state) { return state.name == name; });
    if (found == optimizer->second.end()) continue;
    tensors_[i].type = found->type;
    readers_[i] = [from, &stored = *found](std::span<std::byte> into) {
      from->read("optimizer", {stored.name, stored.type, stored.shape, whole(stored.shape), into});
    };
    has_any = true;
  }
  if (has_any) return;
  throw DataError(Report{.what = fmt::format("{} has no average of its weights", path_.string()),
                         .got = "a run without one",
                         .fix = "train with --optim.ema_decay 0.999, or take the weights themselves"});
}

void Weights::take_pt(const fs::path& path) {
  kind_ = "a PyTorch file";
  const auto file = std::make_shared<format::PtFile>(path);
  if (!file->unreadable().empty()) {
    const format::PtUnreadable& first = file->unreadable().front();
    throw DataError(Report{.what = fmt::format("{}: {} cannot be read", path.string(), first.name),
                           .got = first.reason,
                           .expected = "tensors of types that safetensors files know",
                           .fix = "convert it in Python before it is saved"});
  }
  for (const format::PtTensor& tensor : file->tensors()) {
    tensors_.push_back({tensor.name, tensor.type, tensor.shape});
    readers_.emplace_back([file, &tensor](std::span<std::byte> into) { file->read(tensor, into); });
  }
}

}  // namespace reigen::checkpoint
