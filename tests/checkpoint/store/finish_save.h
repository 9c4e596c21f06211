// Brings a background save to its end.
#pragma once

#include "checkpoint/store/background_save.h"

namespace megatron::test {

/// All steps of what is under way. Collective; throws as BackgroundSave::advance().
inline SaveReport finish(BackgroundSave& save) {
  for (;;) {
    if (std::optional<SaveReport> report = save.advance()) return *report;
  }
}

}  // namespace megatron::test
