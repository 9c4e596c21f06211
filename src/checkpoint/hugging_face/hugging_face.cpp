#include "checkpoint/hugging_face/hugging_face.h"

#include <filesystem>
#include <set>

#include "base/system/durable_file.h"
#include "checkpoint/hugging_face/chat_template.h"
#include "checkpoint/hugging_face/checkpoint_tokenizer.h"
#include "checkpoint/hugging_face/generation_tokens.h"
#include "checkpoint/hugging_face/hugging_face_families.h"
#include "checkpoint/hugging_face/hugging_face_keys.h"
#include "checkpoint/hugging_face/hugging_face_reader.h"
#include "checkpoint/hugging_face/model_fragment.h"
#include "checkpoint/store/folder.h"
#include "checkpoint/store/new_checkpoint.h"
#include "checkpoint/store/tensor_slices.h"
#include "config/rules/resolve.h"
#include "config/schema/print.h"
#include "config/schema/task.h"
#include "data/samples/chat_text.h"
#include "data/shards/kept_tokenizer.h"
#include "data/tokenizer_kinds/hugging_face_folder.h"
#include "data/tokenizer_kinds/tokenizer_choice.h"
#include "inference/decoding/inference_model.h"
#include "training/datasets/task_data.h"
#include "training/step/trainer.h"

