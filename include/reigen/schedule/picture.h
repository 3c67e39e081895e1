// Draws who does what when: a row for each rank, a box for each action that computes, time from left to right.
//
// The colour of a box says F, B, I or W. The shade says which of the rank's stages computes: the first is the lightest.
// The number in a box is its micro-batch; narrow boxes have none. White is idle time. The title has the total time and
// the bubble. A browser shows the action and its times when the mouse is over a box.
// Thread rule: to_svg() is a pure function; any thread may call it.
#pragma once

#include <string>

#include "reigen/schedule/replay.h"

namespace reigen::schedule {

struct PictureOptions {
  std::string title = "";    // comes before the total time
  std::string unit = "";     // the unit of the replay's times: "ms"
  std::string row = "rank";  // what a row is called, before its number
  int width = 1000;          // of the picture, in pixels; at least 300
  double time_range = 0;  // the time that the width stands for; 0: the total. The same range makes pictures comparable
};

// Returns an SVG 1.1 document; its height follows from the number of ranks. Throws InvalidArgument if the width is
// below 300, or if the range is negative, not finite, or less than the total.
std::string to_svg(const Replay& replay, const PictureOptions& options = {});

}  // namespace reigen::schedule
