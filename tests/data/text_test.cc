#include "reigen/data/text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>
#include <unistd.h>

#include <functional>

#include "format/gzip.h"
#include "format/temporary_folder.h"
#include "harness/folders.h"
#include "reigen/base/error.h"
#include "reigen/data/loader.h"

namespace reigen::data::text_test {
namespace {

using ::testing::HasSubstr;
using tests::TemporaryFolder;
namespace fs = std::filesystem;

std::string text_of(std::size_t size) {
  std::string text;
  for (std::size_t i = 0; i < size; ++i) text += static_cast<char>('a' + i * i % 23);
  return text;
}

std::shared_ptr<const Corpus> corpus_of(const std::string& text) {
  return std::make_shared<const Corpus>("text", text);
}

std::vector<std::int64_t> tokens_of(const Corpus& corpus, Split split) {
  std::vector<std::int64_t> tokens(static_cast<std::size_t>(corpus.size(split)));
  corpus.copy(split, 0, tokens);
  return tokens;
}

TokenizerPtr tokenizer_of(const std::string& name) {
  const std::string folder = std::string(kSourceFolder) + "/tests/format/files/tokenizers/";
  return std::make_shared<const format::Tokenizer>(format::Tokenizer::read(folder + name));
}

TEST(Corpus, ATokenIsAByteOfTheAlphabet) {
  const std::string text = "to be or not to be, that is";
  const Corpus corpus("text", text);
  EXPECT_EQ(corpus.encoding().alphabet(), " ,abehinorst");
  EXPECT_EQ(corpus.encoding().size(), 12);
  EXPECT_EQ(corpus.size(), static_cast<std::int64_t>(text.size()));
  EXPECT_EQ(corpus.size(Split::kTest), 2);
  EXPECT_EQ(corpus.encoding().decode(tokens_of(corpus, Split::kTrain)), text.substr(0, 25));
  EXPECT_EQ(corpus.encoding().decode(tokens_of(corpus, Split::kTest)), text.substr(25));
  EXPECT_EQ(corpus.encoding().encode("not"), (std::vector<std::int64_t>{7, 8, 11}));
  EXPECT_THROW(corpus.encoding().encode("x"), DataError);
  EXPECT_THROW(corpus.encoding().decode(std::vector<std::int64_t>{12}), InvalidArgument);
  std::vector<std::int64_t> more(26);
  EXPECT_THROW(corpus.copy(Split::kTrain, 0, more), InvalidArgument);
}

TEST(Corpus, ATokenizerGivesTheTokens) {
  // The last tenth of the bytes begins inside of a character; the test part begins with the whole character.
  std::string text = "the lowest of the newest is the lowest, and wider than the widest of them all, as they say it.";
  text += "\xE6\x97\xA5 lower x";
  const TokenizerPtr tokenizer = tokenizer_of("llama3.json");
  const Corpus corpus("text", text, {}, {}, tokenizer);
  EXPECT_FALSE(corpus.encoding().is_of_bytes());
  EXPECT_EQ(corpus.encoding().size(), tokenizer->size());
  const auto train = tokens_of(corpus, Split::kTrain);
  const auto test = tokens_of(corpus, Split::kTest);
  EXPECT_LT(corpus.size(), static_cast<std::int64_t>(text.size()));
  EXPECT_EQ(corpus.encoding().decode(train) + corpus.encoding().decode(test), text);
  EXPECT_EQ(corpus.encoding().decode(test), "\xE6\x97\xA5 lower x");
  EXPECT_EQ(corpus.encoding().encode(text.substr(0, 94)), train);
  const auto windows = text_windows(std::make_shared<const Corpus>(corpus), {.context = 5});
  const Samples first = windows->gather(std::vector<std::int64_t>{0});
  EXPECT_EQ(first.input[0][1].item<std::int64_t>(), train[1]);
  EXPECT_EQ(first.target[0][0].item<std::int64_t>(), train[1]);
}

TEST(Corpus, TheMeaningTellsTheTokenizer) {
  const std::string text = text_of(300);
  const auto fact = [&](TokenizerPtr tokenizer) {
    return Corpus("text", text, {}, {}, std::move(tokenizer)).meaning().at(0);
  };
  EXPECT_EQ(fact(nullptr).name, "alphabet");
  EXPECT_EQ(fact(tokenizer_of("gpt2.json")).name, "tokenizer");
  EXPECT_EQ(fact(tokenizer_of("gpt2.json")), fact(tokenizer_of("gpt2.json")));
  EXPECT_NE(fact(tokenizer_of("gpt2.json")), fact(tokenizer_of("llama3.json")));
}

TEST(Corpus, WhatATokenizerDoesNotKnowIsRefused) {
  const TemporaryFolder folder;
  const auto path = folder.write("t.json", R"({"model":{"type":"BPE","vocab":{"a":0,"b":1},"merges":[]}})");
  const auto tokenizer = std::make_shared<const format::Tokenizer>(format::Tokenizer::read(path));
  EXPECT_EQ(Corpus("text", std::string(40, 'a'), {}, {}, tokenizer).size(), 40);
  EXPECT_THROW(Corpus("text", std::string(40, 'c'), {}, {}, tokenizer), DataError);
  const auto whole = folder.write("w.json", R"({"model":{"type":"BPE","vocab":{"a":0,"aa":1,"aaaa":2,"aaaaaaaa":3},)"
                                            R"("merges":["a a","aa aa","aaaa aaaa"]}})");
  const auto few = std::make_shared<const format::Tokenizer>(format::Tokenizer::read(whole));
  EXPECT_THAT([&] { Corpus("text", std::string(80, 'a'), {}, {}, few); },
              testing::ThrowsMessage<DataError>(HasSubstr("too short")));
}

TEST(TextWindows, CoverEveryTokenOnce) {
  const std::string text = text_of(1000);
  const auto corpus = corpus_of(text);
  for (const std::int64_t context : {1, 7, 31, 899, 900, 5000}) {
    const auto windows = text_windows(corpus, {.context = context});
    EXPECT_EQ(windows->size(), (899 + context - 1) / context);
    std::string seen;
    std::string guessed;
    std::int64_t terms = 0;
    for (std::int64_t i = 0; i < windows->size(); ++i) {
      const Samples window = windows->gather(std::vector<std::int64_t>{i});
      ASSERT_EQ(window.input.sizes().vec(), (std::vector<std::int64_t>{1, context}));
      const std::int64_t valid = windows->terms(i);
      terms += valid;
      EXPECT_EQ(window.target.ne(kIgnoredToken).sum().item<std::int64_t>(), valid);
      const auto* input = window.input.const_data_ptr<std::int64_t>();
      const auto* target = window.target.const_data_ptr<std::int64_t>();
      seen += corpus->encoding().decode(std::span(input, static_cast<std::size_t>(valid)));
      guessed += corpus->encoding().decode(std::span(target, static_cast<std::size_t>(valid)));
    }
    EXPECT_EQ(terms, 899);
    EXPECT_EQ(seen, text.substr(0, 899));
    EXPECT_EQ(guessed, text.substr(1, 899));
  }
  EXPECT_EQ(text_windows(corpus, {.context = 10, .split = Split::kTest})->size(), 10);
  EXPECT_THROW(text_windows(corpus, {.context = 0}), InvalidArgument);
}

// 899 targets in windows of 40: 22 whole windows and one of 19.
TEST(TextWindows, ABatchIsWeighedByItsValidTokens) {
  const auto windows = text_windows(corpus_of(text_of(1000)), {.context = 40});
  ASSERT_EQ(windows->size(), 23);
  ASSERT_EQ(windows->terms(22), 899 - 22 * 40);
  for (const int ranks : {1, 2, 3, 4}) {
    std::vector<double> sums(6);
    std::vector<std::int64_t> totals(6);
    for (int rank = 0; rank < ranks; ++rank) {
      Loader loader(windows, {.global_batch = 5, .shuffle = true}, {rank, ranks});
      std::size_t step = 0;
      for (Batch& batch : loader.epoch(0)) {
        std::int64_t valid = 0;
        for (const std::int64_t index : batch.indices) valid += windows->terms(index);
        EXPECT_EQ(batch.terms, valid);
        EXPECT_EQ(batch.weight, static_cast<double>(batch.terms * ranks) / static_cast<double>(batch.global_terms));
        totals.at(step) = batch.global_terms;
        sums.at(step++) += static_cast<double>(batch.terms);
      }
    }
    for (std::size_t step = 0; step < 5; ++step) EXPECT_EQ(sums[step], static_cast<double>(totals[step]));
  }
}

TEST(ReadCorpus, FilesAndFolders) {
  const TemporaryFolder folder;
  const std::string text = text_of(50);
  EXPECT_EQ(read_corpus(folder.write("any.name", text)).size(), 50);
  EXPECT_EQ(read_corpus(folder.write("packed", tests::gzip(text))).size(), 50);
  fs::create_directories(folder.path() / "book" / "part");
  folder.write("book/b.txt", "second part of it");
  folder.write("book/a.MD", "first part");
  folder.write("book/part/c.txt.gz", tests::gzip("third"));
  folder.write("book/picture.png", std::string(100, '\0'));
  folder.write("book/.hidden.txt", "not this");
  const Corpus corpus = read_corpus(folder.path() / "book");
  std::string both;
  for (const Split split : {Split::kTrain, Split::kTest}) both += corpus.encoding().decode(tokens_of(corpus, split));
  EXPECT_EQ(both, "first part\n\nsecond part of it\n\nthird");
}

struct Wrong {
  const char* name;
  std::function<fs::path(const TemporaryFolder&)> write;
  ExitCode code;
  const char* text;
};

TEST(ReadCorpus, WhatIsNoTextIsNamed) {
  const std::vector<Wrong> table = {
      {"missing", [](const TemporaryFolder& f) { return f.path() / "absent"; }, ExitCode::kInputMissing, "absent"},
      {"empty file", [](const TemporaryFolder& f) { return f.write("empty", ""); }, ExitCode::kBadData, "0 bytes"},
      {"short", [](const TemporaryFolder& f) { return f.write("short", "a few bytes"); }, ExitCode::kBadData,
       "11 bytes"},
      {"binary",
       [](const TemporaryFolder& f) {
         return f.write("binary", std::string("forty bytes of a text, and then\0something", 41));
       },
       ExitCode::kBadData, "zero byte at byte 31"},
      {"cut gzip", [](const TemporaryFolder& f) { return f.write("cut", tests::gzip(text_of(90)).substr(0, 30)); },
       ExitCode::kBadData, "cut"},
      {"empty folder", [](const TemporaryFolder& f) { return f.path(); }, ExitCode::kBadData, "no text in the folder"},
  };
  for (const Wrong& wrong : table) {
    SCOPED_TRACE(wrong.name);
    const TemporaryFolder folder;
    const fs::path path = wrong.write(folder);
    try {
      read_corpus(path);
      ADD_FAILURE() << "read without complaint";
    } catch (const Error& error) {
      EXPECT_EQ(error.exit_code(), wrong.code) << error.what();
      EXPECT_THAT(error.what(), HasSubstr(path.string()));
      EXPECT_THAT(error.what(), HasSubstr(wrong.text));
    }
  }
  if (::geteuid() == 0) return;  // root can read every file
  const TemporaryFolder folder;
  const fs::path path = folder.write("secret", text_of(90));
  fs::permissions(path, fs::perms::none);
  EXPECT_THAT([&] { read_corpus(path); },
              ::testing::Throws<IoError>(::testing::Property(&Error::exit_code, ExitCode::kPermission)));
}

TEST(OwnDocuments, AreThereWithoutAnyFile) {
  const Corpus corpus = own_documents();
  EXPECT_GT(corpus.size(), 50'000);
  std::vector<std::int64_t> start(8);
  corpus.copy(Split::kTrain, 0, start);
  EXPECT_EQ(corpus.encoding().decode(start), "# Reigen");
}

}  // namespace
}  // namespace reigen::data::text_test
