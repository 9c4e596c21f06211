#include "train/hugging_face.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <set>

#include "checkpoint/commit.h"
#include "checkpoint/new_checkpoint.h"
#include "config/print.h"
#include "config/resolve.h"
#include "config/unsupported.h"
#include "hdf5/durable_file.h"
#include "tokenizer/tokenizer.h"
#include "train/inference_model.h"
#include "train/run_tokenizer.h"
#include "train/trainer.h"

namespace megatron {

namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using Record = ForeignTensor::Record;

constexpr const char* kOwnKey = "megatron_train";  // of config.json: what only we know of a model

// ---- Numbers of one tensor ------------------------------------------------------------------------------------------

/// to[j, i] = from[i, j], in squares that the caches hold.
void transpose(const float* from, std::int64_t rows, std::int64_t columns, float* to) {
  constexpr std::int64_t kSquare = 32;
  for (std::int64_t i0 = 0; i0 < rows; i0 += kSquare) {
    for (std::int64_t j0 = 0; j0 < columns; j0 += kSquare) {
      for (std::int64_t i = i0; i < std::min(i0 + kSquare, rows); ++i) {
        for (std::int64_t j = j0; j < std::min(j0 + kSquare, columns); ++j) to[j * rows + i] = from[i * columns + j];
      }
    }
  }
}

/// Their tensor out of our records.
void gather(const CheckpointReader& source, const ForeignTensor& tensor, std::vector<float>& scratch,
            std::span<float> numbers) {
  if (tensor.transposed) scratch.resize(numbers.size());
  float* to = tensor.transposed ? scratch.data() : numbers.data();
  std::vector<Piece> pieces;
  std::int64_t done = 0;
  for (const Record& record : tensor.records) {
    const std::int64_t count = record.shape.elements();
    Box box{record.shape, record.shape};
    for (int i = 0; i < record.shape.rank(); ++i) box.offset[i] = 0;
    pieces.push_back({record.name, record.global_shape, box, 0, count, Tensor(to + done, {count}, DType::f32), {}, {}});
    done += count;
  }
  source.read_numbers(Stored::value, pieces);
  if (tensor.transposed) transpose(to, tensor.shape[1], tensor.shape[0], numbers.data());
}

/// One of our records out of their tensor: its exchanged rows, [record.shape].
void extract(const SafetensorsModel& source, const ForeignTensor& tensor, const std::string& name, const Record& record,
             std::span<float> numbers) {
  const std::int64_t columns = record.shape.rank() == 1 ? 1 : record.shape[1];
  if (!tensor.transposed) return source.read(name, record.first * columns, numbers);
  // Theirs is [in, out]: of each of its rows a part is a column of ours.
  constexpr std::int64_t kRows = 16;
  const std::int64_t out = record.shape[0], all = tensor.shape[1];
  std::vector<float> block(static_cast<std::size_t>(kRows * out));
  for (std::int64_t row = 0; row < columns; row += kRows) {
    const std::int64_t rows = std::min(kRows, columns - row);
    for (std::int64_t i = 0; i < rows; ++i) {
      source.read(name, (row + i) * all + record.first,
                  std::span(block).subspan(static_cast<std::size_t>(i * out), static_cast<std::size_t>(out)));
    }
    for (std::int64_t j = 0; j < out; ++j) {
      for (std::int64_t i = 0; i < rows; ++i) {
        numbers[static_cast<std::size_t>(j * columns + row + i)] = block[static_cast<std::size_t>(i * out + j)];
      }
    }
  }
}

// ---- A foreign model's tensors, all of them accounted for -----------------------------------------------------------

class ForeignReader {
 public:
  /// Error(checkpoint) unless the files have the tensors of the list, in their shapes, and nothing else that counts.
  ForeignReader(const std::string& folder, ForeignFormat format, std::vector<ForeignTensor> tensors)
      : files_(folder), tensors_(std::move(tensors)) {
    // GPT-2's base model, without a head, is saved without this prefix.
    const std::string prefix = format == ForeignFormat::gpt2 ? "transformer." : "model.";
    const std::vector<std::string> names = files_.names();
    const bool bare =
        std::none_of(names.begin(), names.end(), [&](const std::string& name) { return name.starts_with(prefix); });
    std::set<std::string> unused(names.begin(), names.end());
    for (ForeignTensor& tensor : tensors_) {
      if (bare && tensor.name.starts_with(prefix)) tensor.name.erase(0, prefix.size());
      const SafetensorsEntry& entry = files_.entry(tensor.name);
      verify(entry.shape == tensor.shape, ErrorKind::checkpoint, "{}: tensor {} is {}, and by its config.json {}",
             folder, tensor.name, json(entry.shape).dump(), json(tensor.shape).dump());
      unused.erase(tensor.name);
      for (const Record& record : tensor.records) records_[record.name] = {&tensor, &record};
    }
    for (const std::string& name : unused) {
      if (is_derived(bare ? prefix + name : name, format)) continue;
      verify(name == "lm_head.weight" && same_as_word_table(), ErrorKind::checkpoint,
             "{}: tensor {} has no place in the model of its config.json", folder, name);
    }
  }

