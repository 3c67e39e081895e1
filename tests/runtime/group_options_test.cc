// Options that reach a program from outside.
#include "runtime/group_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <chrono>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "reigen/base/error.h"

namespace reigen {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

class Variables {
 public:
  Variables(std::initializer_list<std::pair<std::string, std::string>> variables) : variables_(variables) {
    for (const auto& [name, value] : variables_) ::setenv(name.c_str(), value.c_str(), 1);
  }
  ~Variables() {
    for (const auto& [name, value] : variables_) ::unsetenv(name.c_str());
  }
  Variables(const Variables&) = delete;  // each variable must be unset once
  Variables& operator=(const Variables&) = delete;

 private:
  std::vector<std::pair<std::string, std::string>> variables_;
};

TEST(GroupOptionsOf, NothingAreTheUsualOnes) {
  const comm::GroupOptions usual;
  const comm::GroupOptions found = group_options({});
  EXPECT_EQ(found.backend, usual.backend);
  EXPECT_EQ(found.network, usual.network);
  EXPECT_EQ(found.timeout, usual.timeout);
  EXPECT_EQ(found.join_timeout, usual.join_timeout);
  EXPECT_EQ(found.heartbeat_timeout, usual.heartbeat_timeout);
  EXPECT_EQ(found.report_after, usual.report_after);
}

TEST(GroupOptionsOf, VariablesSayWhatTheProgramLeavesOpen) {
  const Variables set{{"REIGEN_COMM_BACKEND", "tcp"},    {"REIGEN_COMM_ALGORITHMS", "all_reduce:ring"},
                      {"REIGEN_COMM_NETWORK", "mpi"},    {"REIGEN_COMM_MACHINE_ID", "m1"},
                      {"REIGEN_COMM_JOIN_TIMEOUT", "5"}, {"REIGEN_COMM_HEARTBEAT_TIMEOUT", "0.5"},
                      {"REIGEN_COMM_REPORT_AFTER", "7"}, {"REIGEN_TIMEOUT", "8"},
                      {"REIGEN_COMM_SEGMENTS", "3"},     {"REIGEN_COMM_CONNECTIONS", "2"}};
  const comm::GroupOptions found = group_options({});
  EXPECT_EQ(found.backend, "tcp");
  EXPECT_EQ(found.algorithms, "all_reduce:ring");
  EXPECT_EQ(found.network, "mpi");
  EXPECT_EQ(found.machine_id, "m1");
  EXPECT_EQ(found.join_timeout, milliseconds(5000));
  EXPECT_EQ(found.heartbeat_timeout, milliseconds(500));
  EXPECT_EQ(found.report_after, milliseconds(7000));
  EXPECT_EQ(found.timeout, milliseconds(8000));
  EXPECT_EQ(found.segments, 3);
  EXPECT_EQ(found.connections, 2);
  const comm::GroupOptions said =
      group_options({.backend = "auto", .timeout = milliseconds(1), .heartbeat_timeout = milliseconds(2)});
  EXPECT_EQ(said.backend, "auto");
  EXPECT_EQ(said.timeout, milliseconds(1));
  EXPECT_EQ(said.heartbeat_timeout, milliseconds(2));
}

TEST(GroupOptionsOf, TimesThatAreNoneAreNamed) {
  for (const char* name : {"REIGEN_COMM_JOIN_TIMEOUT", "REIGEN_COMM_HEARTBEAT_TIMEOUT", "REIGEN_COMM_REPORT_AFTER",
                           "REIGEN_COMM_TIMEOUT", "REIGEN_TIMEOUT"}) {
    for (const char* value : {"0", "-1", "soon", "5s", "nan", "inf", "1e300"}) {
      const Variables set{{name, value}};
      try {
        group_options({});
        ADD_FAILURE() << name << "=" << value;
      } catch (const InvalidArgument& error) {
        EXPECT_THAT(error.what(), HasSubstr(std::string(name) + " is not a time"));
        EXPECT_THAT(error.what(), HasSubstr("'" + std::string(value) + "'"));
      }
    }
  }
}

TEST(GroupOptionsOf, AVariableOfWhatTheProgramSaysIsNotLookedAt) {
  const Variables set{{"REIGEN_TIMEOUT", "10m"}, {"REIGEN_COMM_CONNECTIONS", "many"}};
  EXPECT_EQ(group_options({.connections = 2, .timeout = milliseconds(5)}).timeout, milliseconds(5));
  const Variables other{{"REIGEN_COMM_TIMEOUT", "5"}};
  EXPECT_EQ(group_options({.connections = 2}).timeout, milliseconds(5000));
  EXPECT_EQ(group_options({.connections = 2, .timeout = milliseconds(-1)}).timeout, milliseconds(5000));
}

TEST(GroupOptionsOf, WhatIsOutOfRangeIsNamed) {
  const Variables set{{"REIGEN_COMM_CONNECTIONS", "0"}};
  try {
    group_options({});
    ADD_FAILURE();
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), HasSubstr("REIGEN_COMM_CONNECTIONS is not a whole number of at least 1"));
  }
}

// The program itself chooses no backend.
TEST(GroupOptionsOf, ThreadsTakeTheBackendFromOutsideToo) {
  const Variables set{{"REIGEN_COMM_BACKEND", "tcp"}};
  run_threads(2, [](Communicator& world) { EXPECT_EQ(world.backend(), "tcp"); });
}

TEST(GroupOptionsOf, UnknownVariablesAreSaid) {
  const Variables set{{"REIGEN_COMM_BACKNED", "tcp"}};
  testing::internal::CaptureStderr();
  warn_of_unknown_variables();
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("REIGEN_COMM_BACKNED, did you mean REIGEN_COMM_BACKEND?"));
}

}  // namespace
}  // namespace reigen
