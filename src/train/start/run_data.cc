#include "train/start/run_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/machine/host_name.h"
#include "base/text.h"
#include "comm/agree.h"
#include "reigen/base/error.h"
#include "reigen/comm/byte_strings.h"
#include "train/optimizer/own_optimizer.h"
#include "train/run/agree.h"
#include "train/run/workers.h"
#include "train/start/resume.h"

namespace reigen::train {

namespace {

void require_there(const data::DatasetPtr& data, const char* function) {
  if (data) return;
  throw InvalidArgument(Report{.what = fmt::format("the DataModule's {}() returned null", function),
                               .expected = "a dataset",
                               .fix = "return one (reigen/data/dataset.h)"});
}

void require_samples(const data::Dataset& data, const char* function) {
  if (data.size() > 0) return;
  throw DataError(Report{.what = fmt::format("there are no samples for {}", function),
                         .got = fmt::format("0 samples of {}", data.name()),
                         .expected = "at least one: the figures of none say nothing",
                         .fix = fmt::format("keep some samples from training, as the data's {}()", function)});
}

// Ranks with other data would make other numbers of calls, and wait for each other.
void require_same_size(const Communicator& world, const data::DatasetPtr& data, const char* function) {
  const std::string own = data ? base::counted(data->size(), "sample") : std::string("null");
  const auto difference = comm::find_difference({own}, world, "samples");
  if (!difference) return;
  throw common(InvalidArgument(Report{.what = fmt::format("ranks have different data: {}()", function),
                                      .got = fmt::format("{} on rank {}", difference->other, difference->rank),
                                      .expected = fmt::format("{} as on rank 0", difference->first),
                                      .fix = "give every rank the same data, on each machine"}));
}

data::Shuffle shuffle_of(const Config& config) {
  if (config.train.overfit > 0 || config.data.shuffle == "none") return data::Shuffle::kNone;
  return config.data.shuffle == "blocks" ? data::Shuffle::kBlocks : data::Shuffle::kFull;
}

}  // namespace

void RunData::open(const checkpoint::Checkpoint* found) {
  Config& config = run_.config;
  std::vector<std::string> notes;
  data::Meaning meaning;
  if (config.data.max_bad > 0 && (config.mesh.tp > 1 || config.mesh.cp > 1 || config.mesh.pp > 1)) {
    throw InvalidArgument(Report{.what = "data.max_bad with mesh.tp, mesh.cp or mesh.pp",
                                 .got = std::to_string(config.data.max_bad),
                                 .expected = "0: ranks that compute on the same samples must leave out the same",
                                 .fix = "mend the data (reigen data verify names what is damaged), or leave it out"});
  }
  prepare();
  together(run_.world, "training data", [&] {
    const data::Workers workers = workers_of(run_);
    data::LoaderOptions choice{.shuffle = shuffle_of(config),
                               .seed = static_cast<std::uint64_t>(config.train.seed),
                               .max_bad = config.data.max_bad,
                               .micro_batch = config.train.micro_batch,
                               .limit = config.data.limit,
                               .workers = workers.least,
                               .most_workers = workers.most,
                               .pin_memory = run_.device.is_cuda(),
                               .device = run_.device,
                               .device_prefetch = static_cast<int>(config.data.device_prefetch)};
    if (config.train.global_batch)
      choice.global_batch = config.train.global_batch;
    else
      choice.batch_size = run_.options.batch_per_rank;
    if (config.train.overfit > 0) {
      const std::int64_t batch = choice.global_batch.value_or(run_.options.batch_per_rank * run_.data.size());
      const std::int64_t limit = config.train.overfit * batch;
      choice.limit = choice.limit > 0 ? std::min(choice.limit, limit) : limit;
    }
    const data::DatasetPtr training = run_.data_module.training();
    require_there(training, "training");
    loader_.emplace(training, choice, run_.data);
    described_ = options_of(config, run_.name(), loader_->size());
    if (!run_.parts.empty()) described_["task.optimizers"] = to_text(run_.parts);
    meaning = training->meaning();
    for (const auto& [key, value] : to_text(meaning)) described_[key] = metadata_[key] = value;
    if (found != nullptr) notes = require_compatible(*found, described_, meaning, config.train.global_batch);
  });
  compare_between_ranks(meaning);
  if (found != nullptr && found->manifest().options.contains("data.samples") &&
      found->manifest().options.at("data.samples") != described_["data.samples"] && run_.position > 0) {
    notes.push_back("the epoch begins anew: positions in other data are others");
    run_.position = 0;
  }
  // The data for validation are opened now instead of after the first epoch, so that a damaged file costs no time.
  together(run_.world, "validation data", [&] {
    validation_ = run_.data_module.validation();
    if (validation_) require_samples(*validation_, "validation");
  });
  require_same_size(run_.world, validation_, "validation");
  for (const std::string& note : notes) run_.say(note.starts_with("warning: ") ? note : "note: " + note);
  run_.steps_of_epoch = loader_->steps();
  run_.total = config.train.epochs * run_.steps_of_epoch;
  if (config.train.max_steps > 0) run_.total = std::min(run_.total, config.train.max_steps);
}

// Compares the data of all ranks, because each machine may have its own copy of the data, and one copy may be older.
void RunData::compare_between_ranks(const data::Meaning& meaning) {
  if (run_.world.size() == 1) return;
  data::Meaning all = meaning;
  all.push_back({.name = "number of samples", .values = {std::to_string(loader_->size())}});
  const TextMap first = from_line(share_text(run_.world, to_line(to_text(all))));
  together(run_.world, "training data", [&] {
    for (const Difference& one : differences(all, first)) {
      const auto fact = std::find_if(all.begin(), all.end(), [&](const data::Fact& f) { return f.name == one.fact; });
      const bool is_list = fact != all.end() && !fact->one.empty();
      const std::string text = fmt::format("this rank's data are not those of rank 0: {} there", one.text);
      if (is_list || one.fact == "number of samples") {
        throw InvalidArgument(
            Report{.what = text, .fix = "give every rank the same data, on each machine, in data.path"});
      }
      base::log_warning("{}", text);
    }
  });
}

// The first rank of each machine prepares, while the other ranks wait.
void RunData::prepare() {
  if (std::exchange(is_prepared_, true)) return;
  const std::vector<std::string> machines = comm::all_gather_bytes(base::host_name(), run_.world, "machines");
  const auto first = std::find(machines.begin(), machines.end(), base::host_name()) - machines.begin();
  together(run_.world, "prepare data", [&] {
    if (first == run_.world.rank()) run_.data_module.prepare();
  });
  together(run_.world, "set up data", [&] { run_.data_module.setup(); });
}

void RunData::open_validation() {
  if (!validation_) validation_ = open_for("validation", [](DataModule& data) { return data.validation(); });
}

data::DatasetPtr RunData::open_for(const char* name, const std::function<data::DatasetPtr(DataModule&)>& open) {
  prepare();
  data::DatasetPtr opened;
  together(run_.world, "data", [&] {
    opened = open(run_.data_module);
    require_there(opened, name);
    require_samples(*opened, name);
  });
  require_same_size(run_.world, opened, name);
  return opened;
}

std::int64_t RunData::samples_per_step() const { return std::min(loader_->global_batch(), loader_->size()); }

}  // namespace reigen::train
