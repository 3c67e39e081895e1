#include "reigen/checkpoint/weights.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "checkpoint/directory.h"
#include "format/file_kind.h"
#include "format/input_file.h"
#include "reigen/format/pt_file.h"

namespace reigen::checkpoint {

namespace fs = std::filesystem;

namespace {

constexpr const char* kIndexes[] = {"model.safetensors.index.json", "pytorch_model.bin.index.json"};
constexpr const char* kModel = "model.safetensors";
constexpr const char* kPtModel = "pytorch_model.bin";
constexpr std::string_view kAverage = ".ema";  // the end of the name of a weight's average
constexpr std::uint64_t kIndexMax = std::uint64_t{256} << 20;

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

// Whether the name has an extension that is usual for files of torch.save.
bool is_pt_name(const fs::path& path) {
  for (const char* ending : {".pt", ".pth", ".bin", ".ckpt", ".tar", ".pkl"}) {
    if (path.extension() == ending) return true;
  }
  return false;
}

struct FolderKind {
  const char* file;  // a file that such a folder holds
  const char* what;
  const char* fix;
};
constexpr FolderKind kFolders[] = {
    {"data.pkl", "an unpacked file of PyTorch", "pack it again: cd FOLDER/.. && zip -r -0 new.pt FOLDER"},
    {".metadata", "a checkpoint of torch.distributed.checkpoint",
     "in Python: python -m torch.distributed.checkpoint.format_utils dcp_to_torch FOLDER new.pt"},
    {"saved_model.pb", "a SavedModel of TensorFlow", "write its tensors with safetensors in Python"},
    {"tf_model.h5", "a model of TensorFlow", "fetch model.safetensors or pytorch_model.bin of the same model"},
    {"flax_model.msgpack", "a model of Flax", "fetch model.safetensors or pytorch_model.bin of the same model"},
    {"zero_to_fp32.py", "a checkpoint of DeepSpeed", "python FOLDER/zero_to_fp32.py FOLDER new.bin"},
    {"model_index.json", "a pipeline of several models", "give the path of one of the folders in it"},
    {"snapshots", "an entry of Hugging Face's cache", "give the path of a folder in its snapshots/"},
};

// The error for a folder without weights: says what the folder is, and which files in it may be meant.
IoError of_folder_without_weights(const fs::path& path) {
  std::string got;
  std::string fix = "give the path of a file, of a folder of Hugging Face, or of a run";
  for (const FolderKind& kind : kFolders) {
    if (!is_there(path / kind.file)) continue;
    got = fmt::format("{} ('{}')", kind.what, kind.file);
    fix = kind.fix;
    break;
  }
  std::set<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(path, error), end; !error && it != end && names.size() < 1000; it.increment(error)) {
    if (it->path().extension() == ".safetensors" || is_pt_name(it->path()))
      names.insert(it->path().filename().string());
  }
  if (got.empty() && !names.empty()) {
    got = fmt::format("{}{}", *names.begin(), names.size() > 1 ? fmt::format(" and {} more", names.size() - 1) : "");
    fix = fmt::format("give the path of one file: {}", (path / *names.begin()).string());
  }
  return IoError(Report{.what = fmt::format("{} holds no weights", path.string()),
                        .got = got,
                        .expected = fmt::format("{}, {}, their parts with {} or {}, or checkpoints", kModel, kPtModel,
                                                kIndexes[0], kIndexes[1]),
                        .fix = fix},
                 ExitCode::kInputMissing);
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

bool is_model_folder(const fs::path& path) {
  for (const char* name : {kIndexes[0], kIndexes[1], kModel, kPtModel}) {
    if (is_there(path / name)) return true;
  }
  return false;
}

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

// Opens the checkpoint at `path` and verifies every byte. find_checkpoint() verifies only when it searches a directory,
// so a checkpoint that is named directly is verified here.
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
    } else if (is_there(path / kPtModel)) {
      take_pt(path / kPtModel);
    } else {
      throw of_folder_without_weights(path);
    }
  } else if (path.filename().string().ends_with(".index.json")) {
    take_index(path);
  } else {
    take_file(path);
  }
  sort();
}

