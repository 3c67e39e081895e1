// Messages between stages: any number of tensors, and a rank waits only for what it takes.
#include "parallel/pipeline/messages.h"

#include <ATen/ATen.h>

#include <gtest/gtest.h>
#include <chrono>
#include <string>

#include "harness/ranks.h"
#include "harness/torch.h"
#include "reigen/nn/unit.h"
#include "reigen/schedule/schedule.h"

namespace reigen::parallel::pipeline_messages_test {
namespace {

using schedule::Action;
using schedule::Kind;
using testing::Rank;

Action output_of(int micro_batch) { return {Kind::kReceiveForward, 1, micro_batch, 0}; }
Action gradient_of(int micro_batch) { return {Kind::kReceiveBackward, 0, micro_batch, 1}; }

// Tensors of several types and shapes. Every third is empty.
nn::Carry tensors_of(int count) {
  nn::Carry tensors;
  for (int i = 0; i < count; ++i) {
    const at::Tensor one = at::arange(i % 3 == 2 ? 0 : 2 * i + 2, i % 2 == 0 ? at::kDouble : at::kLong).view({-1, 2});
    tensors.push_back(one.is_floating_point() ? (one + i).requires_grad_(i % 4 == 0) : one);
  }
  return tensors;
}

void expect_same(const nn::Carry& found, const nn::Carry& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    EXPECT_EQ(found[i].scalar_type(), expected[i].scalar_type()) << i;
    EXPECT_EQ(found[i].sizes(), expected[i].sizes()) << i;
    EXPECT_TRUE(at::equal(found[i], expected[i])) << i;
    EXPECT_EQ(found[i].requires_grad(), expected[i].requires_grad()) << i;
  }
}

TEST(PipelineMessages, BringAnyNumberOfTensors) {
  for (const int count : {0, 1, 11, 12, 20, 1024}) {
    SCOPED_TRACE(count);
    testing::run_ranks({.ranks = 2}, [&](Rank& rank) {
      Messages messages(rank.world(), 2, at::kCPU);
      const nn::Carry tensors = tensors_of(count);
      if (rank.rank() == 0) {
        for (const int m : {0, 1}) messages.send(counterpart(output_of(m)), 1, tensors);
        std::size_t bytes = count <= 11 ? 1024 : 8 * (5 + 11 * static_cast<std::size_t>(count));
        for (const at::Tensor& one : tensors) bytes += one.nbytes();
        EXPECT_EQ(messages.bytes_sent(), 2 * bytes);
      } else {
        for (const int m : {0, 1}) messages.expect(output_of(m), 0);
        for (const int m : {0, 1}) expect_same(messages.take(output_of(m)), tensors);
      }
      messages.finish();
    });
  }
}

// Rank 0 sends only after rank 1 has expected everything. Rank 1 takes it in another order.
TEST(PipelineMessages, OnlyTakingWaits) {
  for (const int count : {1, 20}) {
    testing::run_ranks({.ranks = 2, .timeout = std::chrono::seconds(20)}, [&](Rank& rank) {
      Messages messages(rank.world(), 3, at::kCPU);
      const auto tensors = [&](int micro_batch) { return tensors_of(count + micro_batch); };
      nn::Carry gradients = tensors_of(3);
      for (at::Tensor& one : gradients) one = one.detach();
      if (rank.rank() == 0) {
        for (const int m : {0, 1}) messages.expect(gradient_of(m), 1, tensors_of(3));
        rank.world().barrier();
        for (const int m : {0, 1, 2}) messages.send(counterpart(output_of(m)), 1, tensors(m));
        for (const int m : {1, 0}) expect_same(messages.take(gradient_of(m)), gradients);
      } else {
        for (const int m : {0, 1, 2}) messages.expect(output_of(m), 0);
        rank.world().barrier();
        for (const int m : {0, 1}) messages.send(counterpart(gradient_of(m)), 0, gradients);
        for (const int m : {2, 0, 1}) expect_same(messages.take(output_of(m)), tensors(m));
      }
      messages.finish();
    });
  }
}

}  // namespace
}  // namespace reigen::parallel::pipeline_messages_test
