#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "format/json/json_part.h"
#include "format/tokenizer/byte_characters.h"
#include "format/tokenizer/files.h"
#include "format/tokenizer/split_pattern.h"
#include "format/utf8.h"

namespace reigen::format {

namespace {

constexpr const char* kFixOfTokenizer =
    "use a byte-pair tokenizer of the form of GPT-2, Llama 2 or Llama 3 (docs/tokenizers.md)";

// The parts of a Sequence, or the part itself. `list` is the name of a Sequence's list.
std::vector<JsonPart> parts_of(const JsonPart& part, const std::string& list) {
  if (part.is_null()) return {};
  if (part.at("type").text() != "Sequence") return {part};
  part.allow({"type", list});
  std::vector<JsonPart> all;
  for (const JsonPart& one : part.at(list).elements()) {
    if (one.at("type").text() == "Sequence") one.refuse("no Sequence inside of a Sequence");
    all.push_back(one);
  }
  return all;
}

class TokenizerReader {
 public:
  TokenizerReader(const nlohmann::json& json, const std::string& name) : root_(json, name, kFixOfTokenizer) {}

  TokenizerRules read() {
    root_.allow({"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer", "post_processor",
                 "decoder", "model"});
    if (!root_.at("truncation").is_null()) root_.at("truncation").refuse("null: no text is cut");
    if (!root_.at("padding").is_null()) root_.at("padding").refuse("null: no text is filled up");
    read_pre_tokenizer();
    read_normalizer();
    read_vocabulary();
    read_merges();
    read_added_tokens();
    read_decoder();
    read_post_processor();
    return std::move(rules_);
  }

 private:
  // ---- how a text is divided ----

  void read_pre_tokenizer() {
    const std::vector<JsonPart> parts = parts_of(root_.at("pre_tokenizer"), "pretokenizers");
    rules_.of_bytes = !parts.empty() && parts.back().at("type").text() == "ByteLevel";
    for (const JsonPart& part : parts) {
      const std::string type = part.at("type").text();
      if (!rules_.of_bytes && type == "Metaspace" && parts.size() == 1) {
        read_metaspace(part);
      } else if (rules_.of_bytes && type == "ByteLevel" && &part == &parts.back()) {
        read_byte_level(part, parts.size() == 1);
      } else if (rules_.of_bytes && type == "Split") {
        read_split(part);
      } else if (rules_.of_bytes && type == "Digits") {
        part.allow({"type", "individual_digits"});
        rules_.expressions.push_back({part.at("individual_digits").flag() ? "\\p{N}" : "\\p{N}+", part.where()});
      } else {
        part.at("type").refuse("ByteLevel, Split or Digits before ByteLevel, or Metaspace alone");
      }
    }
  }

  void read_byte_level(const JsonPart& part, bool is_alone) {
    part.allow({"type", "add_prefix_space", "trim_offsets", "use_regex"});  // trim_offsets changes no token
    rules_.prefix_space = part.at("add_prefix_space").flag(true);
    if (rules_.prefix_space && !is_alone) part.at("add_prefix_space").refuse("false behind another pre_tokenizer");
    if (part.at("use_regex").flag(true)) rules_.expressions.push_back({std::string(gpt2_expression()), part.where()});
  }

  void read_split(const JsonPart& part) {
    part.allow({"type", "pattern", "behavior", "invert"});
    const JsonPart pattern = part.at("pattern");
    pattern.allow({"Regex", "String"});
    const bool is_text = !pattern.at("String").is_null();
    const JsonPart expression = pattern.at(is_text ? "String" : "Regex");
    const std::string text = expression.text();
    if (text.empty()) expression.refuse("a text or a regular expression");
    const bool isolated = part.at("behavior").text() == "Isolated" && !part.at("invert").flag();
    if (!isolated) part.refuse("the behavior Isolated, not inverted");
    rules_.expressions.push_back({is_text ? expression_of_text(text) : text, expression.where()});
  }

