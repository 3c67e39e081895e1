// The program reigen-train: recipes with their options, started as ranks by any launcher.
#pragma once

namespace reigen::train {

// main() of reigen-train. Returns the exit code of base/error.h; every error is printed once for the whole job.
int run_program(int argc, char** argv);

}  // namespace reigen::train
