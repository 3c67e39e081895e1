// Models that are made without memory have the same values and the same training as models that are made whole.
#include "reigen/nn/without_memory.h"

#include <gmock/gmock.h>

#include <optional>

#include "harness/torch.h"
#include "parallel/oracle.h"
#include "reigen/nn/init.h"
#include "reigen/nn/unit.h"

namespace reigen::parallel::without_memory_test {
namespace {

using namespace testing_oracle;  // NOLINT: the vocabulary of these tests
using ::testing::Each;
using ::testing::HasSubstr;

// A model with units, a parameter of no unit, a frozen parameter and batch statistics. Some tensors have memory from
// the start, and one parameter has integers.
struct Net : torch::nn::Module {
  explicit Net(at::ScalarType type) {
    shift = register_parameter("shift", torch::zeros({211}));
    mask = register_buffer("mask", torch::empty({211}).fill_(7));
    count = register_parameter("count", torch::empty({3}, at::kLong), false);
    for (const char* name : {"first", "second", "third"}) {
      list.emplace_back(name, register_module(name, std::make_shared<torch::nn::LinearImpl>(211, 211)));
    }
    norm = register_module("norm", torch::nn::BatchNorm1d(211));
    head = register_module("head", torch::nn::Linear(211, 3));
    second_frozen().set_requires_grad(false);
    if (type != at::kFloat) to(type);
  }
  void initialize() {
    for (const auto& item : named_parameters()) {
      if (item.value().is_floating_point())
        nn::fill_uniform(item.value().detach(), item.key(), 5, 0.1);
      else
        item.value().fill_(3);
    }
    mask.fill_(0.5);
  }
  at::Tensor second_frozen() { return named_parameters()["second.bias"]; }
  at::Tensor forward(const at::Tensor& x) { return head(norm(nn::fold(list, x * mask + shift))); }
  std::vector<nn::Unit> units() const { return list; }

