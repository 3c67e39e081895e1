#include "reigen/nn/autocast.h"

#include <ATen/autocast_mode.h>

#include <algorithm>

#include "base/check.h"
#include "nn/autocast_devices.h"

namespace reigen::nn {

Autocast::Autocast(c10::ScalarType type, c10::DeviceType device)
    : device_(device), was_enabled_(false), was_type_(type) {
  REIGEN_CHECK(type == at::kBFloat16 || type == at::kHalf,
               "[autocast] cannot compute in this type\n  got: {}   expected: BFloat16 or Half", c10::toString(type));
  REIGEN_CHECK(std::find(kAutocastDevices.begin(), kAutocastDevices.end(), device) != kAutocastDevices.end(),
               "[autocast] not for this device\n  got: {}   expected: cpu or cuda", c10::DeviceTypeName(device, true));
  was_enabled_ = at::autocast::is_autocast_enabled(device);
  was_type_ = at::autocast::get_autocast_dtype(device);
  at::autocast::set_autocast_enabled(device, true);
  at::autocast::set_autocast_dtype(device, type);
  at::autocast::increment_nesting();
}

Autocast::~Autocast() {
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(device_, was_enabled_);
  at::autocast::set_autocast_dtype(device_, was_type_);
}

}  // namespace reigen::nn
