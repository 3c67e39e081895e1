#include "reigen/format/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "format/memory_file.h"
#include "format/temporary_folder.h"
#include "harness/folders.h"
#include "reigen/base/error.h"

namespace reigen::format::tokenizer_test {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::string folder_of_files() { return std::string(kSourceFolder) + "/tests/format/files/tokenizers/"; }

TokenizerOptions options_for(const std::string& file) {
  return {.pattern = file.ends_with(".tiktoken") ? WordPattern::kLlama3 : WordPattern::kAuto};
}

Tokenizer read_file(const std::string& name) { return Tokenizer::read(folder_of_files() + name, options_for(name)); }

Tokenizer read_text(const std::string& content, const TokenizerOptions& options = {}) {
  const tests::MemoryFile file(content.data(), content.size());
  return Tokenizer::read(file.path(), options);
}

template <class ErrorType = DataError>
std::string refusal_of(const std::string& content, const TokenizerOptions& options = {}) {
  try {
    read_text(content, options);
  } catch (const ErrorType& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("fd/"), HasSubstr("fix: ")));
    return error.what();
  }
  return "read without complaint";
}

// scripts/compare/tokenizers wrote the files, with the ids and texts of Python's packages.
TEST(Tokenizer, GivesTheIdsOfPythonsPackages) {
  const json cases = json::parse(tests::content_of(folder_of_files() + "golden.json"));
  ASSERT_GE(cases.size(), 40);
  for (const json& one : cases) {
    const auto file = one.at("file").get<std::string>();
    SCOPED_TRACE(one.dump());
    const Tokenizer tokenizer = read_file(file);
    const auto ids = one.at("ids").get<std::vector<std::int32_t>>();
    EXPECT_EQ(tokenizer.encode(one.at("text").get<std::string>()), ids);
    EXPECT_EQ(tokenizer.decode(ids), one.at("decoded").get<std::string>());
  }
}

TEST(Tokenizer, TokenizersOnBytesGiveEveryTextBack) {
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all += static_cast<char>(byte);
  const std::vector<std::string> texts = {all,
                                          "",
                                          "\xff",
                                          "a\x80z",
                                          "\xe6\x97 \xe6\x97\xa5",
                                          "\xf0\x9f\x99",
                                          "\xed\xa0\x80",
                                          std::string(5000, 'a'),
                                          std::string(5000, ' ') + "x",
                                          std::string(3000, '\n'),
                                          "\r\n\r\n a \t",
                                          "\xc0\xaf\xf5"};
  for (const char* file : {"gpt2.json", "llama3.json", "small.tiktoken"}) {
    const Tokenizer tokenizer = read_file(file);
    for (const std::string& text : texts) EXPECT_EQ(tokenizer.decode(tokenizer.encode(text)), text) << file;
  }
}

TEST(Tokenizer, ByteFallbackKeepsBytesThatAreNoCharacters) {
  const Tokenizer tokenizer = read_file("llama2.json");
  for (const std::string text : {"a\xff\x80 b", "\xe6\x97", "\n\x01", "\xf0\x9f\x99\x82"}) {
    EXPECT_EQ(tokenizer.decode(tokenizer.encode(text)), text);
  }
  EXPECT_EQ(tokenizer.bytes(*tokenizer.find("<0x0A>")), "\n");
}

