#include "reigen/data/text.h"

#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/check.h"
#include "container/folder/walk.h"
#include "data/documents.h"
#include "data/fingerprint.h"
#include "format/byte_stream.h"
#include "reigen/base/bytes.h"
#include "reigen/base/error.h"

namespace reigen::data {

namespace {

namespace fs = std::filesystem;

using container::folders_in;
using container::lower;
using container::split_folders;
using container::split_in_last_word;
using container::split_word;
using container::SplitFolders;
using container::walk;
using container::WalkOptions;

constexpr std::size_t kLeastBytes = 20;
constexpr std::uint64_t kMostText = 4 * kGiB;
constexpr std::size_t kPiece = kMiB;

void append_file(const fs::path& path, std::string& text) {
  format::ByteStream stream(path);
  for (;;) {
    const std::size_t before = text.size();
    text.resize(before + kPiece);
    const std::size_t got = stream.read(std::as_writable_bytes(std::span(text.data() + before, kPiece)));
    text.resize(before + got);
    if (text.size() > kMostText) {
      throw DataError(Report{.what = fmt::format("'{}' is too large a text", path.string()),
                             .got = fmt::format("more than {}", format_bytes(kMostText)),
                             .expected = fmt::format("at most {} in all", format_bytes(kMostText)),
                             .fix = "give a part of it"});
    }
    if (got < kPiece) return;
  }
}

void require_text(const std::string& name, std::string_view text) {
  const auto zero = text.find('\0');
  if (zero == std::string_view::npos) return;
  throw DataError(Report{.what = fmt::format("{} is no text", name),
                         .got = fmt::format("a zero byte at byte {}", zero),
                         .expected = "text, e.g. UTF-8",
                         .fix = "give a text file, plain or gzipped"});
}

bool has_text_ending(const fs::path& path) {
  const bool packed = lower(path.extension().string()) == ".gz";
  const std::string ending = lower((packed ? path.stem() : path).extension().string());
  return ending == ".txt" || ending == ".md";
}

// Returns the file name without ".gz" and without the ending before it.
std::string bare_name(const fs::path& path) {
  const bool packed = lower(path.extension().string()) == ".gz";
  return (packed ? path.stem() : path).stem().string();
}

struct Texts {
  std::vector<fs::path> training;
  std::vector<fs::path> testing;  // if empty, the last tenth of the training text is for testing
  Taken taken;
};

constexpr const char* kFixOfTexts = "give a folder of text files, or one file of any name";

constexpr const char* kInNeither = "in neither split";

WalkOptions walk_of_texts() { return {.wanted = has_text_ending, .fix = kFixOfTexts, .loose = kInNeither}; }

[[noreturn]] void fail_without_texts(const fs::path& folder, const Taken& taken) {
  throw DataError(Report{.what = fmt::format("no text in the folder '{}'", folder.string()),
                         .got = "no file named *.txt or *.md, plain or .gz: " + taken.text(),
                         .expected = "at least one",
                         .fix = kFixOfTexts});
}

// Lists the texts in the folders train/ and test/. Folders and files next to these two belong to neither split.
Texts texts_of_splits(const std::vector<fs::path>& folders, const SplitFolders& splits, Taken taken) {
  Texts texts{.training = {}, .testing = {}, .taken = std::move(taken)};
  texts.training = walk(splits.train, walk_of_texts(), texts.taken);
  if (texts.training.empty()) fail_without_texts(splits.train, texts.taken);
  fs::path tested;
  for (const fs::path& place : splits.test) {
    if (!texts.testing.empty()) break;
    tested = place;
    texts.testing = walk(place, walk_of_texts(), texts.taken);
  }
  if (texts.testing.empty()) fail_without_texts(splits.test[0], texts.taken);
  for (const fs::path& other : folders) {
    if (other != splits.train && other != tested) texts.taken.pass_over(kInNeither, other.filename().string());
  }
  return texts;
}

// Divides the texts by the names of files directly in the folder: train.txt, and test.txt or valid.txt. Other files
// belong to neither split.
void divide_by_names(const fs::path& folder, Texts& texts) {
  const fs::path here = (folder / "").parent_path();  // without a slash at the end, as in "texts/"
  std::array<std::vector<fs::path>, 4> parts;         // the files named train, test and val, and all other files
  for (const fs::path& path : texts.training) {
    const auto word = path.parent_path() == here ? split_in_last_word(bare_name(path)) : std::nullopt;
    const int part = !word ? 3 : word->split == Split::kTrain ? 0 : 1 + word->preference;
    parts[static_cast<std::size_t>(part)].push_back(path);
  }
  if (parts[0].empty() || (parts[1].empty() && parts[2].empty())) return;
  const std::size_t test = parts[1].empty() ? 2 : 1;
  for (const std::size_t unused : {3 - test, std::size_t{3}}) {
    for (const fs::path& path : parts[unused]) texts.taken.pass_over(kInNeither, path.filename().string());
  }
  texts.training = parts[0];
  texts.testing = parts[test];
}

Texts texts_below(const fs::path& folder) {
  Texts texts;
  Taken beside;
  const std::vector<fs::path> folders = folders_in(folder, walk_of_texts(), beside);
  const SplitFolders splits = split_folders(folders);
  if (!splits.train.empty() && !splits.test.empty()) {
    texts = texts_of_splits(folders, splits, std::move(beside));
  } else {
    texts.training = walk(folder, walk_of_texts(), texts.taken);
    if (texts.training.empty()) fail_without_texts(folder, texts.taken);
    divide_by_names(folder, texts);
  }
  texts.taken.files = static_cast<std::int64_t>(texts.training.size() + texts.testing.size());
  return texts;
}

std::string joined(const std::vector<fs::path>& files) {
  std::string text;
  for (const fs::path& file : files) {
    if (!text.empty()) text += "\n\n";
    const std::size_t before = text.size();
    append_file(file, text);
    require_text(fmt::format("'{}'", file.string()), std::string_view(text).substr(before));
  }
  return text;
}

class TextWindows final : public Dataset {
 public:
  TextWindows(std::shared_ptr<const Corpus> corpus, const TextWindowsOptions& options)
      : corpus_(std::move(corpus)),
        name_(fmt::format("{} {}", corpus_->name(), to_string(options.split))),
        context_(options.context),
        split_(options.split) {}

