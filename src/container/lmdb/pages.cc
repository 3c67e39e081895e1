#include "container/lmdb/pages.h"

#include <fmt/format.h>

#include <bit>
#include <cstring>
#include <utility>

#include "reigen/base/error.h"

namespace reigen::container {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr std::uint32_t kLmdbMagic = 0xBEEFC0DE;
constexpr std::uint32_t kLmdbVersion = 1;
constexpr std::uint64_t kNoPage = ~std::uint64_t{0};
constexpr std::uint64_t kPageHead = 16;  // number, pad, flags, lower and upper (or the count of pages)
constexpr std::uint64_t kNodeHead = 8;
constexpr unsigned kMostDepth = 32;  // liblmdb's own limit

enum PageFlags : std::uint16_t { kBranch = 0x01, kLeaf = 0x02, kOverflow = 0x04, kMetaPage = 0x08 };
enum NodeFlags : std::uint16_t { kBigData = 0x01, kSubData = 0x02, kDuplicates = 0x04 };

// Offsets in a page of meta data.
constexpr std::uint64_t kMagicAt = 16;
constexpr std::uint64_t kVersionAt = 20;
constexpr std::uint64_t kPageSizeAt = 40;  // the pad of the database of free pages
constexpr std::uint64_t kMainAt = 88;      // MDB_db of the database itself
constexpr std::uint64_t kLastPageAt = 136;
constexpr std::uint64_t kTransactionAt = 144;

}  // namespace

struct LmdbPages::Walk {
  std::string_view from;
  const std::function<bool(const Entry&)>& visit;
  std::uint64_t visited = 0;  // pages; a damaged tree may have loops
};

template <class Number>
Number LmdbPages::number_at(std::uint64_t offset) const {
  Number number{};
  if (offset > file_.size() || file_.size() - offset < sizeof number) {
    fail(offset, fmt::format("a file of {} bytes", file_.size()), "a longer file");
  }
  std::memcpy(&number, file_.data() + offset, sizeof number);
  return number;
}

void LmdbPages::fail(std::uint64_t offset, const std::string& got, const std::string& expected) const {
  throw DataError(Report{.what = fmt::format("damaged: '{}', offset {}", path_, offset),
                         .got = got,
                         .expected = expected,
                         .fix = "restore the file, or pack it again; `reigen data verify` names all damaged samples"});
}

LmdbPages::LmdbPages(std::span<const std::byte> file, std::string path) : file_(file), path_(std::move(path)) {
  page_size_ = number_at<std::uint32_t>(kPageSizeAt);
  constexpr std::uint64_t kLeast = 512;
  constexpr std::uint64_t kMost = 65536;
  if (page_size_ < kLeast || page_size_ > kMost || !std::has_single_bit(page_size_)) {
    fail(kPageSizeAt, fmt::format("pages of {} bytes", page_size_), "a power of two from 512 to 65536");
  }
  read_meta(0, 0);
  read_meta(page_size_, 1);
  if (pages_ > file_.size() / page_size_) {
    fail(file_.size(),
         fmt::format("the end of the file after {} pages of {} bytes", file_.size() / page_size_, page_size_),
         fmt::format("{} pages", pages_));
  }
}