TEST(Tokenizer, KnowsItsTokens) {
  const Tokenizer tokenizer = read_file("llama3.json");
  EXPECT_EQ(tokenizer.size(), 330);
  EXPECT_TRUE(tokenizer.has(0));
  EXPECT_FALSE(tokenizer.has(-1) || tokenizer.has(330));
  EXPECT_EQ(tokenizer.bos(), tokenizer.find("<s>"));
  EXPECT_EQ(tokenizer.eos(), std::nullopt);
  ASSERT_EQ(tokenizer.special_tokens().size(), 2);
  EXPECT_EQ(tokenizer.special_tokens()[1].name, "<|endoftext|>");
  EXPECT_EQ(tokenizer.bytes(*tokenizer.find("Ġ")), " ");
  EXPECT_EQ(tokenizer.find("no such token"), std::nullopt);
  EXPECT_THROW(tokenizer.bytes(330), InvalidArgument);
  EXPECT_THROW(tokenizer.decode(std::vector<std::int32_t>{-1}), InvalidArgument);
  const Tokenizer llama2 = read_file("llama2.json");
  EXPECT_EQ(llama2.bos(), llama2.find("<s>"));
  EXPECT_EQ(llama2.eos(), llama2.find("</s>"));
}

TEST(Tokenizer, SpecialTokensMayBeText) {
  const Tokenizer tokenizer = read_file("gpt2.json");
  const auto end = *tokenizer.find("<|endoftext|>");
  EXPECT_THAT(tokenizer.encode("<|endoftext|>"), ElementsAre(end));
  const auto as_text = tokenizer.encode("<|endoftext|>", SpecialTokens::kText);
  EXPECT_GT(as_text.size(), 1);
  EXPECT_THAT(as_text, testing::Not(testing::Contains(end)));
  EXPECT_EQ(tokenizer.decode(as_text), "<|endoftext|>");
}

TEST(Tokenizer, ThreadsShareOne) {
  const Tokenizer tokenizer = read_file("llama3.json");
  const std::string text = "the lowest of the newest, 123 times\n";
  const auto expected = tokenizer.encode(text);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int turn = 0; turn < 20; ++turn) EXPECT_EQ(tokenizer.encode(text), expected);
    });
  }
  for (auto& thread : threads) thread.join();
}

TEST(Tokenizer, LowestRankGoesFirstAndThenTheLeftPair) {
  const auto tokenizer = [](const std::string& merges) {
    const json vocab = {{"a", 0}, {"b", 1}, {"c", 2}, {"ab", 3}, {"bc", 4}, {"abc", 5}, {"aa", 6}};
    return read_text(json{{"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", json::parse(merges)}}}}.dump());
  };
  EXPECT_THAT(tokenizer(R"(["a b", "b c", "ab c"])").encode("abc"), ElementsAre(5));
  EXPECT_THAT(tokenizer(R"(["b c", "a b", "ab c"])").encode("abc"), ElementsAre(0, 4));
  EXPECT_THAT(tokenizer(R"(["a b", "b c"])").encode("abcbc"), ElementsAre(3, 2, 4));
  EXPECT_THAT(tokenizer(R"(["a a"])").encode("aaaaa"), ElementsAre(6, 6, 0));
  EXPECT_THAT(tokenizer(R"([["a", "a"], ["a", "b"]])").encode("aab"), ElementsAre(6, 1));
  EXPECT_THAT(tokenizer("[]").encode("ab"), ElementsAre(0, 1));
}

TEST(Tokenizer, EqualFilesHaveEqualFingerprints) {
  const std::string content = tests::content_of(folder_of_files() + "llama3.json");
  const std::uint64_t expected = read_file("llama3.json").fingerprint();
  json changed = json::parse(content);
  EXPECT_EQ(read_text(changed.dump(2)).fingerprint(), expected);
  const auto differs = [&](const std::function<void(json&)>& change) {
    json other = changed;
    change(other);
    return read_text(other.dump()).fingerprint() != expected;
  };
  EXPECT_TRUE(differs([](json& file) { file["model"]["merges"].erase(0); }));
  EXPECT_TRUE(differs([](json& file) { file["model"]["ignore_merges"] = false; }));
  EXPECT_TRUE(differs([](json& file) { file["pre_tokenizer"]["pretokenizers"].erase(0); }));
  EXPECT_TRUE(differs([](json& file) { file["added_tokens"][0]["special"] = false; }));
}

struct Change {
  const char* name;
  std::function<void(json&)> make;
  const char* expected;  // a part of the refusal
};

