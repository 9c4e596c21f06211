#include "data/shards/token_shard.h"

#include <algorithm>

#include "base/system/durable_file.h"
#include "data/shards/shard_provenance.h"

namespace megatron {

namespace {

constexpr std::size_t kBufferedTokens = std::size_t{8} * kHdf5ChunkBytes / 2;  ///< a whole number of chunks, u16 or u32
constexpr std::size_t kBufferedDocuments = std::size_t{4} * kHdf5ChunkBytes / 8;
constexpr std::uint64_t kLargestNarrowVocabulary = 65536;
constexpr unsigned kMostAttributes = 32;

template <class T>
void hash_and_append(XXH3_state_t* hash, Hdf5Dataset& dataset, std::vector<T>& values) {
  XXH3_64bits_update(hash, values.data(), values.size() * sizeof(T));
  dataset.append(values);
  values.clear();
}

struct SpecialAttribute {
  const char* name;
  std::int32_t SpecialIds::*id;
};
constexpr SpecialAttribute kSpecialAttributes[] = {
    {"cls", &SpecialIds::cls},   {"sep", &SpecialIds::sep},
    {"mask", &SpecialIds::mask}, {"pad", &SpecialIds::pad},
    {"bos", &SpecialIds::bos},   {"eos", &SpecialIds::eos},
    {"unk", &SpecialIds::unk},   {"first_sentinel", &SpecialIds::first_sentinel}};

/// Ids below the vocabulary's size, checked.
SpecialIds read_special_ids(const Hdf5Reader& file, std::uint64_t vocabulary) {
  SpecialIds special;
  for (const auto& [name, id] : kSpecialAttributes) {
    if (!file.has(name)) continue;
    const std::uint64_t value = file.read_u64(name);
    verify(value < vocabulary, ErrorKind::data, "{}: {} is token {}, outside the vocabulary of {}", file.path(), name,
           value, vocabulary);
    special.*id = static_cast<std::int32_t>(value);
  }
  if (!file.has("sentinels")) return special;
  const std::uint64_t sentinels = file.read_u64("sentinels");
  const bool descend = file.has("sentinels_descend");
  const auto first = static_cast<std::uint64_t>(std::max(special.first_sentinel, 0));
  verify(special.first_sentinel >= 0 && sentinels <= (descend ? first + 1 : vocabulary - first), ErrorKind::data,
         "{}: {} sentinels from token {} {} do not fit into the vocabulary of {}", file.path(), sentinels,
         special.first_sentinel, descend ? "downward" : "upward", vocabulary);
  special.sentinel_step = descend ? -1 : 1;
  special.sentinels = static_cast<std::int32_t>(sentinels);
  return special;
}

}  // namespace

Vocabulary vocabulary_of(const Tokenizer& tokenizer) {
  return {tokenizer.name(),
          tokenizer.hash(),
          static_cast<std::uint64_t>(tokenizer.vocab_size()),
          static_cast<std::uint64_t>(tokenizer.eod_id()),
          tokenizer.special_ids(),
          tokenizer.continues()};
}

std::string describe(const Vocabulary& vocabulary) {
  return fmt::format("{}, {} tokens, hash {:016x}", vocabulary.tokenizer, vocabulary.size, vocabulary.hash);
}

std::string vocabulary_path(const std::string& prefix, const std::string& file) {
  return prefix + "." + file;
}

TokenShardWriter::TokenShardWriter(std::string temporary_path, const Vocabulary& vocabulary, Sentences sentences)
    : path_(std::move(temporary_path)),
      vocabulary_(vocabulary),
      kept_(sentences),
      file_(Hdf5File::create(path_, vocabulary.special == SpecialIds{} ? Hdf5File::kFewAttributes : kMostAttributes)),
      hash_(XXH3_createState(), XXH3_freeState) {
  XXH3_64bits_reset(hash_.get());
  const bool narrow = vocabulary_.size <= kLargestNarrowVocabulary;
  tokens_ = file_.create_growable_dataset("tokens", narrow ? Hdf5Type::u16 : Hdf5Type::u32);
  documents_ = file_.create_growable_dataset("documents", Hdf5Type::u64);
  (narrow ? narrow_.reserve(kBufferedTokens) : wide_.reserve(kBufferedTokens));
  ends_.push_back(0);
  if (kept_ == Sentences::kept) {
    sentences_ = file_.create_growable_dataset("sentences", Hdf5Type::u64);
    sentence_ends_.push_back(0);
  }
  if (!vocabulary_.continues.empty()) {
    internal_check(vocabulary_.continues.size() == vocabulary_.size,
                   "tokens that continue words, of another vocabulary", vocabulary_.continues.size(), vocabulary_.size);
    continues_ = file_.create_growable_dataset("continues", Hdf5Type::u8);
    std::vector<std::uint8_t> all = vocabulary_.continues;
    hash_and_append(hash_.get(), continues_, all);
  }
  file_.write_attribute("format_version", kShardFormatVersion);
  file_.write_attribute("tokenizer", vocabulary_.tokenizer);
  file_.write_attribute("tokenizer_hash", vocabulary_.hash);
  file_.write_attribute("vocab_size", vocabulary_.size);
  file_.write_attribute("eod_id", vocabulary_.eod_id);
  for (const auto& [name, id] : kSpecialAttributes) {
    const std::int32_t value = vocabulary_.special.*id;
    if (value >= 0) file_.write_attribute(name, static_cast<std::uint64_t>(value));
  }
  if (vocabulary_.special.sentinels > 0) {
    file_.write_attribute("sentinels", static_cast<std::uint64_t>(vocabulary_.special.sentinels));
    if (vocabulary_.special.sentinel_step < 0) file_.write_attribute("sentinels_descend", std::uint64_t{1});
  }
  for (const char* name : {"shard_index", "shard_count", "set_hash"}) file_.write_attribute(name, std::uint64_t{0});
}

TokenShardWriter::~TokenShardWriter() {
  if (!finished_) remove_quietly(path_);
}

void TokenShardWriter::add_document(std::span<const std::int32_t> tokens) {
  internal_check(kept_ == Sentences::unknown, "a document without sentences given to a shard that keeps them");
  add_tokens(tokens);
}

void TokenShardWriter::add_document(std::span<const std::int32_t> tokens, std::span<const std::uint64_t> sentences) {
  internal_check(kept_ == Sentences::kept, "sentences given to a shard that does not keep them");
  std::uint64_t end = token_count_;
  for (const std::uint64_t length : sentences) {
    internal_check(length > 0, "an empty sentence given to a shard", length);
    sentence_ends_.push_back(end += length);
    if (sentence_ends_.size() >= kBufferedDocuments) flush_sentences();
  }
  internal_check(end == token_count_ + tokens.size(), "sentences that are not all of their document", end,
                 token_count_ + tokens.size());
  add_tokens(tokens);
}

void TokenShardWriter::add_tokens(std::span<const std::int32_t> tokens) {
  internal_check(!tokens.empty() && !finished_, "an empty document, or one after the end, given to a shard");
  for (const std::int32_t id : tokens) {
    verify(id >= 0 && static_cast<std::uint64_t>(id) < vocabulary_.size, ErrorKind::data,
           "{}: token id {} is outside the {} tokenizer's vocabulary of {}", path_, id, vocabulary_.tokenizer,
           vocabulary_.size);
  }
  const bool narrow = tokens_.type() == Hdf5Type::u16;
  while (!tokens.empty()) {
    const std::size_t buffered = narrow ? narrow_.size() : wide_.size();
    const auto part = tokens.first(std::min(tokens.size(), kBufferedTokens - buffered));
    for (const std::int32_t id : part) {
      if (narrow) {
        narrow_.push_back(static_cast<std::uint16_t>(id));
      } else {
        wide_.push_back(static_cast<std::uint32_t>(id));
      }
    }
    token_count_ += part.size();
    tokens = tokens.subspan(part.size());
    if (buffered + part.size() == kBufferedTokens) flush_tokens();
  }
  ++document_count_;
  ends_.push_back(token_count_);
  if (ends_.size() >= kBufferedDocuments) flush_documents();
}

void TokenShardWriter::flush_tokens() {
  if (!narrow_.empty()) hash_and_append(hash_.get(), tokens_, narrow_);
  if (!wide_.empty()) hash_and_append(hash_.get(), tokens_, wide_);
}

void TokenShardWriter::flush_documents() {
  hash_and_append(hash_.get(), documents_, ends_);
}

void TokenShardWriter::flush_sentences() {
  hash_and_append(hash_.get(), sentences_, sentence_ends_);
}

std::uint64_t TokenShardWriter::finish() {
  flush_tokens();
  flush_documents();
  if (kept_ == Sentences::kept) flush_sentences();
  file_.finish(tokens_);
  file_.finish(documents_);
  if (kept_ == Sentences::kept) file_.finish(sentences_);
  if (!vocabulary_.continues.empty()) file_.finish(continues_);
  file_.close();
  sync_path(path_);
  finished_ = true;
  return XXH3_64bits_digest(hash_.get());
}

void seal_shard(const std::string& temporary_path, std::uint64_t index, std::uint64_t count, std::uint64_t set_hash) {
  Hdf5File file = Hdf5File::open_for_update(temporary_path);
  file.write_attribute("shard_index", index);
  file.write_attribute("shard_count", count);
  file.write_attribute("set_hash", set_hash);
  file.close();
  sync_path(temporary_path);
}

TokenShard::TokenShard(const std::string& path) : TokenShard(Hdf5Reader(path, ErrorKind::data)) {}

TokenShard::TokenShard(const Hdf5Reader& file) : path_(file.path()) {
  const std::string& path = path_;
  const std::uint64_t version = file.read_u64("format_version");
  verify(version == kShardFormatVersion || version == kUnhashedShardFormatVersion, ErrorKind::data,
         "{}: shard format {}, but this program reads formats {} and {}; make it again with megatron_preprocess", path,
         version, kUnhashedShardFormatVersion, kShardFormatVersion);
  vocabulary_ = {file.read_text("tokenizer"),
                 file.read_u64("tokenizer_hash"),
                 file.read_u64("vocab_size"),
                 file.read_u64("eod_id"),
                 {},
                 {}};
  index_ = file.read_u64("shard_index");
  count_ = file.read_u64("shard_count");
  set_hash_ = file.read_u64("set_hash");
  std::vector<std::string> names = file.datasets();
  std::erase_if(names, [](const std::string& name) {
    return name == "continues" || name == "sentences" || name == kProvenanceDataset;
  });
  verify(names == std::vector<std::string>{"documents", "tokens"}, ErrorKind::data,
         "{}: has other datasets than /documents and /tokens, and perhaps /sentences, /continues and /provenance: {}",
         path, fmt::join(file.datasets(), " "));
  tokens_ = file.open_dataset("tokens");
  documents_ = file.open_dataset("documents");
  const Hdf5Type expected = vocabulary_.size <= kLargestNarrowVocabulary ? Hdf5Type::u16 : Hdf5Type::u32;
  verify(vocabulary_.size >= 1 && vocabulary_.size <= std::uint64_t{1} << 31 && vocabulary_.eod_id < vocabulary_.size,
         ErrorKind::data, "{}: a vocabulary of {} with end-of-document {} makes no sense", path, vocabulary_.size,
         vocabulary_.eod_id);
  verify(tokens_.type() == expected, ErrorKind::data, "{}: /tokens is {}, but a vocabulary of {} needs {}", path,
         name_of(tokens_.type()), vocabulary_.size, name_of(expected));
  verify(documents_.type() == Hdf5Type::u64, ErrorKind::data, "{}: /documents is {} instead of u64", path,
         name_of(documents_.type()));
  verify(tokens_.elements() > 0 && documents_.elements() > 1, ErrorKind::data, "{}: holds no tokens", path);
  verify(version == kUnhashedShardFormatVersion || (tokens_.hashed() && documents_.hashed()), ErrorKind::data,
         "{}: lacks the hashes of its contents", path);
  verify(index_ < count_, ErrorKind::data,
         "{}: says it is shard {} of {}; it was never published, make it again with megatron_preprocess", path, index_,
         count_);
  open_optional(file, version != kUnhashedShardFormatVersion);
}

/// Opens the parts that shards may lack. Sizes are checked before anything of that size is read.
void TokenShard::open_optional(const Hdf5Reader& file, bool hashed) {
  vocabulary_.special = read_special_ids(file, vocabulary_.size);
  for (const std::string& name : file.datasets()) {
    if (name != "sentences" && name != "continues") continue;
    const Hdf5Array array = file.open_dataset(name);
    const bool sentences = name == "sentences";
    const Hdf5Type type = sentences ? Hdf5Type::u64 : Hdf5Type::u8;
    verify(array.type() == type, ErrorKind::data, "{}: /{} is {} instead of {}", path_, name, name_of(array.type()),
           name_of(type));
    verify(!hashed || array.hashed(), ErrorKind::data, "{}: lacks the hashes of /{}", path_, name);
    if (sentences) {
      verify(array.elements() >= documents_.elements() && array.elements() - 1 <= tokens(), ErrorKind::data,
             "{}: /sentences has {} entries for {} documents of {} tokens", path_, array.elements(), documents(),
             tokens());
      sentences_ = array;
      continue;
    }
    verify(array.elements() == vocabulary_.size, ErrorKind::data,
           "{}: /continues has {} entries for a vocabulary of {}", path_, array.elements(), vocabulary_.size);
    vocabulary_.continues = array.read_all<std::uint8_t>();
    const bool bits = std::all_of(vocabulary_.continues.begin(), vocabulary_.continues.end(),
                                  [](std::uint8_t bit) { return bit <= 1; });
    verify(bits, ErrorKind::data, "{}: /continues has other entries than 0 and 1", path_);
  }
}

std::vector<std::uint64_t> TokenShard::read_documents() const {
  std::vector<std::uint64_t> offsets = documents_.read_all<std::uint64_t>();
  const bool rising = std::adjacent_find(offsets.begin(), offsets.end(), std::greater_equal<>()) == offsets.end();
  verify(offsets.front() == 0 && offsets.back() == tokens() && rising, ErrorKind::data,
         "{}: /documents is not a rising list of offsets from 0 to the {} tokens", path_, tokens());
  return offsets;
}

std::vector<std::uint64_t> TokenShard::read_sentences() const {
  internal_check(has_sentences(), "the sentences of a shard that does not know them");
  const std::vector<std::uint64_t> documents = read_documents();
  std::vector<std::uint64_t> offsets = sentences_->read_all<std::uint64_t>();
  const bool rising = std::adjacent_find(offsets.begin(), offsets.end(), std::greater_equal<>()) == offsets.end();
  verify(offsets.front() == 0 && offsets.back() == tokens() && rising &&
             std::includes(offsets.begin(), offsets.end(), documents.begin(), documents.end()),
         ErrorKind::data,
         "{}: /sentences is not a rising list of offsets from 0 to the {} tokens with every document's first", path_,
         tokens());
  return offsets;
}

void TokenShard::read(std::uint64_t first, std::uint64_t count, std::int32_t* ids) {
  if (tokens_.type() == Hdf5Type::u16) {
    if (narrow_.size() < count) narrow_.resize(count);
    tokens_.read(first, narrow_.data(), count);
    std::copy_n(narrow_.begin(), count, ids);
  } else {
    static_assert(sizeof(std::int32_t) == sizeof(std::uint32_t));
    tokens_.read(first, reinterpret_cast<std::uint32_t*>(ids), count);  // ids above 2^31 are negative and refused below
  }
  const auto outside = [size = vocabulary_.size](std::int32_t id) { return static_cast<std::uint32_t>(id) >= size; };
  const auto* bad = std::find_if(ids, ids + count, outside);
  if (bad != ids + count) {
    fail(ErrorKind::data, "{}: token {} has id {}, outside the vocabulary of {}", path_,
         first + static_cast<std::uint64_t>(bad - ids), static_cast<std::uint32_t>(*bad), vocabulary_.size);
  }
}

}  // namespace megatron
