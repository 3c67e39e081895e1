// The kernels of the plug-in for layers of models (device/model_calls.h), computed on the host.
// Thread rule: any thread.
#pragma once

#include "device/kernels.h"

namespace reigen::testing::stand_in {

void add_model_kernels(device::Kernels& table);

}  // namespace reigen::testing::stand_in
