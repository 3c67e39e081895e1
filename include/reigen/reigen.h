// Includes everything that a training loop needs. Each part also has its own header, which takes less time to compile.
// Two headers are left out, because they include much more: reigen/nn/sync_batch_norm.h (a module of torch::nn) and
// reigen/train/program.h (makes a program from a task, with flags, checkpoints and a clean stop).
//
//   #include <reigen/reigen.h>
//   auto world = reigen::init();
//   auto data = reigen::data::mnist("data/mnist");
//   auto loader = reigen::data::Loader(data, {.batch_size = 64, .shuffle = true}, world);
//   auto parallel = reigen::data_parallel(model, world);
//   auto optimizer = reigen::optim::AdamW(parallel.parameters(), {.lr = 1e-3});
//
// Thread rule: each part has a rule of its own (docs/threads.md).
#pragma once

#include "reigen/base/error.h"
#include "reigen/checkpoint/saver.h"
#include "reigen/comm/byte_strings.h"
#include "reigen/comm/communicator.h"
#include "reigen/comm/process_set.h"
#include "reigen/data/digits.h"
#include "reigen/data/loader.h"
#include "reigen/data/mnist.h"
#include "reigen/data/sampler.h"
#include "reigen/nn/init.h"
#include "reigen/nn/stand_in.h"
#include "reigen/nn/unit_policy.h"
#include "reigen/nn/without_memory.h"
#include "reigen/optim/adagrad.h"
#include "reigen/optim/adam.h"
#include "reigen/optim/adamw.h"
#include "reigen/optim/clip.h"
#include "reigen/optim/ema.h"
#include "reigen/optim/lamb.h"
#include "reigen/optim/lars.h"
#include "reigen/optim/lion.h"
#include "reigen/optim/rmsprop.h"
#include "reigen/optim/schedule.h"
#include "reigen/optim/sgd.h"
#include "reigen/parallel/broadcast_state.h"
#include "reigen/parallel/data_parallel.h"
#include "reigen/parallel/distributed_optimizer.h"
#include "reigen/parallel/join.h"
#include "reigen/parallel/pipeline.h"
#include "reigen/parallel/replicas.h"
#include "reigen/parallel/strategies.h"
#include "reigen/parallel/verify.h"
#include "reigen/runtime/init.h"
#include "reigen/tensor/collectives.h"
#include "reigen/tensor/compute_threads.h"
#include "reigen/tensor/pieces.h"
#include "reigen/train/timeline.h"
