#include "reigen/parallel/data_parallel.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "base/name_patterns.h"
#include "parallel/gradient_reducer.h"
#include "reigen/base/error.h"

namespace reigen::parallel {

NoSync::NoSync(std::shared_ptr<GradientReducer> reducer) : reducer_(std::move(reducer)) { reducer_->enter_no_sync(); }

NoSync::~NoSync() {
  if (reducer_) reducer_->leave_no_sync();
}

DataParallelBase::DataParallelBase(torch::nn::Module& module, Communicator world, const DataParallelOptions& options)
    : reducer_(std::make_shared<GradientReducer>(module, std::move(world), options)) {}

DataParallelBase::DataParallelBase(std::shared_ptr<GradientReducer> reducer) : reducer_(std::move(reducer)) {}

const std::vector<ParameterRange>& DataParallelBase::parameters() const { return reducer_->ranges(); }

std::vector<ParameterRange> DataParallelBase::parameters(const std::vector<std::string>& patterns) const {
  const auto& lists = reducer_->options().optimizers;
  const auto list = std::find(lists.begin(), lists.end(), patterns);
  if (list == lists.end()) {
    throw InvalidArgument(Report{.what = "[data_parallel] parameters() of a list that is not in .optimizers",
                                 .got = fmt::format("\"{}\"", fmt::join(patterns, "\", \"")),
                                 .expected = fmt::format("one of {} lists", lists.size()),
                                 .fix = "give data_parallel() the patterns of each optimizer (.optimizers)"});
  }
  std::vector<ParameterRange> result;
  for (const ParameterRange& range : parameters()) {
    const tensor::Segment& first = range.segments().front();  // the others belong to the same list
    if (base::list_of(first.name, first.aliases, lists) == static_cast<std::size_t>(list - lists.begin()))
      result.push_back(range);
  }
  return result;
}

std::vector<ParameterRange> DataParallelBase::weights() const { return reducer_->all_ranges(); }

std::vector<tensor::NamedTensor> DataParallelBase::own_weights() const { return reducer_->own_weights(); }

std::vector<tensor::NamedTensor> DataParallelBase::own(std::vector<tensor::NamedTensor> tensors) const {
  return reducer_->own(std::move(tensors));
}

void DataParallelBase::load(const checkpoint::Checkpoint& from, std::string_view group) { reducer_->load(from, group); }

NoSync DataParallelBase::no_sync() { return NoSync(reducer_); }

void DataParallelBase::synchronize() { reducer_->synchronize(); }

void DataParallelBase::prepare_forward() { reducer_->prepare_forward(); }

void DataParallelBase::number_step(std::int64_t step) { reducer_->number_step(step); }

void DataParallelBase::after_step() { reducer_->after_step(); }

void DataParallelBase::settle() { reducer_->settle(); }

bool DataParallelBase::ranks_differ() const { return reducer_->ranks_differ(); }

std::map<std::string, at::Tensor> DataParallelBase::strategy_state() const { return reducer_->strategy_state(); }

void DataParallelBase::load_strategy_state(const std::map<std::string, at::Tensor>& state) {
  reducer_->load_strategy_state(state);
}

std::chrono::duration<double> DataParallelBase::last_exposed_communication() const { return reducer_->exposed(); }

std::uint64_t DataParallelBase::bytes_given() const { return reducer_->bytes_given(); }

std::vector<BucketTimes> DataParallelBase::last_buckets() const { return reducer_->bucket_times(); }

Shard DataParallelBase::shard() const { return reducer_->shard(); }

const Communicator& DataParallelBase::replicas() const { return reducer_->replicas(); }

bool DataParallelBase::gathers() const { return reducer_->gathers(); }

void DataParallelBase::gather_weights() { reducer_->gather_weights(); }

std::size_t DataParallelBase::bucket_count() const { return reducer_->bucket_count(); }

}  // namespace reigen::parallel
