// Packed instructions, field by field against a case written out by hand; and what packing keeps whatever the lengths.
#include <map>
#include <numeric>
#include <set>

#include "base/core/philox.h"
#include "data/samples/batches.h"
#include "data/samples/instruction_samples.h"
#include "data/tokenizer_kinds/tokenizer_choice.h"
#include "support/byte_words.h"
#include "support/catch.h"
#include "support/require_error.h"

using namespace megatron;
using namespace megatron::test;

namespace {

using Ids = std::vector<std::int32_t>;

std::shared_ptr<EncodedInstructions> encoded(const std::vector<Instruction>& instructions, std::int64_t sequence) {
  const ByteWords tokenizer(false);
  auto result = std::make_shared<EncodedInstructions>(tokenizer, sequence);
  for (const Instruction& instruction : instructions) result->add(instruction);
  result->pack("data.train");
  return result;
}

Instruction asked(std::string_view prompt, std::string_view completion) {
  return {{prompt, false, false}, {completion, true, false}};
}

BatchLayout instruction_layout(std::int64_t rows, std::int64_t samples) {
  return {.fields = {{.name = "tokens", .view = &Rows::tokens},
                     {.name = "targets", .view = &Rows::targets},
                     {.name = "loss weights", .view = &Rows::weights, .type = DType::f32},
                     {.name = "position ids", .view = &Rows::position_ids},
                     {.name = "document starts", .view = &Rows::document_starts, .shape = FieldShape::samples_by_rows}},
          .sizes = {.rows = {rows}, .samples = samples}};
}

template <class T>
std::vector<T> values(const ConstTensor& tensor) {
  const auto* const first = static_cast<const T*>(tensor.data());
  return {first, first + tensor.elements()};
}

}  // namespace

TEST_CASE("instructions: two packed examples and padding, written out by hand") {
  // "ab" + "c" + end: rows a b c with targets b c end, of which the last two are learned; then "d" + "e" + end.
  const auto examples = encoded({asked("ab", "c"), asked("d", "e")}, 7);
  REQUIRE(examples->samples() == 1);
  InstructionSamples samples(examples, InstructionSamples::Order::sequential, 5);
  BatchReader reader(
      samples, instruction_layout(7, 1), {.most_samples = 1},
      [](std::int64_t step) { return GlobalBatch{.samples = step == 0 ? 1 : 0}; }, 0);
  const StepBatch& batch = reader.next();
  const Rows& rows = batch.micro_batches.at(0).main;
  const std::int32_t end = ByteWords::kEnd;
  CHECK(values<std::int32_t>(rows.tokens) == Ids{'a', 'b', 'c', 'd', 'e', end, end});
  CHECK(values<std::int32_t>(rows.targets) == Ids{'b', 'c', end, 'e', end, end, end});
  CHECK(values<float>(rows.weights) == std::vector<float>{0, 1, 1, 1, 1, 0, 0});
  CHECK(values<std::int32_t>(rows.position_ids) == Ids{0, 1, 2, 0, 1, 0, 1});
  CHECK(values<std::int32_t>(rows.document_starts) == Ids{0, 0, 0, 3, 3, 5, 5});
  CHECK(batch.loss_counts == std::vector<double>{4});
}

TEST_CASE("instructions: the assistant's text with suffix and end is learned") {
  const Instruction chat = {{"U", false, true}, {"x", false, false}, {";", false, true},
                            {"A", false, true}, {"yz", true, false}, {";", true, true}};
  const auto examples = encoded({chat}, 8);
  const EncodedInstructions::Text text = examples->text(0);
  CHECK(Ids(text.tokens.begin(), text.tokens.end()) == Ids{'U', 'x', ';', 'A', 'y', 'z', ';', ByteWords::kEnd});
  CHECK(std::vector<int>(text.learned.begin(), text.learned.end()) == std::vector<int>{0, 0, 0, 0, 1, 1, 1, 1});
}

