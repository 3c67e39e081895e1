#include "reigen/models/hugging_face.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <malloc.h>

#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>

#include "comm/agree.h"
#include "format/temporary_folder.h"
#include "harness/ranks.h"
#include "reigen/base/error.h"
#include "reigen/format/safetensors.h"
#include "reigen/mesh/mesh.h"
#include "reigen/models/tensor_plan.h"
#include "reigen/nn/without_memory.h"
#include "reigen/parallel/data_parallel.h"
#include "reigen/parallel/tensor_parallel.h"
#include "reigen/tensor/tensor_files.h"

namespace reigen::models::hugging_face_test {
namespace {

using nlohmann::json;
using parallel::Shard;
using ::testing::AllOf;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

const LlamaOptions kLlama = {.vocab = 19,
                             .layers = 2,
                             .dim = 16,
                             .heads = 4,
                             .kv_heads = 2,
                             .hidden = 24,
                             .context = 8,
                             .theta = 5000,
                             .norm_eps = 1e-6};
const GptOptions kGpt = {.vocab = 19, .layers = 2, .dim = 12, .heads = 3, .context = 8};

template <class Model, class Options>
Model make(const Options& options, at::ScalarType type = at::kDouble) {
  Model model(options);
  model.to(type);
  model.initialize(4);
  for (const at::Tensor& parameter : model.parameters()) parameter.detach().add_(at::rand_like(parameter), 0.1);
  return model;
}

at::Tensor some_tokens() { return at::arange(14, at::kLong).view({2, 7}); }

template <class Model, class Options>
void expect_round_trip(const Options& options, at::ScalarType type) {
  const tests::TemporaryFolder folder;
  Model model = make<Model>(options, type);
  save_hugging_face(folder.path() / "a", model, {.bos = 1, .eos = {2, 3}});
  const HuggingFaceConfig config = read_hugging_face_config(folder.path() / "a");
  EXPECT_EQ(config.type, type);
  EXPECT_EQ(config.bos, 1);
  EXPECT_EQ(config.eos, (std::vector<std::int64_t>{2, 3}));
  Model again(std::get<Options>(config.model));
  again.to(config.type);
  load_hugging_face(folder.path() / "a", again);
  EXPECT_TRUE(at::equal(model.forward(some_tokens()), again.forward(some_tokens())));
  save_hugging_face(folder.path() / "b", again, {.bos = 1, .eos = {2, 3}});
  for (const char* name : {"model.safetensors", "config.json"}) {
    EXPECT_TRUE(tests::content_of(folder.path() / "a" / name) == tests::content_of(folder.path() / "b" / name)) << name;
  }
}

TEST(HuggingFace, WhatIsSavedIsLoadedWithTheSameBytes) {
  for (const auto type : {at::kDouble, at::kFloat, at::kBFloat16}) {
    expect_round_trip<Llama>(kLlama, type);
    expect_round_trip<Gpt>(kGpt, type);
  }
  LlamaOptions tied_llama = kLlama;
  tied_llama.tied = true;
  expect_round_trip<Llama>(tied_llama, at::kDouble);
  GptOptions tied_gpt = kGpt;
  tied_gpt.tied = tied_gpt.tanh_gelu = true;
  expect_round_trip<Gpt>(tied_gpt, at::kDouble);
}

// Four ranks divide a model that was made without memory; two groups of them share it.
template <class Model, class Options>
void expect_divided_round_trip(const Options& options, Shard shard) {
  const tests::TemporaryFolder folder;
  save_hugging_face(folder.path() / "a", make<Model>(options, at::kFloat), {.bos = 1, .eos = {2}});
  testing::run_ranks({.ranks = 8}, [&](testing::Rank& rank) {
    const Mesh mesh(rank.world(), {{"dp_shard", mesh::kRest}, {"tp", 4}});
    std::optional<nn::WithoutMemory> without(std::in_place);
    Model model(options);
    without.reset();
    const auto divided = parallelize(model, mesh, tensor_plan(model.options()));
    auto wrapped = data_parallel(model, rank.world(),
                                 {.shard = shard,
                                  .initialize = [&] { load_hugging_face(folder.path() / "a", model); },
                                  .tensor_parallel = divided});
    wrapped.gather_weights();
    save_hugging_face(folder.path() / "b", model, {.bos = 1, .eos = {2}, .divided = divided});
  });
  for (const char* name : {"model.safetensors", "config.json"}) {
    EXPECT_TRUE(tests::content_of(folder.path() / "a" / name) == tests::content_of(folder.path() / "b" / name)) << name;
  }
}

TEST(HuggingFace, RanksThatDivideAModelLoadAndSaveTheSameBytes) {
  LlamaOptions llama = kLlama;
  llama.kv_heads = 4;
  GptOptions gpt = kGpt;
  gpt.dim = 16;
  gpt.heads = 4;
  GptOptions tied = gpt;
  tied.tied = true;
  for (const Shard shard : {Shard::kNone, Shard::kGradients, Shard::kParameters}) {
    SCOPED_TRACE(to_text(shard));
    expect_divided_round_trip<Llama>(llama, shard);
    expect_divided_round_trip<Gpt>(gpt, shard);
    expect_divided_round_trip<Gpt>(tied, shard);
  }
}

// The number of KiB that /proc says of this process.
std::int64_t kib_of(const std::string& word) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(word)) return std::stoll(line.substr(word.size()));
  }
  return -1;
}

