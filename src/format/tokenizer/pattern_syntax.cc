#include "format/tokenizer/pattern_syntax.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <vector>

#include "reigen/base/error.h"

namespace reigen::format {

namespace {

// White_Space of Unicode, which is \s in Oniguruma and Rust. PCRE2's own \s also has U+180E.
constexpr std::string_view kSpaces =
    R"(\x{09}-\x{0D}\x{20}\x{85}\x{A0}\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000})";

constexpr std::array<std::string_view, 37> kCategories = {
    "C",  "Cc", "Cf", "Cn", "Co", "Cs", "L",  "Ll", "Lm", "Lo", "Lt", "Lu", "M",  "Mc", "Me", "Mn", "N",  "Nd", "Nl",
    "No", "P",  "Pc", "Pd", "Pe", "Pf", "Pi", "Po", "Ps", "S",  "Sc", "Sk", "Sm", "So", "Z",  "Zl", "Zp", "Zs"};

// Pairs of letters for which Unicode has one character: when case is ignored, Oniguruma matches that character too.
constexpr std::array<std::string_view, 5> kLigatures = {"ff", "fi", "fl", "ss", "st"};

bool is_ascii(char c) { return static_cast<unsigned char>(c) < 0x80; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_hex(char c) { return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }
char to_lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

class Translator {
 public:
  Translator(std::string_view in, const std::string& where) : in_(in), where_(where) {}

  std::string translate() {
    while (at_ < in_.size()) element();
    if (groups_.size() != 1) refuse("(", "a group without its end");
    return std::move(out_);
  }

 private:
  [[noreturn]] void refuse(std::string_view part, const std::string& reason) const {
    throw DataError(Report{.what = fmt::format("{}: the regular expression cannot be used: {}", where_, reason),
                           .got = fmt::format("{}   in {}", part, in_),
                           .expected = "characters, classes, categories (\\p{L}), \\s, \\S, \\d, groups, alternatives "
                                       "and repetitions",
                           .fix = "write the expression in this form"});
  }

  bool has(std::size_t ahead = 0) const { return at_ + ahead < in_.size(); }
  bool follows(std::string_view text) const { return in_.substr(at_).starts_with(text); }
  bool ignores_case() const { return groups_.back(); }
  void copy(std::size_t count) {
    out_ += in_.substr(at_, count);
    at_ += count;
  }

  void element() {
    const char c = in_[at_];
    const char before = previous_;
    previous_ = '\0';
    switch (c) {
      case '\\': return escape(/*in_class=*/false);
      case '[': return char_class();
      case '(': return open_group();
      case ')':
        if (groups_.size() == 1) refuse(")", "an end of a group without its beginning");
        groups_.pop_back();
        return copy(1);
      case '*':
      case '+':
      case '?':
        copy(1);
        if (has() && (in_[at_] == '+' || in_[at_] == '?')) copy(1);
        return;
      case '{': return repetition();
      case '^':
      case '$': refuse(in_.substr(at_, 1), "the libraries do not agree where lines begin and end");
      case '|':
      case '.': return copy(1);
      default: literal(before);
    }
  }

  void literal(char before) {
    const char c = in_[at_];
    if (ignores_case()) {
      if (!is_ascii(c)) refuse(in_.substr(at_), "a character beyond ASCII where case is ignored");
      const std::array<char, 2> pair = {to_lower(before), to_lower(c)};
      if (std::find(kLigatures.begin(), kLigatures.end(), std::string_view(pair.data(), 2)) != kLigatures.end()) {
        refuse(std::string_view(pair.data(), 2), "letters with a ligature where case is ignored");
      }
    }
    previous_ = c;
    copy(1);
  }

  void open_group() {
    bool ignored = ignores_case();
    for (const std::string_view kind : {"(?:", "(?=", "(?!", "(?>", "(?<=", "(?<!", "(?i:"}) {
      if (!follows(kind)) continue;
      groups_.push_back(ignored || kind == "(?i:");
      return copy(kind.size());
    }
    if (follows("(?") || follows("(*")) refuse(in_.substr(at_, 4), "an unknown kind of group");
    groups_.push_back(ignored);
    out_ += "(?:";  // no part refers to a group by its number
    ++at_;
  }

  // {2}, {2,} and {2,3}. A second sign behind them means something else in each library.
  void repetition() {
    const std::size_t begin = at_;
    std::size_t end = at_ + 1;
    while (end < in_.size() && is_digit(in_[end])) ++end;
    const bool counts = end > at_ + 1;
    if (end < in_.size() && in_[end] == ',') ++end;
    while (end < in_.size() && is_digit(in_[end])) ++end;
    if (!counts || end >= in_.size() || in_[end] != '}') refuse(in_.substr(begin), "a brace that is no repetition");
    copy(end + 1 - at_);
    if (has() && (in_[at_] == '+' || in_[at_] == '?' || in_[at_] == '*' || in_[at_] == '{')) {
      refuse(in_.substr(begin, end + 2 - begin), "a sign behind a counted repetition");
    }
  }

  void char_class() {
    copy(1);
    if (follows("^")) copy(1);
    if (follows("]")) refuse("[]", "an empty class");
    while (has() && in_[at_] != ']') {
      if (in_[at_] == '[') refuse(in_.substr(at_), "a class inside of a class");
      if (follows("&&") || follows("--") || follows("~~")) refuse(in_.substr(at_, 2), "an operation on classes");
      if (in_[at_] == '\\') {
        escape(/*in_class=*/true);
      } else {
        if (ignores_case() && !is_ascii(in_[at_])) {
          refuse(in_.substr(at_), "a character beyond ASCII where case is ignored");
        }
        copy(1);
      }
    }
    if (!has()) refuse("[", "a class without its end");
    copy(1);
  }

  void escape(bool in_class) {
    if (!has(1)) refuse("\\", "a backslash at the end");
    const char c = in_[at_ + 1];
    switch (c) {
      case 'r':
      case 'n':
      case 't': return copy(2);
      case 'v': return replace(2, "\\x{0B}");
      case 'f': return replace(2, "\\x{0C}");
      case 'd': return replace(2, "\\p{Nd}");
      case 'D': return replace(2, "\\P{Nd}");
      case 's': return replace(2, in_class ? std::string(kSpaces) : fmt::format("[{}]", kSpaces));
      case 'S':
        if (in_class) refuse("\\S", "\\S inside of a class");
        return replace(2, fmt::format("[^{}]", kSpaces));
      case 'z':
        if (in_class) refuse("\\z", "\\z inside of a class");
        return copy(2);
      case 'p':
      case 'P': return category();
      case 'x':
      case 'u': return code_point();
      default: break;
    }
    if (!is_ascii(c) || is_letter(c) || is_digit(c)) refuse(in_.substr(at_, 2), "an unknown escape");
    copy(2);
  }

  void replace(std::size_t count, const std::string& text) {
    out_ += text;
    at_ += count;
  }

  void category() {
    const std::size_t end = in_.find('}', at_);
    std::string_view name;
    std::size_t size = 3;
    if (has(2) && in_[at_ + 2] == '{' && end != std::string_view::npos) {
      name = in_.substr(at_ + 3, end - at_ - 3);
      size = end + 1 - at_;
    } else if (has(2)) {
      name = in_.substr(at_ + 2, 1);
    }
    const std::string_view whole = in_.substr(at_, size);
    bool negated = in_[at_ + 1] == 'P';
    if (name.starts_with('^')) {
      negated = !negated;
      name.remove_prefix(1);
    }
    if (std::find(kCategories.begin(), kCategories.end(), name) == kCategories.end()) {
      refuse(whole, "a property that is no general category of Unicode");
    }
    if (ignores_case()) refuse(whole, "a category where case is ignored");
    replace(size, fmt::format("\\{}{{{}}}", negated ? 'P' : 'p', name));
  }

  // \xHH, \x{H...} and \uHHHH
  void code_point() {
    std::size_t begin = at_ + 2;
    const bool braces = has(2) && in_[begin] == '{';
    if (braces) ++begin;
    const std::size_t most = braces ? 6 : in_[at_ + 1] == 'x' ? 2 : 4;
    std::size_t end = begin;
    while (end < in_.size() && end - begin < most && is_hex(in_[end])) ++end;
    const bool whole = braces ? end > begin && end < in_.size() && in_[end] == '}' : end - begin == most;
    if (!whole || ignores_case()) refuse(in_.substr(at_, end - at_), "a code point that cannot be used here");
    const std::string digits(in_.substr(begin, end - begin));
    replace(end + (braces ? 1 : 0) - at_, fmt::format("\\x{{{}}}", digits));
  }

  std::string_view in_;
  const std::string& where_;
  std::size_t at_ = 0;
  std::string out_;
  char previous_ = '\0';                // the literal character before, if there is one
  std::vector<bool> groups_ = {false};  // for each open group, and the whole expression: whether case is ignored
};

}  // namespace

std::string pcre2_expression(std::string_view expression, const std::string& where) {
  return Translator(expression, where).translate();
}

}  // namespace reigen::format
