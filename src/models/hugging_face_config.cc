#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string>
#include <system_error>

#include "format/byte_stream.h"
#include "format/json/json_part.h"
#include "models/hugging_face_parts.h"
#include "reigen/base/bytes.h"
#include "reigen/base/error.h"
#include "reigen/format/atomic_file.h"

namespace reigen::models {

namespace {

namespace fs = std::filesystem;
using format::JsonPart;
using nlohmann::json;

constexpr const char* kFixOfConfig = "use a model of the form of Llama 2 or GPT-2 (docs/hugging_face.md)";
constexpr std::size_t kMostConfig = 16 * kMiB;

// Entries that change no score: how a model was made, how it is used, and what every configuration of transformers has.
constexpr std::array<std::string_view, 76> kWithoutEffect = {
    "_name_or_path", "architectures", "attention_dropout", "attn_pdrop", "bad_words_ids", "begin_suppress_tokens",
    "bos_token_id", "chunk_size_feed_forward", "cross_attention_hidden_size", "decoder_start_token_id",
    "diversity_penalty", "do_sample", "dtype", "early_stopping", "embd_pdrop", "encoder_no_repeat_ngram_size",
    "eos_token_id", "exponential_decay_length_penalty", "finetuning_task", "forced_bos_token_id", "forced_eos_token_id",
    "id2label", "initializer_range", "is_decoder", "is_encoder_decoder", "keys_to_ignore_at_inference", "label2id",
    "length_penalty", "max_length", "min_length", "model_type", "n_ctx", "no_repeat_ngram_size", "num_beam_groups",
    "num_beams", "num_return_sequences", "output_attentions", "output_hidden_states", "output_scores", "pad_token_id",
    "prefix", "problem_type", "remove_invalid_values", "repetition_penalty", "resid_pdrop", "return_dict",
    "return_dict_in_generate", "sep_token_id", "summary_activation", "summary_first_dropout", "summary_proj_to_labels",
    "summary_type", "summary_use_proj", "suppress_tokens", "task_specific_params", "temperature", "tf_legacy_loss",
    "tokenizer_class", "top_k", "top_p", "torch_dtype", "torchscript", "transformers_version", "typical_p",
    "unk_token_id", "use_bfloat16", "use_cache",
    // read by name below
    "vocab_size", "tie_word_embeddings", "pretraining_tp", "quantization_config", "pruned_heads", "add_cross_attention",
    "head_dim", "rope_theta", "rope_parameters"};

json read_json(const fs::path& path) {
  format::ByteStream stream(path);
  std::string content(kMostConfig, '\0');
  content.resize(stream.read(std::as_writable_bytes(std::span(content.data(), content.size()))));
  return format::parse_json(content, fmt::format("'{}'", path.string()));
}

std::int64_t whole(const JsonPart& config, const char* key, std::int64_t missing) {
  const JsonPart part = config.at(key);
  if (part.is_null() && missing > 0) return missing;
  const std::int64_t number = part.number();
  if (number < 1) part.refuse("a number of at least 1");
  return number;
}

double positive(const JsonPart& config, const char* key, double missing) {
  const JsonPart part = config.at(key);
  const double number = part.is_null() ? missing : part.real();
  if (!(number > 0)) part.refuse("a number above 0");
  return number;
}

void require_off(const JsonPart& config, std::initializer_list<const char*> keys) {
  for (const char* key : keys) {
    if (config.at(key).flag()) config.at(key).refuse("false");
  }
}

void require_none(const JsonPart& config, std::initializer_list<const char*> keys) {
  for (const char* key : keys) {
    const json& value = config.at(key).value();
    if (!value.is_null() && !value.empty()) config.at(key).refuse("null");
  }
}

// Refuses entries that neither this file reads nor `own` names. Null says nothing.
void require_known(const JsonPart& config, std::initializer_list<std::string_view> own) {
  for (const auto& [key, part] : config.members()) {
    const bool known = std::find(own.begin(), own.end(), key) != own.end() ||
                       std::find(kWithoutEffect.begin(), kWithoutEffect.end(), key) != kWithoutEffect.end();
    if (!known && !part.is_null()) part.refuse("an entry that is known");
  }
}

// The base of the rotary angles: rope_theta, or with transformers 5 in rope_parameters.
double theta_of(const JsonPart& config) {
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const JsonPart scaling = config.at(key);
    if (scaling.is_null()) continue;
    const std::string type = scaling.at("rope_type").text(scaling.at("type").text("default"));
    if (type != "default") scaling.refuse("no scaling of rotary positions (rope_type default)");
    scaling.allow({"rope_type", "type", "rope_theta", "partial_rotary_factor"});
    const JsonPart part = scaling.at("partial_rotary_factor");
    if (!part.is_null() && part.real() != 1) part.refuse("1");
    if (!scaling.at("rope_theta").is_null()) return positive(scaling, "rope_theta", 10000);
  }
  return positive(config, "rope_theta", 10000);
}

LlamaOptions llama_of(const JsonPart& config) {
  require_known(config,
                {"hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
                 "max_position_embeddings", "rms_norm_eps", "hidden_act", "attention_bias", "mlp_bias", "rope_scaling",
                 "sliding_window", "rope_interleaved", "partial_rotary_factor"});
  require_off(config, {"attention_bias", "mlp_bias", "rope_interleaved"});
  require_none(config, {"sliding_window"});
  if (config.at("hidden_act").text("silu") != "silu") config.at("hidden_act").refuse("silu");
  const JsonPart parts = config.at("pretraining_tp");
  if (!parts.is_null() && parts.number() != 1) parts.refuse("1");
  const JsonPart turned = config.at("partial_rotary_factor");
  if (!turned.is_null() && turned.real() != 1) turned.refuse("1");
  LlamaOptions options;
  options.vocab = whole(config, "vocab_size", 32000);
  options.dim = whole(config, "hidden_size", 4096);
  options.hidden = whole(config, "intermediate_size", 11008);
  options.layers = whole(config, "num_hidden_layers", 32);
  options.heads = whole(config, "num_attention_heads", 32);
  options.kv_heads = whole(config, "num_key_value_heads", options.heads);
  options.context = whole(config, "max_position_embeddings", 2048);
  options.theta = theta_of(config);
  options.norm_eps = positive(config, "rms_norm_eps", 1e-6);
  options.tied = config.at("tie_word_embeddings").flag();
  const JsonPart width = config.at("head_dim");
  if (!width.is_null() && width.number() * options.heads != options.dim) {
    width.refuse(fmt::format("hidden_size / num_attention_heads, {} / {}", options.dim, options.heads));
  }
  return options;
}

GptOptions gpt_of(const JsonPart& config) {
  require_known(config,
                {"n_embd", "n_layer", "n_head", "n_positions", "n_inner", "activation_function", "layer_norm_epsilon",
                 "scale_attn_weights", "scale_attn_by_inverse_layer_idx", "reorder_and_upcast_attn"});
  require_off(config, {"scale_attn_by_inverse_layer_idx", "reorder_and_upcast_attn"});
  if (!config.at("scale_attn_weights").flag(true)) config.at("scale_attn_weights").refuse("true");
  if (positive(config, "layer_norm_epsilon", 1e-5) != 1e-5) config.at("layer_norm_epsilon").refuse("1e-5");
  GptOptions options;
  options.vocab = whole(config, "vocab_size", 50257);
  options.dim = whole(config, "n_embd", 768);
  options.layers = whole(config, "n_layer", 12);
  options.heads = whole(config, "n_head", 12);
  options.context = whole(config, "n_positions", 1024);
  options.tied = config.at("tie_word_embeddings").flag(true);
  const std::string activation = config.at("activation_function").text("gelu_new");
  options.tanh_gelu = activation == "gelu_new" || activation == "gelu_pytorch_tanh";
  if (!options.tanh_gelu && activation != "gelu") {
    config.at("activation_function").refuse("gelu, gelu_new or gelu_pytorch_tanh");
  }
  const JsonPart inner = config.at("n_inner");
  if (!inner.is_null() && inner.number() != 4 * options.dim) inner.refuse("null, or 4 times n_embd");
  return options;
}

c10::ScalarType type_of(const JsonPart& config) {
  const JsonPart part = config.at(config.at("dtype").is_null() ? "torch_dtype" : "dtype");
  const std::string name = part.text("float32");
  if (name == "float64") return c10::kDouble;
  if (name == "float32") return c10::kFloat;
  if (name == "bfloat16") return c10::kBFloat16;
  if (name == "float16") return c10::kHalf;
  part.refuse("float64, float32, bfloat16 or float16");
}

std::vector<std::int64_t> ends_of(const JsonPart& config) {
  const JsonPart part = config.at("eos_token_id");
  if (part.is_null()) return {};
  if (!part.value().is_array()) return {part.number()};
  std::vector<std::int64_t> ends;
  for (const JsonPart& one : part.elements()) ends.push_back(one.number());
  return ends;
}

std::string_view name_of(c10::ScalarType type) {
  switch (type) {
    case c10::kDouble: return "float64";
    case c10::kBFloat16: return "bfloat16";
    case c10::kHalf: return "float16";
    default: return "float32";
  }
}

json common_config(const HuggingFaceFiles& files, c10::ScalarType type) {
  json config;
  config["torch_dtype"] = name_of(type);
  config["bos_token_id"] = files.bos ? json(*files.bos) : json(nullptr);
  config["eos_token_id"] = files.eos.empty()       ? json(nullptr)
                           : files.eos.size() == 1 ? json(files.eos[0])
                                                   : json(files.eos);
  config["use_cache"] = true;
  return config;
}

}  // namespace

