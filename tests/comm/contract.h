// What every backend must do, as threads and as processes. A backend earns the suite by one INSTANTIATE line.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "harness/elements.h"
#include "harness/ranks.h"
#include "trial/algorithms.h"

namespace reigen::testing {

struct ContractParameter {
  std::string backend;  // of the memory that the buffers lie in
  RankKind kind;
  int ranks;
  int machines = 0;            // every so many-th rank shares one; 0: as the harness has it
  std::string algorithm = {};  // of every operation that has it
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

// What some backends do not promise: docs/errors.md. MPI and NCCL themselves decide in which order they add, machines
// add before they meet.
inline bool adds_in_rank_order(const std::string& backend) {
  return backend != "mpi" && backend != "nccl" && backend != "hierarchical";
}
// NCCL compares nothing: what differs is found only when a call stalls.
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

// A buffer in the group's memory, its device's where it has one, or foreign memory of the host.
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
