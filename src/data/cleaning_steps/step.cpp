#include "data/cleaning_steps/step.h"

#include "base/core/named_rows.h"

namespace megatron {

std::span<const StepRow> step_table() {
  static const StepRow rows[] = {wikipedia_step(),  urls_step(),          text_step(),
                                 duplicates_step(), decontaminate_step(), sample_step(),
                                 split_step(),      shuffle_step(),       merge_step()};
  return rows;
}

const StepRow* find_step(std::string_view name) {
  return find_row(step_table(), name);
}

}  // namespace megatron