HuggingFaceConfig read_hugging_face_config(const fs::path& folder) {
  const fs::path path = folder / "config.json";
  const json read = read_json(path);
  const JsonPart config(read, fmt::format("'{}'", path.string()), kFixOfConfig);
  require_none(config, {"quantization_config", "pruned_heads"});
  require_off(config, {"add_cross_attention", "is_encoder_decoder"});
  HuggingFaceConfig result;
  const std::string kind = config.at("model_type").text();
  if (kind == "llama")
    result.model = llama_of(config);
  else if (kind == "gpt2")
    result.model = gpt_of(config);
  else
    config.at("model_type").refuse("llama or gpt2");
  result.type = type_of(config);
  if (!config.at("bos_token_id").is_null()) result.bos = config.at("bos_token_id").number();
  result.eos = ends_of(config);
  std::error_code ignored;
  const fs::path generation = folder / "generation_config.json";
  if (fs::exists(generation, ignored)) {
    const json other = read_json(generation);
    const auto ends = ends_of(JsonPart(other, fmt::format("'{}'", generation.string()), kFixOfConfig));
    if (!ends.empty()) result.eos = ends;
  }
  return result;
}

void write_config(const fs::path& folder, const LlamaOptions& o, c10::ScalarType type, const HuggingFaceFiles& files) {
  json config = common_config(files, type);
  config.update({{"architectures", {"LlamaForCausalLM"}},
                 {"model_type", "llama"},
                 {"vocab_size", o.vocab},
                 {"hidden_size", o.dim},
                 {"intermediate_size", o.hidden},
                 {"num_hidden_layers", o.layers},
                 {"num_attention_heads", o.heads},
                 {"num_key_value_heads", o.kv_heads},
                 {"head_dim", o.dim / o.heads},
                 {"max_position_embeddings", o.context},
                 {"rope_theta", o.theta},  // transformers 5 reads rope_parameters instead
                 {"rope_parameters", {{"rope_type", "default"}, {"rope_theta", o.theta}}},
                 {"rms_norm_eps", o.norm_eps},
                 {"hidden_act", "silu"},
                 {"attention_bias", false},
                 {"mlp_bias", false},
                 {"tie_word_embeddings", o.tied}});
  format::write_file_atomically(folder / "config.json", std::string_view(config.dump(2) + "\n"));
}

void write_config(const fs::path& folder, const GptOptions& o, c10::ScalarType type, const HuggingFaceFiles& files) {
  json config = common_config(files, type);
  config.update({{"architectures", {"GPT2LMHeadModel"}},
                 {"model_type", "gpt2"},
                 {"vocab_size", o.vocab},
                 {"n_embd", o.dim},
                 {"n_layer", o.layers},
                 {"n_head", o.heads},
                 {"n_positions", o.context},
                 {"activation_function", o.tanh_gelu ? "gelu_new" : "gelu"},
                 {"layer_norm_epsilon", 1e-5},
                 {"resid_pdrop", 0.0},
                 {"embd_pdrop", 0.0},
                 {"attn_pdrop", 0.0},
                 {"tie_word_embeddings", o.tied}});
  format::write_file_atomically(folder / "config.json", std::string_view(config.dump(2) + "\n"));
}

}  // namespace reigen::models
