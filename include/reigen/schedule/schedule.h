// A pipeline schedule as data: which rank does what, in which order.
//
// A pipeline divides a model into stages. Stage 0 reads the input, and the last stage computes the loss. The samples of
// a step are divided into micro-batches. A schedule says which rank holds which stage, and gives each rank a list of
// actions. A rank does the actions of its list one after the other. For stage s, micro-batch m and last stage S - 1:
//
//   F  forward             y(s, m) = stage s applied to y(s-1, m)
//   B  backward            computes what I and W compute, in one action
//   I  backward of inputs  dy(s-1, m) = gradient of the loss by the input of stage s, from dy(s, m)
//   W  backward of weights dw(s) += gradient of the loss by the weights of stage s
//   SEND_F, RECV_F         y(s, m) goes to the stage `peer`
//   SEND_B, RECV_B         the part of dy(peer, m) that stage s has computed goes to the stage `peer`
//   UNSHARD, RESHARD       the weights of stage s are gathered, and freed except for the rank's own shard
//   REDUCE_GRAD            the gradient dw(s) is averaged over the ranks that train with other data
//
// A send does not wait. A receive waits until its message is there. Messages from one rank to another arrive in the
// order in which they were sent. A runtime may also post a receive and wait only in the action that needs the message;
// such a runtime finishes every schedule that validate() (validate.h) accepts. Two stages on one rank exchange no
// messages.
// Thread rule: these types are values; every thread may have its own copy.
// Source of the actions: PyTorch, torch/distributed/pipelining/schedules.py; of I and W:
// https://arxiv.org/abs/2401.10241
#pragma once

#include <compare>
#include <string>
#include <vector>

namespace reigen::schedule {

enum class Kind {
  kForward,          // F
  kBackward,         // B
  kBackwardInput,    // I
  kBackwardWeight,   // W
  kSendForward,      // SEND_F
  kReceiveForward,   // RECV_F
  kSendBackward,     // SEND_B
  kReceiveBackward,  // RECV_B
  kUnshard,
  kReshard,
  kReduceGrad,
};

const char* to_text(Kind kind);  // "F", "SEND_F", "UNSHARD": the word of a schedule's text (text.h)

// F, B, I and W: the actions that compute.
constexpr bool is_compute(Kind kind) { return kind <= Kind::kBackwardWeight; }
constexpr bool is_send(Kind kind) { return kind == Kind::kSendForward || kind == Kind::kSendBackward; }
constexpr bool is_receive(Kind kind) { return kind == Kind::kReceiveForward || kind == Kind::kReceiveBackward; }
constexpr bool is_message(Kind kind) { return is_send(kind) || is_receive(kind); }

inline constexpr int kNone = -1;

struct Action {
  Kind kind = Kind::kForward;
  int stage = 0;            // the stage that acts, from 0 on, counted over all ranks
  int micro_batch = kNone;  // kNone for UNSHARD, RESHARD and REDUCE_GRAD, which concern all micro-batches
  int peer = kNone;         // of a message: the stage on the other side; kNone for all other kinds
  auto operator<=>(const Action&) const = default;
};

std::string to_text(const Action& action);  // "F0.3", "SEND_F0.3>1", "RECV_F1.3<0", "UNSHARD0"

// Returns the other side of a message: for a send the receive of its peer, for a receive the send of its peer.
Action counterpart(const Action& message);

// A skip connection: stage `from` sends stage `to` a tensor of its own, beside y(from, m) which goes to stage from + 1.
// The tensor is computed by F of `from` and used by F of `to`. Its gradient goes the other way.
struct Skip {
  int from = 0;
  int to = 0;  // at least from + 2
  bool operator==(const Skip&) const = default;
};

struct Schedule {
  int ranks = 1;
  int micro_batches = 1;
  std::vector<int> placement = {0};  // placement[s] = the rank that holds stage s; looped(), v_shaped(), or any other
  std::vector<Skip> skips = {};
  // Groups of stages that use the same weight. After the last action of all lists, the gradients of the weight are
  // summed over the stages of a group. The lists of actions do not depend on these groups.
  std::vector<std::vector<int>> tied = {};
  std::vector<std::vector<Action>> actions = {{}};  // actions[r] = the list of rank r

  int stages() const { return static_cast<int>(placement.size()); }
  bool operator==(const Schedule&) const = default;
};

// Placements of stages on ranks. Both throw InvalidArgument if `stages` or `ranks` is below 1.
//   looped:   stage s is on rank s mod ranks
//   v_shaped: the stages go from rank 0 to the last rank, then back from the last rank to rank 0, and so on:
//             ranks 3, stages 7: 0 1 2 2 1 0 0
std::vector<int> looped(int stages, int ranks);
std::vector<int> v_shaped(int stages, int ranks);

// The highest number of stages, of ranks, and of micro-batches of a schedule.
inline constexpr int kMostOfEach = 1 << 20;

}  // namespace reigen::schedule
