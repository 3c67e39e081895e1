#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <string>

#include "harness/folders.h"

namespace reigen {
namespace {

using ::testing::HasSubstr;

struct Ended {
  int exit_code;
  std::string output;
};

Ended run(const std::string& what) {
  const std::string command = fmt::format("{} {} 2>&1", built("tests/spawn_program"), what);
  std::FILE* pipe = ::popen(command.c_str(), "r");
  std::string output;
  std::array<char, 4096> buffer{};
  for (std::size_t n; (n = std::fread(buffer.data(), 1, buffer.size(), pipe)) > 0;) output.append(buffer.data(), n);
  const int status = ::pclose(pipe);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, output};
}

std::size_t count(const std::string& text, const std::string& word) {
  std::size_t found = 0;
  for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++found;
  return found;
}

TEST(Spawn, EachCallRunsItsOwnFunctionAndMainGoesOnOnce) {
  const Ended result = run("well");
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_EQ(count(result.output, "first sum 2"), 1u) << result.output;
  EXPECT_EQ(count(result.output, "second sum 3"), 1u) << result.output;
  EXPECT_EQ(count(result.output, "main goes on"), 1u) << result.output;
}

TEST(Spawn, AnErrorOfARankIsThrownWithItsCodeAndWords) {
  const Ended result = run("throw");
  EXPECT_EQ(result.exit_code, 65) << result.output;
  EXPECT_THAT(result.output, HasSubstr("spawn threw: spawn: rank 1 of 3 failed with exit code 65"));
  EXPECT_THAT(result.output, HasSubstr("the second rank gives up"));
}

TEST(Spawn, AKilledRankGives137) {
  const Ended result = run("kill");
  EXPECT_EQ(result.exit_code, 137) << result.output;
  EXPECT_THAT(result.output, HasSubstr("rank 2"));
}

}  // namespace
}  // namespace reigen
