// A background save brought to its end, whoever has to wait for whom.
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
