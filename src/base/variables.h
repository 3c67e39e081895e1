// The names of the environment variables that set options, and those that begin with REIGEN_ and that Reigen does not
// read, such as misspelled ones.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "reigen/base/fields.h"

namespace reigen::base {

// The environment variable of an option: "REIGEN_TRAIN_EPOCHS". A section that the program's recipe adds is unknown to
// other programs. Its variables begin with REIGEN_MODEL_, like those of the model, because every program knows this
// prefix.
std::string variable_of(const Field& field);

// Whether Kubernetes set this variable. For a service called reigen-train every pod of the namespace gets
// REIGEN_TRAIN_SERVICE_HOST, REIGEN_TRAIN_SERVICE_PORT[_NAME], REIGEN_TRAIN_PORT=tcp://... and
// REIGEN_TRAIN_PORT_80_TCP[_PROTO, _PORT, _ADDR].
bool is_kubernetes_service(std::string_view name, std::string_view value);

struct UnknownVariable {
  std::string name = {};
  std::string meant = {};  // the known variable that was probably meant; empty if no name is similar
};

// The variables of this process that begin with REIGEN_ and that no code reads. Variables of recipes
// (REIGEN_TRAIN_EPOCHS), of the build and of Kubernetes are left out.
std::vector<UnknownVariable> unknown_variables();

}  // namespace reigen::base