  std::int64_t tensors() const { return static_cast<std::int64_t>(tensors_.size()); }

  /// A whole record as we have it, rows that pad the vocabulary being zero.
  void read(const std::string& record, std::span<float> numbers) const {
    const auto& [tensor, part] = records_.at(record);
    const auto count = static_cast<std::size_t>(part->shape.elements());
    extract(files_, *tensor, tensor->name, *part, numbers.first(count));
    std::fill(numbers.begin() + static_cast<std::ptrdiff_t>(count), numbers.end(), 0.0f);
  }

  /// All records whole, in the order of their names, without memory.
  std::vector<Piece> pieces() const {
    std::vector<Piece> pieces;
    for (const auto& [name, place] : records_) {
      const Shape& shape = place.second->global_shape;
      Box box{shape, shape};
      for (int i = 0; i < shape.rank(); ++i) box.offset[i] = 0;
      pieces.push_back({name, shape, box, 0, shape.elements(), {}, {}, {}});
    }
    return pieces;
  }

 private:
  /// A tied head that was saved as well must be the table that it is tied to.
  bool same_as_word_table() const {
    const ForeignTensor& word = tensors_.front();
    if (files_.entry("lm_head.weight").shape != word.shape) return false;
    std::vector<float> a(static_cast<std::size_t>(word.shape[1])), b(a.size());
    for (std::int64_t row = 0; row < word.shape[0]; ++row) {
      files_.read(word.name, row * word.shape[1], a);
      files_.read("lm_head.weight", row * word.shape[1], b);
      if (a != b) return false;
    }
    return true;
  }

  SafetensorsModel files_;
  std::vector<ForeignTensor> tensors_;
  std::map<std::string, std::pair<const ForeignTensor*, const Record*>> records_;
};

// ---- Comparison -----------------------------------------------------------------------------------------------------

std::vector<std::int32_t> fixed_tokens(const ModelConfig& model) {
  std::vector<std::int32_t> tokens;
  for (std::int64_t i = 0; i < std::min<std::int64_t>(32, model.sequence_length); ++i) {
    tokens.push_back(static_cast<std::int32_t>((i * 7919 + 13) % model.vocab_size));
  }
  return tokens;
}

std::vector<float> logits_of(const Config& config, Communicator& world, const std::vector<std::int32_t>& tokens,
                             const std::function<void(const std::vector<Piece>& values)>& fill) {
  RunConfig run;
  run.device = "cpu";
  run.communication = "mpi";
  InferenceModel model(config, world, start_compute(run, world, "", 0));
  fill(model.values());
  std::vector<float> logits;
  model.logits(tokens, 0, logits);
  return logits;
}

void fill_from(const CheckpointReader& source, const std::vector<Piece>& values) {
  source.read_numbers(Stored::value, values);
}

void fill_from(const ForeignReader& source, const std::vector<Piece>& values) {
  for (const Piece& piece : values) {
    source.read(piece.name, {piece.value.as<float>(), static_cast<std::size_t>(piece.count)});
  }
}

/// One model after the other: the memory of one.
template <class Source, class Target>
LogitComparison compare(const Config& config, Communicator& world, const Source& source, const Target& target) {
  LogitComparison compared;
  compared.tokens = fixed_tokens(config.model);
  const std::vector<float> expected =
      logits_of(config, world, compared.tokens, [&](const std::vector<Piece>& values) { fill_from(source, values); });
  compared.logits =
      logits_of(config, world, compared.tokens, [&](const std::vector<Piece>& values) { fill_from(target, values); });
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double difference = std::abs(double{expected[i]} - double{compared.logits[i]});
    if (!(difference <= compared.largest_difference)) compared.largest_difference = difference;
    compared.largest_logit = std::max(compared.largest_logit, std::abs(double{expected[i]}));
  }
  return compared;
}

// ---- Tokenizers -----------------------------------------------------------------------------------------------------

