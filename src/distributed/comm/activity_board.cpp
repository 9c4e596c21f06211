#include "distributed/comm/activity_board.h"

#include <sys/statvfs.h>

#include <exception>
#include <new>

namespace megatron {

namespace {

// MPI promises no alignment. Every process maps whole pages, so all of them round to the same place.
void* aligned(void* memory) {
  std::size_t space = sizeof(Activity) + alignof(Activity);
  return std::align(alignof(Activity), sizeof(Activity), memory, space);
}

// Open MPI makes the window's file in this folder. Where it is full, the rank that should make it returns with an error
// and all others wait for it forever, so that has to be found out before.
bool shared_memory_is_full() {
  constexpr std::uint64_t kEnough = std::uint64_t{1} << 20;  // bytes; the window takes a few pages
  struct statvfs room {};
  return ::statvfs("/dev/shm", &room) == 0 && std::uint64_t{room.f_bavail} * room.f_frsize < kEnough;
}

}  // namespace

ActivityBoard::ActivityBoard(MPI_Comm local) {
  int rank = 0, size = 1;
  MPI_CHECK(MPI_Comm_rank(local, &rank));
  MPI_CHECK(MPI_Comm_size(local, &size));
  MPI_CHECK(MPI_Comm_set_errhandler(local, MPI_ERRORS_RETURN));
  void* memory = nullptr;
  int shared = size > 1 && !shared_memory_is_full() ? 1 : 0;
  MPI_CHECK(MPI_Allreduce(MPI_IN_PLACE, &shared, 1, MPI_INT, MPI_MIN, local));
  if (shared != 0) {
    shared = MPI_Win_allocate_shared(sizeof(Activity) + alignof(Activity), 1, MPI_INFO_NULL, local, &memory,
                                     &window_) == MPI_SUCCESS;
    MPI_CHECK(MPI_Allreduce(MPI_IN_PLACE, &shared, 1, MPI_INT, MPI_MIN, local));
  }
  if (shared == 0) {
    alone_ = std::make_unique<Activity>();
    own_ = alone_.get();
    all_ = {own_};
    return;
  }
  own_ = new (aligned(memory)) Activity();
  MPI_CHECK(MPI_Barrier(local));  // all records exist
  for (int i = 0; i < size; ++i) {
    MPI_Aint bytes = 0;
    int unit = 0;
    void* record = nullptr;
    MPI_CHECK(MPI_Win_shared_query(window_, i, &bytes, &unit, &record));
    all_.push_back(i == rank ? own_ : static_cast<Activity*>(aligned(record)));
  }
}

ActivityBoard::~ActivityBoard() {
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (window_ != MPI_WIN_NULL && finalized == 0 && std::uncaught_exceptions() == 0) MPI_Win_free(&window_);
}

}  // namespace megatron
