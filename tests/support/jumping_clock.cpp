// Preloaded into a program, a clock of the day that jumps by a day at each reading, forwards and back, as when
// it is set by hand or corrected by a time server. The steady clock is not affected.
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>
#include <ctime>

#include <atomic>

namespace {

std::time_t jump() {
  static std::atomic<unsigned> readings{0};
  constexpr std::time_t kDay = 86400;
  return readings++ % 2 == 0 ? kDay : -kDay;
}

}  // namespace

extern "C" int clock_gettime(clockid_t clock, timespec* time) noexcept {
  const long failed = ::syscall(SYS_clock_gettime, clock, time);
  if (failed == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) time->tv_sec += jump();
  return static_cast<int>(failed);
}

extern "C" std::time_t time(std::time_t* result) noexcept {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  if (result != nullptr) *result = now.tv_sec;
  return now.tv_sec;
}

extern "C" int gettimeofday(timeval* result, void*) noexcept {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  *result = {now.tv_sec, now.tv_nsec / 1000};
  return 0;
}
