// Features that must be possible with units alone, each in its smallest real form on one model: parameters that exist
// only while their unit runs (ZeRO-3), and two pipeline stages. Both run with and without activation checkpointing.
#include <gmock/gmock.h>

#include <cstdlib>

#include "nn/blocks.h"
#include "reigen/nn/activation_checkpoint.h"

namespace reigen::testing::unit_spike_test {
namespace {

using nn::Carry;
using nn::Layer;
using nn::Unit;
using testing_oracle::distance;
using testing_oracle::numbers;
using testing_oracle::share;
using testing_oracle::Tensors;
using testing_oracle::values_of;

constexpr int kSteps = 3;
constexpr double kRate = 0.1;

at::Tensor loss_of(const at::Tensor& output) { return output.pow(2).mean(); }

Tensors train_alone() {
  Blocks model({.depth = 4});
  for (std::uint64_t step = 0; step < kSteps; ++step) {
    loss_of(model.forward(numbers(step, {12, 5}))).backward();
    at::NoGradGuard no_grad;
    for (at::Tensor parameter : model.parameters()) {
      parameter.sub_(parameter.grad(), kRate);
      parameter.mutable_grad().reset();
    }
  }
  return values_of(model);
}

void run_over_tcp(int ranks, const std::function<void(Communicator&)>& body) {
  try {
    run_threads(ranks, body, {.backend = "tcp", .timeout = std::chrono::seconds(60)});
  } catch (const std::exception& error) {
    ADD_FAILURE() << error.what();
  }
}

// The parameters of a unit. Every rank keeps a share of them.
class Sharded {
 public:
  Sharded(const Unit& unit, Communicator world)
      : unit_(unit), world_(std::move(world)), parameters_(unit.parameters()) {
    std::int64_t count = 0;
    for (const at::Tensor& parameter : parameters_) count += parameter.numel();
    const std::int64_t ranks = world_.size();
    share_ = (count + ranks - 1) / ranks;
    flat_ = torch::zeros({share_ * ranks}, torch::kDouble);
    at::NoGradGuard no_grad;
    std::int64_t at = 0;
    for (at::Tensor& parameter : parameters_) {
      at::Tensor place = flat_.narrow(0, at, parameter.numel()).view(parameter.sizes());
      place.copy_(parameter);
      parameter.set_data(place);
      at += parameter.numel();
    }
    own = flat_.narrow(0, world_.rank() * share_, share_).clone();
    release();
  }

  void attach() {
    unit_.attach(Layer::kParameters, [this](const Carry& input, const Unit::Forward& inner) {
      gather();
      Carry output = inner(input);
      release();
      for (const at::Tensor& tensor : output) {
        if (tensor.requires_grad()) tensor.register_hook([this](const at::Tensor&) { gather(); });
      }
      return output;
    });
  }

  // One parameter's gradient is ready.
  void on_gradient() {
    if (++ready_ < parameters_.size()) return;
    ready_ = 0;
    at::NoGradGuard no_grad;
    at::Tensor gradients = torch::zeros({share_ * world_.size()}, torch::kDouble);
    std::int64_t at = 0;
    for (at::Tensor& parameter : parameters_) {
      gradients.narrow(0, at, parameter.numel()).copy_(parameter.grad().view({-1}));
      parameter.mutable_grad().reset();
      at += parameter.numel();
    }
    own_gradient = torch::empty({share_}, torch::kDouble);
    world_.reduce_scatter(gradients.data_ptr(), own_gradient.data_ptr(), static_cast<std::size_t>(share_),
                          DataType::kFloat64, ReduceOp::kAvg);
    release();
  }

  Tensors whole() {
    gather();
    Tensors result;
    for (const at::Tensor& parameter : parameters_) result.push_back(parameter.detach().clone());
    release();
    return result;
  }

  at::Tensor own;
  at::Tensor own_gradient;
  static inline thread_local std::size_t resident = 0;  // units whose parameters are gathered
  static inline thread_local std::size_t most_resident = 0;

 private:
  void gather() {
    if (present_) return;
    present_ = true;
    most_resident = std::max(most_resident, ++resident);
    const std::size_t bytes = static_cast<std::size_t>(share_ * world_.size()) * sizeof(double);
    void* memory = std::malloc(bytes);
    world_.all_gather(own.data_ptr(), memory, static_cast<std::size_t>(share_), DataType::kFloat64);
    put(at::DataPtr(memory, memory, &std::free, at::kCPU), bytes);
  }
  void release() {
    if (std::exchange(present_, false)) --resident;
    put(at::DataPtr(nullptr, at::kCPU), 0);
  }
  void put(at::DataPtr data, std::size_t bytes) {
    c10::StorageImpl* storage = flat_.storage().unsafeGetStorageImpl();
    storage->set_data_ptr_noswap(std::move(data));
    storage->set_nbytes(bytes);
  }

