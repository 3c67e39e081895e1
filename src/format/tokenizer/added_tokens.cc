#include "format/tokenizer/added_tokens.h"

#include <algorithm>
#include <string>
#include <utility>

#include "format/utf8.h"

namespace reigen::format {

namespace {

// Whether the character is White_Space of Unicode.
bool is_blank(std::string_view character) {
  if (character.size() == 1) return character[0] == ' ' || (character[0] >= '\t' && character[0] <= '\r');
  constexpr std::array<std::string_view, 18> kBlanks = {
      "\xC2\x85",     "\xC2\xA0",     "\xE1\x9A\x80", "\xE2\x80\x80", "\xE2\x80\x81", "\xE2\x80\x82",
      "\xE2\x80\x83", "\xE2\x80\x84", "\xE2\x80\x85", "\xE2\x80\x86", "\xE2\x80\x87", "\xE2\x80\x88",
      "\xE2\x80\x89", "\xE2\x80\x8A", "\xE2\x80\xA8", "\xE2\x80\xA9", "\xE2\x80\xAF", "\xE2\x81\x9F"};
  return character == "\xE3\x80\x80" || std::find(kBlanks.begin(), kBlanks.end(), character) != kBlanks.end();
}

std::size_t behind_blanks(std::string_view text, std::size_t at) {
  while (at < text.size()) {
    const std::size_t bytes = character_bytes(text.substr(at));
    if (bytes == 0 || !is_blank(text.substr(at, bytes))) break;
    at += bytes;
  }
  return at;
}

std::size_t before_blanks(std::string_view text, std::size_t at, std::size_t least) {
  while (at > least) {
    std::size_t bytes = 1;
    while (bytes < 4 && at - bytes > least && (static_cast<unsigned char>(text[at - bytes]) & 0xC0) == 0x80) ++bytes;
    const std::string_view character = text.substr(at - bytes, bytes);
    if (character_bytes(character) != bytes || !is_blank(character)) break;
    at -= bytes;
  }
  return at;
}

}  // namespace

AddedTokens::AddedTokens(std::vector<const AddedToken*> tokens, const std::vector<std::string>& contents)
    : tokens_(std::move(tokens)), nodes_(1) {
  for (std::size_t i = 0; i < contents.size(); ++i) {
    std::size_t node = 0;
    for (const char c : contents[i]) {
      const auto [next, is_new] = nodes_[node].next.try_emplace(c, nodes_.size());
      node = next->second;
      if (is_new) nodes_.emplace_back();
    }
    if (node == 0) continue;
    begins_[static_cast<unsigned char>(contents[i][0])] = true;
    nodes_[node].token = static_cast<std::int64_t>(i);
  }
}

std::pair<const AddedToken*, std::size_t> AddedTokens::longest(std::string_view text, std::size_t at) const {
  std::pair<const AddedToken*, std::size_t> found = {nullptr, at};
  std::size_t node = 0;
  for (std::size_t i = at; i < text.size(); ++i) {
    const auto next = nodes_[node].next.find(text[i]);
    if (next == nodes_[node].next.end()) break;
    node = next->second;
    if (nodes_[node].token >= 0) found = {tokens_[static_cast<std::size_t>(nodes_[node].token)], i + 1};
  }
  return found;
}

void AddedTokens::divide(std::string_view text, bool with_special, const Text& on_text, const Token& on_token) const {
  std::size_t done = 0;
  for (std::size_t at = 0; at < text.size();) {
    if (!begins_[static_cast<unsigned char>(text[at])]) {
      ++at;
      continue;
    }
    const auto [token, token_end] = longest(text, at);
    if (token == nullptr) {
      ++at;
      continue;
    }
    const std::size_t begin = token->takes_left ? before_blanks(text, at, done) : at;
    at = token_end;
    if (token->is_special && !with_special) continue;
    if (begin > done) on_text(text.substr(done, begin - done), done);
    on_token(token->id);
    done = token->takes_right ? behind_blanks(text, token_end) : token_end;
  }
  if (done < text.size()) on_text(text.substr(done), done);
}

}  // namespace reigen::format
