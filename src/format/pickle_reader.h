// What a pickle of torch.save describes (docs.python.org/3/library/pickle.html, protocols 2 to 5), as plain data.
// A pickle is a program; this machine runs nothing of it: a name stands for itself, a call of one becomes a value that
// says so. Of names that are not known (pickle_globals.h) it keeps what they were called with, so that tensors in there
// can be found. Memory is bounded by the pickle's size and by `max_entries`. Values may hold themselves: who walks
// through them must look out for that.
// Thread rule: a Pickle is never changed once it is read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "format/pickle_globals.h"

namespace reigen::format {

enum class PickleKind : std::uint8_t {
  kNone,
  kBool,
  kInt,
  kBigInt,  // beyond 64 bits with sign; `bits` is where its bytes begin
  kFloat,
  kText,
  kBytes,
  kGlobal,  // `size`: which name (pickle_globals.h)
  kTuple,   // and torch.Size
  kList,
  kDict,  // and its ordered, counting and defaulting relatives; items: key, value, key, value ...
  kSet,
  kDevice,   // items: the arguments of torch.device
  kStorage,  // items: "storage", its class, key, location, number of elements
  kTensor,   // items: the arguments of the function that `size` names
  kName,     // one that is not known; `size`: which
  kObject    // made by a name that is not known, `size`; items: the arguments as a tuple, then all that was added: a
             // state, a list or a set of elements, a dict of items
};

struct PickleValue {
  PickleKind kind = PickleKind::kNone;
  std::uint32_t size = 0;  // of text and bytes; which global
  std::uint64_t bits = 0;  // the number itself; where text begins; which items
};

// Where the pickle lies, for messages.
struct PickleSource {
  std::string path;
  std::string record;
  std::uint64_t offset = 0;  // of the record's content in the file
};

class Pickle {
 public:
  // Throws DataError naming file and offset: an unknown instruction, a name that serves to run programs ("would run
  // code"), wrong arguments of a known name, more than the stack holds, texts that are not UTF-8, an end too early or
  // too late.
  Pickle(std::string bytes, const PickleSource& source, std::size_t max_entries);

  const PickleValue& root() const { return root_; }
  std::size_t bytes() const { return bytes_.size(); }
  std::size_t containers() const { return items_.size(); }

  std::string_view text(const PickleValue& value) const;               // of kText and kBigInt
  std::span<const PickleValue> items(const PickleValue& value) const;  // of kTuple to kTensor, but not of kGlobal
  static const PickleGlobal& global(const PickleValue& value);         // of kGlobal and kTensor
  std::string_view module(const PickleValue& value) const;             // of kName and kObject
  std::string name(const PickleValue& value) const;                    // of the same: "module.name", fit to be shown
  static bool has_items(const PickleValue& value);                     // kTuple, kList, kDict, kSet
  static double number(const PickleValue& value);                      // of kFloat
  static std::int64_t integer(const PickleValue& value);               // of kInt and kBool

 private:
  friend class PickleMachine;

  // Where the two texts of a name lie in the pickle.
  struct Name {
    std::uint32_t module_at = 0;
    std::uint32_t module_size = 0;
    std::uint32_t name_at = 0;
    std::uint32_t name_size = 0;
  };

  std::string bytes_;
  std::vector<Name> names_;
  std::vector<std::vector<PickleValue>> items_;
  PickleValue root_;
};

}  // namespace reigen::format