// The newer of the two pages of meta data counts; the other is that of the transaction before.
void LmdbPages::read_meta(std::uint64_t offset, std::uint64_t number) {
  const auto magic = number_at<std::uint32_t>(offset + kMagicAt);
  const auto version = number_at<std::uint32_t>(offset + kVersionAt) & 0xffffU;
  if ((number_at<std::uint16_t>(offset + 10) & kMetaPage) == 0 || number_at<std::uint64_t>(offset) != number ||
      magic != kLmdbMagic || version != kLmdbVersion) {
    fail(offset + kMagicAt, fmt::format("{:#x}, version {}", magic, version),
         fmt::format("a page of meta data: {:#x}, version {}", kLmdbMagic, kLmdbVersion));
  }
  if (number_at<std::uint64_t>(offset + kTransactionAt) < transaction_) return;
  transaction_ = number_at<std::uint64_t>(offset + kTransactionAt);
  const auto flags = number_at<std::uint16_t>(offset + kMainAt + 4);
  if (flags != 0) {
    fail(offset + kMainAt + 4, fmt::format("flags {:#x}", flags),
         "a database of one value for each key, in order of bytes");
  }
  depth_ = number_at<std::uint16_t>(offset + kMainAt + 6);
  entries_ = number_at<std::uint64_t>(offset + kMainAt + 32);
  root_ = number_at<std::uint64_t>(offset + kMainAt + 40);
  pages_ = number_at<std::uint64_t>(offset + kLastPageAt) + 1;
  if (depth_ > kMostDepth) fail(offset + kMainAt + 6, fmt::format("{} levels", depth_), "at most 32");
  // The smallest entry takes two bytes of a page's table and the head of a node.
  if (entries_ > file_.size() / (kNodeHead + 2)) {
    fail(offset + kMainAt + 32, fmt::format("{} entries", entries_), "no more than the file has room for");
  }
}

LmdbPages::Page LmdbPages::page(std::uint64_t number) const {
  if (number >= pages_ || number < 2) {
    fail(0, fmt::format("page {}", number), fmt::format("pages 2 to {}", pages_ - 1));
  }
  const std::uint64_t offset = number * page_size_;
  Page page{.bytes = file_.subspan(offset, page_size_), .offset = offset};
  const auto flags = number_at<std::uint16_t>(offset + 10);
  const auto lower = number_at<std::uint16_t>(offset + 12);
  page.is_leaf = (flags & kLeaf) != 0;
  const bool is_tree = flags == kBranch || flags == kLeaf;
  if (!is_tree || number_at<std::uint64_t>(offset) != number) {
    fail(offset, fmt::format("page {} with flags {:#x}", number_at<std::uint64_t>(offset), flags),
         fmt::format("page {}, a branch or a leaf", number));
  }
  if (lower < kPageHead || lower > page_size_ || lower % 2 != 0) {
    fail(offset + 12, fmt::format("a table that ends at {}", lower), "an end within the page");
  }
  page.keys = (lower - kPageHead) / 2;
  return page;
}

LmdbPages::Node LmdbPages::node(const Page& page, std::size_t index) const {
  const std::uint64_t at = page.offset + kPageHead + 2 * index;
  const std::uint64_t place = number_at<std::uint16_t>(at);
  const std::uint64_t table = kPageHead + 2 * page.keys;
  if (place < table || place + kNodeHead > page_size_) {
    fail(at, fmt::format("an entry at {} of its page", place), fmt::format("{} to {}", table, page_size_ - kNodeHead));
  }
  const std::uint64_t offset = page.offset + place;
  const auto low = number_at<std::uint16_t>(offset);
  const auto high = number_at<std::uint16_t>(offset + 2);
  const auto flags = number_at<std::uint16_t>(offset + 4);
  const auto key_size = number_at<std::uint16_t>(offset + 6);
  const std::uint64_t left = page_size_ - place - kNodeHead;
  if (key_size > left) fail(offset, fmt::format("a key of {} bytes", key_size), fmt::format("at most {}", left));
  const std::uint64_t after = offset + kNodeHead + key_size;
  Node node{.key = {reinterpret_cast<const char*>(file_.data()) + offset + kNodeHead, key_size}, .offset = after};
  const std::uint64_t number = std::uint64_t{low} | std::uint64_t{high} << 16U;
  if (!page.is_leaf) {
    node.child = number | std::uint64_t{flags} << 32U;
    return node;
  }
  if ((flags & ~std::uint16_t{kBigData}) != 0) {
    fail(offset + 4, fmt::format("flags {:#x}", flags), "one value (named databases are not read)");
  }
  node.size = number;
  node.is_elsewhere = flags == kBigData;
  const std::uint64_t here = node.is_elsewhere ? sizeof(std::uint64_t) : node.size;
  if (here > left - key_size)
    fail(offset, fmt::format("a value of {} bytes", here), fmt::format("at most {}", left - key_size));
  return node;
}

