// A program's own checkpoints of sharded weights. load() can read the data of own_weights() into any layout.
#include <gmock/gmock.h>

#include <string>

#include "format/temporary_folder.h"
#include "harness/torch.h"
#include "parallel/divided_training.h"
#include "reigen/checkpoint/checkpoint.h"
#include "reigen/tensor/pieces.h"

namespace reigen::parallel::shard_checkpoint_test {
namespace {

using namespace testing_divided;  // NOLINT: the vocabulary of these tests
using ::testing::Each;
using ::testing::HasSubstr;

struct Place {
  const char* backend;
  Shard shard;
  int ranks;
};

const std::vector<Place> kPlaces{{"tcp", Shard::kNone, 2},
                                 {"tcp", Shard::kOptimizer, 3},
                                 {"tcp", Shard::kGradients, 2},
                                 {"tcp", Shard::kParameters, 3},
                                 {"shared_memory", Shard::kOptimizer, 2},
                                 {"shared_memory", Shard::kGradients, 3},
                                 {"shared_memory", Shard::kParameters, 2}};

Tensors on(const Place& place, const std::function<Tensors(Communicator&, Net&, DataParallel<Net>&)>& body) {
  return agreed_over(place.backend, place.ranks, [&](Communicator& world) {
    Net model(at::kDouble);
    auto parallel = data_parallel(model, world, options_of({.shard = place.shard}, model, world));
    return body(world, model, parallel);
  });
}

Tensors end_of(Net& model, DataParallel<Net>& parallel) {
  parallel.gather_weights();
  return values_of(model);
}

void train_one(Communicator& world, DataParallel<Net>& parallel, optim::AdamW& optimizer, std::uint64_t step) {
  loss_of(parallel(input_of(step, world))).backward();
  optimizer.step();
  optimizer.zero_grad();
}

TEST(ShardCheckpoint, WhatOneDivisionGivesAnotherTakes) {
  for (const Place& from : kPlaces) {
    const tests::TemporaryFolder folder;
    const Tensors saved = on(from, [&](Communicator& world, Net& model, DataParallel<Net>& parallel) {
      optim::AdamW optimizer(parallel.parameters(), {.lr = 0.01});
      for (std::uint64_t step = 0; step < 2; ++step) train_one(world, parallel, optimizer, step);
      const tensor::Pieces weights(parallel.own_weights());
      const tensor::Pieces states(parallel.own(optimizer.state()));
      checkpoint::save(folder.path(), {.step = 2}, {{"model", weights.pieces()}, {"optimizer", states.pieces()}}, 1,
                       world);
      return end_of(model, parallel);
    });
    Tensors first_end;
    for (const Place& to : kPlaces) {
      const std::string what =
          std::string(from.backend) + " " + to_text(from.shard) + " to " + to.backend + " " + to_text(to.shard);
      const auto found = checkpoint::find_newest(folder.path());
      ASSERT_TRUE(found.newest);
      EXPECT_TRUE(same_bits(on(to,
                               [&](Communicator&, Net& model, DataParallel<Net>& parallel) {
                                 parallel.load(*found.newest);
                                 return end_of(model, parallel);
                               }),
                            saved))
          << what;
      // Training can go on from the checkpoint.
      const Tensors end = on(to, [&](Communicator& world, Net& model, DataParallel<Net>& parallel) {
        parallel(input_of(7, world));  // other weights are being gathered, or are gathered
        parallel.load(*found.newest);
        optim::AdamW optimizer(parallel.parameters(), {.lr = 0.01});
        optimizer.load_state(tensor::read_group(*found.newest, "optimizer", optimizer.state()), 2);
        train_one(world, parallel, optimizer, 2);
        return end_of(model, parallel);
      });
      if (first_end.empty()) first_end = end;
      EXPECT_LT(distance(end, first_end), 1e-12) << what;
    }
    EXPECT_GT(distance(saved, first_end), 1e-4);
  }
}

TEST(ShardCheckpoint, WeightsThatAreElsewhereAreNeitherSavedNorReadInto) {
  const tests::TemporaryFolder folder;
  on({"self", Shard::kNone, 1}, [&](Communicator&, Net& model, DataParallel<Net>&) {
    const tensor::Pieces weights(tensor::tensors_of(model));
    checkpoint::save(folder.path(), {.step = 1}, {{"model", weights.pieces()}}, 1);
    return values_of(model);
  });
  const auto found = checkpoint::find_newest(folder.path());
  ASSERT_TRUE(found.newest);
  const auto refusal = [](const std::function<void()>& call) {
    try {
      call();
    } catch (const InvalidArgument& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  on({"tcp", Shard::kParameters, 2}, [&](Communicator&, Net& model, DataParallel<Net>& parallel) {
    EXPECT_THAT(refusal([&] { tensor::Pieces(tensor::tensors_of(model)); }), HasSubstr("own_weights()"));
    const auto read = [&] { tensor::read_into(*found.newest, "model", tensor::tensors_of(model)); };
    EXPECT_THAT(refusal(read), HasSubstr("use data_parallel's load()"));
    parallel.gather_weights();
    EXPECT_EQ(tensor::Pieces(tensor::tensors_of(model)).pieces().size(), tensor::tensors_of(model).size());
    EXPECT_THAT(refusal(read), HasSubstr("use data_parallel's load()"));
    return values_of(model);
  });
}

TEST(ShardCheckpoint, WhatDoesNotFitIsRefusedOnEveryRank) {
  const tests::TemporaryFolder folder;
  on({"self", Shard::kNone, 1}, [&](Communicator&, Net& model, DataParallel<Net>&) {
    auto tensors = tensor::tensors_of(model);
    tensors.pop_back();
    const tensor::Pieces weights(tensors);
    checkpoint::save(folder.path(), {.step = 1}, {{"model", weights.pieces()}}, 1);
    return values_of(model);
  });
  const auto found = checkpoint::find_newest(folder.path());
  for (const Place& place : kPlaces) {
    on(place, [&](Communicator&, Net& model, DataParallel<Net>& parallel) {
      try {
        parallel.load(*found.newest);
        ADD_FAILURE() << "no error";
      } catch (const Error& error) {
        EXPECT_EQ(error.exit_code(), ExitCode::kBadData);
        EXPECT_THAT(error.what(), HasSubstr("rank 0 of "));
        EXPECT_THAT(error.what(), HasSubstr("has no tensor"));
      }
      return end_of(model, parallel);
    });
  }
}

}  // namespace
}  // namespace reigen::parallel::shard_checkpoint_test
