// Tests that every backend must pass, with ranks as threads and as processes. One INSTANTIATE line runs the suite for a
// backend.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "harness/elements.h"
#include "harness/ranks.h"
#include "harness/sanitizer.h"
#include "trial/algorithms.h"

namespace reigen::testing {

// The most elements of a call. In four bytes each they are more than a rank stages or sends at once (256 KiB).
// Sanitizers look at each of them several times, so they get fewer.
constexpr std::size_t kMany = kSanitized ? 70'001 : 100'003;

struct ContractParameter {
  std::string backend;  // the backend for the memory of the buffers
  RankKind kind;
  int ranks;
  int machines = 0;            // rank r is on machine r % machines; 0: the harness chooses
  std::string algorithm = {};  // for every operation that has it
  void (*prepare)(int rank) = nullptr;
  Device device = {};
  const comm::BackendEntry* engine = nullptr;
};

inline std::string name_of(const ::testing::TestParamInfo<ContractParameter>& info) {
  return info.param.backend + (info.param.kind == RankKind::kThreads ? "_threads_" : "_processes_") +
         std::to_string(info.param.ranks) +
         (info.param.machines > 0 ? "_on_" + std::to_string(info.param.machines) : "") +
         (info.param.algorithm.empty() ? "" : "_" + info.param.algorithm);
}

// Some backends do not promise this (docs/errors.md). MPI and NCCL themselves decide the order of additions; a
// hierarchical group adds within each machine first.
inline bool adds_in_rank_order(const std::string& backend) {
  return backend != "mpi" && backend != "nccl" && backend != "hierarchical";
}
// NCCL compares nothing: a difference is found only when a call stalls.
inline bool compares_calls(const std::string& backend) { return backend != "nccl"; }
class CommunicatorContract : public ::testing::TestWithParam<ContractParameter> {
 protected:
  RankOptions options() const {
    return {.ranks = GetParam().ranks,
            .kind = GetParam().kind,
            .backend = GetParam().backend,
            .engine = GetParam().engine,
            .device = GetParam().device,
            .machines = GetParam().machines,
            .algorithms = trial::rules_of(GetParam().algorithm),
            .prepare = GetParam().prepare};
  }
};

// The cases of contract_common_memory.cc, for backends whose ranks have memory in common.
class CommonMemoryContract : public CommunicatorContract {};

// A buffer in memory of the group (of its device, if it has one), or in foreign memory of the host.
template <typename T>
class TestBuffer {
 public:
  TestBuffer(Communicator& world, std::size_t count, bool foreign) : count_(count) {
    if (foreign && world.device().is_cpu()) {
      foreign_.resize(count);
      data_ = foreign_.data();
    } else {
      block_ = world.allocate(count * sizeof(T), world.device());
      data_ = static_cast<T*>(block_.get());
    }
  }
  T* data() { return data_; }
  T& operator[](std::size_t i) { return data_[i]; }
  const T& operator[](std::size_t i) const { return data_[i]; }
  void fill(T value) { std::fill_n(data_, count_, value); }
  std::size_t size() const { return count_; }

 private:
  std::size_t count_;
  std::vector<T> foreign_;
  std::shared_ptr<void> block_;
  T* data_ = nullptr;
};

}  // namespace reigen::testing
