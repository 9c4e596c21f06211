#include "data/cleaning_steps/block_reader.h"

namespace megatron {

namespace {

class FoundRules final : public RuleListener {
 public:
  void met(std::size_t rule, std::string_view shown) override { rules.emplace_back(rule, shown); }
  std::vector<std::pair<std::size_t, std::string_view>> rules;
};

}  // namespace

BlockReader::BlockReader(TextCorpus& corpus, Step& step, std::uint64_t examples, bool has_pages)
    : corpus_(corpus),
      step_(step),
      examples_(examples),
      rules_(step.rules().size()),
      has_pages_(has_pages),
      document_(step.members()) {}

/// Takes a line of an input, or a page.
void BlockReader::read_input(std::size_t file, std::string_view input) {
  read_line(file, has_pages_ ? step_.json_of_page(file, input) : input);
}

/// Takes a line of an input or of the result.
void BlockReader::read_line(std::size_t file, std::string_view line) {
  if (has_pages_ || corpus_.has_json(file)) {
    document_.read_json(line);
  } else {
    document_.read_plain(line);
  }
}

Batch BlockReader::read(const std::vector<Segment>& block, const Progress& progress) {
  Batch batch;
  batch.findings = Findings(rules_, examples_);
  FoundRules found;
  step_.begin_block();
  std::uint64_t before = 0;
  for (const Segment& segment : block) {
    const auto use = [&](std::string_view line, std::uint64_t offset) {
      ++batch.read;
      read_input(segment.file, line);
      found.rules.clear();
      // An example shows what the step reads, as it was, or the line of a step that reads none.
      const std::string_view before_step = document_.shown();
      const bool kept = step_.apply(document_, found);
      for (const auto& [rule, shown] : found.rules) {
        batch.findings.add(rule, corpus_.path(segment.file), offset, shown.empty() ? before_step : shown);
      }
      for (std::size_t part = 0; kept && part < step_.parts(); ++part) {
        step_.take_part(document_, part);
        KeptDocument document{batch.lines.size(),       0, segment.file, offset, step_.identity(document_),
                              step_.place_by(document_)};
        document_.append_to(batch.lines);
        document.bytes = batch.lines.size() - document.begin;
        batch.documents.push_back(document);
      }
    };
    batch.bad += corpus_.visit_lines(segment, use, [&](std::uint64_t bytes) {
      if (progress) progress(before + bytes);
    });
    before += segment.end - segment.begin;
  }
  return batch;
}

void BlockReader::look(const std::vector<Segment>& block, FirstPass& pass, const Progress& progress) {
  std::uint64_t before = 0;
  for (const Segment& segment : block) {
    const auto use = [&](std::string_view line, std::uint64_t) {
      read_input(segment.file, line);
      pass.look(document_);
    };
    corpus_.visit_lines(segment, use, [&](std::uint64_t bytes) { progress(before + bytes); });
    before += segment.end - segment.begin;
  }
}

std::uint64_t BlockReader::count(const std::vector<Segment>& block) {
  std::uint64_t count = 0;
  for (const Segment& segment : block) {
    corpus_.visit_lines(segment, [&](std::string_view line, std::uint64_t) {
      read_input(segment.file, line);  // bad documents are not among those that have a number
      ++count;
    });
  }
  return count;
}

void BlockReader::remove(Batch& batch, std::size_t rule, const KeptDocument& document) {
  std::string_view line = batch.line(document);
  if (batch.findings[rule].examples.size() < examples_) {
    read_line(document.file, line.substr(0, line.size() - 1));
    line = document_.shown();
  }
  batch.findings.add(rule, corpus_.path(document.file), document.offset, line);
}

}  // namespace megatron