LmdbPages::Found LmdbPages::value_of(const Node& node) const {
  if (!node.is_elsewhere) return {file_.subspan(node.offset, node.size), node.offset};
  const auto number = number_at<std::uint64_t>(node.offset);
  if (number >= pages_ || number < 2)
    fail(node.offset, fmt::format("page {}", number), fmt::format("pages 2 to {}", pages_ - 1));
  const std::uint64_t offset = number * page_size_;
  const auto flags = number_at<std::uint16_t>(offset + 10);
  const auto count = number_at<std::uint32_t>(offset + 12);
  if (flags != kOverflow || number_at<std::uint64_t>(offset) != number || count > pages_ - number) {
    fail(offset, fmt::format("page {} with flags {:#x}, {} pages", number_at<std::uint64_t>(offset), flags, count),
         fmt::format("page {}, which begins a long value", number));
  }
  if (node.size + kPageHead > count * page_size_) {
    fail(offset, fmt::format("a value of {} bytes in {} pages", node.size, count), "pages that hold it");
  }
  return {file_.subspan(offset + kPageHead, node.size), offset + kPageHead};
}

// The last child whose first key is not behind the key. The first child has no key: it begins before all keys.
std::size_t LmdbPages::child_for(const Page& page, std::string_view key) const {
  std::size_t low = 0;
  std::size_t high = page.keys;
  while (high - low > 1) {
    const std::size_t middle = low + (high - low) / 2;
    (node(page, middle).key <= key ? low : high) = middle;
  }
  return low;
}

std::optional<LmdbPages::Found> LmdbPages::find(std::string_view key) const {
  if (root_ == kNoPage) return std::nullopt;
  Page here = page(root_);
  for (unsigned depth = 1; !here.is_leaf; ++depth) {
    if (depth >= kMostDepth || here.keys == 0) fail(here.offset, "no leaf in 32 levels", "a leaf");
    here = page(node(here, child_for(here, key)).child);
  }
  std::size_t low = 0;
  std::size_t high = here.keys;
  while (low < high) {
    const std::size_t middle = low + (high - low) / 2;
    const Node at = node(here, middle);
    if (at.key == key) return value_of(at);
    if (at.key < key) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return std::nullopt;
}

bool LmdbPages::visit(std::uint64_t number, int depth, Walk& walk) const {
  const Page here = page(number);
  if (++walk.visited > pages_ || depth > static_cast<int>(kMostDepth)) {
    fail(here.offset, "a page that is in the tree twice", "a tree");
  }
  if (here.is_leaf) {
    for (std::size_t i = 0; i < here.keys; ++i) {
      const Node at = node(here, i);
      if (at.key < walk.from) continue;
      if (!walk.visit({at.key, value_of(at)})) return false;
    }
    return true;
  }
  if (here.keys == 0) fail(here.offset, "a branch without children", "at least one");
  for (std::size_t i = child_for(here, walk.from); i < here.keys; ++i) {
    if (!visit(node(here, i).child, depth + 1, walk)) return false;
  }
  return true;
}

void LmdbPages::walk(std::string_view from, const std::function<bool(const Entry&)>& visit_entry) const {
  if (root_ == kNoPage) return;
  Walk walk{.from = from, .visit = visit_entry};
  visit(root_, 1, walk);
}

void LmdbPages::check() const {
  std::uint64_t count = 0;
  std::string_view before;
  walk({}, [&](const Entry& entry) {
    if (count > 0 && entry.key <= before) {
      fail(entry.found.offset, fmt::format("the key \"{}\" after \"{}\"", entry.key, before), "keys in order");
    }
    before = entry.key;
    ++count;
    return true;
  });
  if (count != entries_) fail(kMainAt, fmt::format("{} entries", count), fmt::format("{}, as the file says", entries_));
}

}  // namespace reigen::container
