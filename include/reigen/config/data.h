// The options of a training's data (config.h). Thread rule: these types are values; every thread may have its own copy.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "reigen/base/fields.h"

namespace reigen::config {

struct DataConfig {
  bool takes_path = true;        // if false, there is no option data.path
  bool takes_tokenizer = false;  // if false, there are no options data.tokenizer and data.word_pattern
  std::string path = {};
  std::string tokenizer = {};
  std::string word_pattern = "auto";
  std::optional<std::int64_t> workers = {};  // not set: "auto"
  std::string dump_order = {};
  std::int64_t limit = 0;
  bool may_differ = false;
  std::int64_t device_prefetch = 2;
  std::string shuffle = "full";
  std::int64_t max_bad = 0;
};
inline void describe(Fields& fields, DataConfig& o) {
  fields.section = "data";
  if (o.takes_path) fields.add("path", o.path, "folder or file of the data; empty: data that the program makes itself");
  if (o.takes_tokenizer) {
    fields.add(
        "tokenizer", o.tokenizer,
        "tokenizer.json of Hugging Face or a file of tiktoken, whose tokens the model learns; empty: characters");
    fields.add("word_pattern", o.word_pattern, {"auto", "gpt2", "cl100k", "o200k", "llama3"},
               "how a file of tiktoken divides a text into words; auto: chosen by its number of tokens");
  }
  fields
      .add("workers", o.workers, at_least(0).up_to(64),
           "threads that prepare batches in advance; 0: none; auto: as many as training needs, up to the rank's cores")
      .empty_word = "auto";
  fields.add("device_prefetch", o.device_prefetch, at_least(0).up_to(64),
             "batches that are copied to the GPU in advance, beside the computation; needs data.workers and memory");
  fields.add(
      "shuffle", o.shuffle, {"full", "blocks", "none"},
      "order of the training samples: any; blocks of neighbours, for disks that read slowly out of order; as stored");
  fields.add("max_bad", o.max_bad, at_least(0),
             "leave out up to N damaged samples of a rank, with a warning; with 0 a damaged sample is an error");
  fields.add("dump_order", o.dump_order, "file that gets the numbers of each step's samples, one line for each step");
  fields.add("limit", o.limit, at_least(0), "use only the first N training samples; 0: all");
  fields.add("may_differ", o.may_differ, "true: resume also with other data than before; a warning says what differs");
}

}  // namespace reigen::config