namespace megatron {

namespace {

using nlohmann::json;
using Record = HuggingFaceTensor::Record;

FillValues values_of(const CheckpointReader& source) {
  return [&](const std::vector<TensorSlice>& values) { source.read_numbers(kValues, values); };
}

FillValues values_of(const HuggingFaceReader& source) {
  return [&](const std::vector<TensorSlice>& values) {
    for (const TensorSlice& slice : values) {
      source.read(slice.name, {slice.value.as<float>(), static_cast<std::size_t>(slice.count)});
    }
  };
}

/// A model's vocabulary, and its tokenizer where there are files to make it from.
struct HuggingFaceVocabulary {
  std::optional<Vocabulary> vocabulary;
  std::unique_ptr<Tokenizer> tokenizer;
};

/// By the files or shards that are named, by our own key of config.json, or by the tokenizer's files in the folder. The
/// model has no vocabulary if this program supports none of these, and the report says why.
HuggingFaceVocabulary vocabulary_of_hugging_face(const std::string& folder, const HuggingFaceModel& imported,
                                                 const ImportOptions& options, ConversionReport& report) {
  HuggingFaceVocabulary found;
  if (!options.vocab_file.empty()) {
    TokenizerChoice choice = choice_of_file(options.vocab_file, options.merge_file);
    choice.rows = imported.vocab_rows;
    found.tokenizer = make_tokenizer(choice);
    found.vocabulary = vocabulary_of(*found.tokenizer);
    return found;
  }
  const std::string& data = options.data;
  const std::optional<Vocabulary> known = data.empty() ? imported.vocabulary : TokenDataset(data).vocabulary();
  if (known) {
    const std::string before = data.empty() ? folder + "/" : vocabulary_path(data, "");
    if (!tokenizer_has_files(known->tokenizer)) return {known, nullptr};
    KeptTokenizer kept = find_kept_tokenizer(known->tokenizer, known->hash, before);
    if (kept.tokenizer == nullptr) {
      report.unsupported_tokenizer = fmt::format(
          "{}. The model is imported without its tokenizer: import it again with --vocab-file FILE, or give that to "
          "megatron_generate and megatron_eval",
          kept.others.empty() ? kept_file_names(known->tokenizer, before) + " is not there" : kept.others);
    }
    return {known, std::move(kept.tokenizer)};
  }
  FolderTokenizer made = hugging_face_tokenizer(folder + "/", imported.vocab_rows);
  report.tokenizer_file = made.file;
  report.unsupported_tokenizer = made.refused;
  report.left_out = made.left_out;
  found.tokenizer = std::move(made.tokenizer);
  if (found.tokenizer != nullptr) found.vocabulary = vocabulary_of(*found.tokenizer);
  return found;
}

void require_all_exchanged(const CheckpointReader& source, const std::vector<HuggingFaceTensor>& tensors) {
  std::set<std::string> unused;
  for (const auto& [name, tensor] : source.tensors()) unused.insert(name);
  for (const HuggingFaceTensor& tensor : tensors) {
    for (const Record& record : tensor.records) {
      verify(unused.erase(record.name) > 0, ErrorKind::checkpoint, "{}: has no tensor {}", source.path(), record.name);
    }
  }
  verify(unused.empty(), ErrorKind::checkpoint, "{}: tensor {} has no place in the format", source.path(),
         unused.empty() ? "" : *unused.begin());
}

/// The class with the head of a task, and the names of its labels.
void set_head(const TaskConfig& task, json& out) {
  const bool choice = task.name == "multiple_choice";
  std::string architecture = out.at("architectures").at(0);
  const std::string pretraining = "ForPreTraining";
  architecture.replace(architecture.find(pretraining), pretraining.size(),
                       choice ? "ForMultipleChoice" : "ForSequenceClassification");
  out["architectures"] = {architecture};
  if (choice) return;
  out["problem_type"] = "single_label_classification";
  const std::vector<std::string> labels = labels_of(task);
  for (std::size_t i = 0; i < labels.size(); ++i) {
    out["id2label"][std::to_string(i)] = labels[i];
    out["label2id"][labels[i]] = i;
  }
}

json exported_config(const Config& config, const CheckpointReader& source, HuggingFaceFormat format,
                     SafetensorsType type, const Tokenizer* tokenizer) {
  const char* dtype = type == SafetensorsType::f32 ? "float32" : type == SafetensorsType::bf16 ? "bfloat16" : "float16";
  json out = hugging_face_config(config.model, format, dtype);
  set_token_ids(config.model, tokenizer, out);
  if (const auto own = encoder_decoder_tokens_of(source)) out["decoder_start_token_id"] = own->decoder_start;
  std::vector<std::int32_t> ends = end_tokens_of(source);
  if (const TaskConfig task = task_of(source); has_chat(task) && tokenizer != nullptr) {
    const std::optional<std::int32_t> turn = end_of_turn(chat_template_of(task), *tokenizer);
    if (turn) ends = {tokenizer->eod_id(), *turn};
  }
  if (!ends.empty()) {
    out["eos_token_id"] = ends.size() == 1 ? json(ends.front()) : json(ends);
  }
  out[kOwnConfigKey] = {{"vocab_size", config.model.vocab_size},
                        {"vocab_multiple", config.model.vocab_multiple},
                        {"sequence_length", config.model.sequence_length},
                        {"step", source.state().step}};
  if (config.model.has_decoder()) {
    out[kOwnConfigKey]["decoder_sequence_length"] = config.model.decoder_sequence_length;
  }
  if (exports_head_copy(config.model, family_of(format))) out[kOwnConfigKey]["tie_embeddings"] = true;
  if (config.task.has_head()) set_head(config.task, out);
  const json& facts = source.state().facts;
  if (facts.contains("tokenizer") && facts.contains("tokenizer_hash") && facts.at("tokenizer") != kUnknownTokenizer) {
    out[kOwnConfigKey]["tokenizer"] = facts.at("tokenizer");
    out[kOwnConfigKey]["tokenizer_hash"] = fmt::format("{:016x}", facts.at("tokenizer_hash").get<std::uint64_t>());
  }
  return out;
}

/// To the last bit; in families that shift numbers, to rounding.
bool agrees(const LogitComparison& compared, HuggingFaceFormat format) {
  if (family_of(format).norm_shift == 0) return compared.differing == 0;
  return compared.largest_difference <= 1e-5 * std::max(1.0, compared.largest_logit);
}

}  // namespace

ConversionReport export_checkpoint(const CheckpointReader& source, const std::string& target, Communicator& world,
                                   const ExportOptions& options) {
  const Config config = config_for_inference(source);
  const HuggingFaceFormat format = options.format ? *options.format : format_of(config.model);
  require_format(config.model, format);
  std::vector<HuggingFaceTensor> tensors = hugging_face_tensors(config.model, format, config.model.vocab_size);
  require_all_exchanged(source, tensors);
  if (const HuggingFaceFamily& family = family_of(format); exports_head_copy(config.model, family)) {
    tensors.push_back(tensors.front());  // the word table
    tensors.back().name = std::string(family.names.head) + ".weight";
  }
  std::vector<NewTensor> list;
  for (const HuggingFaceTensor& tensor : tensors) list.push_back({tensor.name, tensor.shape});

  const NewFolder folder(target, remove_export);
  try {
    ConversionReport report;
    HuggingFaceGather gather(source);
    const WrittenSafetensors written =
        write_safetensors(folder.path(), list, options.type, options.max_shard_bytes,
                          [&](std::size_t index, std::span<float> numbers) { gather.read(tensors[index], numbers); });
    report.files = written.files;
    report.bytes = written.bytes;
    report.tensors = static_cast<std::int64_t>(tensors.size());
    report.lost = lost_in_format(config.model, format);
    const std::unique_ptr<Tokenizer> tokenizer = tokenizer_beside(source);
    report.has_tokenizer = tokenizer != nullptr;
    const json description = exported_config(config, source, format, options.type, tokenizer.get());
    create_file_durably(folder.path() + "/config.json", description.dump(2) + "\n");
    if (tokenizer != nullptr) {
      export_tokenizer(*tokenizer, config.model, task_of(source), source.state().step > 0, kept_chat_template(source),
                       folder.path());
      if (tokenizer->tokenizer_json().empty() && !family_of(format).begins_texts && !config.model.has_decoder()) {
        report.lost.push_back(
            fmt::format("{} is the tokenizer's only file, and AutoTokenizer reads it by other rules for models of {}; "
                        "encode texts with sentencepiece.SentencePieceProcessor, which gives the ids of training",
                        tokenizer->files().front().name, name_of(format)));
      }
    }
    sync_path(folder.path());
    if (options.compare && !config.task.has_head()) {
      const HuggingFaceReader exported(folder.path(), SafetensorsModel(folder.path()), format, tensors);
      report.compared = compare_logits(config, world, config.model.vocab_size, values_of(source), values_of(exported));
      internal_check(options.type != SafetensorsType::f32 || agrees(*report.compared, format),
                     "an export that gives other logits");
    }
    source.require_verified();
    folder.commit();
    return report;
  } catch (...) {
    folder.discard();
    throw;
  }
}

namespace {

TrainingState imported_state(const Config& config, const Vocabulary& vocabulary) {
  TrainingState state;
  state.facts = model_signature(config, vocabulary);
  state.extra = {{"config", print_config(config)}};
  return state;
}

/// Where a family's files decide, a head that is not the word table makes the model an untied one.
void untie_by_files(const std::string& source, const SafetensorsModel& files, HuggingFaceModel& imported) {
  const HuggingFaceFamily& family = family_of(imported.format);
  const std::string word = name_in_files(files, family, std::string(family.names.word) + ".weight");
  const std::string head = std::string(family.names.head) + ".weight";
  if (!family.files_untie_head || !files.has(head) || !files.has(word) || same_tensors(files, head, word)) return;
  verify(!imported.model.scale_head, ErrorKind::checkpoint,
         "{}: {} is not the word table, and by config.json (\"scale_decoder_outputs\", and where that is absent "
         "\"tie_word_embeddings\") the head is scaled, as only one that is the word table can be here; delete {} from "
         "the files, as transformers 4 ignores it where \"tie_word_embeddings\" is true, or say "
         "\"scale_decoder_outputs\": false",
         source, head, head);
  imported.model.tie_embeddings = false;
}

/// Whether all ids from `first` on are those of tokens that this program adds to vocabularies
/// (word_piece_vocabulary.h).
bool are_added(const Vocabulary& vocabulary, std::int64_t first) {
  const SpecialIds& special = vocabulary.special;
  for (std::int64_t id = first; id < static_cast<std::int64_t>(vocabulary.size); ++id) {
    const std::int64_t sentinel = (id - special.first_sentinel) * special.sentinel_step;
    const bool is_sentinel = sentinel >= 0 && sentinel < special.sentinels;
    if (!is_sentinel && id != special.bos && id != special.eos) return false;
  }
  return true;
}

/// How many tokens the model has more than its files have rows: none, or those that were added.
std::int64_t rows_to_add(const std::string& source, const HuggingFaceModel& imported,
                         const std::optional<Vocabulary>& vocabulary) {
  const std::int64_t tokens = imported.model.vocab_size, rows = imported.vocab_rows;
  if (tokens <= rows) return 0;
  const bool added =
      vocabulary && static_cast<std::int64_t>(vocabulary->size) == tokens && are_added(*vocabulary, rows);
  verify(added, ErrorKind::checkpoint, "{}: its tables have {} rows, the vocabulary has {} tokens", source, rows,
         tokens);
  return tokens - rows;
}

/// Wrappers that a model was saved inside of, whose names stand in front of its tensors' names.
void refuse_wrapped_names(const std::string& source, const SafetensorsModel& files) {
  constexpr std::pair<std::string_view, const char*> kWrappers[] = {
      {"_orig_mod.", "torch.compile; save model._orig_mod"},
      {"module.", "DistributedDataParallel, DeepSpeed or the like; save model.module"},
      {"_fsdp_wrapped_module.", "FullyShardedDataParallel; save the full state_dict of the model inside"}};
  for (const std::string& name : files.names()) {
    for (const auto& [prefix, wrapper] : kWrappers) {
      verify(!name.starts_with(prefix), ErrorKind::checkpoint,
             "{}: tensor {} begins with \"{}\", the name of a wrapper: the model was saved inside of {} with "
             "save_pretrained, or take the prefix off all names",
             source, name, prefix, wrapper);
    }
  }
}

/// A folder of Megatron-LM's, which another program reads.
void refuse_megatron_folder(const std::string& source) {
  std::error_code unknown;
  bool found = std::filesystem::exists(source + "/latest_checkpointed_iteration.txt", unknown);
  for (std::filesystem::directory_iterator at(source, unknown), end; !unknown && !found && at != end;
       at.increment(unknown)) {
    const std::string name = at->path().filename().string();
    found = name.starts_with("mp_rank_") || name.ends_with(".distcp");
  }
  verify(!found || std::filesystem::exists(source + "/config.json", unknown), ErrorKind::checkpoint,
         "{} is a checkpoint of Megatron-LM; make a Hugging Face model of it first: python3 "
         "scripts/megatron_to_safetensors.py {} FOLDER, then import FOLDER",
         source, source);
}

/// Runs `work`; an Error(checkpoint) of its gets the path of what was read in front.
template <class Work>
auto read_from(const std::string& path, Work&& work) {
  try {
    return work();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::checkpoint) throw;
    fail(ErrorKind::checkpoint, "{}: {}", path, error.what());
  }
}

}  // namespace

