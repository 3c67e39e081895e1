#include "comm/mpi/block.h"

#include <algorithm>
#include <array>

#include "comm/mpi/library.h"

namespace reigen::comm::mpi {

// The derived datatype of a large block: full pieces of `most` bytes each, followed by the rest.
Block::Block(std::size_t bytes, std::size_t most) : count_(static_cast<int>(bytes)) {
  if (bytes <= most) return;
  const std::size_t whole = bytes / most;
  const auto rest = static_cast<int>(bytes % most);
  MPI_Datatype piece = MPI_DATATYPE_NULL;
  check(MPI_Type_contiguous(static_cast<int>(most), MPI_BYTE, &piece), "MPI_Type_contiguous");
  const std::array<int, 2> counts = {static_cast<int>(whole), rest};
  const std::array<MPI_Aint, 2> places = {0, static_cast<MPI_Aint>(whole * most)};
  const std::array<MPI_Datatype, 2> types = {piece, MPI_BYTE};
  const int code = MPI_Type_create_struct(2, counts.data(), places.data(), types.data(), &type_);
  MPI_Type_free(&piece);
  check(code, "MPI_Type_create_struct");
  check(MPI_Type_commit(&type_), "MPI_Type_commit");
  count_ = 1;
}

// MPI keeps a freed datatype alive for the operations in flight that use it.
Block::~Block() {
  if (type_ != MPI_BYTE) MPI_Type_free(&type_);
}

std::vector<Piece> pieces_of(std::size_t count, std::size_t most) {
  std::vector<Piece> pieces;
  for (std::size_t begin = 0; begin < count; begin += most) {
    pieces.push_back({begin, static_cast<int>(std::min(most, count - begin))});
  }
  if (pieces.empty()) pieces.push_back({0, 0});
  return pieces;
}

}  // namespace reigen::comm::mpi
