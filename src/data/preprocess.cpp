#include "data/preprocess.h"

#include <algorithm>
#include <filesystem>
#include <new>
#include <utility>

#include "base/utf8.h"
#include "data/json_text.h"
#include "data/token_shard.h"
#include "hdf5/durable_file.h"

namespace megatron {

namespace {

constexpr std::uint64_t kProgressBytes = 4 << 20;
constexpr const char* kTemporary = ".tmp";
constexpr std::uint64_t kSmallestShard = 4096, kMostBlocks = 1'000'000;

TextFormat format_of(const std::string& path, const std::string& format) {
  if (format == "jsonl") return TextFormat::json_lines;
  if (format == "text") return TextFormat::plain;
  verify(format.empty(), ErrorKind::configuration, "there is no format \"{}\"; choose jsonl or text", format);
  const std::string extension = std::filesystem::path(path).extension().string();
  if (extension == ".jsonl" || extension == ".ndjson" || extension == ".json") return TextFormat::json_lines;
  verify(extension == ".txt" || extension == ".text" || extension == ".md", ErrorKind::configuration,
         "{}: the extension does not tell the format; give --format jsonl or --format text", path);
  return TextFormat::plain;
}

void check_utf8(std::string_view text) {
  const std::size_t valid = first_invalid_utf8(text);
  if (valid < text.size()) {
    throw BadDocument{fmt::format("invalid UTF-8: byte 0x{:02x}", static_cast<unsigned char>(text[valid])), valid};
  }
}

std::uint64_t shard_count(const std::vector<BlockSummary>& all) {
  return static_cast<std::uint64_t>(
      std::count_if(all.begin(), all.end(), [](const BlockSummary& block) { return block.documents > 0; }));
}

std::uint64_t hash_of_set(const std::vector<BlockSummary>& all) {
  std::vector<std::uint64_t> numbers;
  for (const BlockSummary& block : all) {
    if (block.documents > 0) numbers.insert(numbers.end(), {block.documents, block.tokens, block.hash});
  }
  return XXH3_64bits(numbers.data(), numbers.size() * sizeof(std::uint64_t));
}

}  // namespace

Preprocessor::Preprocessor(PreprocessJob job)
    : job_(std::move(job)), tokenizer_(make_tokenizer(job_.tokenizer)), encoder_(tokenizer_->make_encoder()) {
  verify(!job_.inputs.empty(), ErrorKind::configuration, "give at least one --input");
  verify(!job_.output.empty() && job_.output.back() != '/', ErrorKind::configuration,
         "--output \"{}\": give a prefix of file names, as in data/stories", job_.output);
  verify(job_.shard_bytes >= kSmallestShard, ErrorKind::configuration, "--shard-bytes {}: at least {}",
         job_.shard_bytes, kSmallestShard);
  std::vector<std::uint64_t> bytes;
  for (const std::string& path : job_.inputs) {
    formats_.push_back(format_of(path, job_.format));
    files_.emplace_back(path);
    bytes.push_back(files_.back().bytes());
  }
  verify(input_bytes() / job_.shard_bytes < kMostBlocks, ErrorKind::configuration,
         "--shard-bytes {}: {} bytes of input would make more than {} shards; choose larger ones", job_.shard_bytes,
         input_bytes(), kMostBlocks);
  blocks_ = cut_into_blocks(bytes, job_.shard_bytes);
}

std::uint64_t Preprocessor::input_bytes() const {
  std::uint64_t sum = 0;
  for (const InputFile& file : files_) sum += file.bytes();
  return sum;
}

std::uint64_t Preprocessor::block_bytes(std::uint64_t block) const {
  std::uint64_t sum = 0;
  for (const Segment& segment : blocks_.at(block)) sum += segment.end - segment.begin;
  return sum;
}

std::string Preprocessor::temporary_path(std::uint64_t block) const {
  return fmt::format("{}-part-{:05}.h5.tmp", job_.output, block);
}

void Preprocessor::write_vocabulary() {
  for (const TokenizerFile& file : tokenizer_->files()) {
    const std::string path = vocabulary_path(job_.output, file.name);
    vocabulary_.push_back(path);
    write_durably(path + kTemporary, file.contents);
  }
}

/// Turns the documents of one block into one shard.
class Preprocessor::BlockReader {
 public:
  BlockReader(const Preprocessor& owner, std::uint64_t block, const Progress& progress)
      : owner_(owner), progress_(progress), writer_(owner.temporary_path(block), vocabulary_of(*owner.tokenizer_)) {
    summary_.block = block;
  }

  BlockSummary run() {
    for (const Segment& segment : owner_.blocks_[summary_.block]) {
      const InputFile& file = owner_.files_[segment.file];
      const TextFormat format = owner_.formats_[segment.file];
      visit_documents(file, format, segment, [&](std::string_view text, std::uint64_t offset, bool too_long) {
        try {
          if (too_long) throw BadDocument{fmt::format("longer than {} bytes", kLongestDocument)};
          add(text, format);
        } catch (const BadDocument& bad) {
          reject(file, text, offset, bad);
        }
        report(bytes_done_ + (std::min(offset + text.size(), segment.end) - segment.begin));
      });
      bytes_done_ += segment.end - segment.begin;
      report(bytes_done_);
    }
    summary_.documents = writer_.documents();
    summary_.tokens = writer_.tokens();
    if (summary_.documents > 0) summary_.hash = writer_.finish();
    return summary_;
  }

