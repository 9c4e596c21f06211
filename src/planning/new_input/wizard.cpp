#include "planning/new_input/wizard.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <iterator>

#include "base/core/error.h"
#include "base/system/durable_file.h"
#include "base/text/text.h"
#include "config/parse/parse.h"
#include "config/schema/print.h"
#include "planning/dry_run/dry_run.h"
#include "planning/new_input/input_text.h"
#include "planning/new_input/layouts.h"
#include "planning/new_input/questions.h"

namespace megatron {

namespace {

constexpr int kMostRefusals = 100;  // in a row: of a program that answers without reading

void require_new_file(const std::string& path) {
  const bool control = std::any_of(path.begin(), path.end(), [](unsigned char c) { return std::iscntrl(c) != 0; });
  verify(!path.empty() && !control, ErrorKind::configuration, "--new {}: give the name of a file", path);
  std::error_code ignored;
  verify(!std::filesystem::exists(std::filesystem::symlink_status(path, ignored)), ErrorKind::configuration,
         "--new {}: exists already and is never overwritten; give another name, or edit that file", path);
  const std::string folder = folder_of(path);
  verify(std::filesystem::is_directory(folder, ignored), ErrorKind::filesystem,
         "--new {}: there is no folder {}; make it first", path, folder);
  const std::string trial = temporary_name(path);  // root may write into folders that take no files
  const int file = ::open(trial.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  verify(file >= 0, ErrorKind::filesystem, "--new {}: no file can be made in the folder {}: {}", path, folder,
         std::strerror(errno));
  ::close(file);
  ::unlink(trial.c_str());
}

std::string trimmed(const std::string& text) {
  const std::size_t first = text.find_first_not_of(" \t\r"), last = text.find_last_not_of(" \t\r");
  return first == std::string::npos ? "" : text.substr(first, last - first + 1);
}

/// The answer as the file says it: `${VARIABLE}` stays, for other machines.
std::string value_for_file(const Key& key, const std::string& answer, const Config& config) {
  if (!key.constraint.path || answer.find("${") == std::string::npos || answer.starts_with('[')) {
    return print_value(key, config);
  }
  const bool quoted = answer.size() > 1 && answer.front() == '"' && answer.back() == '"';
  if (quoted) return answer;
  Config as_typed = config;
  if (const auto* text = std::get_if<Access<std::string>>(&key.access)) (*text)(as_typed) = answer;
  if (const auto* blend = std::get_if<Access<Blend>>(&key.access)) (*blend)(as_typed) = Blend(answer);
  return print_value(key, as_typed);
}

class Wizard {
 public:
  Wizard(const std::string& path, const NextAnswer& next, const Output& output)
      : path_(path), next_(next), output_(output), questions_(questions_for(path)) {}

  NewInput run() {
    say(
        fmt::format("{} is made of your answers. Enter: the value in [brackets], ?: what a question means, <: back to "
                    "the question before. Nothing is written before the last answer.",
                    path_));
    while (true) {
      while (at_ < questions_.size()) {
        if (!questions_[at_].asked(draft_)) {
          ++at_;
        } else if (!ask()) {
          say("\nnothing is written");
          return {.exit_code = 128 + SIGINT};
        }
      }
      if (std::string report; finish(report)) return {.report = report};
      back();
    }
  }

 private:
  void say(const std::string& text) { output_.print(wrapped(text) + "\n"); }
  std::string strong(const std::string& text) const { return output_.colour ? "\x1b[1m" + text + "\x1b[0m" : text; }

  /// One question until an answer is accepted, or `<`. False after Ctrl-C.
  bool ask() {
    const Question& question = questions_[at_];
    Draft proposed = draft_;
    question.propose(proposed);
    if (question.section != section_) output_.print("\n" + strong(question.section) + "\n");
    section_ = question.section;
    say(fmt::format("{} ({}: {}) [{}]", question.text, question.name, question.kind, question.value(proposed)));
    for (int refused = 0; refused < kMostRefusals; ++refused) {
      std::string answer;
      if (!read(question, answer)) return false;
      if (answer == "<") return back(), true;
      if (answer == "?") {
        say(question.help(draft_));
      } else if (accept(question, answer, answer.empty() ? proposed : draft_)) {
        return true;
      }
    }
    fail(ErrorKind::configuration, "--new {}: {} answers to the question {} were refused; nothing is written", path_,
         kMostRefusals, question.name);
  }

  bool read(const Question& question, std::string& answer) {
    while (true) {
      output_.print("> ");
      switch (next_(answer)) {
        case LineReader::Outcome::line:
          answer = trimmed(answer);
          if (output_.echo) output_.print(printable(answer) + "\n");
          return true;
        case LineReader::Outcome::too_long: say("error: that line is too long"); break;
        case LineReader::Outcome::interrupted: return false;
        case LineReader::Outcome::end:
          output_.print("\n");
          fail(ErrorKind::configuration,
               "--new {}: the answers end at the question {}; nothing is written. An empty line takes a default", path_,
               question.name);
      }
    }
  }

  /// Whether the answer, of a draft that has the default where there is none, satisfies the key and the rules.
  bool accept(const Question& question, const std::string& answer, Draft next) {
    try {
      std::string problem = answer.empty() ? "" : question.read(answer, next);
      if (!problem.empty()) return refuse(problem);
      const std::string conclusions = question.settle(next);
      const std::vector<std::string> problems = problems_of(next, undecided());
      for (const std::string& each : problems) refuse(each);
      if (!problems.empty()) return false;
      if (!conclusions.empty()) say(conclusions);
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::internal) throw;
      return refuse(error.what());
    }
    history_.push_back({at_, std::move(draft_)});
    draft_ = std::move(next);
    if (question.key != nullptr) {
      const std::string value = value_for_file(*question.key, answer, draft_.config);
      if (!value.empty()) draft_.in_file[question.name] = value;
    }
    ++at_;
    return true;
  }

  bool refuse(const std::string& problem) {
    say("error: " + printable(problem));
    return false;
  }

  Undecided undecided() const {
    Undecided names;
    for (std::size_t later = at_ + 1; later < questions_.size(); ++later) names.insert(questions_[later].name);
    return names;
  }

  /// To the last question that was answered, as it was then.
  void back() {
    if (history_.empty()) return say("this is the first question");
    at_ = history_.back().question;
    draft_ = std::move(history_.back().before);
    history_.pop_back();
  }

  /// Checks and plans the whole file as --dry-run does, and writes it. False if it was refused: then the answers are to
  /// change.
  bool finish(std::string& report) {
    const std::string text = input_text(draft_, questions_, path_);
    try {
      report = dry_run(parse_config_text(text, path_), draft_.ranks);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::configuration && error.kind() != ErrorKind::data) throw;
      return refuse(error.what());
    }
    write_output({"--new", path_}, text);
    report += fmt::format("\nwritten   {}\n", printable(path_));
    if (!draft_.facts) report += "first     make the token shards of data.train: megatron_preprocess, docs/data.md\n";
    report += fmt::format("next      {}\n", training_command(draft_, path_));
    return true;
  }

  struct Step {
    std::size_t question;
    Draft before;
  };

  const std::string& path_;
  const NextAnswer& next_;
  const Output& output_;
  std::vector<Question> questions_;
  Draft draft_;
  std::size_t at_ = 0;
  std::vector<Step> history_;
  std::string section_;
};

}  // namespace

NewInput make_input_file(const std::string& path, const NextAnswer& next, const Output& output) {
  require_new_file(path);
  return Wizard(path, next, output).run();
}

}  // namespace megatron
