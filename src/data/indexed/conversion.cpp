#include "data/indexed/conversion.h"

#include <algorithm>
#include <filesystem>

#include "data/indexed/indexed_reader.h"
#include "data/indexed/indexed_writer.h"

namespace megatron {

namespace {

std::string without_extension(const std::string& prefix) {
  const bool has = prefix.ends_with(".idx") || prefix.ends_with(".bin");
  return has ? prefix.substr(0, prefix.size() - 4) : prefix;
}

/// The first token of each document, and the number of tokens.
std::vector<std::uint64_t> document_starts(const IndexedReader& reader, const ImportJob& job, const std::string& path) {
  const bool grouped = job.documents == ImportedDocuments::joined || job.documents == ImportedDocuments::sentences;
  verify(!grouped || reader.document_problem().empty(), ErrorKind::data,
         "{}: its document index is damaged ({}); --documents sequences does without it", path,
         reader.document_problem());
  verify(job.documents != ImportedDocuments::exact || (reader.documents().empty() && reader.document_problem().empty()),
         ErrorKind::data,
         "{}: its documents are not one sequence each ({}): --documents sentences keeps the sequences of each as its "
         "sentences, --documents joined puts them together, --documents sequences makes each sequence a document, as "
         "Megatron's GPT data set "
         "does",
         path,
         reader.document_problem().empty()
             ? fmt::format("{} sequences in {} documents", reader.sequences(), reader.documents().size() - 1)
             : "its document index is damaged: " + reader.document_problem());
  std::vector<std::uint64_t> starts{0};
  std::uint64_t tokens = 0;
  if (grouped && !reader.documents().empty()) {
    std::uint64_t sequence = 0;
    for (const std::uint64_t end : std::span(reader.documents()).subspan(1)) {
      while (sequence < end) tokens += reader.lengths()[sequence++];
      starts.push_back(tokens);
    }
    return starts;
  }
  for (const std::uint32_t length : reader.lengths()) starts.push_back(tokens += length);
  return starts;
}

std::uint64_t tokens_per_shard(std::uint64_t shard_bytes, std::uint64_t bytes_of_token) {
  constexpr std::uint64_t kSmallest = 4096, kLargest = std::uint64_t{1} << 50;  // -1 is read as 2^64 - 1
  verify(shard_bytes >= kSmallest && shard_bytes <= kLargest, ErrorKind::configuration,
         "--shard-bytes: at least {}, at most {}", kSmallest, kLargest);
  return shard_bytes / bytes_of_token;
}

/// With some documents that end with the end-of-document token and some that do not, their ends could not be told.
void require_same_ends(const std::vector<std::unique_ptr<TokenDataset>>& datasets) {
  const auto end_of_document = static_cast<std::int32_t>(datasets.front()->vocabulary().eod_id);
  std::optional<DocumentEnd> with, without;
  for (const auto& dataset : datasets) {
    for (const DocumentEnd& document : dataset->document_ends()) {
      std::optional<DocumentEnd>& kind = document.token == end_of_document ? with : without;
      if (!kind) kind = document;
    }
  }
  if (!with || !without) return;
  fail(ErrorKind::data,
       "{}: its {} document ends with the end of document, {}; {}: its {} document does not, but with token {}: the "
       "ends of documents cannot be told apart in both; make the odd one again, so that all are made with "
       "--append-eod or all with --no-append-eod",
       with->shard, with->which, end_of_document, without->shard, without->which, without->token);
}

/// The first token of each sequence, and the number of tokens. Shards have no empty sentences.
std::vector<std::uint64_t> sentence_starts(const IndexedReader& reader, const ImportJob& job, const std::string& path) {
  std::vector<std::uint64_t> starts{0};
  for (const std::uint32_t length : reader.lengths()) {
    verify(length > 0 || job.skip_empty, ErrorKind::data,
           "{}: sequence {} has no tokens, and sentences have some; --skip-empty leaves such sentences out", path,
           starts.size() - 1);
    if (length > 0) starts.push_back(starts.back() + length);
  }
  return starts;
}

}  // namespace

ConversionSummary import_indexed(const ImportJob& job) {
  const std::string source = without_extension(job.source), bin = source + ".bin";
  IndexedReader reader(source);
  const std::vector<std::uint64_t> starts = document_starts(reader, job, source + ".idx");
  const Sentences kept = job.documents == ImportedDocuments::sentences ? Sentences::kept : Sentences::unknown;
  PartLengths sentences(kept == Sentences::kept ? sentence_starts(reader, job, source + ".idx")
                                                : std::vector<std::uint64_t>{});
  ShardSetWriter writer(job.target, job.vocabulary, tokens_per_shard(job.shard_bytes, bytes_of(reader.type())),
                        job.files, kept);
  ConversionSummary summary;
  summary.type = reader.type();
  std::uint64_t first = 0;
  visit_documents(
      starts, [&](std::uint64_t begin, std::uint64_t count, std::int32_t* ids) { reader.read(begin, count, ids); },
      [&](std::span<const std::int32_t> tokens) {
        if (tokens.empty()) {
          verify(job.skip_empty, ErrorKind::data,
                 "{}: document {} has no tokens, which shards do not hold; --skip-empty leaves such documents out",
                 source + ".idx", summary.empty + writer.documents());
          ++summary.empty;
          return;
        }
        const auto outside = std::find_if(tokens.begin(), tokens.end(), [&](std::int32_t id) {
          return static_cast<std::uint64_t>(id) >= job.vocabulary.size;
        });
        if (outside != tokens.end()) {
          fail(ErrorKind::data, "{}: token {} has id {}, outside the vocabulary ({}); name the one it was made with",
               bin, first + static_cast<std::uint64_t>(outside - tokens.begin()), *outside, describe(job.vocabulary));
        }
        first += tokens.size();
        writer.add_document(tokens,
                            kept == Sentences::kept ? sentences.next(tokens.size()) : std::span<const std::uint64_t>());
      });
  writer.finish(job.overwrite);
  summary.documents = writer.documents();
  summary.tokens = writer.tokens();
  summary.shards = writer.shards();
  return summary;
}

ConversionSummary export_indexed(const std::string& source, const std::string& target, std::optional<IndexedType> type,
                                 bool overwrite) {
  TokenDataset dataset(source);
  ConversionSummary summary{dataset.documents(), dataset.tokens(), dataset.shards(), 0,
                            type.value_or(indexed_type_for(dataset.vocabulary().size))};
  IndexedWriter writer(without_extension(target), summary.type);
  if (dataset.has_sentences()) {
    PartLengths sentences(dataset.read_sentences());
    visit_documents(dataset, [&](std::span<const std::int32_t> tokens) {
      writer.add_document(tokens, sentences.next(tokens.size()));
    });
  } else {
    visit_documents(dataset, [&](std::span<const std::int32_t> tokens) { writer.add_document(tokens); });
  }
  writer.finish(overwrite);
  return summary;
}

ConversionSummary merge_sets(const std::vector<std::string>& sources, const std::string& target,
                             std::uint64_t shard_bytes, bool overwrite) {
  std::vector<std::unique_ptr<TokenDataset>> datasets;
  namespace fs = std::filesystem;
  for (const std::string& source : sources) {
    datasets.push_back(std::make_unique<TokenDataset>(source));
    const Vocabulary &first = datasets[0]->vocabulary(), &here = datasets.back()->vocabulary();
    verify(here == first, ErrorKind::data, "{} was made with another tokenizer ({}) than {} ({})", source,
           describe(here), sources[0], describe(first));
    for (const std::string& prefix : datasets.back()->prefixes()) {
      std::error_code ignored;
      verify(!fs::equivalent(shard_path(prefix, 0), shard_path(target, 0), ignored), ErrorKind::configuration,
             "{} is a source and the target; give the target another name", target);
    }
  }
  require_same_ends(datasets);
  const bool sentences = datasets[0]->has_sentences();
  for (std::size_t i = 0; i < datasets.size(); ++i) {
    verify(datasets[i]->has_sentences() == sentences, ErrorKind::data,
           "{} knows where sentences begin, and {} does not: make both alike", sources[sentences ? 0 : i],
           sources[sentences ? i : 0]);
  }
  const std::uint64_t bytes = bytes_of(indexed_type_for(datasets[0]->vocabulary().size));
  ShardSetWriter writer(target, datasets[0]->vocabulary(), tokens_per_shard(shard_bytes, bytes),
                        vocabulary_files_of(datasets), sentences ? Sentences::kept : Sentences::unknown);
  for (const auto& dataset : datasets) {
    PartLengths lengths(sentences ? dataset->read_sentences() : std::vector<std::uint64_t>{});
    visit_documents(*dataset, [&](std::span<const std::int32_t> tokens) {
      writer.add_document(tokens, sentences ? lengths.next(tokens.size()) : std::span<const std::uint64_t>());
    });
  }
  writer.finish(overwrite);
  return {writer.documents(), writer.tokens(), writer.shards(), 0, {}};
}

}  // namespace megatron
