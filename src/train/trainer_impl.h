// A training run: what Trainer::Impl holds and does. Its functions lie where their time is: trainer_start.cc before the
// first step, trainer.cc in the loop, trainer_losses.cc what steps gave, trainer_not_finite.cc when a step gave no
// number and trainer_blame.cc whose it was, trainer_replicas.cc when ranks that must be equal are not,
// trainer_results.cc what a run leaves behind, trainer_saving.cc its checkpoints.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "reigen/base/error.h"
#include "reigen/checkpoint/checkpoint.h"
#include "reigen/checkpoint/saver.h"
#include "reigen/data/loader.h"
#include "reigen/parallel/data_parallel.h"
#include "reigen/tensor/tensor_files.h"
#include "reigen/train/metrics.h"
#include "reigen/train/trainer.h"
#include "train/activations.h"
#include "train/line_file.h"
#include "train/memory_use.h"
#include "train/optimization.h"
#include "train/progress.h"
#include "train/report.h"
#include "train/run_directory.h"
#include "train/step_times.h"
#include "train/step_trace.h"

namespace reigen::train {

struct Trainer::Impl {
  Impl(Task& its_task, Communicator its_world, TrainerOptions its_options)
      : task(its_task), world(std::move(its_world)), options(std::move(its_options)), config(options.config) {
    if (!options.write) options.write = write_to_stdout;
  }

  bool is_first() const { return world.rank() == 0; }
  void say(const std::string& text) {
    if (!is_first()) return;
    if (progress)
      progress->line(text);
    else
      options.write(text + '\n');
  }

  void open_data();
  void compare_data(const data::Meaning& meaning);
  void open_test_data();
  void find_start();
  void prepare_model();
  void load_state(const std::vector<tensor::NamedTensor>& state);
  std::vector<tensor::NamedTensor> state() const;
  void settle();
  void prepare_files();
  void set_future_aside();
  std::int64_t whole_weights() const;
  void dump_past_order();
  void make_progress();
  std::int64_t samples_per_step() const { return std::min(loader->global_batch(), loader->size()); }
  std::int64_t epochs_to_see() const { return (total + loader->steps() - 1) / loader->steps(); }
  void begin();
  bool train();
  bool run_epoch(std::int64_t epoch);
  void step(data::Batch& batch, double data_seconds);
  void seed_step();
  double seconds_met() const;
  at::Tensor loss_of(const data::MicroBatch& part);
  void backward(const at::Tensor& mean, const data::MicroBatch& part);
  struct Made {       // a step
    double loss = 0;  // of the global batch; before it is added up, this rank's sum over its terms
    std::int64_t terms = 0;
    StepMetrics metrics = {};  // rank 0
    std::string order = {};
    bool skipped = false;
  };
  void compare_replicas();
  bool losses_come_late() const;
  bool wants_stop() const { return options.stop_requested && options.stop_requested(); }
  bool hears_of_stop();
  double add_up(double loss, Optimization::Gradients& gradients, const data::Batch& batch);
  void require_finite(double loss, const Optimization::Gradients& gradients, const data::Batch& batch);
  void note(Made one, const data::Batch& batch, const StepTime& time);
  void add_up_late();
  void record(Made& one);
  struct Place {
    std::int64_t epoch;
    std::int64_t position;
    bool operator==(const Place&) const = default;
  };
  struct GivesNoNumber {  // thrown by every rank, to go back to a checkpoint
    Report report;
    Place place;
  };
  void meet_no_number(double loss, const Optimization::Gradients& gradients, const data::Batch& batch, double own);
  void meet_no_number_behind_step(const data::Batch& batch);
  void answer(Report report, const data::Batch& batch);
  void require_way_back(const GivesNoNumber& step);
  void roll_back();
  void note_numbers();
  void note_buffers();
  void take_buffers_back();
  bool is_left_out(const data::Batch& batch) const;
  void pass_over(const data::Batch& batch, double data_seconds);
  void compute_alone(const data::Batch& batch);
  // Which ranks gave what is no number, and where. Collective; the step must not go on after it.
  std::string blame(double loss, const data::Batch& batch);
  // The same from the gradients that ranks have of their own. Collective.
  std::string blame_own();
  // The same of this rank.
  std::string blame_alone(double loss);
  Report not_finite(const char* what, double value, const data::Batch& batch, const std::string& whose) const;
  void write_trace();
  void write_due_trace();
  struct Saved;
  Saved to_save() const;
  void open_saver();
  void prepare_saving();
  void save_checkpoint();
  void require_some_saved();
  void flush_lines();
  void flush_what_can_be();
  void look_at_room();
  std::filesystem::path last_checkpoint() const;
  Saved prepare_to_save();
  void require_finite(const Saved& state) const;
  void note_nan_at_start();
  void save_last();
  void save_last_in_little_room();
  void finish_saving();
  void hear_of_saving();
  void note_failed_save(const IoError& error);
  bool has_results();
  void finish();
  // One of the last things of a run: that it fails is told at the very end, and keeps no other from being done.
  bool attempt(const std::string& what, const std::function<void()>& body);
  void require_all_saved();
  std::string way_back() const;
  void write_models();
  void make_room_for_models();
  void write_model(const std::filesystem::path& path);
  void write_average(const std::filesystem::path& path);
  void write_results();
  void say_closing_words();
  Scores validate(bool may_end = false);
  Scores score(const std::vector<std::int64_t>& indices);
  std::int64_t score_calls() const;
  void validate_and_say(std::int64_t epoch);
  void note_validation(std::int64_t epoch);
  void tell_trouble(const std::string& trouble);
  Summary summarize();

