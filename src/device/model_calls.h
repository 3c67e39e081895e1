// The functions of the plug-in libreigen_cuda.so for the layers of models (kernel_calls.h has the rules for all
// functions). nn/kernels/ has the same functions for the host, with the same structs.
//
// A tensor of a call is a table of `rows` rows of `columns` elements without gaps, unless the struct says otherwise.
// "Wide" and "narrow" are the two element types of a call (ModelTypes). A kernel computes in fp64 if the wide type is
// fp64, otherwise in fp32; "computed" is this type. Every sum has a fixed order, so the same call gives the same bits.
// A kernel reads and writes 16 bytes at a time if all addresses are multiples of 16 and rows have no rest.
#pragma once

namespace reigen::device {

// The element types: wide, then narrow if it is another type.
enum class ModelTypes {
  kFloat64,
  kFloat32,
  kBfloat16,
  kFloat16,
  kFloat32Bfloat16,
  kFloat32Float16,
};

// Sums over rows are made in two steps: first one sum for each block of so many rows, then the sum over the blocks.
inline constexpr long long kRowsOfSum = 32;
constexpr long long sums_of(long long rows) { return (rows + kRowsOfSum - 1) / kRowsOfSum; }

// The same for batch normalisations, which have up to millions of rows: the blocks are longer if there are many rows,
// so that the second step adds up at most kMostBatchSums sums.
inline constexpr long long kMostBatchSums = 4096;
constexpr long long batch_rows_of_sum(long long rows) {
  const long long whole = kRowsOfSum * kMostBatchSums;
  return rows <= whole ? kRowsOfSum : kRowsOfSum * ((rows + whole - 1) / whole);
}
constexpr long long batch_sums_of(long long rows) {
  return (rows + batch_rows_of_sum(rows) - 1) / batch_rows_of_sum(rows);
}

// y = x + d; output = (y - mean(y))·rstd·weight + bias, with rstd = 1 / sqrt(mean((y - mean(y))²) + eps), for each row.
// RMSNorm has no mean: output = y·rstd·weight, with rstd = 1 / sqrt(mean(y²) + eps).
struct NormCall {
  const void* input = nullptr;   // x, wide
  const void* added = nullptr;   // d, narrow; null: y is x
  void* sum = nullptr;           // y, wide; null if `added` is null
  const void* weight = nullptr;  // wide, `columns` elements; null: 1
  const void* bias = nullptr;    // wide, `columns` elements; null: 0
  void* output = nullptr;        // narrow
  void* mean = nullptr;          // computed, one for each row; null for RMSNorm
  void* rstd = nullptr;          // computed, one for each row
  long long rows = 0;
  long long columns = 0;
  double eps = 0;
  int types = 0;
};

// of_input = of_sum + the gradient of y by way of the output.
struct NormBackwardCall {
  const void* of_output = nullptr;  // narrow
  const void* of_sum = nullptr;     // wide; null: 0
  const void* sum = nullptr;        // y, wide
  const void* weight = nullptr;     // wide; null: 1
  const void* mean = nullptr;       // null for RMSNorm
  const void* rstd = nullptr;
  void* of_input = nullptr;  // wide
  void* of_added = nullptr;  // null, or the same values in the narrow type
  long long rows = 0;
  long long columns = 0;
  int types = 0;
};

// of_weight = the sum over the rows of of_output·(y - mean)·rstd; of_bias = the sum over the rows of of_output.
struct NormSumsCall {
  const void* of_output = nullptr;  // narrow
  const void* sum = nullptr;        // y, wide
  const void* mean = nullptr;       // null for RMSNorm
  const void* rstd = nullptr;
  void* parts = nullptr;      // computed: sums_of(rows)·columns elements for of_weight, then as many for of_bias
  void* of_weight = nullptr;  // wide
  void* of_bias = nullptr;    // wide, or null
  long long rows = 0;
  long long columns = 0;
  int types = 0;
};

// Batch normalisation. The rows are the pixels of all samples, the columns are the channels ("channels last").
//   mean = sum(x) / rows; rstd = 1 / sqrt(sum((x - mean)²) / rows + eps), for each column
//   running_mean = (1 - momentum)·running_mean + momentum·mean; running_var likewise with sum((x - mean)²) / (rows - 1)
struct BatchStatisticsCall {
  const void* input = nullptr;   // x, narrow
  void* parts = nullptr;         // computed, 2·batch_sums_of(rows)·columns elements
  void* mean = nullptr;          // computed, one for each column
  void* rstd = nullptr;          // computed, one for each column
  void* running_mean = nullptr;  // wide, one for each column; null: there is none
  void* running_var = nullptr;   // wide, one for each column; null: there is none
  long long rows = 0;            // at least 1
  long long columns = 0;
  double momentum = 0;
  double eps = 0;
  int types = 0;
};

// output = (x - mean)·rstd·weight + bias + residual; with relu, 0 where this is negative.
struct BatchNormCall {
  const void* input = nullptr;     // x, narrow
  const void* residual = nullptr;  // narrow; null: 0
  const void* weight = nullptr;    // wide, one for each column; null: 1
  const void* bias = nullptr;      // wide, one for each column; null: 0
  const void* mean = nullptr;      // computed
  const void* rstd = nullptr;      // computed
  void* output = nullptr;          // narrow
  long long rows = 0;
  long long columns = 0;
  bool relu = false;
  int types = 0;
};

// g = of_output; with relu, 0 where the output is not positive.
//   of_residual = g; of_weight = the sum over the rows of g·(x - mean)·rstd; of_bias = the sum over the rows of g
struct BatchNormSumsCall {
  const void* of_output = nullptr;  // narrow
  const void* input = nullptr;      // x, narrow
  const void* output = nullptr;     // narrow; null: computed again from x, which is right if there was no residual
  const void* weight = nullptr;     // wide; null: 1
  const void* bias = nullptr;       // wide; null: 0
  const void* mean = nullptr;
  const void* rstd = nullptr;
  void* of_residual = nullptr;  // narrow; null: it is not wanted
  void* parts = nullptr;        // computed, 2·batch_sums_of(rows)·columns elements
  void* of_weight = nullptr;    // computed
  void* of_bias = nullptr;      // computed
  long long rows = 0;
  long long columns = 0;
  bool relu = false;
  int types = 0;
};

// of_input = weight·rstd·(g - of_bias / rows - (x - mean)·rstd·of_weight / rows), with g as above for an output that is
// computed again. If a residual was added, `of_output` is of_residual, and relu is false.
struct BatchNormBackwardCall {
  const void* of_output = nullptr;  // narrow
  const void* input = nullptr;      // x, narrow
  const void* weight = nullptr;     // wide; null: 1
  const void* bias = nullptr;       // wide; null: 0
  const void* mean = nullptr;
  const void* rstd = nullptr;
  const void* of_weight = nullptr;  // computed; null: 0, for a mean and rstd that do not depend on x
  const void* of_bias = nullptr;    // computed; null: 0
  void* of_input = nullptr;         // narrow
  long long rows = 0;
  long long columns = 0;
  bool relu = false;
  int types = 0;
};

// The mean of the cross entropies of all rows whose target is not `ignored`; NaN if there is no such row. If
// `gradients` is not null: gradients = (softmax(logits) - one_hot(target)) / number of such rows, and 0 for all other
// rows; without the division if `divides` is false. The loss and the gradients of a row are NaN if its target is
// neither `ignored` nor a column.
struct CrossEntropyCall {
  const void* logits = nullptr;
  void* gradients = nullptr;           // may be `logits`
  const long long* targets = nullptr;  // one for each row
  void* losses = nullptr;              // computed, one for each row
  double* counted = nullptr;           // the number of rows that are not ignored
  void* loss = nullptr;                // computed, one number
  long long rows = 0;
  long long columns = 0;
  long long ignored = 0;
  int types = 0;  // one type, so wide is narrow
  bool divides = true;
};

// values *= factor / divisor. If the quotient is 1 or the divisor is 0, the kernel does not touch the values.
struct MultiplyCall {
  void* values = nullptr;
  const void* factor = nullptr;     // computed, one number
  const double* divisor = nullptr;  // one number; null: 1
  long long count = 0;
  int types = 0;  // one type
};

// output = gelu(input + bias), with gelu(v) = v·(1 + erf(v / sqrt(2))) / 2
struct GeluCall {
  const void* input = nullptr;  // narrow
  const void* bias = nullptr;   // wide, `columns` elements; null: 0
  void* output = nullptr;       // narrow
  long long rows = 0;
  long long columns = 0;
  int types = 0;
};

// of_input = of_output·gelu'(input + bias); of_bias = the sum of of_input over the rows, before it is rounded.
struct GeluBackwardCall {
  const void* of_output = nullptr;  // narrow
  const void* input = nullptr;      // narrow
  const void* bias = nullptr;       // wide; null: 0
  void* of_input = nullptr;         // narrow
  void* parts = nullptr;            // computed, sums_of(rows)·columns elements; null if `of_bias` is null
  void* of_bias = nullptr;          // wide, or null
  long long rows = 0;
  long long columns = 0;
  int types = 0;
};

// output = gate·sigmoid(gate)·up. Rows of `gate` and `up` begin at multiples of a stride, in elements.
struct SwigluCall {
  const void* gate = nullptr;
  const void* up = nullptr;
  void* output = nullptr;
  long long gate_stride = 0;
  long long up_stride = 0;
  long long rows = 0;
  long long columns = 0;
  int types = 0;  // one type
};

struct SwigluBackwardCall {
  const void* of_output = nullptr;
  const void* gate = nullptr;
  const void* up = nullptr;
  void* of_gate = nullptr;
  void* of_up = nullptr;
  long long gate_stride = 0;
  long long up_stride = 0;
  long long of_gate_stride = 0;
  long long of_up_stride = 0;
  long long rows = 0;
  long long columns = 0;
  int types = 0;  // one type
};

// Where the values of one position and head begin, in elements. The values of one head have no gaps.
struct RotaryStrides {
  long long batch = 0;
  long long position = 0;
  long long head = 0;
};

// Turns each pair (x[i], x[half + i]) by the angle of (position, i), with half = width / 2:
//   output[i] = x[i]·cos - x[half + i]·sin;  output[half + i] = x[half + i]·cos + x[i]·sin
struct RotaryCall {
  const void* input = nullptr;
  void* output = nullptr;         // may be `input`
  const void* cosines = nullptr;  // computed, [positions][half]
  const void* sines = nullptr;    // computed, [positions][half]
  RotaryStrides input_strides = {};
  RotaryStrides output_strides = {};
  long long rows = 0;  // batch·positions
  long long positions = 0;
  long long heads = 0;
  long long half = 0;
  bool backwards = false;  // turns by the negative angles
  int types = 0;           // one type
};

// of_weight[token] = the sum of the rows of of_output that belong to the token, in the order of the rows. The kernel
// writes only the tokens that occur.
struct EmbeddingSumsCall {
  const void* of_output = nullptr;
  const long long* sorted = nullptr;  // the token of each row, in ascending order
  const long long* order = nullptr;   // the row of each of these tokens; rows of equal tokens are in ascending order
  void* of_weight = nullptr;          // [tokens][columns]
  long long rows = 0;
  long long columns = 0;
  long long tokens = 0;
  int types = 0;  // one type
};

}  // namespace reigen::device

