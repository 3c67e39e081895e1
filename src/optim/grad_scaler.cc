#include "reigen/optim/grad_scaler.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "optim/option_checks.h"
#include "optim/range_state.h"
#include "reigen/base/error.h"
#include "reigen/optim/clip.h"

namespace reigen::optim {
namespace {

constexpr const char* kWho = "grad_scaler";

}  // namespace

GradScaler::GradScaler(const GradScalerOptions& options) : options_(options), scale_(options.init_scale) {
  check_above_zero(kWho, "init_scale", options.init_scale);
  check_above_zero(kWho, "min_scale", options.min_scale);
  if (!(options.growth_factor > 1)) refuse_option(kWho, "growth_factor", options.growth_factor, "a number above 1");
  if (!(options.backoff_factor > 0 && options.backoff_factor < 1)) {
    refuse_option(kWho, "backoff_factor", options.backoff_factor, "a number above 0 and below 1");
  }
  if (options.growth_interval < 1) {
    refuse_option(kWho, "growth_interval", static_cast<double>(options.growth_interval), "at least 1");
  }
}

at::Tensor GradScaler::scale(const at::Tensor& loss) const { return options_.enabled ? loss * scale_ : loss; }

bool GradScaler::step(Optimizer& optimizer, const std::vector<ParameterRange>& parameters, const ScaledStep& how) {
  const double scale = options_.enabled ? scale_ : 1;
  const GradientNorm norm = gradient_norm(parameters);
  last_norm_ = norm.norm / scale;
  bool finite = norm.finite;
  if (how.agree != nullptr && how.agree->size() > 1) {
    std::uint8_t overflow = finite ? 0 : 1;
    how.agree->all_reduce(&overflow, &overflow, 1, DataType::kUint8, ReduceOp::kMax, {.tag = "overflow"});
    if (overflow != 0 && finite) last_norm_ = std::numeric_limits<double>::infinity();
    finite = overflow == 0;
  }
  if (!finite && options_.enabled) {
    if (scale_ <= options_.min_scale) {
      throw Error(ExitCode::kNotANumber,
                  Report{.what = "[grad_scaler] gradients are not finite, and the loss scale cannot be smaller",
                         .got = fmt::format("scale {}, norm {}", scale_, last_norm_),
                         .expected = "finite gradients at min_scale",
                         .fix = "use a smaller learning rate, or bf16"});
    }
    scale_ = std::max(scale_ * options_.backoff_factor, options_.min_scale);
    clean_steps_ = 0;
    ++skipped_;
    return false;
  }
  const double clip = how.max_norm > 0 && finite ? clip_factor(last_norm_, how.max_norm) : 1;
  StepOptions options{.gradient_factor = clip / scale};
  if (how.max_value > 0) options.gradient_limit = how.max_value;
  optimizer.step(options);
  if (options_.enabled && ++clean_steps_ >= options_.growth_interval) {
    // The scale does not grow above 2^120. At this scale a loss of 256 is already infinite in fp32.
    scale_ = std::min(scale_ * options_.growth_factor, 0x1p120);
    clean_steps_ = 0;
  }
  return true;
}

std::vector<NamedTensor> GradScaler::state() const {
  const auto number = [](double value) { return at::full({1}, value, at::kDouble); };
  return {{"scaler.scale", number(scale_)},
          {"scaler.clean_steps", number(static_cast<double>(clean_steps_))},
          {"scaler.skipped", number(static_cast<double>(skipped_))}};
}

void GradScaler::load_state(const std::vector<NamedTensor>& state) {
  const std::vector<NamedTensor> own = this->state();
  load_entries(kWho, own, state);
  const auto value = [&](std::size_t i) { return own[i].tensor.item<double>(); };
  check_above_zero(kWho, "scaler.scale", value(0));
  scale_ = value(0);
  clean_steps_ = static_cast<std::int64_t>(value(1));
  skipped_ = static_cast<std::int64_t>(value(2));
}

}  // namespace reigen::optim
