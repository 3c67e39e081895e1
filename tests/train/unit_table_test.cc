// What --run.summary prints, compared with layers' formulas.
#include "train/program/unit_table.h"

#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>

#include <sstream>

#include "train/small_run.h"

namespace reigen::train {
namespace {

// The words of the line that begins with this one.
std::vector<std::string> line_of(const std::string& table, const std::string& name) {
  std::istringstream in(table);
  for (std::string line; std::getline(in, line);) {
    EXPECT_LE(line.size(), 100U) << line;
    if (!line.starts_with(name + " ")) continue;
    std::istringstream rest(line.substr(name.size()));
    std::vector<std::string> words;
    for (std::string word; rest >> word;) words.push_back(word);
    return words;
  }
  ADD_FAILURE() << "no line " << name << " in\n" << table;
  return {};
}
using Words = std::vector<std::string>;

TEST(UnitTable, CountsUnitsAndTheWholeModel) {
  Config config;
  config.train.precision = "fp64";
  SmallTask task(config);
  task.has_units = true;
  const std::string table = unit_table_of("small", task, task, config);
  EXPECT_THAT(table, HasSubstr("small: one sample of 1x6\n"));
  EXPECT_EQ(line_of(table, "fc1"), (Words{"Linear", "1x16", "112", "96", "896", "B", "128", "B"}));
  EXPECT_EQ(line_of(table, "fc2"), (Words{"Linear", "1x4", "68", "64", "544", "B", "32", "B"}));
  EXPECT_EQ(line_of(table, "the model"), (Words{"SmallNet", "-", "180", "160", "1.41", "KiB", "160", "B"}));
  EXPECT_FALSE(task.module().children().front()->parameters().front().grad().defined());
  for (const nn::Unit& unit : task.units()) EXPECT_FALSE(unit.has(nn::Layer::kTrace));
}

// Convolutions of every kind, attention and a product; the attention's weight is in no unit, and the convolution's is
// tied.
struct ManyKinds final : Task, DataModule, torch::nn::Module {
  explicit ManyKinds(bool in_units) : has_units(in_units) {
    conv = register_module("conv", torch::nn::Conv2d(torch::nn::Conv2dOptions(4, 6, 3).stride(2).groups(2)));
    same = register_module("same_convolution_with_a_long_name", conv.ptr());
    norm = register_module("norm", torch::nn::BatchNorm2d(6));
    back = register_module("back", torch::nn::ConvTranspose2d(torch::nn::ConvTranspose2dOptions(6, 5, 2)));
    mixed = register_parameter("mixed", at::ones({25, 8}));
    all = {nn::Unit("conv", conv.ptr()), nn::Unit("norm", norm.ptr()), nn::Unit("back", back.ptr())};
  }
  torch::nn::Module& module() override { return *this; }
  std::vector<nn::Unit> units() override { return has_units ? all : std::vector<nn::Unit>(); }
  void initialize(std::uint64_t) override {}
  data::DatasetPtr training() override { return data::in_memory(at::zeros({3, 4, 9, 9}), at::zeros({3}), "maps"); }
  at::Tensor training_step(const data::Samples& batch) override {
    at::Tensor x = batch.input;
    for (const nn::Unit& unit : all) x = nn::call(unit, x);  // [1, 5, 5, 5]
    x = at::matmul(x.flatten(2), mixed).unsqueeze(0);        // [1, 1, 5, 8]
    return at::scaled_dot_product_attention(x, x, x).mean();
  }
  bool has_units;
  torch::nn::Conv2d conv{nullptr}, same{nullptr};
  torch::nn::BatchNorm2d norm{nullptr};
  torch::nn::ConvTranspose2d back{nullptr};
  at::Tensor mixed;
  std::vector<nn::Unit> all;
};

TEST(UnitTable, CountsAreThoseOfTheFormulas) {
  constexpr int kConv = 6 * 4 * 4 * (2 * 3 * 3);  // outputs times inputs of a group
  constexpr int kBack = 6 * 4 * 4 * (5 * 2 * 2);  // inputs times outputs
  constexpr int kMixed = 5 * 25 * 8, kAttention = 2 * 5 * 5 * 8;
  ManyKinds task(true);
  const std::string table = unit_table_of("kinds", task, task, Config());
  EXPECT_EQ(line_of(table, "conv"), (Words{"Conv2d", "1x6x4x4", "114", "1.73", "k", "456", "B", "384", "B"}));
  static_assert(kConv == 1728 && kBack == 1920 && kConv + kBack + kMixed + kAttention == 5048);
  EXPECT_EQ(line_of(table, "norm"), (Words{"BatchNorm2d", "1x6x4x4", "12", "0", "104", "B", "384", "B"}));
  EXPECT_EQ(line_of(table, "back"), (Words{"ConvTr..ose2d", "1x5x5x5", "125", "1.92", "k", "500", "B", "500", "B"}));
  EXPECT_EQ(line_of(table, "(in no unit)"), (Words{"-", "200", "-", "800", "B", "-"}));
  EXPECT_EQ(line_of(table, "the model"), (Words{"ManyKinds", "-", "451", "5.05", "k", "1.82", "KiB", "1.24", "KiB"}));
}

TEST(UnitTable, AModelWithoutUnitsHasItsModules) {
  ManyKinds task(false);
  Config config;
  config.train.precision = "bf16";  // autocast calls the operations again
  config.train.weights = "bf16";
  const std::string table = unit_table_of("kinds", task, task, config);
  EXPECT_EQ(line_of(table, "conv"), (Words{"Conv2d", "-", "114", "-", "240", "B", "-"}));
  EXPECT_EQ(line_of(table, "the model"), (Words{"ManyKinds", "-", "451", "5.05", "k", "1004", "B", "-"}));
  EXPECT_THAT(table, HasSubstr("\nsame_convol..a_long_name"));
}

}  // namespace
}  // namespace reigen::train
