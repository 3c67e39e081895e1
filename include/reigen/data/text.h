// Text for language models, a byte a token: windows of a corpus whose targets are the next bytes.
//
//   auto corpus = std::make_shared<const data::Corpus>(data::read_corpus("shakespeare.txt"));
//   auto train = data::text_windows(corpus, {.context = 256});
//
// Thread rule: as Dataset; a Corpus is a constant.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "reigen/data/dataset.h"
#include "reigen/data/taken.h"

namespace reigen::data {

inline constexpr std::int64_t kIgnoredToken = -100;  // a target that is none: what PyTorch's cross entropy passes over

// The different bytes of a text, in order: token i stands for byte vocabulary[i]. ASCII is a character a token, other
// characters of UTF-8 are several.
class Corpus {
 public:
  // `testing`: where somebody has divided the text; empty: the last tenth of `text`. Throws DataError naming `name` for
  // fewer than 20 bytes (too few to learn from and test with) and for a zero byte, which no text has.
  Corpus(std::string name, const std::string& text, const std::string& testing = {}, Taken taken = {});

  const std::string& name() const { return name_; }
  const std::string& vocabulary() const { return vocabulary_; }
  std::int64_t size() const { return static_cast<std::int64_t>(tokens_.size()); }

  // The two share no byte.
  std::span<const std::uint8_t> tokens(Split split) const;

  std::string text(std::span<const std::int64_t> tokens) const;

  // What read_corpus() took of a folder; no file for a text that is not from one.
  const Taken& taken() const { return taken_; }

  // "alphabet": the byte of each token; "text": a hash of all bytes.
  Meaning meaning() const;

 private:
  std::string name_;
  std::string fingerprint_;
  std::string vocabulary_;
  std::vector<std::uint8_t> tokens_;
  std::size_t training_ = 0;  // of the tokens
  Taken taken_;
};

// A file, plain or gzipped; or all files *.txt and *.md (any case, also .gz) in a folder and those below it, in order
// of their paths, with an empty line between two. Which names are passed over, and that links are followed, is the rule
// of docs/files.md; taken() has what was. A folder whose texts are divided is read so: train/ and test/ (or val/) in
// it, or files whose names end in such words (train.txt, wiki.valid.txt). Throws IoError (66: missing, or a link that
// leads nowhere; 77: not readable), DataError (damaged, too short, no text, none in the folder, more than 4 GiB, train/
// and training/).
Corpus read_corpus(const std::filesystem::path& path);

// What needs no download: the documents of Reigen itself, some 100 kB.
Corpus own_documents();

struct TextWindowsOptions {
  std::int64_t context = 256;  // tokens a window, at least 1
  Split split = Split::kTrain;
};

// N tokens give ceil((N - 1) / context) windows that follow each other without overlap. Window i: input [context]
// int64, target [context] int64, target[t] = the token after input[t]; the last window is filled up with tokens 0 and
// targets kIgnoredToken. terms(i) is the number of targets that count. Throws InvalidArgument.
DatasetPtr text_windows(std::shared_ptr<const Corpus> corpus, const TextWindowsOptions& options = {});

}  // namespace reigen::data
