// The options of the optimizers and of the learning rate's schedules. This header does not need LibTorch.
//
// Every optimizer has lr, weight_decay and groups, so config.h describes these options and describe() here leaves
// them out.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "reigen/base/duration.h"
#include "reigen/base/fields.h"
#include "reigen/base/one_of.h"

namespace reigen::optim {

// Parameters that are treated differently from the others, see parameter_group.h.
struct ParameterGroup {
  // Patterns for the whole name of a parameter: `*` stands for any text, `?` for one character. "@vectors" stands for
  // every parameter with at most one dimension: biases, and the scales of norms under any name.
  std::vector<std::string> patterns = {};
  double lr_factor = 1;                     // learning rate = lr_factor · the optimizer's rate; at least 0
  std::optional<double> weight_decay = {};  // at least 0; if not set, the optimizer's weight decay
  bool adapt = true;                        // if false, LARS and LAMB do not scale the step by norms
};

inline constexpr const char* kKeepsSquares = "how much of the mean of squares a step keeps; below 1";

// Each of these functions adds a row (the description of an option, fields.h) that several optimizers have.
inline void add_betas(Fields& fields, std::pair<double, double>& betas) {
  fields.add("beta1", betas.first, at_least(0).below(1), "how much of the mean of gradients a step keeps; below 1");
  fields.add("beta2", betas.second, at_least(0).below(1), kKeepsSquares);
}
inline void add_eps(Fields& fields, double& eps) {
  fields.add("eps", eps, at_least(1e-45), "added to what a gradient is divided by");
}
inline void add_momentum(Fields& fields, double& momentum) {
  fields.add("momentum", momentum, at_least(0).up_to(1), "share of the last step that the next one keeps, as 0.9")
      .none = "0.0";
}
inline void add_bf16_states(Fields& fields, bool& bf16_states) {
  fields.add("bf16_states", bf16_states, "keep the state in bf16, rounded at random: half the memory");
}

// AdamW (adamw.h). State: "<parameter>.exp_avg", ".exp_avg_sq", (amsgrad: ".max_exp_avg_sq") and ".step". Memory: twice
// that of the parameters, with amsgrad three times.
struct AdamWOptions {
  static constexpr const char* kName = "adamw";

  double lr = 1e-3;                             // at least 0
  std::pair<double, double> betas{0.9, 0.999};  // each in [0, 1)
  double eps = 1e-8;                            // above 0
  double weight_decay = 1e-2;                   // at least 0
  bool amsgrad = false;                         // divide by the largest exp_avg_sq so far; one more state tensor
  // If true, the state tensors m (exp_avg) and v (exp_avg_sq) are bf16. Together they then take as much memory as the
  // fp32 parameters, instead of twice as much. Only for fp32 parameters and without amsgrad. m and v are rounded
  // stochastically. With rounding to nearest v would never change: one step changes it by about 1/1000 of its value,
  // and neighbouring bf16 numbers differ by about 1/256. The random bits follow from parameter, element and step, so
  // repeated and resumed runs stay bitwise equal.
  bool bf16_states = false;
  bool master_weights = true;  // for 16-bit parameters, see optimizer.h
  std::vector<ParameterGroup> groups = {};
};
inline void describe(Fields& fields, AdamWOptions& o) {
  add_betas(fields, o.betas);
  add_eps(fields, o.eps);
  fields.add("amsgrad", o.amsgrad, "divide by the largest mean of squares so far");
  add_bf16_states(fields, o.bf16_states);
}

// Adam (adam.h). State: "<parameter>.exp_avg", ".exp_avg_sq", (amsgrad: ".max_exp_avg_sq") and ".step". Memory: twice
// that of the parameters, with amsgrad three times.
struct AdamOptions {
  static constexpr const char* kName = "adam";

