#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <system_error>

#include "format/input_file.h"
#include "models/hugging_face_parts.h"
#include "reigen/base/error.h"
#include "reigen/checkpoint/weights.h"
#include "reigen/format/atomic_file.h"
#include "reigen/format/safetensors.h"
#include "reigen/nn/without_memory.h"
#include "tensor/stored_type.h"

namespace reigen::models {

namespace {

namespace fs = std::filesystem;

// Where a parameter of the model is in the folder.
struct Place {
  std::string own;   // the name in the model
  std::string name;  // transformers' name
  at::Tensor tensor;
  bool is_transposed = false;  // GPT-2's linear layers are Conv1D, whose weight is [in, out]

  std::vector<std::int64_t> shape() const {
    return is_transposed ? std::vector<std::int64_t>{tensor.size(1), tensor.size(0)} : tensor.sizes().vec();
  }
};

std::vector<Place> places_of(const Llama& model) {
  std::vector<Place> places;
  for (const auto& item : model.named_parameters()) {
    if (model.options().tied && item.key() == "lm_head.weight") continue;  // the file has the common weight once
    places.push_back({.own = item.key(), .name = item.key(), .tensor = item.value().detach()});
  }
  return places;
}

std::string name_in_gpt2(const std::string& name) {
  static const std::map<std::string, std::string> kNames = {{"embed.tok", "transformer.wte"},
                                                            {"embed.pos", "transformer.wpe"},
                                                            {"head.norm", "transformer.ln_f"},
                                                            {"head.linear", "lm_head"},
                                                            {"n1", "ln_1"},
                                                            {"n2", "ln_2"},
                                                            {"qkv", "attn.c_attn"},
                                                            {"out", "attn.c_proj"},
                                                            {"up", "mlp.c_fc"},
                                                            {"down", "mlp.c_proj"}};
  const std::size_t dot = name.rfind('.');
  const std::string layer = name.substr(0, dot);
  const std::string kind = name.substr(dot);
  const auto found = kNames.find(layer);
  if (found != kNames.end()) return found->second + kind;
  const std::size_t part = layer.rfind('.');  // blocks.N.part
  const std::size_t number = layer.find('.') + 1;
  return fmt::format("transformer.h.{}.{}{}", layer.substr(number, part - number), kNames.at(layer.substr(part + 1)),
                     kind);
}

std::vector<Place> places_of(const Gpt& model) {
  std::vector<Place> places;
  for (const auto& item : model.named_parameters()) {
    const std::string& name = item.key();
    if (model.options().tied && name == "head.linear.weight") continue;
    const bool is_linear = name.starts_with("blocks.") && item.value().dim() == 2;
    places.push_back(
        {.own = name, .name = name_in_gpt2(name), .tensor = item.value().detach(), .is_transposed = is_linear});
  }
  return places;
}

// Tensors that older versions of transformers saved and that hold nothing that was learned: the mask of attention and
// the rotary frequencies. A tied last layer may be saved too.
bool says_nothing(const std::string& name, bool is_tied) {
  return name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias") ||
         name.ends_with(".rotary_emb.inv_freq") || (is_tied && name == "lm_head.weight");
}

[[noreturn]] void refuse(const checkpoint::Weights& weights, const std::string& what, const std::string& got,
                         const std::string& expected) {
  throw DataError(Report{.what = fmt::format("'{}': {}", weights.path().string(), what),
                         .got = got,
                         .expected = expected,
                         .fix = "use the weights that belong to this config.json"});
}

void load(const fs::path& folder, const std::vector<Place>& places, bool is_tied, const std::string& prefix) {
  const checkpoint::Weights weights(folder);
  weights.require_readable();
  // The base model without its head has names without the prefix.
  const auto bare = [&](const std::string& name) {
    return name.starts_with(prefix) && weights.find(name) == nullptr ? name.substr(prefix.size()) : name;
  };
  std::map<std::string, bool> used;
  std::vector<std::string> names;
  for (const Place& place : places) {
    const std::string name = prefix.empty() ? place.name : bare(place.name);
    const checkpoint::TensorInfo* found = weights.find(name);
    if (found == nullptr) refuse(weights, fmt::format("no tensor {}", place.name), "none", "one for each weight");
    if (!nn::has_no_memory(place.tensor) && found->shape != place.shape()) {
      refuse(weights, fmt::format("the tensor {} has another shape", name),
             fmt::format("[{}]", fmt::join(found->shape, ", ")), fmt::format("[{}]", fmt::join(place.shape(), ", ")));
    }
    used[name] = true;
    names.push_back(name);
  }
  for (const checkpoint::TensorInfo& one : weights.tensors()) {
    if (!used.contains(one.name) && !says_nothing(one.name, is_tied)) {
      refuse(weights, fmt::format("the tensor {} has no place in the model", one.name),
             fmt::format("[{}]", fmt::join(one.shape, ", ")), "only weights of the model");
    }
  }
  for (std::size_t i = 0; i < places.size(); ++i) {
    if (nn::has_no_memory(places[i].tensor)) continue;
    const checkpoint::TensorInfo& found = *weights.find(names[i]);
    const at::ScalarType type = tensor::scalar_type_of(names[i], found.type);
    const at::Tensor& own = places[i].tensor;
    const bool is_as_stored =
        !places[i].is_transposed && own.scalar_type() == type && own.is_contiguous() && own.device().is_cpu();
    const at::Tensor stored = is_as_stored ? own : at::empty(places[i].shape(), type);
    weights.read(names[i], {static_cast<std::byte*>(stored.data_ptr()), static_cast<std::size_t>(found.bytes())});
    if (!is_as_stored) own.copy_(places[i].is_transposed ? stored.t() : stored);
  }
}

constexpr int kWriter = 0;  // of the ranks that divide the model

// The values as the file has them, on the rank that writes. For a divided tensor the other ranks call gather().
at::Tensor whole_values(const Place& place, const parallel::TensorParallel& divided) {
  const bool is_part = divided.divides(place.own);
  const at::Tensor whole = is_part ? divided.gather(place.own, place.tensor, kWriter) : place.tensor;
  return (place.is_transposed ? whole.t() : whole).cpu().contiguous();
}

std::vector<std::int64_t> whole_shape(const Place& place, const parallel::TensorParallel& divided) {
  std::vector<std::int64_t> shape = place.shape();
  if (!divided.divides(place.own)) return shape;
  shape = divided.whole_shape(place.own);
  if (place.is_transposed) std::reverse(shape.begin(), shape.end());
  return shape;
}

void require_memory(const std::vector<Place>& places) {
  const auto found =
      std::find_if(places.begin(), places.end(), [](const Place& place) { return nn::has_no_memory(place.tensor); });
  if (found == places.end()) return;
  throw InvalidArgument(Report{.what = "[save_hugging_face] this rank does not have a weight",
                               .got = found->own,
                               .expected = "a model whose weights are whole, or divided by parallelize() only",
                               .fix = "call gather_weights() of data_parallel() before, or load a checkpoint into "
                                      "a model without stages"});
}

// What the file holds, in the order of its bytes. All ranks gather in this order.
std::vector<format::TensorEntry> entries_of(const std::vector<Place>& places, const parallel::TensorParallel& divided) {
  std::vector<format::TensorEntry> entries;
  for (const Place& place : places) {
    entries.push_back({.name = place.name,
                       .type = tensor::stored_type(place.name, place.tensor.scalar_type()),
                       .shape = whole_shape(place, divided)});
  }
  return format::in_file_order(std::move(entries));
}

const Place& place_of(const std::vector<Place>& places, const std::string& name) {
  return *std::find_if(places.begin(), places.end(), [&](const Place& place) { return place.name == name; });
}

void write_weights(const fs::path& folder, const std::vector<Place>& places, const parallel::TensorParallel& divided) {
  format::SafetensorsWriter writer(folder / "model.safetensors", entries_of(places, divided), {{"format", "pt"}});
  for (const format::TensorEntry& entry : writer.tensors()) {
    const at::Tensor values = whole_values(place_of(places, entry.name), divided);
    writer.write({static_cast<const std::byte*>(values.const_data_ptr()), static_cast<std::size_t>(entry.bytes)});
  }
  writer.commit();
}

template <class Model>
void write_folder(const fs::path& folder, const Model& model, const std::vector<Place>& places,
                  const HuggingFaceFiles& files) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) {
    throw IoError(Report{.what = fmt::format("cannot make the folder '{}'", folder.string()),
                         .got = error.message(),
                         .fix = "choose another folder"},
                  error == std::errc::permission_denied ? ExitCode::kPermission : ExitCode::kIo);
  }
  write_weights(folder, places, files.divided);
  if (!files.tokenizer.empty()) {
    const std::string content = format::read_text(files.tokenizer);
    format::write_file_atomically(folder / "tokenizer.json", std::string_view(content));
  }
  write_config(folder, model.options(), places.front().tensor.scalar_type(), files);
}