  Task& task;
  Communicator world;
  TrainerOptions options;
  Config config;

  std::optional<data::Loader> loader;
  data::DatasetPtr test_data;
  std::unique_ptr<nn::ActivationCheckpoint> activations;
  std::optional<parallel::DataParallelBase> parallel;
  std::optional<Optimization> optimization;
  std::map<std::string, std::string> described;
  std::map<std::string, std::string> metadata = {{"format", "pt"}};  // of the model's file

  // Where the run is.
  std::int64_t done = 0;      // steps
  std::int64_t total = 0;     // steps
  std::int64_t epoch = 0;     // of the next sample
  std::int64_t position = 0;  // in that epoch
  std::int64_t saved = -1;    // step of the newest checkpoint
  std::int64_t asked_to_save = -1;
  bool stop = false;
  bool settled = false;    // since the last step
  std::vector<Made> late;  // steps whose losses are not added up
  int skipped_in_a_row = 0;
  std::vector<at::Tensor> buffers_before;  // the step, where it may be skipped
  std::set<std::string> begins_with_nan;   // what is not trained may hold one on purpose
  int rollbacks = 0;
  int rollbacks_in_a_row = 0;
  std::int64_t failed_at = 0;   // the step behind the last rollback
  std::vector<Place> left_out;  // batches
  std::optional<checkpoint::Checkpoint> found;
  std::optional<checkpoint::Saver> saver;
  int failed_saves = 0;  // in a row, for want of anything but room
  bool lacks_room = false;
  std::string why_not_saved;
  std::optional<Scores> test;
  bool has_model = false;  // model.safetensors is that of step `done`
  struct Lost {
    std::string what;
    ExitCode code;
    std::string why;
  };
  std::vector<Lost> not_written;
  std::vector<std::string> left_behind;

  // Rank 0 only, but for the path.
  std::filesystem::path directory;
  bool same_run = false;                          // it holds the run that goes on
  std::vector<std::filesystem::path> unreadable;  // checkpoints that were passed over
  std::optional<RunDirectory> held;
  MadeHere made;  // behind what is held: it is taken back before that is given up
  std::optional<MetricsWriter> metrics;
  std::optional<LineFile> order;
  std::optional<Progress> progress;
  std::string told_trouble;  // with the metrics' file

  std::optional<StepTrace> trace;
  bool trace_failed = false;  // it is tried once more at the end
  StepTimes times;
  MemoryUse memory;  // what is counted while steps run
  MemoryUse formula_memory;
  std::vector<std::pair<std::string, std::int64_t>> mesh;  // axes and sizes, for checkpoints
  Stopwatch cycle;
  double first_step_s = 0;
};

}  // namespace reigen::train
