// Manual pages in the macros of man(7): of a program from its options, of input files from the schema.
#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "config/presets.h"
#include "config/print.h"
#include "programs/guide.h"
#include "programs/manual_texts.h"
#include "programs/program.h"
#include "text/utf8.h"

namespace megatron {

namespace {

/// Text that formatters take as it is. `code`: hyphens that can be copied.
std::string roff(std::string_view text, bool code = false) {
  std::string result;
  while (!text.empty()) {
    const CodePoint point = first_code_point(text);
    const auto bytes = std::max<std::size_t>(1, point.bytes);
    const char c = text.front();
    if (point.bytes > 1) {
      result += fmt::format("\\[u{:04X}]", point.value);
    } else if (c == '\\') {
      result += "\\e";
    } else if (c == '-' && code) {
      result += "\\-";
    } else if (c == '\'') {
      result += "\\(aq";
    } else if (c != '`') {  // the marks of Markdown around keys
      result += c;
    }
    text.remove_prefix(bytes);
  }
  return result;
}

/// Lines of at most 78 columns, none of which begins with a request's dot. Sentences begin on lines of their own, as
/// formatters expect.
std::string paragraph(std::string_view text) {
  std::istringstream words{std::string(text)};
  std::string lines, line;
  const auto end_line = [&] {
    if (line.starts_with('.')) line.insert(0, "\\&");
    lines += line + "\n";
    line.clear();
  };
  for (std::string word; words >> word;) {
    word = roff(word, word.starts_with("--"));
    const bool new_sentence = line.ends_with('.') && std::isupper(static_cast<unsigned char>(word[0])) != 0;
    if (!line.empty() && (new_sentence || line.size() + 1 + word.size() > 78)) end_line();
    line += (line.empty() ? "" : " ") + word;
  }
  if (!line.empty()) end_line();
  return lines;
}

std::string bold(std::string_view text) {
  return "\\fB" + roff(text, true) + "\\fR";
}

std::string italic(std::string_view text) {
  return "\\fI" + roff(text, true) + "\\fR";
}

std::string header(const std::string& name, int section, const char* manual) {
  std::string capitals = name;
  std::transform(capitals.begin(), capitals.end(), capitals.begin(), [](unsigned char c) { return std::toupper(c); });
  return fmt::format(".TH {} {} \"\" \"megatron_train {}\" \"{}\"\n", capitals, section, program_version(), manual);
}

/// A term and what it means.
std::string item(const std::string& term, std::string_view text) {
  return ".TP\n" + term + "\n" + paragraph(text);
}

std::string option_items(const std::vector<GuideOption>& options) {
  std::string text;
  for (const GuideOption& option : options) {
    std::string term = option.letter.empty() ? "" : bold("-" + option.letter) + ", ";
    term += bold("--" + option.name) + (option.value.empty() ? "" : " " + italic(option.value));
    const std::string fallback = option.fallback.empty() ? "" : fmt::format(" (default: {})", option.fallback);
    text += item(term, option.help + fallback);
  }
  return text;
}

std::string rows(std::span<const ManualRow> all) {
  std::string text;
  for (const ManualRow& row : all) text += item(bold(row.name), row.text);
  return text;
}

/// Options that every program has for its own pages.
std::string own_options(const Guide& guide) {
  const bool keys = std::any_of(guide.options.begin(), guide.options.end(),
                                [](const GuideOption& option) { return value_kind(option.value) == ValueKind::key; });
  return item(bold("--man") + (keys ? "[" + bold("=input") + "]" : ""),
              keys ? "as the first word: prints this page, or that of input files"
                   : "as the first word: prints this page") +
         item(bold("--completion") + " " + italic("bash|zsh"),
              "as the first word: prints the completion of this command line for a shell");
}

std::string commands_section(const Guide& guide) {
  if (guide.commands.empty()) return "";
  std::string text = ".SH COMMANDS\n";
  for (const GuideCommand& command : guide.commands) {
    text += item(bold(command.name) + " " + italic(command.arguments), command.about);
    if (!command.options.empty()) text += ".RS\n" + option_items(command.options) + ".RE\n";
  }
  return text;
}

std::string see_also(std::string_view self) {
  std::vector<std::string> pages = {"megatron_demo(1)", "megatron_launch(1)"};
  for (const ManualText& other : manual_texts()) {
    if (other.program != self) pages.push_back(fmt::format("{}(1)", other.program));
  }
  if (self != "megatron_input") pages.push_back("megatron_input(5)");
  std::sort(pages.begin(), pages.end(), [](const std::string& a, const std::string& b) {
    return std::pair(a[a.size() - 2], a) < std::pair(b[b.size() - 2], b);
  });
  std::string text = ".SH SEE ALSO\n";
  for (std::size_t i = 0; i < pages.size(); ++i) {
    const std::size_t open = pages[i].find('(');
    text +=
        fmt::format(".BR {} {}{}\n", pages[i].substr(0, open), pages[i].substr(open), i + 1 < pages.size() ? "," : "");
  }
  return text +
         ".PP\nThe guide is in the folder\n.I share/megatron_train/docs\nof the installation, with input files next to "
         "it "
         "in\n.IR share/megatron_train/inputs .\n";
}

std::string key_item(const Key& key) {
  return ".TP\n" + bold(key.name) + "\n" + paragraph(key.help) + ".br\n" + paragraph(facts_of_key(key));
}

}  // namespace

std::string manual_page(const Guide& guide) {
  const ManualText& text = manual_text(guide.program);
  std::string page = header(guide.program, 1, "User Commands");
  page += fmt::format(".SH NAME\n{} \\- {}\n.SH SYNOPSIS\n", guide.program, roff(text.summary));
  for (const std::string_view line : text.synopsis) {
    page +=
        fmt::format("{}{} {}\n", line == text.synopsis.front() ? "" : ".br\n", bold(guide.program), roff(line, true));
  }
  page += ".SH DESCRIPTION\n";
  for (const std::string_view part : text.description) {
    page += (part == text.description.front() ? "" : ".PP\n") + paragraph(part);
  }
  page += commands_section(guide);
  page += ".SH OPTIONS\n";
  for (const GuideOption& operand : guide.operands) {
    if (guide.commands.empty())
      page +=
          item(italic(operand.value) + ", " + bold("--" + operand.name) + " " + italic(operand.value), operand.help);
  }
  page += option_items(guide.options) + own_options(guide);
  page += ".SH EXIT STATUS\n" + rows(exit_codes());
  page += ".SH ENVIRONMENT\n" + rows(environment_variables());
  page += ".SH SIGNALS\n";
  page += text.trains ? rows(signals_of_training())
                      : paragraph(
                            "A signal ends the program. Files appear under their names when they are complete, so "
                            "that none is left half written.");
  page += ".SH FILES\n";
  page += text.trains ? "In the folder that the key run.directory names:\n" + rows(files_of_a_run())
                      : item(italic("share/megatron_train/docs/reference.md"), "Files of a run and of a checkpoint.");
  page += ".SH EXAMPLES\n";
  for (const ManualExample& example : text.examples) {
    page += (&example == &text.examples.front() ? "" : ".PP\n") + paragraph(example.what) + ".PP\n.RS 4\n.nf\n" +
            roff(example.command, true) + "\n.fi\n.RE\n";
  }
  return page + see_also(guide.program);
}

std::string input_manual_page() {
  std::string page = header("megatron_input", 5, "File Formats");
  page += ".SH NAME\nmegatron_input \\- input files of megatron_train\n.SH DESCRIPTION\n";
  page += paragraph(
      "An input file is TOML: tables with keys, all of which are listed here. Keys that are left out have defaults; "
      "unknown "
      "keys are errors. On the command line --set TABLE.KEY=VALUE overrides a key of the file. In paths $VAR and "
      "${VAR} are replaced by the environment variable, and ~/ at the beginning by the home directory. Paths are "
      "relative "
      "to the working directory.");
  page += ".SH KEYS\n";
  for (const TableDescription& table : schema_tables()) {
    page += fmt::format(".SS \"[{}]\"\n", table.name) + paragraph(table.help);
    for (const Key& key : schema()) {
      if (key.table == table.name) page += key_item(key);
    }
  }
  page += ".SH PRESETS\n" + paragraph("The key preset of [model] takes one of these names:");
  for (const ModelPreset& preset : model_presets()) {
    page += item(bold(preset.name), preset.note.empty() ? "as published" : preset.note);
  }
  page += ".SH EXAMPLES\n.nf\n[model]\nlayers = 4\nhidden_size = 128\nattention_heads = 4\nsequence_length = 128\n\n";
  page += "[train]\nsteps = 1500\nmicro_batch_size = 8\nglobal_batch_size = 16\n\n[learning_rate]\npeak = 3e\\-3\n\n";
  page += "[data]\ntrain = \"data/books\"\n\n[run]\ndirectory = \"runs/books\"\n.fi\n";
  return page + see_also("megatron_input");
}

}  // namespace megatron