// The model is larger than a rank's part and two of its tensors together, and no rank takes more memory than these.
TEST(HuggingFace, ARankThatLoadsAndSavesItsPartTakesMemoryForItAndTwoTensorsAtMost) {
  const LlamaOptions options = {
      .vocab = 16000, .layers = 8, .dim = 256, .heads = 4, .kv_heads = 4, .hidden = 1024, .context = 8};
  constexpr std::int64_t kLargest = 16000 * 256 * 4 / 1024;  // KiB of one tensor
  testing::run_ranks({.ranks = 4, .kind = testing::RankKind::kProcesses}, [&](testing::Rank& rank) {
    const Communicator& world = rank.world();
    std::optional<tests::TemporaryFolder> folder;
    const fs::path path = comm::attempt_first(world, "folder", [&] {
      folder.emplace();
      Llama model(options);
      model.initialize(4);
      save_hugging_face(folder->path() / "a", model);
      return folder->path().string();
    });
    const auto weights_of = [](const fs::path& of) { return of / "model.safetensors"; };
    const auto size = static_cast<std::int64_t>(fs::file_size(weights_of(path / "a"))) / 1024;
    const Mesh mesh(world, {{"tp", 4}});
    malloc_trim(0);                                 // the first rank had the whole model
    std::ofstream("/proc/self/clear_refs") << "5";  // VmHWM begins anew
    const std::int64_t before = kib_of("VmRSS:");
    std::optional<nn::WithoutMemory> without(std::in_place);
    Llama model(options);
    without.reset();
    const auto divided = parallelize(model, mesh, tensor_plan(options));
    const auto wrapped = data_parallel(
        model, world, {.initialize = [&] { load_hugging_face(path / "a", model); }, .tensor_parallel = divided});
    save_hugging_face(path / "b", model, {.divided = divided});
    const std::int64_t most = size / 4 + 2 * kLargest;
    EXPECT_LT(most, size);
    EXPECT_LE(kib_of("VmHWM:") - before, most) << "KiB on rank " << rank.rank();
    if (rank.rank() == 0) {
      EXPECT_TRUE(tests::content_of(weights_of(path / "a")) == tests::content_of(weights_of(path / "b")));
      std::printf("took %ld of %ld KiB\n", kib_of("VmHWM:") - before, most);
    }
    world.barrier();
  });
}

TEST(HuggingFace, InitializeIsRefusedForDividedWeightsWithMemory) {
  testing::run_ranks({.ranks = 2}, [&](testing::Rank& rank) {
    const Mesh mesh(rank.world(), {{"tp", 2}});
    Llama model(kLlama);
    const auto divided = parallelize(model, mesh, tensor_plan(model.options()));
    try {
      data_parallel(model, rank.world(), {.initialize = [&] { model.initialize(1); }, .tensor_parallel = divided});
      ADD_FAILURE() << "accepted";
    } catch (const InvalidArgument& error) {
      EXPECT_THAT(error.what(), HasSubstr("has memory already"));
    }
  });
}

