#include "distributed/comm/mpi_check.h"

#include <array>

#include "base/core/error.h"

namespace megatron {

void check_mpi(int code, const char* expression, SourcePlace where) {
  if (code == MPI_SUCCESS) [[likely]]
    return;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  if (MPI_Error_string(code, text.data(), &length) != MPI_SUCCESS) length = 0;
  fail(ErrorKind::communication, "{} failed: {} (code {}, {}:{})", expression,
       length > 0 ? std::string(text.data(), static_cast<std::size_t>(length)) : "unknown error", code, where.file,
       where.line);
}

}  // namespace megatron