  at::Tensor shift, mask, count;
  std::vector<nn::Unit> list;
  torch::nn::BatchNorm1d norm{nullptr};
  torch::nn::Linear head{nullptr};
};

struct Way {
  Shard shard = Shard::kNone;
  int ranks = 1;
  const char* backend = "auto";
  int replicas = 1;
};

Tensors trained(Communicator& world, const Way& way, bool without_memory) {
  std::optional<nn::WithoutMemory> without;
  if (without_memory) without.emplace();
  Net model(at::kFloat);
  if (without_memory) model.to(here);
  without.reset();
  DataParallelOptions options{.shard = way.shard};
  if (way.replicas > 1) options.mesh = Mesh(world, {{"dp_replicate", way.replicas}, {"dp_shard", mesh::kRest}});
  const at::NoGradGuard no_grad;
  if (without_memory)
    options.initialize = [&] { model.initialize(); };
  else
    model.initialize();
  model.to(here);
  at::GradMode::set_enabled(true);
  auto parallel = data_parallel(model, world, options);
  EXPECT_EQ(model.count.sum().item<std::int64_t>(), 9);
  optim::AdamW optimizer(parallel.parameters(), {.lr = 0.01});
  for (std::uint64_t step = 0; step < 3; ++step) {
    parallel(share(numbers(step, {12, 211}).to(at::kFloat), world).to(here)).square().mean().backward();
    optimizer.step();
    optimizer.zero_grad();
  }
  parallel.settle();
  parallel.gather_weights();
  Tensors result = values_of(model);
  for (const at::Tensor& buffer : buffers_of(model)) result.push_back(buffer);
  return result;
}

TEST(ModelsWithoutMemory, TrainAsModelsThatWereMadeWhole) {
  const std::vector<const char*> backends = on_gpu ? std::vector{"auto"} : std::vector{"auto", "tcp"};
  for (const char* backend : backends) {
    for (const Shard shard : {Shard::kNone, Shard::kOptimizer, Shard::kGradients, Shard::kParameters}) {
      for (const Way& way : {Way{shard, 1, backend}, Way{shard, 3, backend}, Way{shard, 4, backend, 2}}) {
        if (way.replicas > 1 && shard == Shard::kNone) continue;
        SCOPED_TRACE(::testing::Message() << backend << ' ' << to_text(shard) << ' ' << way.ranks << " ranks");
        const Tensors whole = agreed(
            way.ranks, [&](Communicator& world) { return trained(world, way, false); }, backend);
        const Tensors other = agreed(
            way.ranks, [&](Communicator& world) { return trained(world, way, true); }, backend);
        EXPECT_TRUE(same_bits(whole, other));
      }
    }
  }
}

TEST(ModelsWithoutMemory, NeedSomebodyToSetTheirValues) {
  const auto texts = errors_on(2, [](Communicator& world) {
    std::optional<nn::WithoutMemory> without(std::in_place);
    torch::nn::Linear model(3, 2);
    without.reset();
    data_parallel(model, world);
  });
  EXPECT_THAT(texts, Each(::testing::AllOf(HasSubstr("made without memory"), HasSubstr("parameter weight"),
                                           HasSubstr(".initialize"))));
}

// Two parameters over the same memory would be separated.
TEST(ModelsWithoutMemory, ShareMemoryAsLittleAsOthers) {
  const auto texts = errors_on(2, [](Communicator& world) {
    std::optional<nn::WithoutMemory> without(std::in_place);
    torch::nn::Sequential model(torch::nn::Linear(3, 3), torch::nn::Linear(3, 3));
    model->to(here);
    without.reset();
    model[1]->as<torch::nn::Linear>()->weight.set_data(model[0]->as<torch::nn::Linear>()->weight);
    data_parallel(*model, world, {.initialize = [&] { nn::initialize(*model, 5); }});
  });
  EXPECT_THAT(texts, Each(HasSubstr("memory shared with 0.weight")));
}

// As LibTorch's to() does, a GPU without a number is the current one.
TEST(ModelsWithoutMemory, GoToTheCurrentGpu) {
  if (!on_gpu) GTEST_SKIP() << "for ranks on GPUs";
  on_ranks(2, [](Communicator& world) -> Tensors {
    std::optional<nn::WithoutMemory> without(std::in_place);
    torch::nn::Linear model(3, 2);
    model->to(torch::kCUDA);
    without.reset();
    auto parallel = data_parallel(*model, world, {.initialize = [&] { nn::initialize(*model, 5); }});
    EXPECT_EQ(model->weight.device(), here);
    return {model->weight.detach()};
  });
}

TEST(ModelsWithoutMemory, AreSoOnAllRanksOrOnNone) {
  const auto texts = errors_on(2, [](Communicator& world) {
    std::optional<nn::WithoutMemory> without;
    if (world.rank() == 1) without.emplace();
    torch::nn::Linear model(3, 2);
    without.reset();
    data_parallel(model, world, {.initialize = [&] { nn::initialize(*model, 5); }});
  });
  EXPECT_THAT(texts, Each(HasSubstr("parameters without memory")));
}

// The parameters never all have memory at the same time. Of sharded parameters each rank has only a share.
TEST(ModelsWithoutMemory, AreNeverWholeWhereRanksDivideThem) {
  on_ranks(
      2,
      [](Communicator& world) -> Tensors {
        std::optional<nn::WithoutMemory> without(std::in_place);
        Net model(at::kFloat);
        model.to(here);
        without.reset();
        EXPECT_THAT(model.mask.sizes(), ::testing::ElementsAre(211));
        std::int64_t most = 0;
        const auto count = [&] {
          std::int64_t with_memory = 0;
          for (const auto& parameter : model.parameters()) with_memory += nn::has_no_memory(parameter) ? 0 : 1;
          most = std::max(most, with_memory);
          model.initialize();
        };
        auto parallel = data_parallel(model, world, {.shard = Shard::kParameters, .initialize = count});
        // Including those with memory from the start, which on a GPU have none while others are set.
        EXPECT_EQ(most, world.rank() == 0 && !on_gpu ? 3 : 2);
        return {};
      },
      "tcp");
}

}  // namespace
}  // namespace reigen::parallel::without_memory_test