  void read_metaspace(const JsonPart& part) {
    part.allow({"type", "replacement", "prepend_scheme", "add_prefix_space", "split", "str_rep"});
    Blanks& blanks = rules_.blanks;
    blanks.sign = one_character(part.at("replacement"));
    const JsonPart scheme = part.at("prepend_scheme");
    const std::string word = scheme.text(part.at("add_prefix_space").flag(true) ? "always" : "never");
    if (word == "always")
      blanks.prefix = Blanks::Prefix::kUnlessThere;
    else if (word == "first")
      blanks.prefix = Blanks::Prefix::kFirst;
    else if (word != "never")
      scheme.refuse("always, first or never");
    blanks.splits = part.at("split").flag(true);
  }

  static std::string one_character(const JsonPart& part) {
    std::string text = part.text();
    if (text.empty() || character_bytes(text) != text.size() || text == " ") part.refuse("one character, as ▁");
    return text;
  }

  void read_normalizer() {
    const std::vector<JsonPart> parts = parts_of(root_.at("normalizer"), "normalizers");
    Blanks& blanks = rules_.blanks;
    std::string prefix;
    for (const JsonPart& part : parts) {
      const std::string type = part.at("type").text();
      const bool is_first = blanks.sign.empty() && !rules_.of_bytes;
      if (is_first && prefix.empty() && type == "Prepend") {
        part.allow({"type", "prepend"});
        prefix = one_character(part.at("prepend"));
      } else if (is_first && type == "Replace") {
        part.allow({"type", "pattern", "content"});
        const JsonPart pattern = part.at("pattern");
        pattern.allow({"String"});
        if (pattern.at("String").text() != " ") pattern.refuse("the blank \" \"");
        blanks.sign = one_character(part.at("content"));
        blanks.in_normalizer = true;
      } else {
        part.at("type").refuse(rules_.of_bytes ? "null, if the pre_tokenizer is ByteLevel"
                                               : "one Prepend, then one Replace of blanks");
      }
    }
    if (prefix.empty()) return;
    if (prefix != blanks.sign) root_.at("normalizer").refuse("Prepend with what Replace writes for a blank");
    blanks.prefix = Blanks::Prefix::kAlways;
  }

  // ---- the model ----

  void read_vocabulary() {
    const JsonPart model = root_.at("model");
    if (model.is_null()) model.refuse("a model", "is missing");
    model.allow({"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk",
                 "byte_fallback", "ignore_merges", "vocab", "merges"});
    if (model.at("type").text("BPE") != "BPE") model.at("type").refuse("BPE");
    const JsonPart dropout = model.at("dropout");
    if (!dropout.is_null() && dropout.real() != 0) dropout.refuse("null: no merge is left out at random");
    for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
      if (!model.at(key).text().empty()) model.at(key).refuse("null");
    }
    rules_.whole_words = model.at("ignore_merges").flag();
    rules_.fuses_unknown = model.at("fuse_unk").flag();
    rules_.byte_fallback = model.at("byte_fallback").flag();
    if (rules_.byte_fallback && rules_.of_bytes) {
      model.at("byte_fallback").refuse("false, if the pre_tokenizer is ByteLevel");
    }
    const JsonPart vocabulary = model.at("vocab");
    for (const auto& [token, number] : vocabulary.members()) {
      const auto bytes = rules_.of_bytes ? bytes_of_characters(token) : std::optional(token);
      set_token(rules_, number.number(), token, bytes.value_or(token), vocabulary.where());
      const std::int32_t id = rules_.names.at(token);
      if (bytes) rules_.units.emplace(*bytes, id);
      if (!rules_.of_bytes) write_blanks(id);
    }
    if (rules_.byte_fallback) read_byte_tokens(vocabulary);
    const JsonPart unknown = model.at("unk_token");
    if (unknown.is_null()) return;
    rules_.unknown = id_of(unknown.text());
    if (!rules_.unknown) unknown.refuse("a token of model.vocab");
  }

