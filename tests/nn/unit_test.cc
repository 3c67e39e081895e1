#include "reigen/nn/unit.h"

#include <gmock/gmock.h>

#include "nn/blocks.h"
#include "reigen/base/error.h"
#include "reigen/nn/unit_policy.h"

namespace reigen::testing::unit_test {
namespace {

using nn::Carry;
using nn::Layer;
using nn::Unit;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing_oracle::numbers;

// The carry has two tensors: the result so far, and the number of changes.
struct Counted : torch::nn::Module {
  Counted() { weight = register_parameter("weight", torch::full({1}, 2.0, torch::kDouble)); }
  Carry forward(const Carry& carry) { return {carry[0] * weight, carry[1] + 1}; }
  at::Tensor weight;
};

TEST(Unit, WithoutAttachmentsIsThePlainForward) {
  Blocks model;
  const at::Tensor x = numbers(1, {4, 5});
  at::Tensor plain = x;
  for (auto& block : model.blocks) plain = block->forward(plain);
  EXPECT_TRUE(model.forward(x).equal(plain));
}

TEST(Unit, CarriesSeveralTensors) {
  std::vector<Unit> units;
  for (const char* name : {"a", "b", "c"}) units.emplace_back(name, std::make_shared<Counted>());
  const Carry end = nn::fold(units, {torch::ones({2}, torch::kDouble), torch::zeros({1})});
  EXPECT_EQ(end[0][0].item<double>(), 8);
  EXPECT_EQ(end[1].item<float>(), 3);
}

TEST(Unit, OuterLayersSeeInnerOnes) {
  const Unit unit("a", std::make_shared<Counted>(), [](const Carry& input) { return input; });
  std::vector<std::string> seen;
  const auto note = [&](const std::string& name) {
    return [&seen, name](const Carry& input, const Unit::Forward& inner) {
      seen.push_back("into " + name);
      Carry output = inner(input);
      seen.push_back("out of " + name);
      return output;
    };
  };
  unit.attach(Layer::kPrecision, note("precision"));
  unit.attach(Layer::kTrace, note("trace"));
  unit.attach(Layer::kParameters, note("parameters"));
  nn::call(unit, Carry{torch::ones({1})});
  EXPECT_THAT(seen, ElementsAre("into trace", "into parameters", "into precision", "out of precision",
                                "out of parameters", "out of trace"));
}

TEST(Unit, CopiesAreTheSameUnit) {
  Blocks model;
  const Unit copy = model.units()[1];
  copy.attach(Layer::kTrace, [](const Carry& input, const Unit::Forward&) { return Carry{input[0] * 0}; });
  EXPECT_EQ(model.forward(torch::ones({2, 5}, torch::kDouble))
                .equal(model.blocks[2]->forward(torch::zeros({2, 5}, torch::kDouble))),
            true);
  copy.detach(Layer::kTrace);
  EXPECT_FALSE(model.units()[1].has(Layer::kTrace));
}

TEST(Unit, ASequentialIsItsParts) {
  torch::nn::Sequential stock(torch::nn::Linear(4, 6), torch::nn::Tanh(), torch::nn::Linear(6, 2));
  const auto units = nn::units_of(*stock, "stack");
  ASSERT_EQ(units.size(), 3U);
  EXPECT_EQ(units[2].name(), "stack.2");
  EXPECT_EQ(units[0].parameters().size(), 2U);
  const at::Tensor x = torch::ones({3, 4});
  EXPECT_TRUE(nn::fold(units, x).equal(stock->forward(x)));
}

TEST(Unit, BadUsesAreSaid) {
  const auto text_of = [](auto&& action) -> std::string {
    try {
      action();
    } catch (const InvalidArgument& error) {
      return error.what();
    }
    return "no error";
  };
  Blocks model;
  const Unit unit = model.units()[0];
  unit.attach(Layer::kTrace, [](const Carry& input, const Unit::Forward& inner) { return inner(input); });
  EXPECT_THAT(text_of([&] { unit.attach(Layer::kTrace, nullptr); }),
              HasSubstr("[unit block0] its layer \"trace\" is taken"));
  EXPECT_THAT(text_of([&] { nn::call(unit, Carry{}); }), HasSubstr("0 tensors came to a forward of one"));
  const Unit two("two", std::make_shared<Counted>(), [](const Carry& c) { return Carry{c[0], c[0]}; });
  EXPECT_THAT(text_of([&] { nn::call(two, torch::ones({1})); }), HasSubstr("[unit two] gave 2 tensors"));
  EXPECT_THAT(text_of([] { Unit("none", nullptr, [](const Carry& c) { return c; }); }),
              HasSubstr("[unit none] has no module"));
}

std::vector<std::string> names_of(const std::vector<Unit>& units) {
  std::vector<std::string> names;
  for (const Unit& unit : units) names.push_back(unit.name());
  return names;
}

TEST(UnitPolicy, ChoosesByTypeAndByTheSizeThatInnerOnesLeave) {
  const auto linear = [](std::int64_t in) {
    return std::make_shared<torch::nn::LinearImpl>(torch::nn::LinearOptions(in, 10).bias(false));
  };
  auto outer = std::make_shared<torch::nn::SequentialImpl>();
  outer->push_back(linear(10));
  outer->push_back(linear(5));
  const std::vector<Unit> units{{"outer", outer, [](const Carry& x) { return x; }},
                                {"outer.0", outer->ptr<torch::nn::LinearImpl>(0)},
                                {"outer.1", outer->ptr<torch::nn::LinearImpl>(1)},
                                {"last", linear(20)},
                                {"without", std::make_shared<torch::nn::ReLUImpl>()}};
  EXPECT_THAT(names_of(nn::units_of_type<torch::nn::LinearImpl>(units)), ElementsAre("outer.0", "outer.1", "last"));
  EXPECT_THAT(names_of(nn::units_of_type<torch::nn::Conv2dImpl>(units)), ElementsAre());
  EXPECT_THAT(names_of(nn::units_of_size(units, 1)), ElementsAre("outer.0", "outer.1", "last"));
  EXPECT_THAT(names_of(nn::units_of_size(units, 50)), ElementsAre("outer.0", "outer.1", "last"));
  // The outer unit has 50 elements without outer.0, and 150 in all.
  EXPECT_THAT(names_of(nn::units_of_size(units, 51)), ElementsAre("outer.0", "last"));
  EXPECT_THAT(names_of(nn::units_of_size(units, 101)), ElementsAre("outer", "last"));
  EXPECT_THAT(names_of(nn::units_of_size(units, 201)), ElementsAre());
  EXPECT_THROW(nn::units_of_size(units, 0), InvalidArgument);
}

}  // namespace
}  // namespace reigen::testing::unit_test
