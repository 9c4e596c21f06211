#include "faults/checks.h"
#include "support/catch.h"

#include <sstream>

Finished done(const Command& command) {
  Finished finished = run_command(command, 60);
  INFO(finished.out << finished.err);
  REQUIRE(finished.code == 0);
  return finished;
}

Finished expect(const Command& command, int code, const std::vector<std::string>& parts) {
  Finished finished = run_command(command, 90);
  INFO(finished.out << finished.err);
  CHECK(finished.code == code);
  for (const std::string& part : parts) {
    CAPTURE(part);
    CHECK((mentions(finished.err, part) || mentions(finished.out, part)));
  }
  return finished;
}

Finished in_shell(const std::string& script, double limit) {
  return run_command({"bash", "-c", script}, limit);
}

Command preprocess(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), preprocess_program());
  return arguments;
}

Command generate(const std::vector<std::string>& options, int ranks) {
  Command command = {generate_program(), straight_run(kOneRank)};
  command.insert(command.end(), options.begin(), options.end());
  return launched(ranks, command);
}

bool has_temporary_folder(const std::string& run) {
  for (const auto& entry : std::filesystem::directory_iterator(run + "/checkpoints")) {
    if (entry.path().filename().string().starts_with(".tmp")) return true;
  }
  return false;
}

void check_same_losses(const std::string& a, const std::string& b) {
  const std::vector<std::string> one = numbers(a), other = numbers(b);
  REQUIRE(one.size() == other.size());
  REQUIRE_FALSE(one.empty());
  for (std::size_t i = 0; i < one.size(); ++i) {
    const auto left = nlohmann::json::parse(one[i]), right = nlohmann::json::parse(other[i]);
    CAPTURE(one[i], other[i]);
    CHECK(left.at("loss").get<double>() == Approx(right.at("loss").get<double>()).epsilon(2e-5));
    const nlohmann::json terms = left.value("losses", nlohmann::json::object());
    CHECK(terms.size() == right.value("losses", nlohmann::json::object()).size());
    for (const auto& [name, value] : terms.items()) {
      CHECK(value.get<double>() == Approx(right.at("losses").at(name).get<double>()).epsilon(2e-5));
    }
  }
}

double stated_mebibytes(const std::string& out) {
  const std::string before = ", with at most ";
  const std::size_t at = out.find(before);
  INFO(out);
  REQUIRE(at != std::string::npos);
  REQUIRE(mentions(out.substr(at), " MiB of memory per rank\n"));
  return std::stod(out.substr(at + before.size()));
}

std::vector<nlohmann::json> lines_of(const std::string& text) {
  std::vector<nlohmann::json> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(nlohmann::json::parse(line));
  return lines;
}

void require_refused(const Finished& finished, int code, const std::vector<std::string>& words) {
  INFO(finished.out << finished.err);
  CHECK_FALSE(finished.timed_out);
  CHECK(finished.code == code);
  CHECK(error_lines(finished) == 1);
  for (const std::string& word : words) {
    CAPTURE(word);
    CHECK(mentions(finished.err, word));
  }
}

std::string quoted(const Command& command) {
  std::string words;
  for (const std::string& word : command) words += "'" + word + "' ";
  return words;
}

std::string small_vocabulary(const std::string& file) {
  return source_folder() + "/tests/golden/bpe/" + file;
}

Command preprocess_with_vocabulary(const std::string& prefix, const std::string& merges) {
  return {preprocess_program(),
          "--input",
          (shared_folder() / "corpus.jsonl").string(),
          "--output",
          prefix,
          "--tokenizer",
          "gpt2",
          "--vocab-file",
          small_vocabulary("vocab.json"),
          "--merge-file",
          merges};
}

std::string other_merges() {
  const std::string merges = contents_of(small_vocabulary("merges.txt"));
  const std::size_t last = merges.rfind('\n', merges.size() - 2) + 1, before = merges.rfind('\n', last - 2) + 1;
  return merges.substr(0, before) + merges.substr(last) + merges.substr(before, last - before);
}
