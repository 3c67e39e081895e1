// The content of a torch.save pickle as plain data (docs.python.org/3/library/pickle.html, protocols 2 to 5). A pickle
// is a program for a stack machine. This reader executes its instructions, but calls no function: a global name becomes
// a value, and a call of a name becomes a value that records the call. For unknown names (pickle_globals.h) the reader
// keeps the arguments of the call, so that tensors in them can be found. Memory is bounded by the pickle's size and by
// `max_entries`. Containers may contain themselves, so code that walks through them must detect cycles. Thread rule: a
// Pickle never changes once it is read.
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
  kBigInt,  // does not fit into a signed 64-bit integer; its bytes begin at `bits` in the pickle
  kFloat,
  kText,
  kBytes,
  kGlobal,  // a known name; `size` is its number (pickle_globals.h)
  kTuple,   // also torch.Size
  kList,
  kDict,  // also OrderedDict, Counter and defaultdict; items: key, value, key, value ...
  kSet,
  kDevice,   // items: the arguments of torch.device
  kStorage,  // items: "storage", its class, key, location, number of elements
  kTensor,   // items: the arguments of the function whose number is in `size`
  kName,     // a name that is not known; `size` is its index in names_
  // An object that an unknown name makes; `size` is the index of this name in names_. Items: the arguments of the call
  // as a tuple, then everything that later instructions add to the object: a state, a list or a set of elements, a dict
  // of items.
  kObject
};

struct PickleValue {
  PickleKind kind = PickleKind::kNone;
  std::uint32_t size = 0;  // length of text and bytes; number of a name
  std::uint64_t bits = 0;  // the number itself, or where a text begins, or the index of the items
};

// Where the pickle is, for messages.
struct PickleSource {
  std::string path;
  std::string record;
  std::uint64_t offset = 0;  // where the record's content begins in the file
};

class Pickle {
 public:
  // Throws DataError with file and offset in these cases: an unknown instruction, a name that serves to run programs
  // ("would run code"), wrong arguments of a known name, an instruction that takes more values than the stack holds,
  // text that is not UTF-8, an end that is too early or too late.
  Pickle(std::string bytes, const PickleSource& source, std::size_t max_entries);

  const PickleValue& root() const { return root_; }
  std::size_t bytes() const { return bytes_.size(); }
  std::size_t containers() const { return items_.size(); }

  std::string_view text(const PickleValue& value) const;               // of kText and kBigInt
  std::span<const PickleValue> items(const PickleValue& value) const;  // of kTuple to kTensor, and kObject
  static const PickleGlobal& global(const PickleValue& value);         // of kGlobal and kTensor
  std::string_view module(const PickleValue& value) const;             // of kName and kObject
  std::string name(const PickleValue& value) const;                    // of kName and kObject: "module.name", printable
  static bool has_items(const PickleValue& value);                     // kTuple, kList, kDict, kSet
  static double number(const PickleValue& value);                      // of kFloat
  static std::int64_t integer(const PickleValue& value);               // of kInt and kBool

 private:
  friend class PickleMachine;

  // Where the two texts of an unknown name are in the pickle.
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
