// The readers of a task's examples: whatever a file holds, it is refused with file and line or makes examples that are
// whole. The first byte says which format it is.
#include "base/core/error.h"
#include "data/finetuning/instructions.h"
#include "fuzz/fuzz.h"

using namespace megatron;

namespace {

const ExampleForm kForms[] = {{.format = "json", .labels = {"no", "yes", "2"}},
                              {.format = "json", .labels = {}, .choices = 2},
                              {.format = "mnli", .labels = {"contradiction", "entailment", "neutral"}},
                              {.format = "qqp", .labels = {"0", "1"}},
                              {.format = "race", .labels = {}, .choices = 2}};

const ChatTemplate kChat = {
    {{"system", "", "\n", false}, {"user", "User: ", "\n", false}, {"assistant", "Assistant: ", "\n", true}}};

void check_labelled(const ExampleFile& file, const ExampleForm& form) {
  std::size_t examples = 0;
  read_labelled_examples(file, form, [&](const LabelledExample& example) {
    ++examples;
    const bool choices = form.labels.empty();
    const std::int64_t classes = choices ? form.choices : static_cast<std::int64_t>(form.labels.size());
    fuzz::require(example.texts.size() == static_cast<std::size_t>(choices ? form.choices : 1),
                  "texts of other columns");
    fuzz::require(example.label >= -1 && example.label < classes, "a label that there is not");
    fuzz::require(example.label >= 0 || form.format == "mnli" || form.format == "qqp", "an example without a label");
  });
  fuzz::require(examples > 0, "a file without examples was taken");
}

void check_instructions(const ExampleFile& file) {
  std::size_t examples = 0;
  read_instructions(file, kChat, [&](const Instruction& instruction) {
    ++examples;
    bool learned = false;
    for (const InstructionPart& part : instruction) learned = learned || part.learned;
    fuzz::require(learned, "an instruction of which nothing is learned");
  });
  fuzz::require(examples > 0, "a file without examples was taken");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const ExampleFile file{"file", {reinterpret_cast<const char*>(data) + 1, size - 1}};
  const std::size_t form = data[0] % (std::size(kForms) + 1);
  try {
    form < std::size(kForms) ? check_labelled(file, kForms[form]) : check_instructions(file);
  } catch (const Error& error) {
    fuzz::require(error.kind() == ErrorKind::data && std::string(error.what()).starts_with("file"),
                  "an error of another kind, or that names no file");
  }
  return 0;
}