TEST_CASE("instructions: tokens are those of the whole text, by offsets") {
  // Each kind has a vocabulary, an example, and the text of the tokens that are learned.
  struct Case {
    std::string name, file;
    Instruction instruction;
    std::string learned;
  };
  const Instruction answer = asked("Q: for while\nA:", " return two");
  const Instruction chat = {{"User: ", false, true}, {"for while", false, false}, {"\n", false, true},
                            {"Bot: ", false, true},  {"return two", true, false}, {"\n", true, true}};
  for (const auto& [name, file, instruction, learned] :
       {Case{"gpt2", "llama3.json", answer, " return two"}, Case{"gpt2", "llama3.json", chat, " return two\n"},
        Case{"unigram", "unigram_xlm.json", answer, " return two"},
        Case{"bert-cased", "bert_cased.txt", chat, " return two"},
        Case{"sentencepiece", "spm_llama.model", answer, " return two"},
        Case{"sentencepiece", "spm_llama.model", chat, " return two\n"}}) {
    INFO(file);
    const auto tokenizer = make_tokenizer({name, MEGATRON_GOLDEN_FOLDER "/tokenizer_kinds/" + file, ""});
    EncodedInstructions examples(*tokenizer, 200);
    examples.add(instruction);
    examples.pack("data.train");
    const EncodedInstructions::Text text = examples.text(0);
    std::string whole, made;
    for (const InstructionPart& part : instruction) whole += part.text;
    Ids ids;
    tokenizer->make_encoder()->encode(whole, ids);
    ids.push_back(tokenizer->eod_id());
    CHECK(Ids(text.tokens.begin(), text.tokens.end()) == ids);
    for (std::size_t i = 0; i < text.tokens.size(); ++i) {
      if (text.learned[i] != 0) made += tokenizer->decode_next(text.tokens[i]);
    }
    CHECK(made == learned);
  }
}

TEST_CASE("instructions: special tokens are found in the template alone") {
  const auto tokenizer = make_tokenizer({"gpt2", MEGATRON_GOLDEN_FOLDER "/tokenizer_kinds/llama3.json", ""});
  EncodedInstructions examples(*tokenizer, 200);
  const std::string end = tokenizer->eod_text();
  examples.add(
      {{end, false, true}, {end, false, false}, {end, false, true}, {end + "x", true, false}, {end, true, true}});
  examples.pack("data.train");
  std::vector<int> learned;
  const EncodedInstructions::Text text = examples.text(0);
  for (std::size_t i = 0; i < text.tokens.size(); ++i) {
    if (text.tokens[i] == tokenizer->eod_id()) learned.push_back(text.learned[i]);
  }
  CHECK(learned == std::vector<int>{0, 0, 1});  // the last part's is the end of the document
}

TEST_CASE("instructions: a template that ends the document is not ended twice") {
  const auto tokenizer = make_tokenizer({"gpt2", MEGATRON_GOLDEN_FOLDER "/tokenizer_kinds/llama3.json", ""});
  const std::int32_t end = tokenizer->eod_id();
  const auto ends = [&](const std::string& suffix, bool learned) {
    EncodedInstructions examples(*tokenizer, 200);
    examples.add({{"Q", false, true}, {"for", true, false}, {tokenizer->eod_text() + suffix, learned, true}});
    const EncodedInstructions::Text text = examples.text(0);
    std::vector<int> each;
    for (std::size_t i = 0; i < text.tokens.size(); ++i) {
      if (text.tokens[i] == end) each.push_back(text.learned[i]);
    }
    CHECK(text.tokens.back() == end);
    return each;
  };
  CHECK(ends("", true) == std::vector<int>{1});
  CHECK(ends("", false) == std::vector<int>{0});
  CHECK(ends("\n", true) == std::vector<int>{1, 1});
}

TEST_CASE("instructions: an answer without a prompt is learned whole") {
  const auto examples = encoded({asked("", "yz"), {{"", false, true}, {"a", true, false}, {";", true, true}}}, 8);
  const auto shown = [&](std::uint64_t example) {
    const EncodedInstructions::Text text = examples->text(example);
    return std::pair(Ids(text.tokens.begin(), text.tokens.end()),
                     std::vector<int>(text.learned.begin(), text.learned.end()));
  };
  const std::int32_t end = ByteWords::kEnd;
  CHECK(shown(0) == std::pair(Ids{end, 'y', 'z', end}, std::vector<int>{0, 1, 1, 1}));
  CHECK(shown(1) == std::pair(Ids{end, 'a', ';', end}, std::vector<int>{0, 1, 1, 1}));
}