/// The tokenizer of a checkpoint's run, if its files are there and are the right ones.
std::unique_ptr<Tokenizer> tokenizer_beside(const CheckpointReader& source) {
  const json& facts = source.state().facts;
  try {
    return tokenizer_of_checkpoint(source.path(), facts.at("tokenizer").get<std::string>(),
                                   facts.at("tokenizer_hash").get<std::uint64_t>(), "", "");
  } catch (const json::exception&) {
    return nullptr;
  } catch (const Error&) {  // a tool does not know them, or they were not kept
    return nullptr;
  }
}

/// What the model's vocabulary is, by shards, by the tokenizer's files in the folder, or by our own key of config.json.
Vocabulary vocabulary_of_foreign(const std::string& folder, const json& config, const ImportOptions& options,
                                 bool& known) {
  known = true;
  if (!options.data.empty()) return TokenDataset(options.data).vocabulary();
  std::error_code ignored;
  const TokenizerChoice gpt2{"gpt2", folder + "/" + kVocabFile, folder + "/" + kMergeFile};
  if (fs::exists(gpt2.vocab_file, ignored) && fs::exists(gpt2.merge_file, ignored)) {
    return vocabulary_of(*make_tokenizer(gpt2));
  }
  if (config.contains(kOwnKey)) {
    const json own = object_at(config, kOwnKey);
    Vocabulary vocabulary;
    vocabulary.tokenizer = text_at(own, "tokenizer", 64);
    vocabulary.size = static_cast<std::uint64_t>(integer_at(own, "vocab_size", 1, 1 << 30));
    const std::string hash = text_at(own, "tokenizer_hash", 16);
    const char* end = hash.data() + hash.size();
    verify(std::from_chars(hash.data(), end, vocabulary.hash, 16).ptr == end, ErrorKind::checkpoint,
           "\"tokenizer_hash\" is no hexadecimal number");
    return vocabulary;
  }
  known = false;
  return {.tokenizer = "unknown"};
}

void require_all_exchanged(const CheckpointReader& source, const std::vector<ForeignTensor>& tensors) {
  std::set<std::string> unused;
  for (const auto& [name, tensor] : source.tensors()) unused.insert(name);
  for (const ForeignTensor& tensor : tensors) {
    for (const Record& record : tensor.records) {
      verify(unused.erase(record.name) > 0, ErrorKind::checkpoint, "{}: has no tensor {}", source.path(), record.name);
    }
  }
  verify(unused.empty(), ErrorKind::checkpoint, "{}: tensor {} has no place in the format", source.path(),
         unused.empty() ? "" : *unused.begin());
}

json exported_config(const Config& config, const CheckpointReader& source, ForeignFormat format, SafetensorsType type,
                     const Tokenizer* tokenizer) {
  const char* dtype = type == SafetensorsType::f32 ? "float32" : type == SafetensorsType::bf16 ? "bfloat16" : "float16";
  json out = foreign_config(config.model, format, dtype);
  const json end = tokenizer == nullptr ? json() : json(tokenizer->eod_id());
  out["bos_token_id"] = out["eos_token_id"] = end;
  out[kOwnKey] = {{"vocab_size", config.model.vocab_size},
                  {"vocab_multiple", config.model.vocab_multiple},
                  {"sequence_length", config.model.sequence_length},
                  {"step", source.state().step}};
  const json& facts = source.state().facts;
  if (facts.contains("tokenizer") && facts.contains("tokenizer_hash")) {
    out[kOwnKey]["tokenizer"] = facts.at("tokenizer");
    out[kOwnKey]["tokenizer_hash"] = fmt::format("{:016x}", facts.at("tokenizer_hash").get<std::uint64_t>());
  }
  return out;
}

}  // namespace

ConversionReport export_checkpoint(const CheckpointReader& source, const std::string& target, Communicator& world,
                                   const ExportOptions& options) {
  const Config config = config_for_inference(source);
  refuse_what_is_to_come(config);
  const ForeignFormat format = options.format ? *options.format : format_of(config.model);
  require_format(config.model, format);
  const std::vector<ForeignTensor> tensors = foreign_tensors(config.model, format, config.model.vocab_size);
  require_all_exchanged(source, tensors);
  std::vector<NewTensor> list;
  for (const ForeignTensor& tensor : tensors) list.push_back({tensor.name, tensor.shape});

  const PendingFolder folder = new_folder(target, remove_export);
  try {
    ConversionReport report;
    std::vector<float> scratch;
    const WrittenSafetensors written = write_safetensors(
        folder.path(), list, options.type, options.max_shard_bytes,
        [&](std::size_t index, std::span<float> numbers) { gather(source, tensors[index], scratch, numbers); });
    report.files = written.files;
    report.bytes = written.bytes;
    report.tensors = static_cast<std::int64_t>(tensors.size());
    const std::unique_ptr<Tokenizer> tokenizer = tokenizer_beside(source);
    report.has_tokenizer = tokenizer != nullptr;
    const json foreign = exported_config(config, source, format, options.type, tokenizer.get());
    create_file_durably(folder.path() + "/config.json", foreign.dump(2) + "\n");
    if (tokenizer != nullptr) {
      for (const TokenizerFile& file : tokenizer->files()) {
        create_file_durably(folder.path() + "/" + file.name, file.contents);
      }
    }
    sync_path(folder.path());
    if (options.compare) {
      const ForeignReader exported(folder.path(), format, tensors);
      report.compared = compare(config, world, source, exported);
      internal_check(options.type != SafetensorsType::f32 || report.compared->largest_difference == 0,
                     "an export that gives other logits");
    }
    folder.commit();
    return report;
  } catch (...) {
    folder.discard();
    throw;
  }
}