  double lr = 1e-3;                             // at least 0
  std::pair<double, double> betas{0.9, 0.999};  // each in [0, 1)
  double eps = 1e-8;                            // above 0
  double weight_decay = 0;                      // at least 0
  bool amsgrad = false;                         // divide by the largest exp_avg_sq so far; one more state tensor
  bool bf16_states = false;                     // as AdamWOptions::bf16_states
  bool master_weights = true;                   // for 16-bit parameters, see optimizer.h
  std::vector<ParameterGroup> groups = {};
};
inline void describe(Fields& fields, AdamOptions& o) {
  add_betas(fields, o.betas);
  add_eps(fields, o.eps);
  fields.add("amsgrad", o.amsgrad, "divide by the largest mean of squares so far");
  add_bf16_states(fields, o.bf16_states);
}

// SGD (sgd.h). State: "<parameter>.momentum" (with momentum) and "<parameter>.step". With momentum, the states take as
// much memory as the parameters; without momentum there are no states.
struct SGDOptions {
  static constexpr const char* kName = "sgd";

  double lr = 1e-3;            // at least 0
  double momentum = 0;         // at least 0; 0 keeps no state tensor
  double dampening = 0;        // finite
  double weight_decay = 0;     // at least 0
  bool nesterov = false;       // needs momentum > 0 and no dampening
  bool bf16_states = false;    // momentum in bf16, as AdamWOptions::bf16_states; needs momentum > 0
  bool master_weights = true;  // for 16-bit parameters, see optimizer.h
  std::vector<ParameterGroup> groups = {};
};
inline void describe(Fields& fields, SGDOptions& o) {
  add_momentum(fields, o.momentum);
  fields.add("dampening", o.dampening, at_least(0).up_to(1), "share of a gradient that the momentum leaves out").needs =
      "momentum";
  fields.add("nesterov", o.nesterov, "look ahead by a step of the momentum").needs = "momentum";
  add_bf16_states(fields, o.bf16_states);
}

// Adagrad (adagrad.h). State: "<parameter>.sum" and ".step". Memory: that of the parameters.
struct AdagradOptions {
  static constexpr const char* kName = "adagrad";

  double lr = 1e-2;                      // at least 0
  double lr_decay = 0;                   // at least 0
  double weight_decay = 0;               // at least 0
  double initial_accumulator_value = 0;  // at least 0
  double eps = 1e-10;                    // above 0
  bool master_weights = true;            // for 16-bit parameters, see optimizer.h
  std::vector<ParameterGroup> groups = {};
};
inline void describe(Fields& fields, AdagradOptions& o) {
  fields.add("lr_decay", o.lr_decay, at_least(0), "step t has lr / (1 + t * lr_decay)");
  fields.add("initial_accumulator_value", o.initial_accumulator_value, at_least(0),
             "what the sum of squares begins with");
  add_eps(fields, o.eps);
}

// RMSprop (rmsprop.h). State: "<parameter>.square_avg", (centered: ".grad_avg"), (with momentum: ".momentum_buffer")
// and ".step". Memory: one to three times that of the parameters.
struct RMSpropOptions {
  static constexpr const char* kName = "rmsprop";

  double lr = 1e-2;            // at least 0
  double alpha = 0.99;         // in [0, 1)
  double eps = 1e-8;           // above 0
  double weight_decay = 0;     // at least 0
  double momentum = 0;         // at least 0; 0 keeps no buffer
  bool centered = false;       // divide by the standard deviation instead of the root mean square
  bool master_weights = true;  // for 16-bit parameters, see optimizer.h
  std::vector<ParameterGroup> groups = {};
};
inline void describe(Fields& fields, RMSpropOptions& o) {
  fields.add("alpha", o.alpha, at_least(0).below(1), kKeepsSquares);
  add_eps(fields, o.eps);
  add_momentum(fields, o.momentum);
  fields.add("centered", o.centered, "divide by the standard deviation");
}

// Lion (lion.h). State: "<parameter>.exp_avg" and ".step". The states take as much memory as the parameters, half as
// much as AdamW's.
struct LionOptions {
  static constexpr const char* kName = "lion";

