// Text for language models. Each byte is a token, or a tokenizer gives the tokens (encoding.h). A corpus is divided
// into windows whose targets are the next tokens.
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

#include "reigen/container/taken.h"
#include "reigen/data/dataset.h"
#include "reigen/data/encoding.h"

namespace reigen::data {

using container::Taken;

inline constexpr std::int64_t kIgnoredToken = -100;  // PyTorch's cross entropy ignores a target with this value

// A text as a sequence of tokens. Without a tokenizer the tokens are the different bytes of the text in ascending
// order: an ASCII character is one token, other characters of UTF-8 are several tokens.
class Corpus {
 public:
  // `name` is for messages. `testing` is the test part if the user has divided the text; if it is empty, the last tenth
  // of `text` is the test part (with a tokenizer, from the beginning of a character on). With a tokenizer both parts
  // are encoded here, each by itself; names of special tokens in the text become these tokens. taken() returns `taken`.
  // Throws DataError naming `name` if there are fewer than 20 bytes or 2 tokens in a part (too few to train and test
  // with), if there is a zero byte, which no text contains, and for a character without a token.
  Corpus(std::string name, const std::string& text, const std::string& testing = {}, Taken taken = {},
         TokenizerPtr tokenizer = nullptr);

  const std::string& name() const { return name_; }
  const Encoding& encoding() const { return encoding_; }
  std::int64_t size() const;             // tokens of both splits
  std::int64_t size(Split split) const;  // tokens of one split; the splits do not overlap

  // Copies the tokens of a split from number `first` on; all must lie in the split.
  void copy(Split split, std::int64_t first, std::span<std::int64_t> into) const;

  // The files that read_corpus() took from a folder; no files if the text does not come from a folder.
  const Taken& taken() const { return taken_; }

  // The fact of the encoding, and the fact "text" (a hash of all bytes).
  Meaning meaning() const;

 private:
  std::string name_;
  std::string fingerprint_;
  Encoding encoding_;
  std::vector<std::uint8_t> bytes_;  // the tokens, if they are bytes
  std::vector<std::int32_t> ids_;    // the tokens of a tokenizer
  std::size_t training_ = 0;         // number of tokens for training
  Taken taken_;
};

// If `path` is a file, reads this file, plain or gzipped. If `path` is a folder, reads all files *.txt and *.md (any
// case, also with .gz) in the folder and its subfolders, in the order of their paths, with an empty line between two
// files. Links are followed. docs/files.md says which names are passed over; taken() lists the files that were taken
// and those that were passed over. If a folder's texts are divided into splits, each split is read separately: folders
// train/ and test/ (or val/), or files whose names end in such words (train.txt, wiki.valid.txt). Throws IoError with
// exit code 66 for a missing path and for a link without a target, and with exit code 77 for a file that is not
// readable. Throws DataError for a file that is damaged, too short or not a text, for a folder without a text or with
// both train/ and training/, and for more than 4 GiB. The tokenizer is used as in Corpus.
Corpus read_corpus(const std::filesystem::path& path, TokenizerPtr tokenizer = nullptr);

// A corpus that needs no download: the documents of Reigen itself, about 400 kB.
Corpus own_documents(TokenizerPtr tokenizer = nullptr);

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
