// A dataset and a training loop of your own. The samples are the rows of a CSV file. The model learns to predict the
// last column. The program saves checkpoints, resumes from the newest checkpoint, and stops after the current step when
// a signal requests a stop.
//
//   reigen run -n 2 build/own_loop table.csv runs/own_loop
#include <reigen/reigen.h>
#include <reigen/train/stop.h>
#include <torch/torch.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <span>
#include <sstream>
#include <string>
#include <vector>

class Table : public reigen::data::Dataset {
 public:
  explicit Table(const std::string& path) : name_(path) {
    std::ifstream in(path);
    if (!in) throw reigen::IoError("cannot read the table " + path, reigen::ExitCode::kInputMissing);
    std::int64_t number = 0;
    for (std::string line; std::getline(in, line);) {
      number += 1;
      if (line.find_first_not_of(" \r") == std::string::npos) continue;
      std::istringstream cells(line);
      std::int64_t columns = 0;
      for (std::string cell; std::getline(cells, cell, ','); ++columns) numbers_.push_back(number_in(cell, number));
      if (rows_++ == 0) columns_ = columns;
      if (columns != columns_) refuse(number, std::to_string(columns) + " numbers", std::to_string(columns_));
    }
  }

  std::int64_t size() const override { return rows_; }
  const std::string& name() const override { return name_; }
  std::int64_t columns() const { return columns_; }

  // The loader's threads call this function.
  reigen::data::Samples gather(std::span<const std::int64_t> indices) const override {
    const auto count = static_cast<std::int64_t>(indices.size());
    const auto rows = torch::empty({count, columns_});
    auto* out = rows.data_ptr<float>();
    for (const std::int64_t index : indices) out = std::copy_n(numbers_.data() + index * columns_, columns_, out);
    return {rows.narrow(1, 0, columns_ - 1), rows.narrow(1, columns_ - 1, 1)};
  }

 private:
  [[noreturn]] void refuse(std::int64_t line, const std::string& got, const std::string& expected) const {
    throw reigen::DataError({.what = name_ + " line " + std::to_string(line), .got = got, .expected = expected});
  }
  float number_in(const std::string& cell, std::int64_t line) const {
    char* end = nullptr;
    const float number = std::strtof(cell.c_str(), &end);
    if (end == cell.c_str()) refuse(line, "\"" + cell + "\"", "a number");
    return number;
  }

  std::string name_;
  std::int64_t rows_ = 0;
  std::int64_t columns_ = 0;
  std::vector<float> numbers_;
};

// Returns the mean loss over all rows. Every rank evaluates its share of the rows, so each row counts once.
double evaluate(torch::nn::Sequential& model, const Table& table, reigen::Communicator& world) {
  const torch::NoGradGuard no_grad;
  const auto share = reigen::data::share_of({0, table.size()}, world.rank(), world.size());
  std::vector<std::int64_t> indices;
  for (auto i = share.begin; i < share.end; ++i) indices.push_back(i);
  double sum = 0;
  if (!indices.empty()) {
    const auto rows = table.gather(indices);
    sum = (model->forward(rows.input) - rows.target).square().sum().item<double>();
  }
  world.all_reduce(&sum, &sum, 1, reigen::DataType::kFloat64, reigen::ReduceOp::kSum);
  return sum / static_cast<double>(table.size());
}

int main(int argc, char** argv) try {
  if (argc != 3) {
    std::fprintf(stderr, "usage: own_loop TABLE.csv DIRECTORY\n");
    return 2;
  }
  auto world = reigen::init();
  reigen::train::install_stop_handlers();
  const auto table = std::make_shared<Table>(argv[1]);
  auto loader = reigen::data::Loader(table, {.global_batch = 24, .shuffle = true}, world);

  torch::nn::Sequential model(torch::nn::Linear(table->columns() - 1, 32), torch::nn::Tanh(), torch::nn::Linear(32, 1));
  reigen::nn::initialize(*model, 0);
  auto parallel = reigen::data_parallel(model, world);
  auto optimizer = reigen::optim::AdamW(parallel.parameters(), {.lr = 1e-2});

  reigen::checkpoint::Manifest at;  // the training's progress: step, epoch and position
  const auto found = reigen::checkpoint::find_newest(argv[2]);
  if (found.newest) {
    at = found.newest->manifest();
    parallel.load(*found.newest);
    optimizer.load_state(reigen::tensor::read_group(*found.newest, "optimizer", optimizer.state()), at.step);
    if (world.rank() == 0) std::printf("going on after step %ld\n", static_cast<long>(at.step));
  }
  reigen::checkpoint::Saver saver(argv[2], world, {.keep = 2});
  const auto save = [&] {
    const reigen::tensor::Pieces weights(parallel.own_weights());
    const reigen::tensor::Pieces states(parallel.own(optimizer.state()));
    saver.save(at, {{"model", weights.pieces()}, {"optimizer", states.pieces()}});
  };
  at.global_batch = loader.global_batch();
  at.world_size = world.size();

  for (; at.epoch < 4; ++at.epoch, at.position = 0) {
    for (auto& batch : loader.epoch(at.epoch, at.position)) {
      const auto loss = torch::mse_loss(parallel(batch.input), batch.target);
      (loss * batch.weight).backward();  // ranks may have uneven shares of the last batch
      optimizer.step();
      optimizer.zero_grad();
      at.optimizer_steps = ++at.step;
      at.position = batch.position;

      double sum = loss.item<double>() * static_cast<double>(batch.count);
      world.all_reduce(&sum, &sum, 1, reigen::DataType::kFloat64, reigen::ReduceOp::kSum);
      if (world.rank() == 0 && at.step % 5 == 0) {
        std::printf("step %ld loss %.7f\n", static_cast<long>(at.step), sum / static_cast<double>(batch.global_count));
      }
      if (reigen::train::any_stop_requested(world)) {  // Ctrl-C, TERM, ...; all ranks get the same answer
        save();
        saver.wait();
        return static_cast<int>(reigen::ExitCode::kStopped);
      }
    }
    const double mean = evaluate(model, *table, world);
    if (world.rank() == 0) std::printf("epoch %ld mean %.7f\n", static_cast<long>(at.epoch + 1), mean);
  }
  if (!found.newest || at.step > found.newest->manifest().step) save();
  saver.wait();
  return 0;
} catch (const reigen::Error& error) {
  std::fprintf(stderr, "error: %s\n", error.what());
  return static_cast<int>(error.exit_code());
}
