// reigen data: becomes reigen-data, which links the libraries of containers. They are dozens, and take ten milliseconds
// to load, which a launcher must not.
#include "reigen_commands.h"
#include "train_program.h"

namespace reigen::apps {

int data_command(const Arguments& arguments) {
  Arguments command = {path_of_data_program()};
  command.insert(command.end(), arguments.begin(), arguments.end());
  become(command);
}

}  // namespace reigen::apps
