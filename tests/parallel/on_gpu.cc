// Lets the tests of this program run their ranks on GPUs. LibTorch's device "cuda" and CUDA are the stand-ins of
// tests/fakes/: an access by the host to a GPU's memory is SIGSEGV.
#include <fnmatch.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/text.h"
#include "fakes/cuda/stand_in.h"
#include "parallel/oracle.h"

namespace reigen::testing_oracle {
namespace {

[[maybe_unused]] const bool kPrepared = [] {
  testing::stand_in::hide_memory();
  testing::stand_in::be_lazy();
  at::set_num_threads(1);  // the stand-in computes on the thread that runs backward
  return on_gpu = true;
}();

bool selects(const std::string& term, const std::string& name) { return ::fnmatch(term.c_str(), name.c_str(), 0) == 0; }

// CTest runs this test with the filter of CMakeLists.txt.
TEST(OnGpu, EachTermOfTheFilterSelectsACase) {
  std::vector<std::string> names;
  const auto& all = *::testing::UnitTest::GetInstance();
  for (int i = 0; i < all.total_test_suite_count(); ++i) {
    const auto& suite = *all.GetTestSuite(i);
    for (int k = 0; k < suite.total_test_count(); ++k)
      names.push_back(std::string(suite.name()) + "." + suite.GetTestInfo(k)->name());
  }
  for (const std::string& term : base::split(GTEST_FLAG_GET(filter), ':')) {
    EXPECT_TRUE(std::any_of(names.begin(), names.end(), [&](const std::string& name) { return selects(term, name); }))
        << term;
  }
}

// The suites that only this program has are in the filter too.
TEST(OnGpu, EverySuiteForADeviceIsSelected) {
  const std::vector<std::string> terms = base::split(GTEST_FLAG_GET(filter), ':');
  const auto& all = *::testing::UnitTest::GetInstance();
  for (int i = 0; i < all.total_test_suite_count(); ++i) {
    const std::string suite = all.GetTestSuite(i)->name();
    if (suite.find("Device") == std::string::npos && suite.find("OnAGpu") == std::string::npos) continue;
    const std::string first = suite + "." + all.GetTestSuite(i)->GetTestInfo(0)->name();
    EXPECT_TRUE(std::any_of(terms.begin(), terms.end(), [&](const std::string& term) { return selects(term, first); }))
        << suite;
  }
}

}  // namespace
}  // namespace reigen::testing_oracle