namespace {

/// Resolved for one rank; batches and lengths are any, because none belong to a model.
Config imported_config(ModelConfig model) {
  Config config;
  config.model = std::move(model);
  config.train.steps = config.train.global_batch_size = 1;
  config.learning_rate.decay = "constant";
  config.data.train = "imported";
  resolve(config, 1, nullptr);
  refuse_what_is_to_come(config);
  return config;
}

TrainingState imported_state(const Config& config, const Vocabulary& vocabulary) {
  TrainingState state;
  state.facts = model_facts(config, vocabulary);
  state.extra = {{"config", print_config(config)}};
  return state;
}

/// Errors of a stranger's configuration are the checkpoint's, whichever rule of ours it breaks.
Config foreign_to_config(const ForeignModel& foreign, const std::string& path) {
  try {
    return imported_config(foreign.model);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::configuration) throw;
    fail(ErrorKind::checkpoint, "{}: {}", path, error.what());
  }
}

}  // namespace

ConversionReport import_checkpoint(const std::string& source, const std::string& target, Communicator& world,
                                   const ImportOptions& options) {
  check_new_checkpoint(target, 0);
  const std::string config_path = source + "/config.json";
  const json theirs = read_json_file(config_path);
  ForeignModel foreign;
  ConversionReport report;
  Vocabulary vocabulary;
  try {
    foreign = parse_foreign_config(theirs);
    vocabulary = vocabulary_of_foreign(source, theirs, options, report.has_tokenizer);
    if (theirs.contains(kOwnKey)) {
      const json own = object_at(theirs, kOwnKey);
      foreign.model.sequence_length = integer_at(own, "sequence_length", 1, foreign.model.max_position_embeddings);
      foreign.model.vocab_multiple = integer_at(own, "vocab_multiple", 1, 1 << 20);
    }
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::checkpoint) throw;
    fail(ErrorKind::checkpoint, "{}: {}", config_path, error.what());
  }
  ModelConfig& model = foreign.model;
  if (vocabulary.size > 0) model.vocab_size = static_cast<std::int64_t>(vocabulary.size);
  if (options.vocab_size > 0) model.vocab_size = options.vocab_size;
  verify(model.vocab_size <= foreign.vocab_rows, ErrorKind::checkpoint,
         "{}: its tables have {} rows, the vocabulary has {} tokens", source, foreign.vocab_rows, model.vocab_size);
  if (options.sequence_length > 0) model.sequence_length = options.sequence_length;
  const Config config = foreign_to_config(foreign, config_path);

  const ForeignReader reader(source, foreign.format, foreign_tensors(config.model, foreign.format, foreign.vocab_rows));
  report.tensors = reader.tensors();
  const std::vector<Piece> pieces = reader.pieces();
  std::vector<float> buffer;
  std::size_t next = 0;
  const NumberSource numbers = [&](Stored, std::int64_t position) -> std::span<const float> {
    if (position == 0) next = 0;
    const Piece& piece = pieces[next++];
    buffer.resize(static_cast<std::size_t>(piece.count));
    reader.read(piece.name, buffer);
    return buffer;
  };
  const TrainingState state = imported_state(config, vocabulary);
  const auto check = [&](const std::string& written) {
    if (!options.compare) return;
    std::vector<std::string> warnings;
    report.compared = compare(config, world, reader, open_named_checkpoint(world, written, warnings));
    internal_check(report.compared->largest_difference == 0, "an import that gives other logits");
  };
  const NewCheckpointReport made = write_new_checkpoint(
      target, state, 1, 0,
      [&](int) {
        return NewRankFile{pieces, numbers};
      },
      check);
  report.files = made.files;
  report.bytes = made.bytes;
  return report;
}

}  // namespace megatron
