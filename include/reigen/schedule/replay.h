// Predicts when each action of a pipeline schedule begins and ends, from the times of its parts.
//
// A rank does the actions of its list in order. An action begins when the one before it has ended and the messages that
// it needs have arrived:
//
//   start = max(end of the action before it, arrival of the messages that it needs)
//   end   = start + time of the action
//   arrival of a message = max(time of its send, end of the transfer before it on the link) + transfer + latency
//
// A link connects one rank to one other rank in one direction, and transfers one message at a time. Sends and receives
// take no time of the rank. Compute does not become slower while messages travel.
// Thread rule: replay() is a pure function; any thread may call it.
#pragma once

#include <vector>

#include "reigen/schedule/schedule.h"
#include "reigen/schedule/validate.h"

namespace reigen::schedule {

// All times are in seconds, or in any other unit; the results have the same unit.
struct StageTimes {
  double forward = 1;          // F
  double backward = 2;         // B
  double backward_input = 1;   // I
  double backward_weight = 1;  // W
  double transfer = 0;         // of the stage's output to the next stage: bytes / bandwidth; its gradient takes as long
  double unshard = 0;
  double reshard = 0;
  double reduce_grad = 0;
};

struct Times {
  std::vector<StageTimes> stages = {StageTimes{}};  // one for all stages, or one for each
  std::vector<double> skips = {};                   // transfer of each of Schedule::skips; empty: 0
  double latency = 0;                               // of each message
  // If true, a rank waits in the receive. If false, the rank posts the receive and waits in the action that needs the
  // message; this is never slower.
  bool receives_wait = false;
};

struct Span {
  Action action;
  double start = 0;
  double end = 0;
};

// A message on its way.
struct Transfer {
  Action send;
  int from_rank = 0;
  int to_rank = 0;
  double start = 0;    // when the link begins to transfer it
  double arrival = 0;  // when it has arrived
};

struct Replay {
  std::vector<std::vector<Span>> ranks;  // ranks[r][i] is action i of rank r
  std::vector<Transfer> transfers;       // in the order of their sends, rank by rank
  double total = 0;                      // the end of the last action of all ranks
  std::vector<double> idle;              // of each rank: total minus the time of its actions that are not messages
  double bubble = 0;                     // the sum of idle divided by ranks x total, 0 to 1; 0 if total is 0
  InFlight in_flight;
};

// Throws InvalidArgument as validate(), and if a time is negative or not finite, or if the number of times is wrong.
// Cost: that of validate().
Replay replay(const Schedule& schedule, const Times& times = {});

}  // namespace reigen::schedule
