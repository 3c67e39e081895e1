// Every recipe except mnist as a user starts it, at sizes that take moments.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "harness/folders.h"
#include "harness/read_file.h"
#include "image/picture_files.h"
#include "launch/child_program.h"

namespace reigen {
namespace {

namespace fs = std::filesystem;
using launch::Ran;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using tests::read_file;
using Words = std::vector<std::string>;

// Each class has one colour, in changing shades. The files are PNG and JPEG in turn.
void write_pictures(const fs::path& folder, int count) {
  for (int i = 0; i < count; ++i) {
    const auto shade = static_cast<std::uint8_t>(7 * i);
    for (const int c : {0, 1, 2}) {
      std::vector<std::uint8_t> colour(3, shade);
      colour[static_cast<std::size_t>(c)] = 220;
      const fs::path at = folder / ("class" + std::to_string(c));
      fs::create_directories(at);
      const auto pixels = tests::flat(32, 32, colour);
      std::ofstream(at / (std::to_string(i) + (i % 2 == 0 ? ".png" : ".jpg")), std::ios::binary)
          << (i % 2 == 0 ? tests::png_of(32, 32, 3, pixels) : tests::jpeg_of(32, 32, 3, pixels));
    }
  }
}

struct Small {
  const char* recipe;
  Words options;
};

class RecipesE2e : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::temp_directory_path() / ("reigen_recipe_e2e_" + std::to_string(::getpid()));
    fs::remove_all(root_);
    write_pictures(root_ / "pictures" / "train", 20);
    write_pictures(root_ / "pictures" / "test", 3);
    std::ofstream text(root_ / "text");
    for (int i = 0; i < 60; ++i) text << i << " times " << i << " is " << i * i << ".\n";
  }
  void TearDown() override { fs::remove_all(root_); }

  std::string path(const std::string& name) const { return (root_ / name).string(); }

  Words train(const Small& small, int ranks, const std::string& name, const Words& more = {}) const {
    Words words = {built("bin/reigen"),   "train",     small.recipe, "-n",
                   std::to_string(ranks), "--run.dir", path(name),   "--train.log_every=1"};
    for (const std::string& word : small.options) {
      const auto at = word.find("DATA/");
      words.push_back(at == std::string::npos ? word : path(word.substr(at + 5)));
    }
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }

  std::vector<double> losses(const std::string& name) const {
    std::vector<double> values;
    std::ifstream in(root_ / name / "metrics.jsonl");
    for (std::string line; std::getline(in, line);) {
      const auto json = nlohmann::json::parse(line);
      if (json.contains("loss")) values.push_back(json["loss"]);  // lines of validations have no loss
    }
    return values;
  }

  void expect_same_losses(const std::string& name, const std::string& reference) const {
    const auto got = losses(name);
    const auto expected = losses(reference);
    ASSERT_EQ(got.size(), expected.size());
    ASSERT_FALSE(expected.empty());
    for (std::size_t i = 0; i < got.size(); ++i) {
      EXPECT_LE(std::abs(got[i] - expected[i]), 1e-9 * std::abs(expected[i])) << name << ", step " << i + 1;
    }
  }

  std::string model(const std::string& name) const { return read_file(root_ / name / "model.safetensors"); }

  fs::path root_;
};

class RecipeE2e : public RecipesE2e, public ::testing::WithParamInterface<Small> {
 protected:
  std::string run_train(int ranks, const std::string& name, const Words& more = {}) const {
    const Ran ran = launch::run_training(train(GetParam(), ranks, name, more));
    EXPECT_EQ(ran.code, 0) << ran.out << ran.err;
    return ran.out;
  }
};

// 1, 2 and 3 ranks cut batches of 24 at multiples of norm_batch.
const Small kMlp = {"mlp", {"--model.layers=2", "--model.dim=16", "--data.limit=70", "--train.global_batch=24"}};
const Small kResNet18 = {"resnet18",
                         {"--model.width=4", "--model.norm_batch=4", "--data.path", "DATA/pictures", "--data.limit=48",
                          "--train.global_batch=24", "--data.workers=2"}};
const Small kGpt = {"gpt",
                    {"--model.layers=1", "--model.dim=16", "--model.heads=2", "--model.context=24", "--data.path",
                     "DATA/text", "--train.global_batch=16"}};

