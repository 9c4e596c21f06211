// The wizard's questions about the model and the data that it trains on.
#include <fmt/format.h>

#include <string>
#include <vector>

#include "base/core/error.h"
#include "base/text/text.h"
#include "config/parse/presets.h"
#include "data/shards/shard_paths.h"
#include "planning/new_input/question_of_key.h"
#include "training/datasets/datasets.h"

namespace megatron {

namespace {

bool has_decoder(const Draft& draft) {
  return draft.config.model.has_decoder();
}

std::string choose_preset(Draft& draft) {
  const ModelPreset* preset = find_preset(draft.config.model.preset);
  if (preset == nullptr) return "";
  const std::string family = draft.config.model.family;
  verify(preset->model.family == family, ErrorKind::configuration,
         "model.preset = \"{}\" is of model.family = \"{}\", not \"{}\"; answer ? for the presets of this family, or < "
         "to go back",
         preset->name, preset->model.family, family);
  apply_preset(*preset, draft.config.model);
  return fmt::format("{}: {}", preset->name, preset->note);
}

std::string presets_of_family(const Draft& draft) {
  std::string list = fmt::format("Presets of family {}:", draft.config.model.family);
  for (const ModelPreset& preset : model_presets()) {
    if (preset.model.family == draft.config.model.family)
      list += fmt::format("\n  {:<20} {}", preset.name, preset.note);
  }
  return list;
}

void propose_heads(Draft& draft) {
  const std::int64_t width = draft.config.model.hidden_size;
  constexpr std::int64_t head = 64, few = 4;
  draft.config.model.attention_heads = width % head == 0 && width / head >= few ? width / head
                                       : width % few == 0                       ? few
                                                                                : 1;
}

/// The first set of shards in the folder data, or where one for this file would lie.
void propose_data(const std::string& name, Draft& draft) {
  try {
    draft.config.data.train = Blend(find_shards("data").front().prefix);
  } catch (const Error&) {
    draft.config.data.train = Blend("data/" + name);
  }
}

/// Missing data may still be made; data that is there must be usable.
std::string open_data(Draft& draft) {
  draft.facts.reset();
  try {
    for (const BlendPart& part : draft.config.data.train.parts) find_shards(part.path);
  } catch (const Error& error) {
    return fmt::format("warning: {}. The run can be planned without its data. To give another path, answer <",
                       error.what());
  }
  const Datasets datasets(draft.config);
  draft.facts = datasets.facts();
  std::string text = fmt::format("found: a vocabulary of {}, {} for training in each pass", draft.facts->vocab_size,
                                 counted(draft.facts->train_samples, "sample"));
  for (const std::string& note : datasets.notes()) text += "\n" + note;
  return text;
}

}  // namespace

void add_model_questions(std::vector<Question>& all) {
  const std::string section = "Model";
  all.push_back(about(section, "model.family"));
  Question preset = about(section, "model.preset");
  preset.kind = "name of a preset";
  preset.settle = choose_preset;
  preset.help = [of_key = preset.help](const Draft& draft) { return of_key(draft) + "\n" + presets_of_family(draft); };
  all.push_back(preset);
  const auto sizes = [&](const char* name, const auto& propose) {
    all.push_back(with_default(if_asked(about(section, name), has_own_sizes), propose));
  };
  sizes("model.layers", [](Draft& draft) { draft.config.model.layers = 4; });
  all.push_back(if_asked(about(section, "model.decoder_layers"),
                         [](const Draft& draft) { return has_decoder(draft) && has_own_sizes(draft); }));
  sizes("model.hidden_size", [](Draft& draft) { draft.config.model.hidden_size = 128; });
  sizes("model.attention_heads", propose_heads);
  all.push_back(with_default(about(section, "model.sequence_length"), [](Draft& draft) {
    if (has_own_sizes(draft)) draft.config.model.sequence_length = 128;
  }));
  all.push_back(if_asked(about(section, "model.decoder_sequence_length"), has_decoder));
}

void add_data_questions(const std::string& name, std::vector<Question>& all) {
  Question data = with_default(about("Data", "data.train"), [name](Draft& draft) { propose_data(name, draft); });
  data.settle = open_data;
  all.push_back(data);
  all.push_back(if_asked(about("Data", "model.vocab_size"), [](const Draft& draft) { return !draft.facts; }));
}

}  // namespace megatron
