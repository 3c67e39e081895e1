// Pipeline schedules as text, so that a user can read them, change them, and write schedules of their own.
//
//   # two ranks, two micro-batches             a comment goes to the end of its line
//   ranks 2
//   stages 2
//   micro_batches 2
//   placement looped                           or v_shaped, or the rank of each stage: placement 0 1 1 0
//   skip 0 2                                   a skip connection from stage 0 to stage 2; a line for each
//   tied 0 3                                   stages that use the same weight; a line for each group
//   rank 0: F0.0 SEND_F0.0>1 F0.1 SEND_F0.1>1 RECV_B0.0<1 B0.0 RECV_B0.1<1 B0.1
//   rank 1: RECV_F1.0<0 F1.0 B1.0 SEND_B1.0>0 RECV_F1.1<0 F1.1 B1.1 SEND_B1.1>0
//
//   F0.3 B0.3 I0.3 W0.3    forward, backward, backward of inputs, of weights: of stage 0 for micro-batch 3
//   SEND_F0.3>1            stage 0 sends the output of micro-batch 3 to stage 1
//   RECV_F1.3<0            stage 1 receives the output of micro-batch 3 from stage 0
//   SEND_B1.3>0            stage 1 sends the gradient of micro-batch 3 to stage 0
//   RECV_B0.3<1            stage 0 receives the gradient of micro-batch 3 from stage 1
//   UNSHARD0 RESHARD0 REDUCE_GRAD0    of stage 0
//
// `ranks`, `stages`, `micro_batches`, `placement` and one line for each rank are required. Lines may have any order.
// Thread rule: these are pure functions; any thread may call them.
#pragma once

#include <string>
#include <string_view>

#include "reigen/schedule/schedule.h"

namespace reigen::schedule {

// parse_schedule(to_text(s)) == s for every schedule that validate() accepts.
std::string to_text(const Schedule& schedule);

// Throws InvalidArgument that names line and word, both from 1 on, of what it cannot read. It reads the text only;
// validate() (validate.h) checks the schedule.
Schedule parse_schedule(std::string_view text);

}  // namespace reigen::schedule
