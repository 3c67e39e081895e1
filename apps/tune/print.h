// Prints the table of `reigen tune` for people. Thread rule: one thread.
#pragma once

#include <string>

#include "comm/tuning/table.h"

namespace reigen::apps::tune {

// One line for every algorithm: its measured cost if there is one, and the sizes for which it is taken.
void print_table(const comm::tuning::Table& table);

}  // namespace reigen::apps::tune