// Whether this rank has a part of the weights of which the first rank of the mesh has another part.
bool is_in_first_region(const parallel::TensorParallel& divided) {
  const mesh::Mesh& mesh = divided.mesh();
  const std::vector<int> here = mesh.coordinates_of(mesh.world().rank());
  for (std::size_t i = 0; i < here.size(); ++i) {
    if (mesh.axes()[i].name != divided.axis() && here[i] != 0) return false;
  }
  return true;
}

template <class Model>
void save(const fs::path& folder, const Model& model, const HuggingFaceFiles& files) {
  const std::vector<Place> places = places_of(model);
  require_memory(places);
  if (!files.divided) return write_folder(folder, model, places, files);
  const Communicator& world = files.divided.mesh().world();
  if (world.rank() == 0) {
    try {
      write_folder(folder, model, places, files);
    } catch (const Error& error) {
      if (world.size() > 1) world.abort(error.what());
      throw;
    }
  } else if (is_in_first_region(files.divided)) {
    for (const format::TensorEntry& entry : entries_of(places, files.divided)) {
      const Place& place = place_of(places, entry.name);
      if (files.divided.divides(place.own)) files.divided.gather(place.own, place.tensor, kWriter);
    }
  }
  world.barrier({.tag = "save_hugging_face"});  // after it the folder can be read on every rank
}

}  // namespace

void load_hugging_face(const fs::path& folder, Llama& model) {
  load(folder, places_of(model), model.options().tied, "");
}
void load_hugging_face(const fs::path& folder, Gpt& model) {
  load(folder, places_of(model), model.options().tied, "transformer.");
}

void save_hugging_face(const fs::path& folder, const Llama& model, const HuggingFaceFiles& files) {
  save(folder, model, files);
}
void save_hugging_face(const fs::path& folder, const Gpt& model, const HuggingFaceFiles& files) {
  save(folder, model, files);
}

}  // namespace reigen::models