TEST(HuggingFace, TensorsHaveTheNamesAndShapesOfTransformers) {
  const tests::TemporaryFolder folder;
  save_hugging_face(folder.path(), make<Gpt>(kGpt));
  const format::SafetensorsFile file(folder.path() / "model.safetensors");
  EXPECT_EQ(file.metadata().at("format"), "pt");
  EXPECT_EQ(file.at("transformer.h.1.attn.c_attn.weight").shape, (std::vector<std::int64_t>{12, 36}));
  EXPECT_EQ(file.at("transformer.h.0.mlp.c_fc.weight").shape, (std::vector<std::int64_t>{12, 48}));
  EXPECT_EQ(file.at("transformer.wpe.weight").shape, (std::vector<std::int64_t>{8, 12}));
  EXPECT_EQ(file.at("lm_head.weight").shape, (std::vector<std::int64_t>{19, 12}));
  GptOptions tied = kGpt;
  tied.tied = true;
  save_hugging_face(folder.path() / "tied", make<Gpt>(tied));
  EXPECT_EQ(format::SafetensorsFile(folder.path() / "tied/model.safetensors").find("lm_head.weight"), nullptr);
}

// The folder's weights, changed and written again.
void rewrite(const fs::path& folder, const std::function<void(std::vector<tensor::NamedTensor>&)>& change) {
  auto tensors = tensor::read_tensors(folder / "model.safetensors");
  change(tensors);
  tensor::write_tensors(folder / "model.safetensors", tensors, {{"format", "pt"}});
}

TEST(HuggingFace, ReadsPartsAndOlderNames) {
  const tests::TemporaryFolder folder;
  Gpt model = make<Gpt>(kGpt);
  save_hugging_face(folder.path(), model);
  // As the published GPT-2 has them: no prefix, and the masks of attention.
  rewrite(folder.path(), [](auto& tensors) {
    for (auto& one : tensors) {
      if (one.name.starts_with("transformer.")) one.name = one.name.substr(12);
    }
    tensors.push_back({"h.0.attn.bias", at::ones({1, 1, 8, 8})});
  });
  Gpt again(kGpt);
  again.to(at::kDouble);
  load_hugging_face(folder.path(), again);
  EXPECT_TRUE(at::equal(model.forward(some_tokens()), again.forward(some_tokens())));

  // Two files and an index.
  const auto tensors = tensor::read_tensors(folder.path() / "model.safetensors");
  json index = {{"metadata", json::object()}, {"weight_map", json::object()}};
  std::vector<tensor::NamedTensor> parts[2];
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    parts[i % 2].push_back(tensors[i]);
    index["weight_map"][tensors[i].name] = i % 2 == 0 ? "one.safetensors" : "two.safetensors";
  }
  tensor::write_tensors(folder.path() / "one.safetensors", parts[0]);
  tensor::write_tensors(folder.path() / "two.safetensors", parts[1]);
  folder.write("model.safetensors.index.json", index.dump());
  fs::remove(folder.path() / "model.safetensors");
  Gpt of_parts(kGpt);
  of_parts.to(at::kDouble);
  load_hugging_face(folder.path(), of_parts);
  EXPECT_TRUE(at::equal(model.forward(some_tokens()), of_parts.forward(some_tokens())));
}

TEST(HuggingFace, WeightsThatDoNotFitAreNamed) {
  const tests::TemporaryFolder folder;
  Llama model = make<Llama>(kLlama);
  const auto refusal_after = [&](const std::function<void(std::vector<tensor::NamedTensor>&)>& change) {
    save_hugging_face(folder.path(), model);
    rewrite(folder.path(), change);
    try {
      load_hugging_face(folder.path(), model);
    } catch (const DataError& error) {
      return std::string(error.what());
    }
    return std::string("loaded");
  };
  EXPECT_THAT(refusal_after([](auto& tensors) { tensors.pop_back(); }), HasSubstr("no tensor "));
  EXPECT_THAT(refusal_after([](auto& tensors) {
                tensors.push_back({"model.more.weight", at::ones({2})});
              }),
              HasSubstr("model.more.weight has no place"));
  EXPECT_THAT(refusal_after([](auto& tensors) {
                tensors[0].tensor = at::ones({2, 3});
              }),
              AllOf(HasSubstr("another shape"), HasSubstr("[2, 3]")));
  EXPECT_EQ(refusal_after([](auto& tensors) {
              tensors.push_back({"model.layers.0.self_attn.rotary_emb.inv_freq", at::ones({2})});
            }),
            "loaded");
}

