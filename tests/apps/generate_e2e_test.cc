// reigen generate as a user calls it: on the directories of runs and on a folder of Hugging Face.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "format/temporary_folder.h"
#include "harness/folders.h"
#include "launch/child_program.h"

namespace reigen {
namespace {

namespace fs = std::filesystem;
using launch::Ran;
using ::testing::AllOf;
using ::testing::HasSubstr;
using Words = std::vector<std::string>;

class GenerateE2e : public ::testing::Test {
 protected:
  void SetUp() override {
    std::ofstream text(folder_.path() / "text");
    for (int i = 0; i < 80; ++i) text << i << " times " << i << " is " << i * i << ", they say.\n";
  }
  std::string path(const std::string& name) const { return (folder_.path() / name).string(); }

  void train(const std::string& recipe, const std::string& name, const Words& more = {}) const {
    Words words = {built("bin/reigen"),
                   "train",
                   recipe,
                   "--run.dir",
                   path(name),
                   "--data.path",
                   path("text"),
                   "--model.layers=1",
                   "--model.dim=16",
                   "--model.heads=2",
                   "--model.context=24",
                   "--train.max_steps=6",
                   "--optim.lr=0.05",
                   "--optim.warmup_steps=1"};
    words.insert(words.end(), more.begin(), more.end());
    const Ran ran = launch::run_training(words);
    ASSERT_EQ(ran.code, 0) << ran.out << ran.err;
  }
  Ran generate(const std::string& name, Words more) const {
    more.insert(more.begin(), {built("bin/reigen"), "generate", path(name)});
    return launch::run(more, {"WORLD_SIZE", "RANK"});
  }
  std::string text_of(const std::string& name, const Words& more) const {
    const Ran ran = generate(name, more);
    EXPECT_EQ(ran.code, 0) << ran.err;
    return ran.out;
  }
  void expect_refused(const std::string& name, const Words& more, int code, const std::string& text) const {
    const Ran ran = generate(name, more);
    EXPECT_EQ(ran.code, code) << ran.out << ran.err;
    EXPECT_THAT(ran.err, AllOf(HasSubstr("error: "), HasSubstr(text)));
    EXPECT_EQ(ran.out, "");
  }

