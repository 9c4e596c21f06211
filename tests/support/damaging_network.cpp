// Preloaded into a program, a network that damages what one rank (MEGATRON_DAMAGING_RANK) sends: of every large message
// one bit is turned round, on the way. Only the numbers show it.
#define OMPI_SKIP_MPICXX 1  // the C interface alone: this is loaded before any of MPI
#include <mpi.h>

#include <cstdlib>
#include <cstring>
#include <deque>
#include <vector>

extern "C" int MPI_Isend(const void* data, int count, MPI_Datatype type, int to, int tag, MPI_Comm group,
                         MPI_Request* request) {
  constexpr int kLarge = 1 << 16;  // bytes: gradients of a data rank, in the tests' small models
  const char *rank = std::getenv("OMPI_COMM_WORLD_RANK"), *damaging = std::getenv("MEGATRON_DAMAGING_RANK");
  const bool damages = rank != nullptr && damaging != nullptr && std::strcmp(rank, damaging) == 0;
  if (!damages || type != MPI_BYTE || count < kLarge) return PMPI_Isend(data, count, type, to, tag, group, request);
  static std::deque<std::vector<unsigned char>> sent;  // MPI reads them until the program ends, for all that is known
  std::vector<unsigned char>& message =
      sent.emplace_back(static_cast<const unsigned char*>(data), static_cast<const unsigned char*>(data) + count);
  message[static_cast<std::size_t>(count) / 8 * 4 + 3] ^= 0x10;  // an exponent's bit of a float in the middle
  return PMPI_Isend(message.data(), count, type, to, tag, group, request);
}
