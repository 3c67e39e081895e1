#include "train/start/run_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/log.h"
#include "reigen/base/error.h"
#include "train/run/agree.h"
#include "train/start/resume.h"

namespace reigen::train {

void RunData::open(const checkpoint::Checkpoint* found) {
  Config& config = run_.config;
  std::vector<std::string> notes;
  data::Meaning meaning;
  together(run_.world, "training data", [&] {
    data::LoaderOptions choice{.shuffle = true,
                               .seed = static_cast<std::uint64_t>(config.train.seed),
                               .micro_batch = config.train.micro_batch,
                               .limit = config.data.limit,
                               .workers = static_cast<int>(config.data.workers),
                               .pin_memory = run_.device.is_cuda(),
                               .device = run_.device,
                               .device_prefetch = static_cast<int>(config.data.device_prefetch)};
    if (config.train.global_batch)
      choice.global_batch = config.train.global_batch;
    else
      choice.batch_size = run_.options.batch_per_rank;
    loader_.emplace(run_.task.training_data(), choice, run_.data);
    described_ = options_of(config, run_.task.name(), loader_->size());
    meaning = run_.task.training_data()->meaning();
    for (const auto& [key, value] : to_text(meaning)) described_[key] = metadata_[key] = value;
    if (found != nullptr) notes = require_compatible(*found, described_, meaning, config.train.global_batch);
  });
  compare_between_ranks(meaning);
  if (found != nullptr && found->manifest().options.contains("data.samples") &&
      found->manifest().options.at("data.samples") != described_["data.samples"] && run_.position > 0) {
    notes.push_back("the epoch begins anew: positions in other data are others");
    run_.position = 0;
  }
  // The test data are opened now instead of after the first epoch, so that a damaged file costs no training time.
  open_test();
  for (const std::string& note : notes) run_.say(note.starts_with("warning: ") ? note : "note: " + note);
  run_.total = config.train.epochs * loader_->steps();
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

void RunData::open_test() {
  if (test_) return;
  together(run_.world, "test data", [&] {
    test_ = run_.task.test_data();
    if (test_->size() > 0) return;
    throw DataError(Report{.what = fmt::format("{}: there are no test samples", run_.task.name()),
                           .got = fmt::format("0 samples of {}", test_->name()),
                           .expected = "at least one: the score of none says nothing",
                           .fix = "keep some samples from training, as the task's test_data()"});
  });
}

std::int64_t RunData::samples_per_step() const { return std::min(loader_->global_batch(), loader_->size()); }

}  // namespace reigen::train
