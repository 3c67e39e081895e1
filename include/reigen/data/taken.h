// What a reader of a folder took, and what it passed over: so that nobody trains on less or more than he thinks.
// Thread rule: a value.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace reigen::data {

struct PassedOver {
  std::string reason;                      // "hidden", "of another ending"
  std::int64_t count = 0;                  // files, and folders of which nothing was looked at
  std::vector<std::string> examples = {};  // the first few different ones: names, or endings
};

struct Taken {
  std::int64_t files = 0;
  std::vector<PassedOver> passed_over;  // in the order in which they were met

  void pass_over(std::string_view reason, const std::string& example);
  void add(const Taken& other);

  // "120 files; passed over 2 hidden: .git, .DS_Store; 1 of another ending: .webp"
  std::string text() const;
};

}  // namespace reigen::data
