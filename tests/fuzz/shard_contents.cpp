// The shard reader on well-formed HDF5 files with any attributes and datasets in the place of those of a shard.
#include "data/shards/token_shard.h"
#include "fuzz/fuzz.h"

using namespace megatron;

namespace {

void write_attribute(Hdf5File& file, const char* name, std::uint64_t good, fuzz::Choices& choices) {
  switch (choices.below(8)) {
    case 0: return;
    case 1: return file.write_attribute(name, choices.number(8));
    case 3: return file.write_attribute(name, std::string_view("text"));
    default: return file.write_attribute(name, good);
  }
}

void write_dataset(Hdf5File& file, const char* name, Hdf5Type good, fuzz::Choices& choices) {
  const std::uint64_t kind = choices.below(16);
  if (kind == 0) return;
  const Hdf5Type type = kind == 1 ? static_cast<Hdf5Type>(choices.below(8)) : good;
  std::string bytes(choices.take(choices.number(1) * size_of(type)));
  if (kind < 8 && type == Hdf5Type::u64) {  // small rising numbers, as offsets are
    std::uint64_t last = 0;
    for (std::size_t i = 0; i + 8 <= bytes.size(); i += 8) {
      last += static_cast<unsigned char>(bytes[i]) % 5;
      const std::uint64_t value = i == 0 ? 0 : last;
      for (std::size_t k = 0; k < 8; ++k) bytes[i + k] = static_cast<char>(value >> 8 * k);
    }
  }
  const std::uint64_t elements = bytes.size() / size_of(type);
  const std::size_t chunk = std::size_t{8} << choices.below(10);
  if (kind % 2 != 0) {
    Hdf5Dataset dataset = file.create_dataset(name, type, elements);
    if (elements > 0) dataset.write(0, bytes.data(), elements);
    return;
  }
  Hdf5Dataset dataset = file.create_growable_dataset(name, type, chunk);
  if (elements > 0) dataset.append(bytes.data(), elements);
  if (kind != 6) file.finish(dataset);
}

void write_file(const std::string& path, fuzz::Choices& choices) {
  Hdf5File file = Hdf5File::create(path);
  const std::uint64_t vocabulary = choices.below(4) == 0 ? choices.number(8) : 1 + choices.number(2);
  write_attribute(file, "format_version", kShardFormatVersion, choices);
  if (choices.below(8) != 0) file.write_attribute("tokenizer", choices.below(2) == 0 ? "" : "byte");
  write_attribute(file, "tokenizer_hash", 1, choices);
  write_attribute(file, "vocab_size", vocabulary, choices);
  write_attribute(file, "eod_id", vocabulary - 1, choices);
  write_attribute(file, "shard_index", 0, choices);
  write_attribute(file, "shard_count", 1, choices);
  write_attribute(file, "set_hash", 3, choices);
  write_dataset(file, "documents", Hdf5Type::u64, choices);
  if (choices.below(16) == 0) write_dataset(file, "more", Hdf5Type::f32, choices);
  write_dataset(file, "tokens", vocabulary <= 65536 ? Hdf5Type::u16 : Hdf5Type::u32, choices);
  if (choices.below(3) == 1) write_dataset(file, "sentences", Hdf5Type::u64, choices);
  if (choices.below(3) == 1) write_dataset(file, "continues", Hdf5Type::u8, choices);
  if (choices.below(3) == 1) write_attribute(file, "mask", 3, choices);
  file.close();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Choices choices({reinterpret_cast<const char*>(data), size});
  const fuzz::ScratchFile file;
  write_file(file.path(), choices);
  fuzz::allow({ErrorKind::data}, [&] {
    TokenShard shard(file.path());
    const std::vector<std::uint64_t> documents = shard.read_documents();
    if (shard.has_sentences()) {
      const std::vector<std::uint64_t> sentences = shard.read_sentences();
      fuzz::require(std::includes(sentences.begin(), sentences.end(), documents.begin(), documents.end()) &&
                        sentences.back() == shard.tokens(),
                    "sentences that are not parts of documents");
    }
    const Vocabulary& known = shard.vocabulary();
    fuzz::require(known.special.mask < static_cast<std::int64_t>(known.size) &&
                      (known.continues.empty() || known.continues.size() == known.size),
                  "a special token outside the vocabulary");
    fuzz::require(documents.size() == shard.documents() + 1 && documents.back() == shard.tokens() &&
                      shard.tokens() > 0 && std::is_sorted(documents.begin(), documents.end()),
                  "documents that are not parts of the tokens");
    std::vector<std::int32_t> ids(shard.tokens() + 1, -7);
    shard.read(0, shard.tokens(), ids.data());
    fuzz::require(ids.back() == -7, "read more than there is");
    ids.pop_back();
    fuzz::require(std::all_of(ids.begin(), ids.end(),
                              [&](std::int32_t id) {
                                return id >= 0 && static_cast<std::uint64_t>(id) < shard.vocabulary().size;
                              }),
                  "an id outside the vocabulary");
  });
  return 0;
}