extern "C" {

// Each function returns cudaErrorInvalidValue if a number is out of its range or a pointer is missing. Otherwise it
// returns the result of the kernel launches. The call is read before the function returns. Without elements no kernel
// runs, except those that write sums.
[[gnu::visibility("default")]] int reigen_cuda_norm(const reigen::device::NormCall* call, void* stream);
[[gnu::visibility("default")]] int reigen_cuda_norm_backward(const reigen::device::NormBackwardCall* call,
                                                             void* stream);
[[gnu::visibility("default")]] int reigen_cuda_norm_sums(const reigen::device::NormSumsCall* call, void* stream);
[[gnu::visibility("default")]] int reigen_cuda_batch_statistics(const reigen::device::BatchStatisticsCall* call,
                                                                void* stream);
[[gnu::visibility("default")]] int reigen_cuda_batch_norm(const reigen::device::BatchNormCall* call, void* stream);
[[gnu::visibility("default")]] int reigen_cuda_batch_norm_sums(const reigen::device::BatchNormSumsCall* call,
                                                               void* stream);
[[gnu::visibility("default")]] int reigen_cuda_batch_norm_backward(const reigen::device::BatchNormBackwardCall* call,
                                                                   void* stream);
[[gnu::visibility("default")]] int reigen_cuda_cross_entropy(const reigen::device::CrossEntropyCall* call,
                                                             void* stream);
[[gnu::visibility("default")]] int reigen_cuda_multiply(const reigen::device::MultiplyCall* call, void* stream);
[[gnu::visibility("default")]] int reigen_cuda_gelu(const reigen::device::GeluCall* call, void* stream);
[[gnu::visibility("default")]] int reigen_cuda_gelu_backward(const reigen::device::GeluBackwardCall* call,
                                                             void* stream);
[[gnu::visibility("default")]] int reigen_cuda_swiglu(const reigen::device::SwigluCall* call, void* stream);
[[gnu::visibility("default")]] int reigen_cuda_swiglu_backward(const reigen::device::SwigluBackwardCall* call,
                                                               void* stream);
[[gnu::visibility("default")]] int reigen_cuda_rotary(const reigen::device::RotaryCall* call, void* stream);
[[gnu::visibility("default")]] int reigen_cuda_embedding_sums(const reigen::device::EmbeddingSumsCall* call,
                                                              void* stream);

}  // extern "C"