  double lr = 1e-4;                            // at least 0
  std::pair<double, double> betas{0.9, 0.99};  // each in [0, 1)
  double weight_decay = 0;                     // decoupled; at least 0
  bool bf16_states = false;                    // the state exp_avg in bf16, as AdamWOptions::bf16_states
  bool master_weights = true;                  // for 16-bit parameters, see optimizer.h
  std::vector<ParameterGroup> groups = {};
};
inline void describe(Fields& fields, LionOptions& o) {
  add_betas(fields, o.betas);
  add_bf16_states(fields, o.bf16_states);
}

// LARS (lars.h). State: "<parameter>.momentum" and ".step". Memory: that of the parameters.
struct LARSOptions {
  static constexpr const char* kName = "lars";
  static constexpr bool kByLayer = true;  // a step makes two passes: one computes norms, the other changes the weights

  double lr = 1;                     // at least 0
  double momentum = 0.9;             // at least 0
  double weight_decay = 0;           // at least 0; 5e-4 in the paper
  double trust_coefficient = 0.001;  // above 0
  bool master_weights = true;        // for 16-bit parameters, see optimizer.h
  std::vector<ParameterGroup> groups = {};
};
inline void describe(Fields& fields, LARSOptions& o) {
  add_momentum(fields, o.momentum);
  fields.add("trust_coefficient", o.trust_coefficient, above(0), "norm of a step / norm of its weights");
}

// LAMB (lamb.h). State: "<parameter>.exp_avg", ".exp_avg_sq" and ".step". Memory: twice that of the parameters. LAMB
// computes the direction u of a step twice, so that u takes no memory.
struct LAMBOptions {
  static constexpr const char* kName = "lamb";
  static constexpr bool kByLayer = true;  // a step makes two passes: one computes norms, the other changes the weights

  double lr = 1e-3;                             // at least 0
  std::pair<double, double> betas{0.9, 0.999};  // each in [0, 1)
  double eps = 1e-6;                            // above 0
  double weight_decay = 0;                      // at least 0; 0.01 in the paper
  // The step of a parameter is proportional to the parameter's norm. A norm below norm_low counts as norm_low, and a
  // norm above norm_high counts as norm_high.
  double norm_low = 0;                                         // at least 0
  double norm_high = std::numeric_limits<double>::infinity();  // at least norm_low
  bool master_weights = true;                                  // for 16-bit parameters, see optimizer.h
  std::vector<ParameterGroup> groups = {};
};
inline void describe(Fields& fields, LAMBOptions& o) {
  add_betas(fields, o.betas);
  add_eps(fields, o.eps);
  fields.add("norm_low", o.norm_low, at_least(0), "smallest norm of a layer's weights that its rate follows");
  fields.add("norm_high", o.norm_high, at_least(0), "largest norm of a layer's weights that its rate follows");
}

using AnyOptimizer =
    OneOf<AdamWOptions, AdamOptions, SGDOptions, AdagradOptions, RMSpropOptions, LionOptions, LARSOptions, LAMBOptions>;

// How the learning rate changes after the warm-up, see schedule.h.
enum class Schedule { kConstant, kStep, kMultiStep, kCosine, kPolynomial, kOneCycle, kWarmupStableDecay, kPlateau };

struct ScheduleOptions {
  Schedule kind = Schedule::kConstant;
  std::int64_t warmup_steps = 0;              // length of the warm-up before any kind of schedule, see warm_up()
  std::optional<double> warmup_from = {};     // the rate of the first step, see warm_up_from(); at least 0
  std::int64_t total_steps = 0;               // steps of the run, with the warm-up; for kinds that end with the run
  std::int64_t step_size = 0;                 // kStep: steps between two multiplications by gamma; at least 1
  double gamma = 0.1;                         // kStep, kMultiStep, kPlateau: factor of the rate; at least 0
  std::vector<std::int64_t> milestones = {};  // kMultiStep: steps at which gamma multiplies the rate; ascending
  double min_factor = 0;                      // kCosine, kPolynomial, ..., kPlateau: last rate / lr; in [0, 1]
  double power = 1;                           // kPolynomial: exponent; 1 gives a straight line; at least 0
  std::int64_t decay_steps = 0;               // kWarmupStableDecay: steps of the decay at the end
  double pct_start = 0.3;                     // kOneCycle: share of the steps in which the rate grows; in [0, 1]
  double div_factor = 25;                     // kOneCycle: lr / first rate; above 0
  double final_div_factor = 1e4;              // kOneCycle: first rate / last rate; above 0
  // kPlateau: the trainer multiplies the rate by gamma when this figure of the validations was not better in more than
  // `patience` of them (train/loop/plateau.h). scheduled_lr() knows nothing of it.
  std::string monitor = "test_loss";
  std::string mode = "min";
  std::int64_t patience = 10;
};

inline constexpr const char* kSchedules[] = {"constant",   "step",      "multi_step",          "cosine",
                                             "polynomial", "one_cycle", "warmup_stable_decay", "plateau"};

// The options of one kind of schedule: the members of ScheduleOptions that this kind uses.
template <Schedule kKind>
struct ScheduleOf {
  static constexpr const char* kName = kSchedules[static_cast<int>(kKind)];

