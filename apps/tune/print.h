// The table of `reigen tune`, as people read it. Thread rule: none.
#pragma once

#include <string>

#include "comm/tuning/table.h"

namespace reigen::apps::tune {

// A line for every algorithm: what it costs, where that was measured, and the sizes for which it is taken.
void print_table(const comm::tuning::Table& table);

}  // namespace reigen::apps::tune
