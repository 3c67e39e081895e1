// Text for language models; each byte is a token. A corpus is divided into windows whose targets are the next bytes.
//
//   auto corpus = std::make_shared<const data::Corpus>(data::read_corpus("shakespeare.txt"));
//   auto train = data::text_windows(corpus, {.context = 256});
//
// Thread rule: any thread may call any function; a Corpus does not change.
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

inline constexpr std::int64_t kIgnoredToken = -100;  // PyTorch's cross entropy ignores a target with this value

// A text as a sequence of tokens. vocabulary() has the different bytes of the text in ascending order: token i stands
// for byte vocabulary[i]. An ASCII character is one token, other characters of UTF-8 are several tokens.
class Corpus {
 public:
  // `name` is for messages. `testing` is the test part if the user has divided the text; if it is empty, the last tenth
  // of `text` is the test part. taken() returns `taken`. Throws DataError naming `name` if there are fewer than 20
  // bytes (too few to train and test with) or if there is a zero byte, which no text contains.
  Corpus(std::string name, const std::string& text, const std::string& testing = {}, Taken taken = {});

  const std::string& name() const { return name_; }
  const std::string& vocabulary() const { return vocabulary_; }
  std::int64_t size() const { return static_cast<std::int64_t>(tokens_.size()); }

  // The tokens of one split. The splits do not overlap.
  std::span<const std::uint8_t> tokens(Split split) const;

  std::string text(std::span<const std::int64_t> tokens) const;  // the bytes that these tokens stand for

  // The files that read_corpus() took from a folder; no files if the text does not come from a folder.
  const Taken& taken() const { return taken_; }

  // The facts "alphabet" (the byte of each token) and "text" (a hash of all bytes).
  Meaning meaning() const;

 private:
  std::string name_;
  std::string fingerprint_;
  std::string vocabulary_;
  std::vector<std::uint8_t> tokens_;
  std::size_t training_ = 0;  // number of tokens for training
  Taken taken_;
};

// If `path` is a file, reads this file, plain or gzipped. If `path` is a folder, reads all files *.txt and *.md (any
// case, also with .gz) in the folder and its subfolders, in the order of their paths, with an empty line between two
// files. Links are followed. docs/files.md says which names are passed over; taken() lists the files that were taken
// and those that were passed over. If a folder's texts are divided into splits, each split is read separately: folders
// train/ and test/ (or val/), or files whose names end in such words (train.txt, wiki.valid.txt). Throws IoError with
// exit code 66 for a missing path and for a link without a target, and with exit code 77 for a file that is not
// readable. Throws DataError for a file that is damaged, too short or not a text, for a folder without a text or with
// both train/ and training/, and for more than 4 GiB.
Corpus read_corpus(const std::filesystem::path& path);

// A corpus that needs no download: the documents of Reigen itself, about 400 kB.
Corpus own_documents();

struct TextWindowsOptions {
  std::int64_t context = 256;  // tokens in a window, at least 1
  Split split = Split::kTrain;
};

// N tokens give ceil((N - 1) / context) windows that follow each other without overlap. Window i: input [context]
// int64, target [context] int64; target[t] is the token after input[t]. The last window is padded with tokens 0 and
// targets kIgnoredToken. Dataset::terms(i) is the number of targets of window i that are not kIgnoredToken. Throws
// InvalidArgument for a context below 1 or a null corpus.
DatasetPtr text_windows(std::shared_ptr<const Corpus> corpus, const TextWindowsOptions& options = {});

}  // namespace reigen::data