  std::optional<std::int32_t> id_of(const std::string& name) const {
    const auto found = rules_.names.find(name);
    return found == rules_.names.end() ? std::nullopt : std::optional(found->second);
  }

  // Blanks in what the token stands for.
  void write_blanks(std::int32_t id) {
    if (rules_.blanks.sign.empty()) return;
    std::string& text = *rules_.tokens[static_cast<std::size_t>(id)];
    for (std::size_t at = 0; (at = text.find(rules_.blanks.sign, at)) != std::string::npos; ++at) {
      text.replace(at, rules_.blanks.sign.size(), 1, ' ');  // g++ 12 warns of the form with a text
    }
  }

  void read_byte_tokens(const JsonPart& vocabulary) {
    for (int byte = 0; byte < 256; ++byte) {
      const std::string name = fmt::format("<0x{:02X}>", byte);
      const auto id = id_of(name);
      if (!id)
        vocabulary.refuse(fmt::format("the token {}, because of byte_fallback", name), "has no token for a byte");
      rules_.byte_tokens.push_back(*id);
      rules_.tokens[static_cast<std::size_t>(*id)] = std::string(1, static_cast<char>(byte));
    }
  }

  // A merge is "a b" or ["a", "b"].
  void read_merges() {
    const JsonPart merges = root_.at("model").at("merges");
    const auto token = [this](const JsonPart& merge, const std::string& text) {
      const auto found = rules_.names.find(text);
      if (found == rules_.names.end()) merge.refuse(fmt::format("tokens of model.vocab, not '{}'", text), "is wrong");
      return found->second;
    };
    for (const JsonPart& merge : merges.elements()) {
      std::array<std::string, 2> sides;
      if (merge.value().is_array()) {
        const std::vector<JsonPart> both = merge.elements();
        if (both.size() != 2) merge.refuse("two tokens", "is wrong");
        sides = {both[0].text(), both[1].text()};
      } else {
        const std::string text = merge.text();
        const std::size_t blank = text.find(' ');
        if (blank == std::string::npos || text.find(' ', blank + 1) != std::string::npos) {
          merge.refuse("two tokens with one blank between them", "is wrong");
        }
        sides = {text.substr(0, blank), text.substr(blank + 1)};
      }
      rules_.merges.push_back({.left = token(merge, sides[0]),
                               .right = token(merge, sides[1]),
                               .result = token(merge, sides[0] + sides[1]),
                               .rank = static_cast<std::uint32_t>(rules_.merges.size())});
    }
  }

  // ---- added tokens, the decoder, the post-processor ----

  void read_added_tokens() {
    if (root_.at("added_tokens").is_null()) return;
    for (const JsonPart& part : root_.at("added_tokens").elements()) {
      part.allow({"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"});
      if (part.at("single_word").flag()) part.at("single_word").refuse("false");
      AddedToken token{.id = 0,
                       .content = part.at("content").text(),
                       .is_special = part.at("special").flag(),
                       .is_normalized = part.at("normalized").flag(!part.at("special").flag()),
                       .takes_left = part.at("lstrip").flag(),
                       .takes_right = part.at("rstrip").flag()};
      if (token.content.empty()) part.at("content").refuse("a text", "is empty");
      const std::int64_t id = part.at("id").number();
      const auto known = id_of(token.content);
      if (known && *known != id) {
        part.refuse(fmt::format("the id {}, which this token has in model.vocab", *known),
                    "contradicts the vocabulary");
      }
      if (!known) set_token(rules_, id, token.content, token.content, part.where());
      token.id = static_cast<std::int32_t>(id);
      const bool has_blank = token.is_normalized && rules_.blanks.prefix == Blanks::Prefix::kAlways;
      rules_.tokens[static_cast<std::size_t>(id)] = (has_blank ? " " : "") + token.content;  // as it was found
      rules_.added.push_back(std::move(token));
    }
  }