ConversionReport import_checkpoint(const std::string& source, const std::string& target, Communicator& world,
                                   const ImportOptions& options) {
  check_new_checkpoint(target, 0);
  refuse_megatron_folder(source);
  const std::string config_path = source + "/config.json";
  const json theirs = read_json_file(config_path);
  SafetensorsModel files(source);
  refuse_wrapped_names(source, files);
  const auto tensors = static_cast<std::int64_t>(files.names().size());
  HuggingFaceModel imported = read_from(config_path, [&] { return parse_hugging_face_config(theirs, tensors); });
  untie_by_files(source, files, imported);
  ConversionReport report;
  const auto [vocabulary, tokenizer] = vocabulary_of_hugging_face(source, imported, options, report);
  ModelConfig& model = imported.model;
  if (vocabulary) model.vocab_size = static_cast<std::int64_t>(vocabulary->size);
  if (options.vocab_size > 0) model.vocab_size = options.vocab_size;
  report.zero_rows = rows_to_add(source, imported, vocabulary);
  if (options.sequence_length > 0) model.sequence_length = options.sequence_length;
  const Config config = read_from(config_path, [&] { return config_of(imported); });

  const HuggingFaceReader reader(source, std::move(files), imported.format,
                                 hugging_face_tensors(config.model, imported.format, imported.vocab_rows));
  report.has_tokenizer = vocabulary.has_value();
  report.tensors = reader.tensors();
  const std::vector<TensorSlice> slices = reader.slices();
  std::vector<float> buffer;
  std::size_t next = 0;
  const NumberSource numbers = [&](const std::string&, std::int64_t position) -> std::span<const float> {
    if (position == 0) next = 0;
    const TensorSlice& slice = slices[next++];
    buffer.resize(static_cast<std::size_t>(slice.count));
    reader.read(slice.name, buffer);
    return buffer;
  };
  TrainingState state = imported_state(config, vocabulary.value_or(Vocabulary{.tokenizer = kUnknownTokenizer}));
  if (const std::vector<std::int32_t> ends = end_tokens_in(source, theirs); !ends.empty()) {
    state.extra[kEndTokensKey] = ends;
  }
  if (const json chat = chat_template_in(source, report.unusable_chat_template); !chat.is_null()) {
    state.extra[kChatTemplateKey] = chat;
    report.chat_template = true;
  }
  const std::string& file = options.vocab_file;
  const std::string folder = file.empty() ? source + "/" : file.substr(0, file.rfind('/') + 1);
  if (config.model.has_decoder()) {
    const std::string named = file.empty() ? source + "/" + kTokenizerFile : file;
    state.extra[kEncoderDecoderTokensKey] =
        encoder_decoder_tokens_json(encoder_decoder_tokens_in(source, theirs, named, tokenizer.get()));
  }
  if (tokenizer != nullptr) {
    const auto begin = begin_token_of_folder(folder, *tokenizer, family_of(imported.format).begins_texts);
    if (begin) state.extra[kBeginTokenKey] = begin_token_json(*begin);
  }
  const bool encodes = vocabulary && (tokenizer != nullptr || !tokenizer_has_files(vocabulary->tokenizer));
  const std::string fragment = model_fragment(config, target, encodes ? vocabulary->tokenizer : "",
                                              tokenizer == nullptr ? "" : tokenizer->files().front().name);
  const auto check = [&, &source_tokenizer = tokenizer](const std::string& written) {
    if (source_tokenizer != nullptr) write_tokenizer_files(*source_tokenizer, written);
    create_file_durably(written + "/" + kModelFragment, fragment);
    if (!options.compare) return;
    std::vector<std::string> warnings;
    const CheckpointReader made = open_named_checkpoint(world, written, warnings);
    report.compared =
        compare_logits(config, world, config.model.vocab_size - report.zero_rows, values_of(reader), values_of(made));
    internal_check(report.compared->differing == 0, "an import that gives other logits", report.compared->differing);
  };
  const NewCheckpointReport made = write_new_checkpoint(
      target, state, 1,
      [&](int) {
        return NewRankFile{slices, numbers};
      },
      check);
  report.files = made.files;
  report.bytes = made.bytes;
  return report;
}

}  // namespace megatron
