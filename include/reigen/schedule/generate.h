// Known pipeline schedules, and the pass that inserts their messages.
//
// p ranks, m micro-batches, v stages on each rank; f and b are the times of forward and backward of one stage. Each row
// says what replay() (replay.h) gives if all stages take the same time and messages take none. "In flight" is the most
// micro-batches times stages whose activations rank r holds at one time.
//
//   function             stages  idle time of a rank                        in flight on rank r
//   naive                p v     (p-1) v m (f+b)                            v
//   gpipe                p       (p-1) (f+b)                                m
//   one_f_one_b          p       (p-1) (f+b)                                min(m, p - r)
//   interleaved          p v     (p-1) (f+b) if p divides m                 min(v m, (v-1) p + 2 (p-1-r) + 1)
//   looped_breadth_first p v     (p-1 + (v-1) max(0, p-m)) (f+b)            v m
//   zero_bubble_h1       p       max(p-1, 2p-1-m) f, if F, I and W take f   at most min(m, p)
//   zero_bubble_v, m > p 2 p     max(p-1, 4p-2-2m) f, if F, I and W take f  at most 2 p
//   zero_bubble_v, else  2 p     max(3p-1-2m, 4p-1-4m) f                    at most 2 m
//
// f and b are those of one of the p v stages. So for a given model, the idle time of interleaved and
// looped_breadth_first is a v-th of that of one_f_one_b; that of zero_bubble_h1 is a third of it, and that of
// zero_bubble_v a sixth.
// All schedules begin the backwards of a stage in the order of the micro-batches. A sum of gradients in the order of
// the list has therefore the same order as without a pipeline.
//
// Sources: gpipe https://arxiv.org/abs/1811.06965; one_f_one_b https://arxiv.org/abs/2006.09503 (PipeDream-Flush);
// interleaved https://arxiv.org/abs/2104.04473, section 2.2; looped_breadth_first https://arxiv.org/abs/2211.05953;
// zero_bubble_h1 https://arxiv.org/abs/2401.10241, section 2.1; zero_bubble_v https://arxiv.org/abs/2405.15362.
// Thread rule: these are pure functions; any thread may call them.
#pragma once

#include <string>
#include <vector>

#include "reigen/schedule/schedule.h"

namespace reigen::schedule {

struct Size {
  int ranks = 1;           // p
  int micro_batches = 1;   // m
  int virtual_stages = 1;  // v: the number of stages on each rank, one that virtual_stages_of() allows
};

// Each function returns a schedule with F, B, I and W only, placed by looped() (zero_bubble_v: v_shaped());
// add_messages() makes it complete. Each throws InvalidArgument if a number is below 1, if there are more than 2^24
// forwards (of zero_bubble_v with at least 2p-1 micro-batches), or if virtual_stages_of() does not allow the number of
// stages. Cost: proportional to the number of actions, that of zero_bubble_v with at least 2p-1 micro-batches.

// One micro-batch after the other goes forward through all stages and back.
Schedule naive(const Size& size);
// Each rank does all forwards, then all backwards.
Schedule gpipe(const Size& size);
// Rank r begins with min(m, p-1-r) forwards. Then it does a forward and a backward in turn while forwards are left.
Schedule one_f_one_b(const Size& size);
// The order of Megatron-LM. The micro-batches are divided into groups of p. A rank does the forwards of a group for its
// first stage, then for its next stage, and so on. The order of the backwards is the same with the stages reversed.
// Rank r begins with (v-1) p + 2 (p-1-r) forwards; then it does a forward and a backward in turn. With v = 1 the
// schedule is one_f_one_b. If p does not divide m, the schedule is that of the next multiple M of p, without the
// actions of the micro-batches that do not exist. It takes at most as long as with M micro-batches. (Megatron-LM and
// PyTorch refuse such an m.)
Schedule interleaved(const Size& size);
// Each rank does all forwards of its first stage, then all of its next stage, and so on; then the backwards, last stage
// first. The weights of each stage are needed in one run of actions for forward and one for backward.
Schedule looped_breadth_first(const Size& size);
// As one_f_one_b, but backward is divided into I and W. Rank r does W of a micro-batch r micro-batches later than I, so
// that the rank before it can begin sooner. The last W's fill the time in which one_f_one_b is idle.
Schedule zero_bubble_h1(const Size& size);
// Rank r has the stages r and 2p-1-r, so rank 0 has the first and the last stage. Backward is divided into I and W.
// Gradients go down and up the ranks as activations do, and reach rank 0 first of all. No rank holds more memory in
// activations than rank 0 has under one_f_one_b. With at most p micro-batches the schedule is our own, and idles less
// than that of the paper.
Schedule zero_bubble_v(const Size& size);

enum class Name { kNaive, kGpipe, kOneFOneB, kInterleaved, kLoopedBreadthFirst, kZeroBubbleH1, kZeroBubbleV };

// "naive", "gpipe", "1f1b", "interleaved_1f1b", "looped_bfs", "zb_h1", "zb_v"
const char* to_text(Name name);
// The name with this text. Throws InvalidArgument that lists the names.
Name name_of(const std::string& text);
const std::vector<Name>& names();
// The least and the most stages that the schedule may have on each rank.
struct VirtualStages {
  int least = 1;
  int most = 1;
};
VirtualStages virtual_stages_of(Name name);

Schedule generate(Name name, const Size& size);

// The part of the step's time, 0 to 1, in which an average rank does nothing: idle / (idle + work) with the idle times
// of the table above. Stages take equal times and messages take none. For zb_h1 and zb_v, F, I and W take equal times.
//   gpipe, 1f1b        (p-1) / (m+p-1)
//   interleaved_1f1b   (p-1) / (v m+p-1); exact if p divides m or v is 1, else it is a lower bound
//   looped_bfs         (p-1) / (v m+p-1) if m >= p
//   zb_h1              (p-1) / (3 m+p-1) if m >= p: a third of the idle time of 1f1b
//   zb_v               (p-1) / (6 m+p-1) if m = p or m >= 2p-1: a sixth of the idle time of 1f1b
//   naive              (p-1) / p
// Throws InvalidArgument as the functions above.
double bubble_formula(Name name, const Size& size);

// Returns the schedule with its sends and receives, for neighbours and for skip connections; none between two stages on
// one rank. Other actions keep their order.
//   - A send comes directly after the action that computes its data: SEND_F after F, SEND_B after B or I. If there are
//     several, the message to the neighbour comes first, then those of the skips in their order.
//   - A receive from a neighbour comes before the first action that begins when the message exists or later, if F, I
//     and W take one unit of time, B takes two, and messages take none.
//   - A receive of a skip comes directly before the action that needs it, so that its memory is not taken earlier. It
//     comes sooner if a message from a neighbour must come sooner that the same rank sends later.
//   - Receives of messages from one rank have the order of their sends.
// validate() accepts the result. Throws InvalidArgument, naming rank and action, if the schedule has messages already,
// if an action is missing or twice, or if the actions wait for each other. Cost: that of validate() and of
// sorting the messages.
Schedule add_messages(const Schedule& schedule);
// Returns the schedule as it is if it has messages already, otherwise what add_messages() returns.
Schedule with_messages(const Schedule& schedule);

}  // namespace reigen::schedule
