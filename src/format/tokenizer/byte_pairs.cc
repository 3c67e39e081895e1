#include "format/tokenizer/byte_pairs.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "format/utf8.h"
#include "reigen/base/error.h"

namespace reigen::format {

namespace {

constexpr std::size_t kLongestKnown = 64;     // bytes of a word that is worth remembering
constexpr std::size_t kMostKnown = 1U << 18;  // words

// Orders a heap so that its front has the lowest rank, and of equal ranks the left one.
bool is_behind(const BytePairs::Candidate& a, const BytePairs::Candidate& b) {
  return a.rank != b.rank ? a.rank > b.rank : a.at > b.at;
}

}  // namespace

BytePairs::BytePairs(const TokenizerRules& rules, std::string name) : rules_(rules), name_(std::move(name)) {
  for (std::size_t byte = 0; byte < of_byte_.size(); ++byte) {
    const auto found = rules.units.find(std::string(1, static_cast<char>(byte)));
    of_byte_[byte] = found == rules.units.end() ? -1 : found->second;
  }
  merges_.reserve(rules.merges.size());
  for (const Merge& one : rules.merges) merges_[key(one.left, one.right)] = {one.rank, one.result};
  if (rules.of_bytes) return;
  std::vector<const std::string*> texts(rules.tokens.size());
  for (const auto& [text, id] : rules.units) texts[static_cast<std::size_t>(id)] = &text;
  for (const Merge& one : rules.merges) note_neighbours(*texts[static_cast<std::size_t>(one.result)]);
}

void BytePairs::note_neighbours(std::string_view result) {
  std::int32_t before = -1;
  while (!result.empty()) {
    const std::size_t bytes = std::max<std::size_t>(character_bytes(result), 1);
    const auto found = rules_.units.find(result.substr(0, bytes));
    const std::int32_t id = found == rules_.units.end() ? -1 : found->second;
    if (before >= 0 && id >= 0) neighbours_.insert(key(before, id));
    before = id;
    result.remove_prefix(bytes);
  }
}

void BytePairs::encode(std::string_view word, Scratch& scratch, std::vector<std::int32_t>& ids) const {
  if (rules_.whole_words) {
    const auto whole = rules_.units.find(word);
    if (whole != rules_.units.end()) {
      ids.push_back(whole->second);
      return;
    }
  }
  if (rules_.of_bytes)
    encode_part(word, scratch, ids);
  else
    encode_in_parts(word, scratch, ids);
}

// A tokenizer on characters may take a whole text as one word. The word is cut where no merge can reach across, which
// changes no token, and makes parts that return and are remembered.
void BytePairs::encode_in_parts(std::string_view word, Scratch& scratch, std::vector<std::int32_t>& ids) const {
  std::size_t begin = 0;
  std::int32_t before = -1;
  for (std::size_t at = 0; at < word.size();) {
    const std::size_t bytes = std::max<std::size_t>(character_bytes(word.substr(at)), 1);
    const auto found = rules_.units.find(word.substr(at, bytes));
    const std::int32_t id = found == rules_.units.end() ? -1 : found->second;
    if (before >= 0 && id >= 0 && !neighbours_.contains(key(before, id))) {
      encode_part(word.substr(begin, at - begin), scratch, ids);
      begin = at;
    }
    before = id;
    at += bytes;
  }
  encode_part(word.substr(begin), scratch, ids);
}

void BytePairs::encode_part(std::string_view part, Scratch& scratch, std::vector<std::int32_t>& ids) const {
  const bool is_short = part.size() <= kLongestKnown;
  if (is_short) {
    const auto known = scratch.known.find(part);
    if (known != scratch.known.end()) {
      ids.insert(ids.end(), known->second.begin(), known->second.end());
      return;
    }
  }
  start(part, scratch.symbols);
  merge(scratch);
  const std::size_t first = ids.size();
  for (std::int64_t at = scratch.symbols.empty() ? -1 : 0; at >= 0;) {
    const Symbol& symbol = scratch.symbols[static_cast<std::size_t>(at)];
    ids.push_back(symbol.id);
    at = symbol.next;
  }
  if (is_short && scratch.known.size() < kMostKnown) {
    scratch.known.emplace(part, std::vector<std::int32_t>(ids.begin() + static_cast<std::ptrdiff_t>(first), ids.end()));
  }
}

void BytePairs::start(std::string_view part, std::vector<Symbol>& symbols) const {
  symbols.clear();
  if (rules_.of_bytes) {
    bool after_unknown = false;
    for (const char& c : part) {
      const std::int32_t id = of_byte_[static_cast<unsigned char>(c)];
      const bool is_unknown = id < 0;
      if (is_unknown && !rules_.unknown) fail_without_token(std::string_view(&c, 1));
      if (!is_unknown || !after_unknown || !rules_.fuses_unknown)
        symbols.push_back({is_unknown ? *rules_.unknown : id});
      after_unknown = is_unknown;
    }
  } else {
    start_characters(part, symbols);
  }
  for (std::size_t i = 0; i < symbols.size(); ++i) {
    symbols[i].before = static_cast<std::int64_t>(i) - 1;
    symbols[i].next = i + 1 < symbols.size() ? static_cast<std::int64_t>(i) + 1 : -1;
  }
}

void BytePairs::start_characters(std::string_view part, std::vector<Symbol>& symbols) const {
  bool after_unknown = false;
  while (!part.empty()) {
    const std::size_t bytes = character_bytes(part);
    const std::string_view unit = part.substr(0, std::max<std::size_t>(bytes, 1));
    part.remove_prefix(unit.size());
    const auto found = bytes == 0 ? rules_.units.end() : rules_.units.find(unit);
    const bool is_known = found != rules_.units.end();
    if (is_known) {
      symbols.push_back({.id = found->second});
    } else if (rules_.byte_fallback) {
      for (const char c : unit) symbols.push_back({.id = rules_.byte_tokens[static_cast<unsigned char>(c)]});
    } else if (!rules_.unknown) {
      fail_without_token(unit);
    } else if (!after_unknown || !rules_.fuses_unknown) {
      symbols.push_back({.id = *rules_.unknown});
    }
    after_unknown = !is_known && !rules_.byte_fallback;
  }
}

void BytePairs::push(Scratch& scratch, std::int64_t at) const {
  if (at < 0) return;
  const Symbol& left = scratch.symbols[static_cast<std::size_t>(at)];
  if (left.next < 0) return;
  const std::int32_t right = scratch.symbols[static_cast<std::size_t>(left.next)].id;
  const auto found = merges_.find(key(left.id, right));
  if (found == merges_.end()) return;
  scratch.heap.push_back({.rank = found->second.rank, .left = left.id, .right = right, .at = at});
}

void BytePairs::merge(Scratch& scratch) const {
  std::vector<Symbol>& symbols = scratch.symbols;
  std::vector<Candidate>& heap = scratch.heap;
  heap.clear();
  for (std::size_t i = 0; i < symbols.size(); ++i) push(scratch, static_cast<std::int64_t>(i));
  std::make_heap(heap.begin(), heap.end(), is_behind);
  const auto push_new = [&](std::int64_t at) {
    const std::size_t before = heap.size();
    push(scratch, at);
    if (heap.size() > before) std::push_heap(heap.begin(), heap.end(), is_behind);
  };
  while (!heap.empty()) {
    const Candidate best = heap.front();
    std::pop_heap(heap.begin(), heap.end(), is_behind);
    heap.pop_back();
    Symbol& left = symbols[static_cast<std::size_t>(best.at)];
    if (left.id != best.left || left.next < 0) continue;  // one of the two was merged meanwhile
    Symbol& right = symbols[static_cast<std::size_t>(left.next)];
    if (right.id != best.right) continue;
    left.id = merges_.at(key(best.left, best.right)).result;
    right.id = -1;
    left.next = right.next;
    if (left.next >= 0) symbols[static_cast<std::size_t>(left.next)].before = best.at;
    push_new(left.before);
    push_new(best.at);
  }
}

void BytePairs::fail_without_token(std::string_view unit) const {
  std::string shown;
  for (const char c : unit) shown += fmt::format("\\x{:02X}", static_cast<unsigned char>(c));
  throw DataError(Report{.what = fmt::format("{}: the tokenizer has no token for a character of the text", name_),
                         .got = is_utf8(unit) && unit[0] > ' ' ? fmt::format("{} ({})", shown, unit) : shown,
                         .expected = "characters of its vocabulary, since it has no token for unknown characters",
                         .fix = "use a tokenizer with all bytes, or take such characters out of the text"});
}

}  // namespace reigen::format
