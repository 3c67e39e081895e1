// Prints the table of `reigen tune` for people. Thread rule: one thread.
#pragma once

#include <string>

#include "comm/tuning/table.h"

namespace reigen::apps::tune {

// Prints one line for every algorithm: its cost if it was measured, and the sizes for which it is taken.
void print_table(const comm::tuning::Table& table);

}  // namespace reigen::apps::tune