 private:
  void add(std::string_view text, TextFormat format) {
    try {
      encode(text, format);
    } catch (const std::bad_alloc&) {
      ids_ = {};
      unescaped_ = {};
      throw BadDocument{"too little memory to encode this document"};
    }
    if (ids_.empty()) {
      ++summary_.empty;
    } else {
      writer_.add_document(ids_);  // not tried: half a document in the shard could not be left out
    }
  }

  /// The document's ids in ids_; none of an empty text.
  void encode(std::string_view text, TextFormat format) {
    check_utf8(text);
    if (format == TextFormat::json_lines) text = text_of_json(text, owner_.job_.json_key, unescaped_);
    ids_.clear();
    try {
      owner_.encoder_->encode(text, ids_);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::data) throw;
      throw BadDocument{error.what()};
    }
    if (!ids_.empty() && owner_.job_.append_eod) ids_.push_back(owner_.tokenizer_->eod_id());
  }

  void reject(const InputFile& file, std::string_view text, std::uint64_t offset, const BadDocument& bad) {
    ++summary_.bad;
    if (owner_.job_.skip_bad) return;
    const std::string_view before = text.substr(0, bad.at);
    const auto lines = static_cast<std::uint64_t>(std::count(before.begin(), before.end(), '\n'));
    fail(ErrorKind::data, "{}:{}: {} (--skip-bad leaves such documents out)", file.path(), file.line_of(offset) + lines,
         bad.reason);
  }

  void report(std::uint64_t bytes) {
    if (!progress_ || bytes < reported_ + kProgressBytes) return;
    reported_ = bytes;
    progress_(bytes);
  }

  const Preprocessor& owner_;
  const Progress& progress_;
  BlockSummary summary_;
  TokenShardWriter writer_;
  std::string unescaped_;
  std::vector<std::int32_t> ids_;
  std::uint64_t bytes_done_ = 0, reported_ = 0;
};

BlockSummary Preprocessor::process(std::uint64_t block, const Progress& progress) {
  internal_check(block < blocks(), "block outside the input");
  const std::string folder = folder_of(job_.output);
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  verify(!error, ErrorKind::filesystem, "{}: cannot make this folder: {}", folder, error.message());
  if (block == 0) write_vocabulary();
  const BlockSummary summary = BlockReader(*this, block, progress).run();
  if (summary.documents > 0) unpublished_.push_back(block);
  return summary;
}

void Preprocessor::publish(const std::vector<BlockSummary>& all) {
  internal_check(all.size() == blocks(), "summaries of every block are needed to publish");
  const std::uint64_t count = shard_count(all), hash = hash_of_set(all);
  verify(count > 0, ErrorKind::data, "{}{}: no text was found, so there is nothing to write", job_.inputs.front(),
         job_.inputs.size() > 1 ? " and the other inputs" : "");
  std::sort(unpublished_.begin(), unpublished_.end());
  std::uint64_t index = 0;
  std::size_t mine = 0;
  for (const BlockSummary& block : all) {
    if (block.documents == 0) continue;
    if (mine < unpublished_.size() && unpublished_[mine] == block.block) {
      publish_shard(temporary_path(block.block), job_.output, index, count, hash);
      published_.push_back(shard_path(job_.output, index));
      ++mine;
    }
    ++index;
  }
  for (const std::string& path : vocabulary_) {
    rename_durably(path + kTemporary, path);
    published_.push_back(path);
  }
  vocabulary_.clear();
  internal_check(mine == unpublished_.size(), "a processed block is missing among the summaries");
  unpublished_.clear();
}

void Preprocessor::finish(const std::vector<BlockSummary>& all, bool remove_leftovers) {
  published_.clear();
  if (!remove_leftovers) return;
  namespace fs = std::filesystem;
  const std::string stem = fs::path(job_.output).filename().string() + "-";
  for (const fs::directory_entry& entry : fs::directory_iterator(folder_of(job_.output))) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(stem)) continue;
    const std::string_view rest = std::string_view(name).substr(stem.size());
    const std::size_t digits = std::min(rest.find_first_not_of("0123456789"), rest.size());
    const bool shard = digits >= 5 && digits <= 9 && rest.substr(digits) == ".h5" &&
                       std::stoull(std::string(rest.substr(0, digits))) >= shard_count(all);
    if (shard || (rest.starts_with("part-") && rest.ends_with(".h5.tmp"))) remove_quietly(entry.path().string());
  }
  for (const char* file : {kVocabFile, kMergeFile}) {
    const std::string path = vocabulary_path(job_.output, file);
    remove_quietly(path + kTemporary);
    if (!tokenizer_has_files(tokenizer_->name())) remove_quietly(path);
  }
  sync_path(folder_of(job_.output));
}

void Preprocessor::discard() noexcept {
  for (const std::uint64_t block : unpublished_) remove_quietly(temporary_path(block));
  for (const std::string& path : vocabulary_) remove_quietly(path + kTemporary);
  for (const std::string& path : published_) remove_quietly(path);
  unpublished_.clear();
  vocabulary_.clear();
  published_.clear();
}

}  // namespace megatron