  tests::TemporaryFolder folder_;
};

TEST_F(GenerateE2e, ContinuesATextOfCharacters) {
  train("gpt", "gpt");
  const std::string text = text_of("gpt", {"--prompt", "4 times", "--tokens", "40"});
  EXPECT_EQ(text.size(), 41U);  // beyond the context of 24; a line end comes last
  EXPECT_EQ(text_of("gpt", {"--prompt", "4 times", "--tokens", "40", "--seed", "0"}), text);
  EXPECT_NE(text_of("gpt", {"--prompt", "4 times", "--tokens", "40", "--seed", "1"}), text);
  const std::string greedy = text_of("gpt", {"--prompt", "4 times", "--tokens=30", "--greedy"});
  EXPECT_EQ(text_of("gpt", {"--prompt", "4 times", "--tokens=30", "--top-k=1", "--temperature=2"}), greedy);
  EXPECT_EQ(text_of("gpt", {"--prompt", "4 times", "--tokens=30", "--top-p=0.0001"}), greedy);
  // Without model.safetensors the weights are those of the newest checkpoint.
  fs::remove(path("gpt/model.safetensors"));
  EXPECT_EQ(text_of("gpt", {"--prompt", "4 times", "--tokens=30", "--greedy"}), greedy);

  expect_refused("gpt", {"--prompt", "Zebra"}, 65, "the byte 0x5a");
  expect_refused("gpt", {"--prompt", ""}, 78, "nothing to continue");
  expect_refused("nowhere", {"--prompt", "4"}, 66, "no such folder");
  expect_refused("text", {"--prompt", "4"}, 66, "a file");
  expect_refused("", {"--prompt", "4"}, 66, "neither config.toml nor config.json");
  expect_refused("gpt", {}, 2, "--prompt is required");
  expect_refused("gpt", {"--prompt", "4", "--tokens", "many"}, 2, "--tokens is not a number");
  expect_refused("gpt", {"--prompt", "4", "--greedy", "--top-k", "3"}, 2, "excludes");
  expect_refused("gpt", {"--prompt", "4", "--nothing"}, 2, "--nothing");
  expect_refused("gpt", {"--prompt", "4", "--tokens", "0"}, 78, "--tokens is out of range");
  expect_refused("gpt", {"--prompt", "4", "--top-k", "0"}, 78, "--top-k is out of range");
  expect_refused("gpt", {"--prompt", "4", "--temperature", "0"}, 78, "temperature");
  expect_refused("gpt", {"--prompt", "4", "--top-p", "1.5"}, 78, "top_p");
  fs::remove_all(path("gpt/checkpoints"));
  EXPECT_NE(generate("gpt", {"--prompt", "4"}).code, 0);
}

TEST_F(GenerateE2e, TakesTheRunsTokenizerAndFoldersOfHuggingFace) {
  const std::string files = std::string(kSourceFolder) + "/tests/format/files/tokenizers/";
  train("llama", "llama", {"--model.kv_heads=1", "--model.hidden=24", "--data.tokenizer", files + "gpt2.json"});
  const Words greedy = {"--prompt", "4 times 4 is", "--tokens=30", "--greedy"};
  const std::string text = text_of("llama", greedy);
  EXPECT_GT(text.size(), 30U);

  // The recipe's weights have the names of Hugging Face.
  fs::create_directories(path("folder"));
  fs::copy(path("llama/model.safetensors"), path("folder/model.safetensors"));
  fs::copy(path("llama/tokenizer.json"), path("folder/tokenizer.json"));
  nlohmann::json config = {
      {"model_type", "llama"},  {"vocab_size", 330},        {"hidden_size", 16},        {"intermediate_size", 24},
      {"num_hidden_layers", 1}, {"num_attention_heads", 2}, {"num_key_value_heads", 1}, {"max_position_embeddings", 24},
      {"rms_norm_eps", 1e-5},   {"torch_dtype", "float32"}};
  const auto write_config = [&] { std::ofstream(path("folder/config.json")) << config; };
  write_config();
  EXPECT_EQ(text_of("folder", greedy), text);
  config["vocab_size"] = 100;
  write_config();
  expect_refused("folder", greedy, 65, "the tokenizer does not fit the model");
  config["vocab_size"] = 330;
  config["rope_scaling"] = {{"rope_type", "llama3"}};
  write_config();
  expect_refused("folder", greedy, 65, "rope_scaling");
  config.erase("rope_scaling");
  // A token that ends texts is not printed.
  std::vector<int> all;
  for (int token = 0; token < 330; ++token) all.push_back(token);
  config["eos_token_id"] = all;
  write_config();
  EXPECT_EQ(text_of("folder", greedy), "\n");
  fs::remove(path("folder/tokenizer.json"));
  expect_refused("folder", greedy, 66, "tokenizer.json");

  fs::copy(files + "llama3.json", path("llama/tokenizer.json"), fs::copy_options::overwrite_existing);
  expect_refused("llama", greedy, 65, "is not the tokenizer of the training");
  fs::remove(path("llama/tokenizer.json"));
  expect_refused("llama", greedy, 66, "does not say what its tokens mean");
}

TEST_F(GenerateE2e, TellsItsOptions) {
  const Ran ran = launch::run({built("bin/reigen"), "generate", "--help"}, {});
  EXPECT_EQ(ran.code, 0);
  EXPECT_THAT(ran.out, AllOf(HasSubstr("--prompt"), HasSubstr("--top-p"), HasSubstr("DIR")));
}

}  // namespace
}  // namespace reigen