TEST_P(RecipeE2e, EveryNumberOfRanksGivesTheLossesOfOne) {
  const Words options = {"--train.precision", "fp64", "--train.max_steps", "5"};
  run_train(1, "1", options);
  run_train(2, "2", options);
  expect_same_losses("2", "1");
  Words threads = options;
  threads.insert(threads.end(), {"--run.ranks", "threads"});
  run_train(3, "3", threads);
  expect_same_losses("3", "1");
  const auto one = nlohmann::json::parse(read_file(root_ / "1" / "summary.json"));
  const auto two = nlohmann::json::parse(read_file(root_ / "2" / "summary.json"));
  EXPECT_EQ(one["test_samples"], two["test_samples"]);
  EXPECT_GT(one["test_samples"], 0);
}

TEST_P(RecipeE2e, AResumedRunEndsWithTheSameBits) {
  run_train(2, "whole", {"--train.max_steps=4"});
  run_train(2, "parts", {"--train.max_steps=3"});
  run_train(2, "parts", {"--train.max_steps=4", "--run.resume=true"});
  EXPECT_EQ(model("parts"), model("whole"));
  EXPECT_FALSE(model("whole").empty());
  EXPECT_EQ(losses("parts"), losses("whole"));
}

INSTANTIATE_TEST_SUITE_P(Recipes, RecipeE2e, ::testing::Values(kMlp, kResNet18, kGpt),
                         [](const auto& suite) { return std::string(suite.param.recipe); });

// Stages of equal time, also where ranks divide the layers. A model without memory cannot be measured.
TEST_F(RecipesE2e, StagesAreCutByMeasuredTime) {
  const Words sizes = {"--model.layers=3",
                       "--model.dim=16",
                       "--model.heads=2",
                       "--model.kv_heads=2",
                       "--model.context=24",
                       "--data.path",
                       "DATA/text",
                       "--train.global_batch=8",
                       "--train.micro_batch=2",
                       "--train.precision",
                       "fp64",
                       "--train.max_steps=3",
                       "--checkpoint.every_steps=2"};
  const Small llama{"llama", sizes};
  ASSERT_EQ(launch::run_training(train(llama, 1, "one", {"--train.micro_batch=0"})).code, 0);
  for (const Words& mesh : {Words{"--mesh.pp=2"}, Words{"--mesh.pp=2", "--mesh.tp=2", "--train.verify=2"},
                            Words{"--mesh.pp=2", "--parallel.shard=parameters"}}) {
    Words more = {"--mesh.cut=time"};
    more.insert(more.end(), mesh.begin(), mesh.end());
    const Ran ran = launch::run_training(train(llama, 4, "cut", more));
    ASSERT_EQ(ran.code, 0) << ran.err;
    EXPECT_THAT(ran.out, HasSubstr("stages: model.embed_tokens"));
    if (mesh.size() == 3) {
      EXPECT_THAT(ran.out, HasSubstr("verified: 2 steps of this layout are those of one process"));
    }
    expect_same_losses("cut", "one");
    fs::remove_all(path("cut"));
  }
}

// What the model does before its first unit is done on the ranks of the first stage too.
TEST_F(RecipesE2e, RecipesWithUnitsRunInAPipeline) {
  const Words options = {"--train.precision=fp64", "--train.max_steps=3", "--train.micro_batch=4"};
  for (const Small& small : {kMlp, kResNet18}) {
    const std::string recipe = small.recipe;
    ASSERT_EQ(launch::run_training(train(small, 1, recipe + "1", options)).code, 0);
    Words more = options;
    more.push_back("--mesh.pp=2");
    const Ran ran = launch::run_training(train(small, 2, recipe + "2", more));
    ASSERT_EQ(ran.code, 0) << ran.err;
    expect_same_losses(recipe + "2", recipe + "1");
  }
}