TEST_CASE("instructions: what is held in memory is counted") {
  // "ab" + "c" + end, "d" + "e" + end and "f" + "g" + end: 10 tokens of 5 bytes; of each example 8 bytes where it ends,
  // 4 in the order of lengths and 4 in its pack; 4 for each of two lengths, and for each of two packs.
  const auto examples = encoded({asked("ab", "c"), asked("d", "e"), asked("f", "g")}, 5);
  CHECK(examples->samples() == 2);
  CHECK(examples->bytes() == 10 * 5 + 3 * 16 + 2 * 4 + 2 * 4);
}

TEST_CASE("instructions: best fit packs the largest first into the least room") {
  // 6 opens a bin, 5 another, 4 fills the first (room 4 against 5), 3 and 2 the second.
  const Packs bins = pack_best_fit({2, 6, 3, 5, 4}, 10);
  CHECK(bins.items == std::vector<std::uint32_t>{1, 4, 3, 2, 0});
  CHECK(bins.ends == std::vector<std::uint32_t>{2, 5});
  CHECK(bins.at(1).size() == 3);
  CHECK(pack_best_fit({}, 10).size() == 0);
  CHECK(pack_best_fit({10, 10}, 10).size() == 2);
}

TEST_CASE("instructions: a pass has each example once and no sample is too long") {
  std::vector<std::string> answers;
  for (std::uint32_t i = 0; i < 211; ++i) answers.emplace_back(1 + philox4x32({i, 0, 0, 0}, 3)[0] % 29, 'x');
  std::vector<Instruction> instructions;
  std::size_t rows = 0;
  for (const std::string& answer : answers) {
    instructions.push_back(asked("p", answer));
    rows += answer.size() + 1;
  }
  const auto examples = encoded(instructions, 32);
  CHECK(examples->filled() > 0.95);
  CHECK(examples->samples() >= (rows + 31) / 32);
  const InstructionSamples samples(examples, InstructionSamples::Order::shuffled, 5);
  const InstructionSamples again(examples, InstructionSamples::Order::shuffled, 5);
  std::vector<std::vector<std::uint64_t>> orders;
  for (std::uint64_t pass = 0; pass < 3; ++pass) {
    std::multiset<std::uint64_t> seen;
    std::vector<std::uint64_t>& order = orders.emplace_back();
    for (std::uint64_t i = 0; i < samples.samples(); ++i) {
      std::size_t filled = 0;
      const std::uint64_t sample = pass * samples.samples() + i;
      CHECK(samples.examples_of(sample) == again.examples_of(sample));
      for (const std::uint64_t example : samples.examples_of(sample)) {
        seen.insert(example);
        order.push_back(example);
        filled += examples->text(example).rows();
      }
      CHECK(filled <= 32);
    }
    std::multiset<std::uint64_t> all;
    for (std::uint64_t i = 0; i < answers.size(); ++i) all.insert(i);
    CHECK(seen == all);
  }
  CHECK(orders[0] != orders[1]);
  // Neighbours in one pass are not neighbours in the next: examples of a length change places too.
  const auto mates = [&](std::uint64_t first) {
    std::set<std::set<std::uint64_t>> packs;
    for (std::uint64_t i = 0; i < samples.samples(); ++i) {
      const auto of_sample = samples.examples_of(first + i);
      packs.insert({of_sample.begin(), of_sample.end()});
    }
    return packs;
  };
  CHECK(mates(0) != mates(samples.samples()));
}

TEST_CASE("instructions: too long ones are left out and a file of only them fails") {
  const auto examples = encoded({asked("abcd", "efgh"), asked("a", "b")}, 4);
  CHECK(examples->examples() == 1);
  CHECK(examples->left_out() == 1);
  require_error(ErrorKind::data, {"data.train: none of its 1 examples fits", "the shortest has 8"},
                [] { encoded({asked("abcd", "efgh")}, 4); });
  require_error(ErrorKind::data, {"data.train: none of its 2 examples has a token to learn"}, [] {
    encoded({asked("", ""), {{"a", false, false}, {"", true, false}, {"b", false, true}}}, 4);
  });
}
