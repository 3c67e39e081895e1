// reigen generate: becomes reigen-train, which reads the model with LibTorch.
#include "reigen_commands.h"
#include "train_program.h"

namespace reigen::apps {

int generate_command(const Arguments& arguments) {
  Arguments command = {path_of_train_program(), "generate"};
  command.insert(command.end(), arguments.begin(), arguments.end());
  become(command);
}

}  // namespace reigen::apps
