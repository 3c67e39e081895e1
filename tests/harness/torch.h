// LibTorch for tests: tensors, functions, optimizers, and the modules that are quick to compile. torch/torch.h would
// take seconds more in every file, nearly all of them for torch/nn/options.h and transformers.
#pragma once

// IWYU pragma: begin_exports
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/nn/functional.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/utils.h>
#include <torch/optim.h>
#include <torch/types.h>
#include <torch/utils.h>
// IWYU pragma: end_exports
