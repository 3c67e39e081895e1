#include "reigen/parallel/layout_of.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "parallel/divided_training.h"
#include "reigen/mesh/mesh.h"
#include "reigen/optim/adamw.h"
#include "tensor/memory/memory_resource.h"

namespace reigen::parallel::layout_of_test {
namespace {

using namespace testing_divided;  // NOLINT: the vocabulary of these tests
using layout::Role;

struct Case {
  Shard shard;
  int ranks;
  const char* backend;
  at::ScalarType type;
  int replicas = 1;
};

std::vector<Case> cases() {
  std::vector<Case> result;
  for (const Shard shard : {Shard::kNone, Shard::kOptimizer, Shard::kGradients, Shard::kParameters}) {
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
      for (const char* backend : {"shared_memory", "tcp"}) {
        for (const int ranks : {1, 2, 3, 4}) result.push_back({shard, ranks, backend, type});
        if (shard != Shard::kNone) result.push_back({shard, 4, backend, type, 2});
      }
    }
  }
  return result;
}

std::string text_of(const Case& one) {
  return std::string(to_text(one.shard)) + " " + one.backend + " " + std::to_string(one.ranks) + " ranks, " +
         std::to_string(one.replicas) + " replicas, " + c10::toString(one.type);
}

// Compares the bytes that remain between steps: the layout's bytes must equal the allocated bytes exactly.
TEST(LayoutOf, BytesAreThoseThatAreAllocated) {
  for (const Case& one : cases()) {
    SCOPED_TRACE(text_of(one));
    agreed_over(one.backend, one.ranks, [&](Communicator& world) -> Tensors {
      Net model(one.type);
      DataParallelOptions options{.shard = one.shard, .units = model.units()};
      if (one.replicas > 1) options.mesh.emplace(world, std::vector<mesh::Axis>{{"dp_replicate", 2}, {"dp_shard", 2}});
      const optim::AdamWOptions rule;
      LayoutInputs inputs = layout_inputs(model, world, options);
      inputs.choices.states = optim::AdamW::states(rule);
      const layout::Layout layout = inputs.choose();
      const layout::Coordinates at = layout.coordinates_of(world.rank());

      auto parallel = data_parallel(model, world, options);
      const optim::AdamW optimizer(parallel.parameters(), rule);
      const tensor::MemoryResource& taken = parallel.parameters().front().resource();
      std::int64_t values = taken.bytes(Role::kValue);
      if (parallel.weights().size() == parallel.parameters().size()) {  // frozen parameters keep their memory
        for (const at::Tensor& parameter : model.parameters()) {
          if (!parameter.requires_grad()) values += static_cast<std::int64_t>(parameter.nbytes());
        }
      }
      EXPECT_EQ(layout.bytes(Role::kValue, at), values);
      EXPECT_EQ(layout.bytes(Role::kGradient, at), taken.bytes(Role::kGradient));
      EXPECT_EQ(layout.bytes(Role::kState, at), taken.bytes(Role::kState));
      return {torch::zeros(1)};
    });
  }
}

}  // namespace
}  // namespace reigen::parallel::layout_of_test