  std::int64_t size() const override { return (targets() + context_ - 1) / context_; }
  const std::string& name() const override { return name_; }
  std::int64_t terms(std::int64_t index) const override { return std::min(context_, targets() - index * context_); }
  Meaning meaning() const override { return corpus_->meaning(); }

  Samples gather(std::span<const std::int64_t> indices) const override {
    const auto count = static_cast<std::int64_t>(indices.size());
    Samples samples{at::empty({count, context_}, c10::kLong), at::empty({count, context_}, c10::kLong)};
    auto* input = samples.input.mutable_data_ptr<std::int64_t>();
    auto* target = samples.target.mutable_data_ptr<std::int64_t>();
    for (const std::int64_t index : indices) {
      REIGEN_ASSERT(index >= 0 && index < size(), "window {} of {} in {}", index, size(), name_);
      const std::int64_t valid = terms(index);
      const auto part = static_cast<std::size_t>(valid);
      corpus_->copy(split_, index * context_, {input, part});
      corpus_->copy(split_, index * context_ + 1, {target, part});
      std::fill(input + valid, input + context_, 0);
      std::fill(target + valid, target + context_, kIgnoredToken);
      input += context_;
      target += context_;
    }
    return samples;
  }

 private:
  std::int64_t targets() const { return corpus_->size(split_) - 1; }

