#include "launch/meet/node_list.h"

#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "base/text.h"
#include "reigen/base/error.h"

namespace reigen::launch {

namespace {

constexpr std::size_t kMaxNodes = 1 << 20;  // a damaged variable must not use up the memory

class Parser {
 public:
  Parser(const std::string& variable, const std::string& text) : variable_(variable), text_(text) {}

  std::vector<std::string> nodes() {
    std::vector<std::string> result;
    for (const std::string& name : split(text_)) expand(name, 0, {}, result);
    return result;
  }

  std::vector<int> tasks() {
    std::vector<int> result;
    for (const std::string& item : split(text_)) {
      const std::size_t open = item.find("(x");
      const std::uint64_t count = number(item.substr(0, open));
      std::uint64_t times = 1;
      if (open != std::string::npos) {
        if (item.back() != ')') refuse("a ')' is missing");
        times = number(item.substr(open + 2, item.size() - open - 3));
      }
      if (count < 1 || count > kMaxNodes || times < 1 || result.size() + times > kMaxNodes)
        refuse("a count is out of range");
      result.insert(result.end(), times, static_cast<int>(count));
    }
    return result;
  }

 private:
  [[noreturn]] void refuse(const std::string& why) const {
    throw InvalidArgument({.what = fmt::format("cannot read {}: {}", variable_, why),
                           .got = fmt::format("{}={}", variable_, text_),
                           .expected = "a list as Slurm writes it: node[01-03,7],other or 2(x3),1"});
  }

  std::uint64_t number(std::string_view digits) const {
    const auto value = base::parse<std::uint64_t>(digits);
    if (!value) refuse(fmt::format("`{}` is not a number", digits));
    return *value;
  }

  // Splits at commas outside of brackets.
  std::vector<std::string> split(const std::string& list) const {
    std::vector<std::string> items(1);
    bool inside = false;
    for (const char c : list) {
      if ((c == '[' && inside) || (c == ']' && !inside)) refuse("brackets do not match");
      if (c == '[') inside = true;
      if (c == ']') inside = false;
      if (c == ',' && !inside) {
        items.emplace_back();
      } else {
        items.back() += c;
      }
    }
    if (inside) refuse("brackets do not match");
    for (const std::string& item : items) {
      if (item.empty()) refuse("an entry is empty");
    }
    return items;
  }

  void expand(const std::string& name, std::size_t from, const std::string& done,
              std::vector<std::string>& result) const {
    const std::size_t open = name.find('[', from);
    if (open == std::string::npos) {
      if (result.size() >= kMaxNodes) refuse("too many nodes");
      result.push_back(done + name.substr(from));
      return;
    }
    const std::size_t close = name.find(']', open);
    const std::string before = done + name.substr(from, open - from);
    for (const std::string& range : split(name.substr(open + 1, close - open - 1))) {
      const std::size_t dash = range.find('-');
      const std::string first = range.substr(0, dash);
      const std::string last = dash == std::string::npos ? first : range.substr(dash + 1);
      const std::uint64_t low = number(first);
      const std::uint64_t high = number(last);
      if (low > high || high - low >= kMaxNodes) refuse(fmt::format("`{}` is not a range", range));
      for (std::uint64_t i = low; i <= high; ++i) {
        expand(name, close + 1, before + fmt::format("{:0>{}}", i, first.size()), result);
      }
    }
  }

  const std::string& variable_;
  const std::string& text_;
};

}  // namespace

std::vector<std::string> expand_node_list(const std::string& variable, const std::string& text) {
  return Parser(variable, text).nodes();
}

std::vector<int> expand_tasks_per_node(const std::string& variable, const std::string& text) {
  return Parser(variable, text).tasks();
}

}  // namespace reigen::launch
