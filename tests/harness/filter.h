// Checks the filter with which CTest runs a test program: a term that selects no case is a mistake in the filter.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/text.h"

namespace reigen::tests {

// The names of all cases of this program: "Suite.Case".
inline std::vector<std::string> all_cases() {
  std::vector<std::string> names;
  const auto& all = *::testing::UnitTest::GetInstance();
  for (int i = 0; i < all.total_test_suite_count(); ++i) {
    const auto& suite = *all.GetTestSuite(i);
    for (int k = 0; k < suite.total_test_count(); ++k)
      names.push_back(std::string(suite.name()) + "." + suite.GetTestInfo(k)->name());
  }
  return names;
}

// The terms of the filter that select no case. The terms behind a '-' leave cases out; they count too.
inline std::vector<std::string> idle_terms() {
  std::string filter = GTEST_FLAG_GET(filter);
  std::replace(filter.begin(), filter.end(), '-', ':');
  const std::vector<std::string> names = all_cases();
  std::vector<std::string> idle = base::split(filter, ':');
  std::erase_if(idle, [&](const std::string& term) {
    const auto is_selected = [&](const std::string& name) { return base::matches_pattern(term, name); };
    return std::any_of(names.begin(), names.end(), is_selected);
  });
  return idle;
}

// The suites with one of these words in their name of which the filter selects no case.
inline std::vector<std::string> left_out(const std::vector<std::string>& words) {
  const std::string filter = GTEST_FLAG_GET(filter);
  const std::vector<std::string> terms = base::split(filter.substr(0, filter.find('-')), ':');
  std::vector<std::string> out;
  const auto& all = *::testing::UnitTest::GetInstance();
  for (int i = 0; i < all.total_test_suite_count(); ++i) {
    const std::string suite = all.GetTestSuite(i)->name();
    const auto has = [&](const std::string& word) { return suite.find(word) != std::string::npos; };
    if (!std::any_of(words.begin(), words.end(), has)) continue;
    const std::string first = suite + "." + all.GetTestSuite(i)->GetTestInfo(0)->name();
    const auto selects = [&](const std::string& term) { return base::matches_pattern(term, first); };
    if (!std::any_of(terms.begin(), terms.end(), selects)) out.push_back(suite);
  }
  return out;
}

}  // namespace reigen::tests