// Shapes and sizes are the same, but every row of an embedding and every output would have another meaning.
TEST_F(RecipesE2e, ARunDoesNotGoOnWithAnotherAlphabetOrOtherClasses) {
  const auto run = [&](const Small& small, const Words& more) {
    return launch::run_training(train(small, 1, small.recipe, more));
  };
  ASSERT_EQ(run(kGpt, {"--train.max_steps=2"}).code, 0);
  EXPECT_THAT(model("gpt"), HasSubstr("meaning.alphabet"));
  std::string text = read_file(root_ / "text");
  std::replace(text.begin(), text.end(), 't', 'z');
  std::ofstream(root_ / "text") << text;
  Ran ran = run(kGpt, {"--train.max_steps=4", "--run.resume=true"});
  EXPECT_EQ(ran.code, 78);
  EXPECT_THAT(ran.err, AllOf(HasSubstr("is 'z', it was 't'"), HasSubstr("--data.may_differ true")));
  ran = run(kGpt, {"--train.max_steps=4", "--run.resume=true", "--data.may_differ=true"});
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("note: data.may_differ: "));

  ASSERT_EQ(run(kResNet18, {"--train.max_steps=1"}).code, 0);
  for (const char* part : {"train", "test"}) {
    fs::rename(root_ / "pictures" / part / "class1", root_ / "pictures" / part / "zebra");
  }
  ran = run(kResNet18, {"--train.max_steps=2", "--run.resume=true"});
  EXPECT_EQ(ran.code, 78);
  EXPECT_THAT(ran.err, HasSubstr("class 1 is 'class2', it was 'class1'"));
}

TEST_F(RecipesE2e, ATokenizerGivesTheTokensAndIsKept) {
  const std::string folder = std::string(kSourceFolder) + "/tests/format/files/tokenizers/";
  const auto run = [&](const Words& more) { return launch::run_training(train(kGpt, 2, "gpt", more)); };
  Ran ran = run({"--train.max_steps=2", "--data.tokenizer", folder + "gpt2.json"});
  ASSERT_EQ(ran.code, 0) << ran.err;
  EXPECT_THAT(ran.out, AllOf(HasSubstr("windows of 24 tokens"), HasSubstr(" tokens)")));
  EXPECT_TRUE(read_file(root_ / "gpt" / "tokenizer.json") == read_file(folder + "gpt2.json"));
  EXPECT_THAT(model("gpt").substr(0, 4000),
              AllOf(HasSubstr("meaning.tokenizer"), Not(HasSubstr("meaning.alphabet")),
                    HasSubstr("\"embed.tok.weight\":{\"dtype\":\"F32\",\"shape\":[330,16]")));
  ran = run({"--train.max_steps=4", "--run.resume=true", "--data.tokenizer", folder + "llama3.json"});
  EXPECT_EQ(ran.code, 78);
  EXPECT_THAT(ran.err, HasSubstr("the tokenizer is 'xxh64 "));
  EXPECT_EQ(run({"--train.max_steps=4", "--run.resume=true"}).code, 78);
  ran = run({"--train.max_steps=4", "--run.resume=true", "--data.tokenizer", path("gpt/tokenizer.json")});
  EXPECT_EQ(ran.code, 0) << ran.err;
  const Ran tiktoken = launch::run_training(
      train(kGpt, 1, "tiktoken",
            {"--train.max_steps=1", "--data.tokenizer", folder + "small.tiktoken", "--data.word_pattern", "cl100k"}));
  EXPECT_EQ(tiktoken.code, 0) << tiktoken.err;
  EXPECT_TRUE(fs::exists(root_ / "tiktoken" / "tokenizer.tiktoken"));
}

