#include "programs/clean_report.h"

#include <fmt/format.h>

#include <string>

#include "base/core/error.h"
#include "base/system/durable_file.h"
#include "base/text/utf8.h"
#include "data/cleaning/language.h"
#include "data/cleaning_steps/document.h"
#include "data/cleaning_steps/result_folder.h"
#include "data/preprocess/text_corpus.h"
#include "monitoring/reports/cleaning_page.h"
#include "programs/program.h"

namespace megatron {

namespace {

namespace po = boost::program_options;

/// The power of two at or below a number; -1 for 0.
int power_below(std::uint64_t number) {
  int power = -1;
  for (; number > 0; number /= 2) ++power;
  return power;
}

/// Reads all documents of a result.
CleanedDocuments look_at(const std::string& folder, const nlohmann::ordered_json& provenance) {
  CleanedDocuments found;
  TextInputs inputs;
  for (const auto& output : provenance.at("outputs")) {
    inputs.paths.push_back(folder + "/" + output.at("file").get<std::string>());
  }
  TextCorpus corpus(inputs);
  Document document({{provenance.value("text_key", "text"), false}});
  for (std::size_t file = 0; file < corpus.files(); ++file) {
    const bool has_json = corpus.has_json(file);
    corpus.visit_lines({file, 0, corpus.file_bytes()[file]}, [&](std::string_view line, std::uint64_t) {
      if (has_json) {
        document.read_json(line);
      } else {
        document.read_plain(line);
      }
      const std::string_view text = document.value(0);
      ++found.lengths[power_below(characters_of(text))];
      if (has_json && has_language_detection()) ++found.languages[guess_language(text).code];
    });
  }
  return found;
}

}  // namespace

const char* clean_report_help() {
  return "Usage: megatron_clean report FOLDER [--output FILE]\n"
         "\n"
         "Writes one HTML page about a result folder and the steps before it: what went and why, with examples,\n"
         "clusters of duplicates, lengths and languages of what is left. Needs no launcher. FILE is FOLDER.html if\n"
         "not given.\n";
}

void write_clean_report(int argc, char** argv) {
  std::string folder, output;
  po::options_description options;
  options.add_options()("folder", po::value(&folder))("output", po::value(&output));
  po::positional_options_description positional;
  positional.add("folder", 1);
  parse_command_line(argc, argv, options, positional);
  verify(!folder.empty(), ErrorKind::configuration, "usage: megatron_clean report FOLDER [--output FILE]");
  while (folder.size() > 1 && folder.ends_with('/')) folder.pop_back();
  const auto provenance = provenance_in(folder), report = report_in(folder);
  verify(provenance && report, ErrorKind::data, "{}: holds no result of megatron_clean ({} and {})", folder,
         kReportFile, kProvenanceFile);
  if (output.empty()) output = folder + ".html";
  replace_file_durably(output, cleaning_page(folder, *report, look_at(folder, *provenance)));
  fmt::print("{}\n", output);
}

}  // namespace megatron