std::string refusal_after(const json& file, const Change& change) {
  json changed = file;
  change.make(changed);
  return refusal_of(changed.dump());
}

TEST(Tokenizer, NamesWhatIsNotSupported) {
  const json bytes = json::parse(tests::content_of(folder_of_files() + "llama3.json"));
  const auto split = [](json& file) -> json& { return file["pre_tokenizer"]["pretokenizers"][0]; };
  const std::vector<Change> changes = {
      {"model", [](json& f) { f["model"]["type"] = "Unigram"; }, "model.type is not supported\n  got: \"Unigram\""},
      {"dropout", [](json& f) { f["model"]["dropout"] = 0.1; }, "model.dropout"},
      {"prefix", [](json& f) { f["model"]["continuing_subword_prefix"] = "##"; }, "model.continuing_subword_prefix"},
      {"fallback", [](json& f) { f["model"]["byte_fallback"] = true; }, "model.byte_fallback"},
      {"unknown", [](json& f) { f["model"]["unk_token"] = "<none>"; }, "model.unk_token"},
      {"another key", [](json& f) { f["model"]["new_rule"] = 1; }, "model.new_rule"},
      {"key of the file", [](json& f) { f["new_part"] = json::object(); }, "new_part"},
      {"truncation",
       [](json& f) {
         f["truncation"] = {{"max_length", 5}};
       },
       "truncation"},
      {"padding",
       [](json& f) {
         f["padding"] = {{"length", 5}};
       },
       "padding"},
      {"normalizer",
       [](json& f) {
         f["normalizer"] = {{"type", "NFC"}};
       },
       "normalizer.type is not supported\n  got: \"NFC\""},
      {"splitter",
       [](json& f) {
         f["pre_tokenizer"]["pretokenizers"][0] = {{"type", "Whitespace"}};
       },
       "pre_tokenizer.pretokenizers[0].type"},
      {"behavior", [&](json& f) { split(f)["behavior"] = "Removed"; }, "pretokenizers[0]"},
      {"inverted", [&](json& f) { split(f)["invert"] = true; }, "pretokenizers[0]"},
      {"expression", [&](json& f) { split(f)["pattern"]["Regex"] = "\\w+"; }, "\\w"},
      {"lines", [&](json& f) { split(f)["pattern"]["Regex"] = "a$"; }, "where lines begin and end"},
      {"wrong expression", [&](json& f) { split(f)["pattern"]["Regex"] = "(a"; }, "a group without its end"},
      {"blank", [](json& f) { f["pre_tokenizer"]["pretokenizers"][1]["add_prefix_space"] = true; }, "add_prefix_space"},
      {"decoder",
       [](json& f) {
         f["decoder"] = {{"type", "WordPiece"}};
       },
       "decoder.type"},
      {"processor",
       [](json& f) {
         f["post_processor"] = {{"type", "RobertaProcessing"}};
       },
       "post_processor.type"},
      {"words", [](json& f) { f["added_tokens"][0]["single_word"] = true; }, "added_tokens[0].single_word"},
      {"another id", [](json& f) { f["added_tokens"][0]["id"] = 77; }, "added_tokens[0] contradicts"},
      {"merge", [](json& f) { f["model"]["merges"][3] = "a b c"; }, "model.merges[3]"},
      {"merge of nothing",
       [](json& f) {
         f["model"]["merges"][3] = {"q", "no"};
       },
       "model.merges[3]"},
      {"id twice", [](json& f) { f["model"]["vocab"]["new token"] = 5; }, "model.vocab"},
      {"id below 0", [](json& f) { f["model"]["vocab"]["new token"] = -5; }, "model.vocab"},
      {"large id", [](json& f) { f["model"]["vocab"]["new token"] = 4'000'000'000; }, "model.vocab"},
      {"no number", [](json& f) { f["model"]["vocab"]["new token"] = "5"; }, "model.vocab.new token"},
      {"no model", [](json& f) { f.erase("model"); }, "model is missing"},
  };
  for (const Change& change : changes) {
    EXPECT_THAT(refusal_after(bytes, change), HasSubstr(change.expected)) << change.name;
  }
}

TEST(Tokenizer, NamesWhatIsNotSupportedOfBlanks) {
  const json blanks = json::parse(tests::content_of(folder_of_files() + "llama2.json"));
  const std::vector<Change> others = {
      {"no byte", [](json& f) { f["model"]["vocab"].erase("<0x41>"); }, "the token <0x41>"},
      {"order", [](json& f) { std::swap(f["normalizer"]["normalizers"][0], f["normalizer"]["normalizers"][1]); },
       "normalizers[1].type"},
      {"sign", [](json& f) { f["normalizer"]["normalizers"][0]["prepend"] = "_"; }, "normalizer"},
      {"decoder without blanks", [](json& f) { f["decoder"]["decoders"].erase(0); }, "decoder"},
      {"decoder without bytes", [](json& f) { f["decoder"]["decoders"].erase(1); }, "ByteFallback"},
      {"strips much", [](json& f) { f["decoder"]["decoders"][3]["start"] = 2; }, "decoders[3]"},
  };
  for (const Change& change : others) {
    EXPECT_THAT(refusal_after(blanks, change), HasSubstr(change.expected)) << change.name;
  }
}

TEST(Tokenizer, RefusesACharacterWithoutAToken) {
  const Tokenizer tokenizer = read_text(R"({"model":{"type":"BPE","vocab":{"a":0,"b":1},"merges":[]}})");
  EXPECT_THAT(tokenizer.encode("ab"), ElementsAre(0, 1));
  EXPECT_THAT([&] { tokenizer.encode("a\xc3\xa9"); },
              testing::ThrowsMessage<DataError>(AllOf(HasSubstr("no token"), HasSubstr("\\xC3\\xA9"))));
}

TEST(Tokenizer, OtherFilesAreRefused) {
  EXPECT_THAT(refusal_of(""), HasSubstr("an empty file"));
  EXPECT_THAT(refusal_of("\x08\x01 a model of SentencePiece"), HasSubstr("no tokenizer that can be read"));
  EXPECT_THAT(refusal_of("{\"model\": "), HasSubstr("no JSON at byte"));
  EXPECT_THAT(refusal_of("{}"), HasSubstr("model is missing"));
  try {
    Tokenizer::read("/nowhere/tokenizer.json");
    FAIL();
  } catch (const IoError& error) {
    EXPECT_EQ(error.exit_code(), ExitCode::kInputMissing);
  }
}

TEST(Tiktoken, ThePatternIsChosenByTheSizeOrGiven) {
  const std::string content = tests::content_of(folder_of_files() + "small.tiktoken");
  EXPECT_THAT(refusal_of<InvalidArgument>(content), AllOf(HasSubstr("100256"), HasSubstr("word_pattern")));
  const std::string text = "It'S 1234  x\n";
  const Tokenizer gpt2 = read_text(content, {.pattern = WordPattern::kGpt2});
  const Tokenizer llama3 = read_text(content, {.pattern = WordPattern::kLlama3});
  EXPECT_NE(gpt2.fingerprint(), llama3.fingerprint());
  EXPECT_EQ(gpt2.decode(gpt2.encode(text)), text);
  EXPECT_THAT(gpt2.special_tokens(), IsEmpty());
  const json own = json::parse(tests::content_of(folder_of_files() + "llama3.json"));
  EXPECT_THAT(refusal_of<InvalidArgument>(own.dump(), {.pattern = WordPattern::kGpt2}), HasSubstr("says itself"));
  EXPECT_EQ(word_pattern_of("cl100k"), WordPattern::kCl100k);
  EXPECT_THROW(word_pattern_of("none"), InvalidArgument);
}

// A file of Llama 3's size gets its 256 special tokens, and one of GPT-2's size <|endoftext|>.
TEST(Tiktoken, KnownSizesHaveTheirSpecialTokens) {
  const auto file_of = [](int count) {
    const auto digit = [](int value) {
      return "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"[value & 63];
    };
    std::string content;
    for (int rank = 0; rank < count; ++rank) {
      if (rank < 256) {
        content += {digit(rank >> 2), digit(rank << 4), '=', '='};
      } else {
        content += {digit(rank >> 18), digit(rank >> 12), digit(rank >> 6), digit(rank)};
      }
      content += " " + std::to_string(rank) + "\n";
    }
    return content;
  };
  const Tokenizer llama3 = read_text(file_of(128000));
  EXPECT_EQ(llama3.pattern(), WordPattern::kLlama3);
  EXPECT_EQ(llama3.size(), 128256);
  EXPECT_EQ(llama3.special_tokens().size(), 256);
  EXPECT_EQ(llama3.find("<|eot_id|>"), 128009);
  EXPECT_EQ(llama3.find("<|reserved_special_token_5|>"), 128010);
  EXPECT_EQ(llama3.find("<|reserved_special_token_250|>"), 128255);
  EXPECT_THAT(llama3.encode("<|begin_of_text|>"), ElementsAre(128000));
  const Tokenizer gpt2 = read_text(file_of(50256));
  EXPECT_EQ(gpt2.pattern(), WordPattern::kGpt2);
  EXPECT_EQ(gpt2.find("<|endoftext|>"), 50256);
  EXPECT_EQ(gpt2.size(), 50257);
}

TEST(Tiktoken, DamagedLinesAreNamed) {
  const std::string content = tests::content_of(folder_of_files() + "small.tiktoken");
  const TokenizerOptions options = options_for("x.tiktoken");
  EXPECT_THAT(refusal_of(content + "!!! 5\n", options), HasSubstr("line 329"));
  EXPECT_THAT(refusal_of(content + "YWJj x\n", options), HasSubstr("is wrong"));
  EXPECT_THAT(refusal_of(content + "YWJj 5\n", options), HasSubstr("no other token"));
  EXPECT_THAT(refusal_of(content.substr(0, content.find('\n', 1000)), options), HasSubstr("no token for a byte"));
}

// Any damage of a file gives a DataError or a tokenizer that works.
TEST(Tokenizer, DamagedFilesAreReadOrRefused) {
  std::uint64_t state = 1;
  const auto draw = [&](std::size_t below) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    return static_cast<std::size_t>(state >> 33) % below;
  };
  const std::vector<std::string> pieces = {"null",        "{}",   "[]",    "-1", "1e99", "\"\"",
                                           "\"\\ud800\"", "true", "\"a\"", "[[", "(?"};
  for (const char* name : {"gpt2.json", "llama3.json", "llama2.json", "metaspace_first_True.json", "small.tiktoken"}) {
    const std::string whole = tests::content_of(folder_of_files() + name);
    for (int turn = 0; turn < 150; ++turn) {
      std::string content = whole;
      for (std::size_t i = draw(3); i < 3; ++i) {
        const std::size_t at = draw(content.size());
        switch (draw(4)) {
          case 0: content[at] = static_cast<char>(draw(256)); break;
          case 1: content.erase(at, draw(20)); break;
          case 2: content.insert(at, pieces[draw(pieces.size())]); break;
          default: content.resize(at + 1); break;
        }
      }
      try {
        const Tokenizer tokenizer = read_text(content, options_for(name));
        tokenizer.decode(tokenizer.encode("It's <s> \xff 12\n the<|endoftext|>"));
      } catch (const DataError&) {
      } catch (const InvalidArgument&) {  // a damaged tiktoken file may look like JSON
      }
    }
  }
}

}  // namespace
}  // namespace reigen::format::tokenizer_test