TEST_F(RecipesE2e, BadOptionsAndDataAreOneClearErrorWithTheirCode) {
  std::ofstream(root_ / "binary") << std::string(100, '\0');
  fs::create_directories(root_ / "empty");
  fs::create_directories(root_ / "one" / "class");
  fs::copy(root_ / "pictures" / "train" / "class0" / "0.png", root_ / "one" / "class" / "0.png");
  fs::copy(root_ / "pictures", root_ / "damaged", fs::copy_options::recursive);
  for (const int c : {0, 1, 2}) {
    for (int i = 1; i < 20; i += 2) {
      fs::resize_file(root_ / "damaged" / "train" / ("class" + std::to_string(c)) / (std::to_string(i) + ".jpg"), 300);
    }
  }
  std::ofstream(root_ / "options.toml") << "[model]\nlayer = 3\n";
  const struct {
    Small small;
    int code;
    std::string text;
  } kCases[] = {
      {{"mlp", {"--model.layer", "3"}}, 2, "did you mean --model.layers?"},
      {{"mnist", {"--model.layers", "3"}}, 2, "unknown option --model.layers"},
      {{"resnet18", {"--model.heads", "3"}}, 2, "unknown option --model.heads"},
      {{"gpt", {"--config", "DATA/options.toml"}}, 78, "options.toml:2:1: unknown key model.layer"},
      {{"mlp", {"--model.dim", "0"}}, 78, "model.dim = 0: must be a whole number of at least 1"},
      {{"gpt", {"--model.heads", "5"}},
       78,
       "got: model.heads 5, model.dim 384   expected: model.dim a multiple of model.heads"},
      {{"gpt", {"--model.vocab", "3"}}, 78, "model.vocab is less than the text needs"},
      {{"gpt", {"--data.path", "DATA/absent"}}, 66, "absent"},
      {{"gpt", {"--data.tokenizer", "DATA/absent"}}, 66, "absent"},
      {{"gpt", {"--data.tokenizer", "DATA/text"}}, 65, "no tokenizer that can be read"},
      {{"gpt", {"--data.word_pattern", "gpt2"}}, 78, "data.word_pattern without data.tokenizer"},
      {{"gpt", {"--data.word_pattern", "gpt5"}}, 78, "data.word_pattern"},
      {{"mnist", {"--data.tokenizer", "DATA/text"}}, 2, "unknown option --data.tokenizer"},
      {{"gpt", {"--data.path", "DATA/binary"}}, 65, "binary"},
      {{"gpt", {"--data.path", "DATA/empty"}}, 65, "empty"},
      {{"resnet18", {"--data.path", "DATA/absent"}}, 66, "absent"},
      {{"resnet18", {"--data.path", "DATA/text"}}, 66, "text"},
      {{"resnet18", {"--data.path", "DATA/one"}}, 65, "only 'class'"},
      {{"resnet18", {"--model.width=4", "--data.path", "DATA/damaged"}}, 65, ".jpg"},
  };
  bool are_threads = false;  // every second case, which starts one process in place of two
  for (const auto& c : kCases) {
    const Words more = are_threads ? Words{"--run.ranks=threads"} : Words{};
    are_threads = !are_threads;
    const Ran ran = launch::run_training(train(c.small, 2, "run", more));
    EXPECT_EQ(ran.code, c.code) << c.text << '\n' << ran.out << ran.err;
    EXPECT_THAT(ran.err, AllOf(HasSubstr("error: "), HasSubstr(c.text)));
  }
  const Ran variable = launch::run_training(train({"mnist", {}}, 1, "run"), {"REIGEN_MODEL_LAYERS=3"});
  EXPECT_EQ(variable.code, 78);
  EXPECT_THAT(variable.err, HasSubstr("unknown environment variable REIGEN_MODEL_LAYERS"));
}

TEST_F(RecipesE2e, HelpListsTheRecipesOwnSizesOnly) {
  const Ran gpt = launch::run_training({built("bin/reigen"), "train", "gpt", "--help"});
  EXPECT_EQ(gpt.code, 0);
  EXPECT_THAT(gpt.out, AllOf(HasSubstr("--model.heads"), HasSubstr("a text file"), HasSubstr("8 samples a rank"),
                             Not(HasSubstr("--model.width"))));
  const Ran mnist = launch::run_training({built("bin/reigen"), "train", "mnist", "--help"});
  EXPECT_THAT(mnist.out, AllOf(HasSubstr("IDX"), Not(HasSubstr("--model."))));
  const Ran plan = launch::run_training({built("bin/reigen"), "train", "resnet50", "-n", "100000", "--run.plan"});
  EXPECT_EQ(plan.code, 0) << "one process, whatever the number of ranks: " << plan.err;
  EXPECT_THAT(plan.out, HasSubstr("on 100000 ranks"));
  const Ran all = launch::run_training({built("bin/reigen-train"), "--help"});
  EXPECT_THAT(all.out, AllOf(HasSubstr("mnist"), HasSubstr("mlp"), HasSubstr("resnet18"), HasSubstr("gpt")));
}

TEST_F(RecipesE2e, BenchDdpTellsWhereAStepsTimeGoes) {
  const Words command = {built("bin/reigen"),
                         "bench",
                         "ddp",
                         "mlp",
                         "-n",
                         "2",
                         "--buckets",
                         "0,0.01,25",
                         "--model.layers",
                         "2",
                         "--model.dim",
                         "64",
                         "--steps",
                         "1",
                         "--rounds",
                         "2",
                         "--json",
                         path("rows.json")};
  const Ran ran = launch::run_training(command);
  ASSERT_EQ(ran.code, 0) << ran.err;
  EXPECT_THAT(ran.out, AllOf(HasSubstr("mlp: 2 ranks (shared_memory)"), HasSubstr("overlapped"), HasSubstr("hidden")));
  const auto rows = nlohmann::json::parse(read_file(path("rows.json")));
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_EQ(rows[0]["buckets"], 6) << "every parameter alone";
  EXPECT_LE(rows[1]["buckets"], 6);
  EXPECT_EQ(rows[2]["buckets"], 1) << "all of them are below a MiB";
  for (const auto& row : rows) {
    for (const char* time : {"forward_ms", "backward_ms", "communication_ms", "overlapped_ms", "naive_ms"}) {
      EXPECT_GT(row[time].get<double>(), 0) << time;
    }
    EXPECT_NEAR(
        row["sum_ms"].get<double>(),
        row["forward_ms"].get<double>() + row["backward_ms"].get<double>() + row["communication_ms"].get<double>(),
        1e-9);
  }
}