std::string refusal_of(const tests::TemporaryFolder& folder, const json& config) {
  folder.write("config.json", config.dump());
  try {
    read_hugging_face_config(folder.path());
  } catch (const DataError& error) {
    return error.what();
  }
  return "read without complaint";
}

TEST(HuggingFace, NamesWhatTheModelsDoNotHave) {
  const tests::TemporaryFolder folder;
  const json llama = {{"model_type", "llama"},    {"vocab_size", 8},        {"hidden_size", 8},
                      {"num_attention_heads", 2}, {"num_hidden_layers", 1}, {"intermediate_size", 8},
                      {"torch_dtype", "bfloat16"}};
  const json gpt = {{"model_type", "gpt2"}, {"n_embd", 8}, {"n_head", 2}};
  EXPECT_EQ(refusal_of(folder, llama), "read without complaint");
  EXPECT_EQ(refusal_of(folder, gpt), "read without complaint");
  const struct {
    json config;
    const char* key;
    json value;
  } kCases[] = {
      {llama, "model_type", "mistral"},
      {llama, "rope_scaling", {{"rope_type", "llama3"}, {"factor", 8}}},
      {llama, "rope_scaling", {{"type", "linear"}, {"factor", 2}}},
      {llama, "rope_parameters", {{"rope_type", "yarn"}}},
      {llama, "hidden_act", "gelu"},
      {llama, "attention_bias", true},
      {llama, "mlp_bias", true},
      {llama, "sliding_window", 128},
      {llama, "pretraining_tp", 2},
      {llama, "head_dim", 16},
      {llama, "quantization_config", {{"bits", 4}}},
      {llama, "num_key_value_heads", "two"},
      {llama, "hidden_size", 0},
      {llama, "torch_dtype", "float8_e4m3fn"},
      {llama, "something_new", 1},
      {gpt, "activation_function", "relu"},
      {gpt, "layer_norm_epsilon", 1e-6},
      {gpt, "n_inner", 20},
      {gpt, "scale_attn_weights", false},
      {gpt, "scale_attn_by_inverse_layer_idx", true},
      {gpt, "reorder_and_upcast_attn", true},
      {gpt, "add_cross_attention", true},
      {gpt, "rope_theta_2", 5},
  };
  for (const auto& one : kCases) {
    json config = one.config;
    config[one.key] = one.value;
    EXPECT_THAT(refusal_of(folder, config), AllOf(HasSubstr(one.key), HasSubstr("fix: "))) << config;
  }
}

TEST(HuggingFace, DefaultsAreThoseOfTransformers) {
  const tests::TemporaryFolder folder;
  folder.write("config.json", R"({"model_type": "gpt2"})");
  const auto gpt = std::get<GptOptions>(read_hugging_face_config(folder.path()).model);
  EXPECT_EQ(gpt.vocab, 50257);
  EXPECT_EQ(gpt.dim, 768);
  EXPECT_TRUE(gpt.tied && gpt.tanh_gelu);
  folder.write("config.json", R"({"model_type": "llama", "num_attention_heads": 8, "hidden_size": 64})");
  const auto llama = std::get<LlamaOptions>(read_hugging_face_config(folder.path()).model);
  EXPECT_EQ(llama.kv_heads, 8);
  EXPECT_EQ(llama.norm_eps, 1e-6);
  EXPECT_FALSE(llama.tied);
  folder.write("config.json",
               R"({"model_type": "llama", "rope_parameters": {"rope_type": "default", "rope_theta": 7}})");
  EXPECT_EQ(std::get<LlamaOptions>(read_hugging_face_config(folder.path()).model).theta, 7);
  folder.write("generation_config.json", R"({"eos_token_id": [5, 6]})");
  EXPECT_EQ(read_hugging_face_config(folder.path()).eos, (std::vector<std::int64_t>{5, 6}));
  EXPECT_THROW(read_hugging_face_config(folder.path() / "nowhere"), IoError);
  folder.write("config.json", "[]");
  EXPECT_THROW(read_hugging_face_config(folder.path()), DataError);
}

}  // namespace
}  // namespace reigen::models::hugging_face_test
