// Timers: where a rank's wall time goes, for the table at the end of a run. One instance per rank, used by one thread.
//
// Sections are exclusive: entering one pauses the enclosing one, so that the sections' seconds add up to the elapsed
// time. Time outside every section counts as `other`. Entering and leaving read the clock once and allocate nothing.
// Sections are told to the rank's Activity as its phase, if there is one; communication is not, as waits are
// told in more detail, and the phase stays the one that waits. A profiler's Ranges, if there is one, is told of all.
#pragma once

#include <array>
#include <cstddef>

#include "base/core/activity.h"
#include "base/core/ranges.h"

namespace megatron {

enum class Section { forward, backward, communication, optimizer, data, saving, evaluation, other };

inline constexpr std::size_t kSectionCount = 8;

/// The word for the end table: "forward", "backward", ...
const char* name_of(Section section);

class Timers {
 public:
  using Clock = double (*)();  ///< seconds from any fixed point, never going back

  /// The machine's steady clock in seconds.
  static double steady_seconds();

  /// Time counts (as `other`) from here on.
  explicit Timers(Clock clock = steady_seconds) : clock_(clock), since_(clock()) {}

  /// Leaves the section when destroyed; scopes must end in the opposite order of their beginning. `number` is for the
  /// profiler: which of several of that name this is (Ranges::begin).
  class [[nodiscard]] Scope {
   public:
    Scope(Timers& timers, Section section, std::int64_t number = -1) : timers_(timers) {
      timers_.enter(section, number);
    }
    ~Scope() { timers_.leave(); }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Timers& timers_;
  };

  void set_activity(Activity* activity) { activity_ = activity; }
  void set_ranges(Ranges* ranges) { ranges_ = ranges; }  ///< outside of all sections
  Ranges* ranges() const { return ranges_; }             ///< null: there is none

  Scope scope(Section section) { return Scope(*this, section); }

  /// Seconds spent in `section` itself, without the sections entered inside it, up to now.
  double seconds(Section section) const;

  /// Seconds since construction or the last reset: the sum over all sections.
  double elapsed_seconds() const;

  /// Forgets the past; sections entered stay entered.
  void reset();

 private:
  static constexpr std::size_t kMaxDepth = 16;

  /// Errors: internal, past 15 nested sections.
  void enter(Section section, std::int64_t number);
  void leave();
  Section current() const { return stack_[depth_]; }
  void charge_current();
  void tell_phase();

  Clock clock_;
  Activity* activity_ = nullptr;
  Ranges* ranges_ = nullptr;
  double since_;  // the current section's clock reading when it was entered or resumed
  std::array<double, kSectionCount> seconds_{};
  std::array<Section, kMaxDepth> stack_{Section::other};
  std::size_t depth_ = 0;
};

}  // namespace megatron
