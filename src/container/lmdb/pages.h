// Reads the B+tree of an LMDB file (data.mdb, format 1 of LMDB 0.9). liblmdb trusts its file: a damaged one can end the
// process with a signal. This reader checks every number before it uses it, so that damage is an error. It also needs
// no lock file, because a dataset is not changed while it is read. Source: mdb.c of LMDB 0.9.24 (MDB_meta, MDB_db,
// MDB_page, MDB_node), 64 bits, little-endian. Thread rule: any number of threads may read at once.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace reigen::container {

class LmdbPages {
 public:
  struct Found {
    std::span<const std::byte> value;
    std::uint64_t offset = 0;  // of the value in the file
  };
  struct Entry {
    std::string_view key;
    Found found;
  };

  // `file` is the whole content of data.mdb, which must live as long as this object. Throws DataError for a file that
  // is damaged, cut, or holds a database of a kind that datasets do not have (several values for a key, named
  // databases).
  LmdbPages(std::span<const std::byte> file, std::string path);

  // Nothing if the key is not there. Throws DataError for damage on the way. Cost: one page for each level.
  std::optional<Found> find(std::string_view key) const;

  // Calls visit() for the entries in the order of the keys, from `from` on, until it returns false. Throws DataError.
  void walk(std::string_view from, const std::function<bool(const Entry&)>& visit) const;

  std::uint64_t entries() const { return entries_; }
  // Throws DataError unless a walk over the whole tree finds each key once, in order, and as many as the file says.
  void check() const;

 private:
  struct Page {
    std::span<const std::byte> bytes;
    std::uint64_t offset = 0;
    std::size_t keys = 0;
    bool is_leaf = false;
  };
  struct Node {
    std::string_view key;
    std::uint64_t child = 0;    // of a branch
    std::uint64_t size = 0;     // of a leaf's value
    bool is_elsewhere = false;  // the value lies on pages of its own
    std::uint64_t offset = 0;   // of the value, or of the number of its first page
  };
  struct Walk;

  void read_meta(std::uint64_t offset, std::uint64_t number);
  Page page(std::uint64_t number) const;
  Node node(const Page& page, std::size_t index) const;
  Found value_of(const Node& node) const;
  std::size_t child_for(const Page& page, std::string_view key) const;
  bool visit(std::uint64_t number, int depth, Walk& walk) const;
  template <class Number>
  Number number_at(std::uint64_t offset) const;
  [[noreturn]] void fail(std::uint64_t offset, const std::string& got, const std::string& expected) const;

  std::span<const std::byte> file_;
  std::string path_;
  std::uint64_t page_size_ = 0;
  std::uint64_t transaction_ = 0;
  std::uint64_t root_ = 0;
  std::uint64_t entries_ = 0;
  std::uint64_t pages_ = 0;  // that are in use
  unsigned depth_ = 0;
};

}  // namespace reigen::container
