// megatron_clean report: one page about a result folder.
#pragma once

namespace megatron {

/// `argv[0]` is "report". Writes the page and says where. Errors: configuration for a wrong command line, data for a
/// folder that holds no result.
void write_clean_report(int argc, char** argv);

/// The text of its --help.
const char* clean_report_help();

}  // namespace megatron
