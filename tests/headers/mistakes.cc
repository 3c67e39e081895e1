// Typical mistakes of new users. headers.cmake compiles this file and checks that the messages have helpful words.
#include <reigen/reigen.h>
#include <reigen/train/program.h>

void an_option_that_is_none(const reigen::data::DatasetPtr& data, const reigen::Communicator& world) {
  reigen::data::Loader loader(data, {.batch_size = 4, .num_workers = 2}, world);
}

void the_same_with_the_name_of_the_options(const reigen::data::DatasetPtr& data, const reigen::Communicator& world) {
  reigen::data::Loader loader(data, reigen::data::LoaderOptions{.batch_size = 4, .num_workers = 2}, world);
}

void parameters_of_the_module(const std::vector<at::Tensor>& parameters) {
  reigen::optim::AdamW optimizer(parameters, {.lr = 1e-3});
}

struct NoTask {};
struct HalfATask : reigen::train::Task {
  at::Tensor training_step(const reigen::data::Samples& batch) override { return batch.input; }
};

int no_task(int argc, char** argv) { return reigen::train::run<NoTask>(argc, argv, {.name = "mine"}); }
int half_a_task(int argc, char** argv) { return reigen::train::run<HalfATask>(argc, argv, {.name = "mine"}); }
