// How the ranks of data parallelism bring their gradients together. One option picks one:
//
//   auto parallel = reigen::data_parallel(model, world, {.strategy = reigen::parallel::compressed(at::kBFloat16)});
//
// P ranks, gradient g_r of rank r; what the optimizer steps with afterwards, on every rank:
//   plain()               1/P · sum g_r                        N elements travel
//   compressed(type)      1/P · sum round(g_r), in 16 bits     half of them do, or a quarter
// Rounding: to the nearest; the sum is made in fp32 and rounded once more. fp16 overflows above 65504 and loses what is
// below 6e-8: take bf16 unless a loss scaler looks after it.
//
// A strategy of your own is a class with begin() and end(), in a file of its own, and a function that makes it. The
// reducer calls begin() for every bucket as soon as its gradients are complete on this rank, while backward goes on, in
// the same order on every rank; and end() for each, in that order, when backward is over.
// Thread rule: one thread at a time, the one that runs backward.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "reigen/comm/communicator.h"

namespace reigen::parallel {

// Gradients of one element type that travel together.
struct GradientBucket {
  std::size_t index = 0;  // in the order of begin(), the same on every rank
  // What lies in memory from Communicator::allocate, in flat pieces: the gradients below and what lies between them,
  // zeros and flags of the reducer.
  std::vector<at::Tensor> runs = {};
  std::vector<at::Tensor> gradients = {};  // one a parameter, with its shape, within the runs; zero where there is none
  std::vector<std::string> names = {};     // of the parameters
  std::string tag = {};                    // for the calls of this step: "step 7 bucket 0"
};

class Strategy {
 public:
  virtual ~Strategy() = default;

  // With every option that ranks must have in common: "plain", "compressed BFloat16". It is compared between them.
  virtual std::string description() const = 0;
  // Whether it treats all elements of the runs alike, one that is zero on all ranks stays zero and one that is 1 on
  // some does not become it. Then the reducer's flags travel along; else in a call of their own.
  virtual bool keeps_zeros() const = 0;

  // Takes this rank's gradients; may start asynchronous calls, must not wait.
  virtual void begin(const GradientBucket& bucket) = 0;
  // The bucket's gradients = what the ranks agreed on. Waits.
  virtual void end(const GradientBucket& bucket) = 0;

  // Bytes that this rank has given to the other ranks' reductions so far: what a step costs on a network, but for the
  // factor of the algorithm.
  virtual std::uint64_t bytes_given() const = 0;
};

using StrategyFactory = std::function<std::unique_ptr<Strategy>(const Communicator& world)>;

StrategyFactory plain();
// type: at::kBFloat16 or at::kHalf; gradients that have 16 bits travel as they are. Throws InvalidArgument for others.
StrategyFactory compressed(at::ScalarType type);

}  // namespace reigen::parallel