  std::shared_ptr<const Corpus> corpus_;
  std::string name_;
  std::int64_t context_;
  Split split_;
};

// The different bytes of a text in ascending order.
std::string alphabet_of(std::string_view text, std::string_view testing) {
  std::array<bool, 256> seen{};
  for (const std::string_view part : {text, testing}) {
    for (const char c : part) seen[static_cast<unsigned char>(c)] = true;
  }
  std::string alphabet;
  for (std::size_t byte = 0; byte < seen.size(); ++byte) {
    if (seen[byte]) alphabet += static_cast<char>(byte);
  }
  return alphabet;
}

// Moves the place where a text is divided to the beginning of a character.
std::size_t to_character(std::string_view text, std::size_t at) {
  for (int i = 0; i < 3 && at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80; ++i) --at;
  return at;
}

Encoding encoding_of(const TokenizerPtr& tokenizer, std::string_view text, std::string_view testing) {
  if (tokenizer) return Encoding(tokenizer);
  const std::string alphabet = alphabet_of(text, testing);
  return Encoding(alphabet.empty() ? std::string(1, ' ') : alphabet);  // the constructor refuses a text without a byte
}

}  // namespace

Corpus::Corpus(std::string name, const std::string& text, const std::string& testing, Taken taken,
               TokenizerPtr tokenizer)
    : name_(std::move(name)), encoding_(encoding_of(tokenizer, text, testing)), taken_(std::move(taken)) {
  const std::size_t size = text.size() + testing.size();
  std::size_t training = testing.empty() ? size - size / 10 : text.size();
  const auto require = [&](std::size_t tokens, std::size_t of_test) {
    if (size >= kLeastBytes && of_test >= 2 && tokens - of_test >= 2) return;
    throw DataError(Report{.what = fmt::format("{} is too short a text", name_),
                           .got = testing.empty() ? fmt::format("{} {}", tokens, tokenizer ? "tokens" : "bytes")
                                                  : fmt::format("{} {}, {} of them for testing", tokens,
                                                                tokenizer ? "tokens" : "bytes", of_test),
                           .expected = fmt::format("at least {} bytes, and 2 {} for training and for testing",
                                                   kLeastBytes, tokenizer ? "tokens" : "bytes"),
                           .fix = "give a longer text"});
  };
  if (!tokenizer) require(size, size - training);
  require_text(name_, text);
  require_text(name_, testing);
  if (tokenizer && testing.empty() && training < size) training = to_character(text, training);
  format::Hash64 hash;
  for (const std::string* part : {&text, &testing}) hash.update(part->data(), part->size());
  fingerprint_ = fmt::format("{} of {} bytes, {} of them for training", fingerprint(hash), size, size - training);
  const std::string_view first = std::string_view(text).substr(0, training);
  const std::string_view second = testing.empty() ? std::string_view(text).substr(training) : testing;
  if (tokenizer) {
    ids_ = tokenizer->encode(first);
    training_ = ids_.size();
    const std::vector<std::int32_t> tested = tokenizer->encode(second);
    ids_.insert(ids_.end(), tested.begin(), tested.end());
    require(ids_.size(), ids_.size() - training_);
    return;
  }
  std::array<std::uint8_t, 256> token_of{};
  std::uint8_t next = 0;
  for (const char c : encoding_.alphabet()) token_of[static_cast<unsigned char>(c)] = next++;
  bytes_.reserve(size);
  for (const std::string_view part : {first, second}) {
    for (const char c : part) bytes_.push_back(token_of[static_cast<unsigned char>(c)]);
  }
  training_ = training;
}

Meaning Corpus::meaning() const { return {encoding_.fact(), {.name = "text", .values = {fingerprint_}}}; }

std::int64_t Corpus::size() const { return static_cast<std::int64_t>(bytes_.size() + ids_.size()); }

std::int64_t Corpus::size(Split split) const {
  const auto training = static_cast<std::int64_t>(training_);
  return split == Split::kTrain ? training : size() - training;
}

void Corpus::copy(Split split, std::int64_t first, std::span<std::int64_t> into) const {
  const auto count = static_cast<std::int64_t>(into.size());
  REIGEN_CHECK(first >= 0 && count <= size(split) - first, "tokens {} to {} of a split with {}", first, first + count,
               size(split));
  const std::int64_t from = first + (split == Split::kTrain ? 0 : static_cast<std::int64_t>(training_));
  if (encoding_.is_of_bytes())
    std::copy_n(bytes_.begin() + from, count, into.begin());
  else
    std::copy_n(ids_.begin() + from, count, into.begin());
}

Corpus read_corpus(const fs::path& path, TokenizerPtr tokenizer) {
  const std::string name = fmt::format("'{}'", path.string());
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) {
    const Texts texts = texts_below(path);
    const std::string testing = joined(texts.testing);
    if (testing.empty() && !texts.testing.empty()) {
      throw DataError(Report{.what = fmt::format("nothing to test with in {}", name),
                             .got = fmt::format("'{}' without a character", texts.testing[0].string()),
                             .expected = "a text",
                             .fix = "write it again, or move it away: then the last tenth of the text is for testing"});
    }
    return {name, joined(texts.training), testing, texts.taken, std::move(tokenizer)};
  }
  std::string text;
  append_file(path, text);
  return {name, text, {}, {}, std::move(tokenizer)};
}

Corpus own_documents(TokenizerPtr tokenizer) {
  return {"Reigen's documents", std::string(documents()), {}, {}, std::move(tokenizer)};
}

DatasetPtr text_windows(std::shared_ptr<const Corpus> corpus, const TextWindowsOptions& options) {
  REIGEN_CHECK(corpus != nullptr, "text windows need a corpus");
  REIGEN_CHECK(options.context >= 1, "context must be at least 1, got {}", options.context);
  return std::make_shared<TextWindows>(std::move(corpus), options);
}

}  // namespace reigen::data