bool Weights::has_averages(const fs::path& path) {
  const Checkpoint from(path);
  const auto optimizer = from.manifest().groups.find("optimizer");
  return optimizer != from.manifest().groups.end() &&
         std::any_of(optimizer->second.begin(), optimizer->second.end(),
                     [](const StoredTensor& state) { return state.name.ends_with(kAverage); });
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
  take_out(order);
  const auto by_name = [](const Unread& a, const Unread& b) { return a.name < b.name; };
  std::stable_sort(unreadable_.begin(), unreadable_.end(), by_name);
  std::stable_sort(objects_.begin(), objects_.end(), by_name);
}

// Keeps only the tensors whose numbers are in `order`, in this order.
void Weights::take_out(const std::vector<std::size_t>& order) {
  std::vector<TensorInfo> tensors;
  decltype(readers_) readers;
  for (const std::size_t i : order) {
    tensors.push_back(std::move(tensors_[i]));
    readers.push_back(std::move(readers_[i]));
  }
  tensors_ = std::move(tensors);
  readers_ = std::move(readers);
}

std::vector<std::string> Weights::unmatched(const Selection& selection) const {
  std::vector<std::string> result;
  for (const auto* beginnings : {&selection.only, &selection.skip}) {
    for (const std::string& begin : *beginnings) {
      const auto fits = [&](const auto& item) { return item.name.starts_with(begin); };
      const bool any = std::any_of(tensors_.begin(), tensors_.end(), fits) ||
                       std::any_of(unreadable_.begin(), unreadable_.end(), fits) ||
                       std::any_of(objects_.begin(), objects_.end(), fits);
      if (!any) result.push_back(begin);
    }
  }
  return result;
}

void Weights::select(const Selection& selection) {
  const auto is_left_out = [&](const auto& item) {
    const auto fits = [&](const std::string& begin) { return item.name.starts_with(begin); };
    const bool wanted = selection.only.empty() || std::any_of(selection.only.begin(), selection.only.end(), fits);
    return !wanted || std::any_of(selection.skip.begin(), selection.skip.end(), fits);
  };
  std::vector<std::size_t> kept;
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    if (!is_left_out(tensors_[i])) kept.push_back(i);
  }
  take_out(kept);
  std::erase_if(unreadable_, is_left_out);
  std::erase_if(objects_, is_left_out);
}

void Weights::require_readable() const {
  if (unreadable_.empty()) return;
  constexpr std::size_t kShown = 4;
  std::vector<std::string> names;
  for (const Unread& tensor : unreadable_) {
    if (names.size() == kShown) break;
    names.push_back(tensor.name);
  }
  throw DataError(Report{
      .what = fmt::format("{}: {}{} cannot be read", path_.string(), fmt::join(names, ", "),
                          unreadable_.size() > kShown ? fmt::format(" and {} more", unreadable_.size() - kShown) : ""),
      .got = unreadable_.front().what,
      .expected = "tensors of types that safetensors files know",
      .fix = fmt::format(
          "leave it out (import and diff take --skip {}), or convert it where it was made before it is saved: "
          "tensor.to(torch.float32), in C++ tensor.to(torch::kFloat32)",
          unreadable_.front().name)});
}

const TensorInfo* Weights::find(std::string_view name) const {
  const auto found =
      std::lower_bound(tensors_.begin(), tensors_.end(), name,
                       [](const TensorInfo& tensor, std::string_view word) { return tensor.name < word; });
  return found != tensors_.end() && found->name == name ? &*found : nullptr;
}