  void read_decoder() {
    const std::vector<JsonPart> parts = parts_of(root_.at("decoder"), "decoders");
    Blanks& blanks = rules_.blanks;
    const bool has_prefix = blanks.prefix != Blanks::Prefix::kNone;
    if (parts.empty()) blanks.strip = has_prefix ? Blanks::Strip::kOne : Blanks::Strip::kNone;
    bool writes_blanks = parts.empty() || rules_.of_bytes || blanks.sign.empty();
    bool writes_bytes = parts.empty() || !rules_.byte_fallback;
    for (const JsonPart& part : parts) {
      const std::string type = part.at("type").text();
      if (rules_.of_bytes) {
        if (type != "ByteLevel") part.at("type").refuse("ByteLevel, as the pre_tokenizer");
      } else if (type == "Metaspace") {
        part.allow({"type", "replacement", "prepend_scheme", "add_prefix_space", "split", "str_rep"});
        if (part.at("replacement").text() != blanks.sign) part.at("replacement").refuse(blanks.sign);
        const bool strips =
            part.at("prepend_scheme").text(part.at("add_prefix_space").flag(true) ? "always" : "never") != "never";
        blanks.strip = strips ? Blanks::Strip::kFirstToken : Blanks::Strip::kNone;
        writes_blanks = true;
      } else if (type == "Replace") {
        const JsonPart pattern = part.at("pattern").at("String");
        if (pattern.text() != blanks.sign || part.at("content").text() != " ") {
          part.refuse(fmt::format("the replacement of {} by a blank", blanks.sign));
        }
        writes_blanks = true;
      } else if (type == "ByteFallback") {
        if (!rules_.byte_fallback) part.refuse("no ByteFallback, since model.byte_fallback is false");
        writes_bytes = true;
      } else if (type == "Strip") {
        read_strip(part);
      } else if (type != "Fuse") {
        part.at("type").refuse("Replace, ByteFallback, Fuse, Strip or Metaspace");
      }
    }
    if (!writes_blanks) root_.at("decoder").refuse("a Replace or Metaspace that writes blanks again");
    if (!writes_bytes) root_.at("decoder").refuse("a ByteFallback, since model.byte_fallback is true");
  }

  void read_strip(const JsonPart& part) {
    part.allow({"type", "content", "start", "stop"});
    const std::int64_t start = part.at("start").number();
    if (part.at("content").text() != " " || start < 0 || start > 1 || part.at("stop").number() != 0) {
      part.refuse("one blank at the start, none at the end");
    }
    if (start == 1) rules_.blanks.strip = Blanks::Strip::kOne;
  }

  void read_post_processor() {
    for (const JsonPart& part : parts_of(root_.at("post_processor"), "processors")) {
      const std::string type = part.at("type").text();
      if (type == "ByteLevel") continue;  // changes no token
      if (type != "TemplateProcessing") part.at("type").refuse("ByteLevel or TemplateProcessing");
      part.allow({"type", "single", "pair", "special_tokens"});  // no two texts are joined, so `pair` does not act
      bool is_behind = false;
      for (const JsonPart& piece : part.at("single").elements()) {
        piece.allow({"SpecialToken", "Sequence"});
        const JsonPart special = piece.at("SpecialToken");
        if (special.is_null()) {
          if (is_behind) piece.refuse("one text");
          is_behind = true;
          continue;
        }
        std::optional<std::int32_t>& place = is_behind ? rules_.eos : rules_.bos;
        const auto id = id_of(special.at("id").text());
        if (!id) special.at("id").refuse("a token of the file");
        if (place) piece.refuse("at most one token before the text and one behind it");
        place = id;
      }
    }
  }

  JsonPart root_;
  TokenizerRules rules_;
};

}  // namespace

TokenizerRules read_tokenizer_json(std::string_view content, const std::string& name) {
  const nlohmann::json json = parse_json(content, name);
  return TokenizerReader(json, name).read();
}

}  // namespace reigen::format
