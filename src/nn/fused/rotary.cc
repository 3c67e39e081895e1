#include "reigen/nn/rotary.h"

#include <ATen/ATen.h>
#include <ATen/MemoryOverlap.h>
#include <fmt/ranges.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cmath>

#include "base/check.h"
#include "nn/fused/once.h"
#include "nn/fused/run.h"
#include "nn/kept_outputs.h"
#include "reigen/nn/sequence_part.h"

namespace reigen::nn {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

device::RotaryStrides strides_of(const at::Tensor& x) {
  return {.batch = x.stride(0), .position = x.stride(1), .head = x.stride(2)};
}

// The table has one row for each position of x.
void turn(const at::Tensor& x, const at::Tensor& output, const at::Tensor& cosines, const at::Tensor& sines,
          bool backwards) {
  if (x.numel() == 0) return;
  fused::run(x, device::RotaryCall{.input = fused::address(x),
                                   .output = fused::target(output),
                                   .cosines = fused::address(cosines),
                                   .sines = fused::address(sines),
                                   .input_strides = strides_of(x),
                                   .output_strides = strides_of(output),
                                   .rows = x.size(0) * x.size(1),
                                   .positions = x.size(1),
                                   .heads = x.size(2),
                                   .half = x.size(3) / 2,
                                   .backwards = backwards,
                                   .types = fused::number_of(x.scalar_type(), x.scalar_type())});
}

// The values of one head lie side by side.
at::Tensor readable(const at::Tensor& x) { return x.stride(3) == 1 ? x : x.contiguous(); }

struct Rotary : torch::autograd::Function<Rotary> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& cosines,
                            const at::Tensor& sines, bool in_place) {
    at::Tensor output = x;
    if (in_place) {
      KeptOutputs::before_write(x);
      context->mark_dirty({x});
    } else {
      output = at::empty(x.sizes(), x.options(), at::MemoryFormat::Contiguous);
    }
    turn(in_place ? x : readable(x), output, cosines, sines, false);
    context->save_for_backward({cosines, sines});
    return output;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    at::Tensor result;
    {
      const at::NoGradGuard no_grad;
      const at::Tensor of_output = readable(gradients[0]);
      result = at::empty(of_output.sizes(), of_output.options(), at::MemoryFormat::Contiguous);
      turn(of_output, result, saved[0], saved[1], true);
    }
    fused::refuse_second_derivatives({result}, {gradients[0]},
                                     {.what = "[rotary] no second derivatives",
                                      .got = "a derivative of a gradient, by create_graph",
                                      .expected = "first derivatives",
                                      .fix = "operations of LibTorch where a gradient is differentiated; else no "
                                             "create_graph"});
    return {result, {}, {}, {}};
  }
};

// For positions that are not consecutive.
at::Tensor turned_at(const at::Tensor& x, const RotaryTable& table, const at::Tensor& positions, bool in_place) {
  const at::ScalarType type = fused::computed(x.scalar_type());
  const auto rows = [&](const at::Tensor& all) {
    return all.detach().index_select(0, positions).to(type).contiguous();
  };
  return Rotary::apply(x, rows(table.cosines), rows(table.sines), in_place);
}

at::Tensor turned(const char* what, const at::Tensor& x, const RotaryTable& table, std::int64_t first, bool in_place) {
  fused::check_tensors(what, {&x, &table.cosines, &table.sines});
  REIGEN_CHECK(x.dim() == 4 && x.size(3) >= 2 && x.size(3) % 2 == 0,
               "[{}] the shape does not fit\n  got: [{}]   expected: [B,T,heads,width], an even width", what,
               fmt::join(x.sizes(), ","));
  REIGEN_CHECK(table.cosines.defined() && table.sines.defined() && table.cosines.dim() == 2 &&
                   table.cosines.sizes() == table.sines.sizes() && table.cosines.size(1) == x.size(3) / 2,
               "[{}] the table does not fit\n  expected: two tensors of [positions, {}]\n  fix: rotary_table({}, {})",
               what, x.size(3) / 2, first + x.size(1), x.size(3));
  const std::shared_ptr<const SequencePart> part = sequence_part();
  if (part && x.size(1) > 0) {
    const std::int64_t end = first + part->length(x.size(1));
    REIGEN_CHECK(first >= 0 && end <= table.cosines.size(0),
                 "[{}] the table has too few positions\n  got: {}   expected: {}\n  fix: rotary_table({}, {})", what,
                 table.cosines.size(0), end, end, x.size(3));
    return turned_at(x, table, part->positions(x.size(1), x.device()) + first, in_place);
  }
  REIGEN_CHECK(first >= 0 && first + x.size(1) <= table.cosines.size(0),
               "[{}] the table has too few positions\n  got: {} from {} on   expected: 0 to {}\n  fix: "
               "rotary_table({}, {})",
               what, x.size(1), first, table.cosines.size(0), first + x.size(1), x.size(3));
  const at::ScalarType type = fused::computed(x.scalar_type());
  const auto rows = [&](const at::Tensor& all) {
    return all.detach().narrow(0, first, x.size(1)).to(type).contiguous();
  };
  return Rotary::apply(x, rows(table.cosines), rows(table.sines), in_place);
}

}  // namespace

RotaryTable rotary_table(std::int64_t positions, std::int64_t width, double theta, c10::ScalarType type,
                         c10::Device device) {
  REIGEN_CHECK(positions >= 1 && width >= 2 && width % 2 == 0,
               "[rotary_table] a size is out of range\n  got: {} positions, width {}   expected: at least 1, and an "
               "even number of at least 2",
               positions, width);
  REIGEN_CHECK(theta > 0 && std::isfinite(theta),
               "[rotary_table] theta is out of range\n  got: {}   expected: a finite number above 0", theta);
  REIGEN_CHECK(type == at::kFloat || type == at::kDouble,
               "[rotary_table] not in this type\n  got: {}   expected: Float, or Double for models in fp64",
               c10::toString(type));
  const at::Tensor exponents = at::arange(0, width, 2, at::kDouble).mul(-std::log(theta) / static_cast<double>(width));
  const at::Tensor angles = at::outer(at::arange(positions, at::kDouble), exponents.exp());
  return {.cosines = angles.cos().to(type).to(device), .sines = angles.sin().to(type).to(device)};
}

at::Tensor rotary(const at::Tensor& x, const RotaryTable& table, std::int64_t first) {
  return turned("rotary", x, table, first, false);
}

at::Tensor rotary_(const at::Tensor& x, const RotaryTable& table, std::int64_t first) {
  REIGEN_CHECK(x.defined() && x.dim() == 4 && x.stride(3) == 1 && at::has_internal_overlap(x) != at::MemOverlap::Yes,
               "[rotary_] cannot write over this tensor\n  expected: [B,T,heads,width], the width without gaps, each "
               "value once in "
               "memory\n  fix: rotary()");
  const bool needs_gradient = at::GradMode::is_enabled() && x.requires_grad();
  REIGEN_CHECK(!needs_gradient || (!x.is_leaf() && !x.is_view()),
               "[rotary_] cannot write over a tensor that needs a gradient and is a {}\n  expected: the result of an "
               "operation\n  fix: rotary()",
               x.is_leaf() ? "parameter" : "part of another tensor");
  return turned("rotary_", x, table, first, true);
}

}  // namespace reigen::nn
