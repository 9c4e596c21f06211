// Brings a background save to its end.
#pragma once

#include "checkpoint/background_save.h"

namespace megatron::test {

/// All steps of what is under way. Collective; throws as BackgroundSave::go_on().
inline SaveReport finish(BackgroundSave& save) {
  for (;;) {
    if (std::optional<SaveReport> report = save.go_on()) return *report;
  }
}

}  // namespace megatron::test
