// The pipeline schedule of a run as a picture: stages over time, simulated with equal stages and a backward that takes
// two forwards, and as a traced step has really been. For report.html.
#pragma once

#include <string>

#include "config/schema/config.h"
#include "monitoring/reports/traced_step.h"

namespace megatron {

/// A figure of HTML, with what is cut off said below; or a sentence where the configuration has no schedule to draw.
std::string schedule_drawing(const Config& config);
/// The same of a step that was recorded.
std::string schedule_drawing(const TracedStep& traced);
/// Its part of the style sheet.
const char* schedule_style();

}  // namespace megatron