void Weights::read(const std::string& name, std::span<std::byte> into) const {
  const TensorInfo* tensor = find(name);
  for (const Unread& other : unreadable_) {
    if (tensor == nullptr && other.name == name) {
      throw DataError(Report{.what = fmt::format("{}: {} cannot be read", path_.string(), name), .got = other.what});
    }
  }
  if (tensor == nullptr) throw DataError(fmt::format("{} has no tensor {}", path_.string(), name));
  REIGEN_CHECK(into.size() == tensor->bytes(), "{} has {} bytes, not {}", name, tensor->bytes(), into.size());
  readers_[static_cast<std::size_t>(tensor - tensors_.data())](into);
}

void Weights::verify() const {
  for (const auto& verify : verifiers_) verify();
  std::vector<std::byte> bytes;
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    bytes.resize(static_cast<std::size_t>(tensors_[i].bytes()));
    readers_[i](bytes);
  }
}

// The beginning of a file decides which reader takes it. If the beginning fits no reader, the reader that the file's
// name suggests takes the file, and throws an error that says what the file is.
void Weights::take_file(const fs::path& path) {
  const format::InputFile file(path);
  if (format::begins_as_zip(file) || format::begins_as_pickle(file)) return take_pt(path);
  if (format::begins_as_safetensors(file) || !is_pt_name(path)) return take_safetensors(path);
  take_pt(path);
}

void Weights::take_meaning(const std::map<std::string, std::string>& from) {
  for (const auto& [key, value] : from) {
    if (key.starts_with(kMeaning)) metadata_[key] = value;
  }
}

void Weights::take_safetensors(const fs::path& path) {
  kind_ = "a safetensors file";
  const auto file = std::make_shared<format::SafetensorsFile>(path);
  take_meaning(file->metadata());
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

// Takes all tensors of every file that the index names. The index says which file has which tensor, and must agree with
// the files.
void Weights::take_pt_parts(const fs::path& path, const std::map<std::string, std::string>& index) {
  std::set<std::string> names;
  for (const auto& [tensor, name] : index) names.insert(name);
  std::map<std::string, std::string> found;
  for (const std::string& name : names) {
    const std::size_t first = tensors_.size();
    const std::size_t first_unreadable = unreadable_.size();
    take_pt(path.parent_path() / name);
    const auto note = [&](const std::string& tensor) {
      const auto [place, is_new] = found.emplace(tensor, name);
      if (is_new) return;
      throw DataError(fmt::format("{}: {} is in {} and in {}", path.string(), tensor, place->second, name));
    };
    for (std::size_t i = first; i < tensors_.size(); ++i) note(tensors_[i].name);
    for (std::size_t i = first_unreadable; i < unreadable_.size(); ++i) note(unreadable_[i].name);
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
  take_meaning(from->manifest().options);
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
      from->read(group, {stored.name, stored.type, stored.shape, layout::whole(stored.shape), into});
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
      from->read("optimizer", {stored.name, stored.type, stored.shape, layout::whole(stored.shape), into});
    };
    has_any = true;
  }
  if (has_any) return;
  throw DataError(Report{.what = fmt::format("{} has no average of its weights", path_.string()),
                         .got = "a run without one",
                         .fix = "train with --optim.ema_decay 0.999, or take the weights themselves"});
}

void Weights::take_pt(const fs::path& path) {
  const auto file = std::make_shared<format::PtFile>(path);
  kind_ = file->is_script() ? "a file of C++'s torch::save or of TorchScript" : "a PyTorch file";
  for (const format::PtUnreadable& tensor : file->unreadable()) unreadable_.push_back({tensor.name, tensor.reason});
  for (const format::PtObject& object : file->objects()) objects_.push_back({object.name, object.type});
  verifiers_.emplace_back([file] { file->verify(); });
  for (const format::PtTensor& tensor : file->tensors()) {
    tensors_.push_back({tensor.name, tensor.type, tensor.shape});
    readers_.emplace_back([file, &tensor](std::span<std::byte> into) { file->read(tensor, into); });
  }
}

}  // namespace reigen::checkpoint
