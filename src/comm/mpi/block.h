// Bytes in MPI's terms, whose counts are ints: a block of any size is a count and a datatype.
// Thread rule: one owner.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <vector>

namespace reigen::comm::mpi {

inline constexpr std::size_t kMostAtOnce = std::size_t{1} << 30;  // elements of one MPI call; tests take less

// `count()` of `type()` are so many bytes: bytes themselves as long as they can be counted, else one derived type.
class Block {
 public:
  explicit Block(std::size_t bytes, std::size_t most = kMostAtOnce);
  ~Block();
  Block(const Block&) = delete;  // a datatype has one owner
  Block& operator=(const Block&) = delete;

  int count() const { return count_; }
  MPI_Datatype type() const { return type_; }

 private:
  MPI_Datatype type_ = MPI_BYTE;
  int count_ = 0;
};

struct Piece {
  std::size_t begin;
  int count;
};

// Elements 0 to count - 1 in pieces that an int can count. Reductions go piece by piece; none is one empty piece.
std::vector<Piece> pieces_of(std::size_t count, std::size_t most = kMostAtOnce);

}  // namespace reigen::comm::mpi