  Unit unit_;
  Communicator world_;
  Tensors parameters_;
  at::Tensor flat_;
  std::int64_t share_ = 0;
  std::size_t ready_ = 0;
  bool present_ = false;
};

struct Hook : torch::autograd::PostAccumulateGradHook {
  explicit Hook(Sharded& of) : sharded(of) {}
  void operator()(const torch::autograd::Variable&) override { sharded.on_gradient(); }
  Sharded& sharded;
};

class UnitSpike : public ::testing::TestWithParam<bool> {};

TEST_P(UnitSpike, ParametersAreThereOnlyWhileTheirUnitRuns) {
  const Tensors expected = train_alone();
  run_over_tcp(3, [&](Communicator& world) {
    Blocks model({.depth = 4});
    std::vector<std::unique_ptr<Sharded>> shards;
    for (const Unit& unit : model.units()) {
      shards.push_back(std::make_unique<Sharded>(unit, world));
      shards.back()->attach();
      for (const at::Tensor& parameter : unit.parameters()) {
        torch::autograd::impl::set_post_acc_grad_hooks(parameter, std::make_unique<Hook>(*shards.back()));
      }
    }
    std::optional<nn::ActivationCheckpoint> checkpoint;
    if (GetParam()) checkpoint.emplace(nn::activation_checkpoint(model.units()));
    for (std::uint64_t step = 0; step < kSteps; ++step) {
      loss_of(model.forward(share(numbers(step, {12, 5}), world))).backward();
      EXPECT_EQ(Sharded::resident, 0U);
      for (auto& shard : shards) shard->own.sub_(shard->own_gradient, kRate);
    }
    EXPECT_EQ(Sharded::most_resident, 1U);
    Tensors got;
    for (auto& shard : shards) {
      for (const at::Tensor& value : shard->whole()) got.push_back(value);
    }
    EXPECT_LT(distance(expected, got), 1e-12);
  });
}

void send(Communicator& world, const at::Tensor& tensor, int to) {
  const at::Tensor data = tensor.contiguous();
  world.send(data.const_data_ptr(), static_cast<std::size_t>(data.numel()), DataType::kFloat64, to);
}

at::Tensor receive(Communicator& world, at::IntArrayRef shape, int from) {
  at::Tensor data = torch::empty(shape, torch::kDouble);
  world.recv(data.mutable_data_ptr(), static_cast<std::size_t>(data.numel()), DataType::kFloat64, from);
  return data;
}

// Each rank makes all forwards and then all backwards.
TEST_P(UnitSpike, TwoStagesArePartsOfTheList) {
  constexpr int kParts = 3;
  const Tensors expected = train_alone();
  run_over_tcp(2, [&](Communicator& world) {
    Blocks model({.depth = 4});
    const bool is_last = world.rank() == 1;
    const auto all = model.units();
    const std::vector<Unit> stage(all.begin() + (is_last ? 2 : 0), all.begin() + (is_last ? 4 : 2));
    std::optional<nn::ActivationCheckpoint> checkpoint;
    if (GetParam()) checkpoint.emplace(nn::activation_checkpoint(stage));
    for (std::uint64_t step = 0; step < kSteps; ++step) {
      const auto parts = numbers(step, {12, 5}).chunk(kParts);
      Tensors inputs;
      Tensors outputs;
      for (const at::Tensor& part : parts) {
        inputs.push_back(is_last ? receive(world, part.sizes(), 0).requires_grad_() : part);
        outputs.push_back(nn::fold(stage, inputs.back()));
        if (is_last)
          outputs.back() = loss_of(outputs.back()) / kParts;
        else
          send(world, outputs.back().detach(), 1);
      }
      for (std::size_t i = 0; i < inputs.size(); ++i) {
        if (is_last) {
          outputs[i].backward();
          send(world, inputs[i].grad(), 0);
        } else {
          outputs[i].backward(receive(world, outputs[i].sizes(), 1));
        }
      }
      at::NoGradGuard no_grad;
      for (const Unit& unit : stage) {
        for (at::Tensor parameter : unit.parameters()) {
          parameter.sub_(parameter.grad(), kRate);
          parameter.mutable_grad().reset();
        }
      }
    }
    Tensors mine;
    for (const Unit& unit : stage) {
      for (const at::Tensor& parameter : unit.parameters()) mine.push_back(parameter.detach());
    }
    const auto half = static_cast<std::ptrdiff_t>(expected.size() / 2);
    const Tensors wanted(expected.begin() + (is_last ? half : 0), expected.begin() + (is_last ? 2 * half : half));
    EXPECT_LT(distance(wanted, mine), 1e-12);
  });
}

INSTANTIATE_TEST_SUITE_P(Checkpointed, UnitSpike, ::testing::Bool());

}  // namespace
}  // namespace reigen::testing::unit_spike_test
