#include "reigen/data/text.h"

#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <system_error>
#include <utility>

#include "base/check.h"
#include "data/documents.h"
#include "format/byte_stream.h"
#include "reigen/base/bytes.h"
#include "reigen/base/error.h"

namespace reigen::data {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t kLeastBytes = 20;
constexpr std::uint64_t kMostBytes = 4 * kGiB;
constexpr std::size_t kPiece = kMiB;

void append_file(const fs::path& path, std::string& text) {
  format::ByteStream stream(path);
  for (;;) {
    const std::size_t before = text.size();
    text.resize(before + kPiece);
    const std::size_t got = stream.read(std::as_writable_bytes(std::span(text.data() + before, kPiece)));
    text.resize(before + got);
    if (text.size() > kMostBytes) {
      throw DataError(Report{.what = fmt::format("'{}' is too large a text", path.string()),
                             .got = fmt::format("more than {}", format_bytes(kMostBytes)),
                             .expected = fmt::format("at most {} in all", format_bytes(kMostBytes)),
                             .fix = "give a part of it"});
    }
    if (got < kPiece) return;
  }
}

bool is_text(fs::path path) {
  const auto ending_of = [](const fs::path& name) {
    std::string ending = name.extension().string();
    std::transform(ending.begin(), ending.end(), ending.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    return ending;
  };
  if (path.filename().string().starts_with('.')) return false;
  if (ending_of(path) == ".gz") path.replace_extension();
  return ending_of(path) == ".txt" || ending_of(path) == ".md";
}

std::vector<fs::path> texts_below(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code error;
  for (fs::recursive_directory_iterator at(folder, error); !error && at != fs::recursive_directory_iterator();
       at.increment(error)) {
    std::error_code ignored;
    if (at->is_regular_file(ignored) && is_text(at->path())) files.push_back(at->path());
  }
  if (error) {
    throw IoError(Report{.what = fmt::format("cannot read the folder '{}'", folder.string()),
                         .got = error.message(),
                         .expected = "a folder of text files",
                         .fix = "check the path and its permissions"},
                  base::exit_code_of_errno(error.value()));
  }
  if (files.empty()) {
    throw DataError(Report{.what = fmt::format("no text in the folder '{}'", folder.string()),
                           .got = "no file named *.txt or *.md, plain or .gz",
                           .expected = "at least one",
                           .fix = "give a folder of text files, or one file of any name"});
  }
  std::sort(files.begin(), files.end());
  return files;
}

class TextWindows final : public Dataset {
 public:
  TextWindows(std::shared_ptr<const Corpus> corpus, const TextWindowsOptions& options)
      : corpus_(std::move(corpus)),
        name_(fmt::format("{} {}", corpus_->name(), to_string(options.split))),
        context_(options.context),
        tokens_(corpus_->tokens(options.split)) {}

  std::int64_t size() const override { return (targets() + context_ - 1) / context_; }
  const std::string& name() const override { return name_; }
  std::int64_t terms(std::int64_t index) const override { return std::min(context_, targets() - index * context_); }

  Samples gather(std::span<const std::int64_t> indices) const override {
    const auto count = static_cast<std::int64_t>(indices.size());
    Samples samples{at::empty({count, context_}, c10::kLong), at::empty({count, context_}, c10::kLong)};
    auto* input = samples.input.mutable_data_ptr<std::int64_t>();
    auto* target = samples.target.mutable_data_ptr<std::int64_t>();
    for (const std::int64_t index : indices) {
      REIGEN_ASSERT(index >= 0 && index < size(), "window {} of {} in {}", index, size(), name_);
      const std::int64_t valid = terms(index);
      const std::uint8_t* from = tokens_.data() + index * context_;
      std::fill(std::copy(from, from + valid, input), input + context_, 0);
      std::fill(std::copy(from + 1, from + 1 + valid, target), target + context_, kIgnoredToken);
      input += context_;
      target += context_;
    }
    return samples;
  }

 private:
  std::int64_t targets() const { return static_cast<std::int64_t>(tokens_.size()) - 1; }

  std::shared_ptr<const Corpus> corpus_;
  std::string name_;
  std::int64_t context_;
  std::span<const std::uint8_t> tokens_;
};

}  // namespace

Corpus::Corpus(std::string name, const std::string& text) : name_(std::move(name)) {
  if (text.size() < kLeastBytes) {
    throw DataError(Report{.what = fmt::format("{} is too short a text", name_),
                           .got = fmt::format("{} bytes", text.size()),
                           .expected = fmt::format("at least {}", kLeastBytes),
                           .fix = "give a longer text"});
  }
  const auto zero = text.find('\0');
  if (zero != std::string::npos) {
    throw DataError(Report{.what = fmt::format("{} is no text", name_),
                           .got = fmt::format("a zero byte at byte {}", zero),
                           .expected = "text, e.g. UTF-8",
                           .fix = "give a text file, plain or gzipped"});
  }
  std::array<bool, 256> seen{};
  for (const char c : text) seen[static_cast<unsigned char>(c)] = true;
  std::array<std::uint8_t, 256> token_of{};
  for (std::size_t byte = 0; byte < seen.size(); ++byte) {
    if (!seen[byte]) continue;
    token_of[byte] = static_cast<std::uint8_t>(vocabulary_.size());
    vocabulary_ += static_cast<char>(byte);
  }
  tokens_.reserve(text.size());
  for (const char c : text) tokens_.push_back(token_of[static_cast<unsigned char>(c)]);
}

std::span<const std::uint8_t> Corpus::tokens(Split split) const {
  const std::span<const std::uint8_t> all(tokens_);
  const std::size_t test = all.size() / 10;
  return split == Split::kTrain ? all.first(all.size() - test) : all.last(test);
}

std::string Corpus::text(std::span<const std::int64_t> tokens) const {
  std::string text;
  for (const std::int64_t token : tokens) {
    REIGEN_CHECK(token >= 0 && token < static_cast<std::int64_t>(vocabulary_.size()),
                 "token {} is outside of the vocabulary of {}", token, vocabulary_.size());
    text += vocabulary_[static_cast<std::size_t>(token)];
  }
  return text;
}

Corpus read_corpus(const fs::path& path) {
  std::string text;
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) {
    append_file(path, text);
  } else {
    for (const fs::path& file : texts_below(path)) {
      if (!text.empty()) text += "\n\n";
      append_file(file, text);
    }
  }
  return {fmt::format("'{}'", path.string()), text};
}

Corpus own_documents() { return {"Reigen's documents", std::string(documents())}; }

DatasetPtr text_windows(std::shared_ptr<const Corpus> corpus, const TextWindowsOptions& options) {
  REIGEN_CHECK(corpus != nullptr, "text windows need a corpus");
  REIGEN_CHECK(options.context >= 1, "context must be at least 1, got {}", options.context);
  return std::make_shared<TextWindows>(std::move(corpus), options);
}

}  // namespace reigen::data