TEST_F(RecipesE2e, BenchDdpTakesRanksThatAreThreads) {
  const Ran ran = launch::run_training({built("bin/reigen"), "bench", "ddp", "mlp", "-n", "3", "--run.ranks", "threads",
                                        "--buckets", "1", "--model.layers", "1", "--model.dim", "16", "--steps", "1",
                                        "--rounds", "1"});
  ASSERT_EQ(ran.code, 0) << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("mlp: 3 ranks (shared_memory)"));
}

TEST_F(RecipesE2e, BenchDdpRefusesWhatItDoesNotKnow) {
  const auto bench = [&](const Words& words) {
    Words command = {built("bin/reigen"), "bench", "ddp"};
    command.insert(command.end(), words.begin(), words.end());
    return launch::run_training(command);
  };
  for (const Words& words : {Words{"mlp", "--buckets", "1,x"}, Words{"--buckets", "-1"}, Words{"--steps", "0"},
                             Words{"--rounds"}, Words{"--section.no", "1"}, Words{"nothing"}}) {
    const Ran ran = bench(words);
    EXPECT_EQ(ran.code, 2) << words[0] << ran.err;
    EXPECT_THAT(ran.err, HasSubstr("error")) << words[0];
  }
  EXPECT_EQ(bench({"mlp", "--model.layers", "1", "--json", path("no/rows.json")}).code, 74);
  const Ran help = bench({"--help"});
  EXPECT_EQ(help.code, 0);
  EXPECT_THAT(help.out, HasSubstr("--buckets"));
}

TEST_F(RecipesE2e, ATraceHoldsAllRanks) {
  for (const std::string shard : {"none", "auto"}) {
    const Words more = {"--run.trace", "1:2", "--parallel.shard", shard};
    const Ran ran = launch::run_training(train({"mlp",
                                                {"--model.layers", "1", "--model.dim", "16", "--data.limit", "64",
                                                 "--train.epochs", "1", "--train.max_steps", "2"}},
                                               2, "traced_" + shard, more));
    ASSERT_EQ(ran.code, 0) << ran.err;
    EXPECT_THAT(ran.out, HasSubstr("trace of steps 1 to 1"));
    // Only gradients that are sent have buckets.
    EXPECT_EQ(ran.out.find("hidden") != std::string::npos, shard == "none") << ran.out;
    const auto trace = nlohmann::json::parse(read_file(path("traced_" + shard + "/trace.json")));
    std::set<int> ranks;
    for (const auto& event : trace["traceEvents"]) ranks.insert(event["pid"].get<int>());
    EXPECT_EQ(ranks, (std::set<int>{0, 1}));
  }
}

TEST_F(RecipesE2e, WithoutAPathTheDataAreTheProgramsOwn) {
  const Words few = {"--train.max_steps=1", "--train.global_batch=4"};
  const Ran text = launch::run_training(
      train({"gpt", {"--model.layers=1", "--model.dim=8", "--model.heads=1", "--model.context=128"}}, 1, "gpt", few));
  EXPECT_EQ(text.code, 0) << text.err;
  EXPECT_THAT(text.out,
              AllOf(HasSubstr("Reigen's documents"), HasSubstr("perplexity"), HasSubstr("goes on like this")));
  const auto summary = nlohmann::json::parse(read_file(root_ / "gpt" / "summary.json"));
  EXPECT_NEAR(summary["test_perplexity"], std::exp(summary["test_loss"].get<double>()), 1e-9);
  const Ran pictures = launch::run_training(train({"resnet18", {"--model.width=2"}}, 1, "resnet18", few));
  EXPECT_EQ(pictures.code, 0) << pictures.err;
  EXPECT_THAT(pictures.out, HasSubstr("10000 drawn pictures"));
}

}  // namespace
}  // namespace reigen