  ScheduleOptions options{.kind = kKind};
  std::vector<Duration> milestones = {};  // kMultiStep: options.milestones, in steps or in epochs
};
// Steps that a program has set in the options count as milestones.
inline void add_milestones(Fields& fields, std::vector<Duration>& milestones, const std::vector<std::int64_t>& steps) {
  if (milestones.empty())
    for (const std::int64_t step : steps) milestones.push_back({.count = static_cast<double>(step)});
  fields
      .add("milestones", milestones, "when the rate is multiplied by gamma: 1000,2000 (steps), or 30 epochs,60 epochs")
      .required = true;
}
template <Schedule kKind>
void describe(Fields& fields, ScheduleOf<kKind>& schedule) {
  using enum Schedule;
  ScheduleOptions& o = schedule.options;
  if constexpr (kKind == kCosine || kKind == kPolynomial || kKind == kWarmupStableDecay || kKind == kPlateau)
    fields.add("min_lr_factor", o.min_factor, at_least(0).up_to(1), "smallest share of optim.lr");
  if constexpr (kKind == kStep)
    fields.add("step_size", o.step_size, at_least(1), "steps between two factors gamma").required = true;
  if constexpr (kKind == kStep || kKind == kMultiStep || kKind == kPlateau)
    fields.add("gamma", o.gamma, at_least(0), "factor of the learning rate");
  if constexpr (kKind == kMultiStep) add_milestones(fields, schedule.milestones, o.milestones);
  if constexpr (kKind == kPolynomial) fields.add("power", o.power, at_least(0).up_to(1e6), "1: a straight line");
  if constexpr (kKind == kWarmupStableDecay)
    fields.add("decay_steps", o.decay_steps, at_least(0), "steps of the decay at the end").required = true;
  if constexpr (kKind == kPlateau) {
    fields.add("monitor", o.monitor, "multiply by gamma when this figure of validations stops improving").none =
        "test_loss";
    fields.add("mode", o.mode, {"min", "max"}, "whether less or more of it is better").none = "min";
    fields.add("patience", o.patience, at_least(0).up_to(1e9), "validations without a better value that are borne");
  }
  if constexpr (kKind == kOneCycle) {
    fields.add("pct_start", o.pct_start, at_least(0).up_to(1), "share of the steps in which the rate grows");
    fields.add("div_factor", o.div_factor, above(0), "optim.lr / the rate at the begin");
    fields.add("final_div_factor", o.final_div_factor, above(0), "the rate at the begin / that at the end");
  }
}

using AnySchedule =
    OneOf<ScheduleOf<Schedule::kConstant>, ScheduleOf<Schedule::kStep>, ScheduleOf<Schedule::kMultiStep>,
          ScheduleOf<Schedule::kCosine>, ScheduleOf<Schedule::kPolynomial>, ScheduleOf<Schedule::kOneCycle>,
          ScheduleOf<Schedule::kWarmupStableDecay>, ScheduleOf<Schedule::kPlateau>>;

// How the learning rate grows with the global batch, see scaled_lr().
enum class LrScaling { kNone, kLinear, kSqrt };

}  // namespace reigen::optim
