#include "data/tokenizer_kinds/sentence_piece_library.h"

#include "base/core/error.h"

#ifdef MEGATRON_SENTENCEPIECE

#include <sentencepiece_processor.h>

namespace megatron {

struct SentencePieceLibrary::Processor {
  sentencepiece::SentencePieceProcessor library;
  std::vector<int> ids;
};

bool SentencePieceLibrary::is_there() {
  return true;
}

SentencePieceLibrary::SentencePieceLibrary(const std::string& model, const std::string& path)
    : processor_(std::make_unique<Processor>()) {
  std::string refusal;
  try {
    const sentencepiece::util::Status status = processor_->library.LoadFromSerializedProto(model);
    if (!status.ok()) refusal = status.error_message();
  } catch (const std::exception& error) {  // from the double arrays inside it
    refusal = error.what();
  }
  verify(refusal.empty(), ErrorKind::data, "{}: libsentencepiece does not take this model: {}", path, refusal);
}

std::size_t SentencePieceLibrary::pieces() const {
  return static_cast<std::size_t>(processor_->library.GetPieceSize());
}

void SentencePieceLibrary::encode(std::string_view text, std::vector<std::int32_t>& ids) {
  const sentencepiece::util::Status status = processor_->library.Encode(text, &processor_->ids);
  verify(status.ok(), ErrorKind::data, "libsentencepiece cannot encode a text of {} bytes: {}", text.size(),
         status.error_message());
  ids.insert(ids.end(), processor_->ids.begin(), processor_->ids.end());
}

std::vector<std::size_t> SentencePieceLibrary::last_bytes(std::string_view text) {
  const sentencepiece::ImmutableSentencePieceText found = processor_->library.EncodeAsImmutableProto(text);
  std::vector<std::size_t> last;
  for (const auto& piece : found.pieces()) {
    last.push_back(piece.end() > piece.begin() ? piece.end() - 1 : piece.begin());
  }
  return last;
}

#else

namespace megatron {

struct SentencePieceLibrary::Processor {};

bool SentencePieceLibrary::is_there() {
  return false;
}

SentencePieceLibrary::SentencePieceLibrary(const std::string& /*model*/, const std::string& path) {
  fail(ErrorKind::configuration,
       "{}: this program was built without libsentencepiece, which --tokenizer sentencepiece needs; install it "
       "(Debian: libsentencepiece-dev) and build again, or give the model's tokenizer.json with --tokenizer unigram",
       path);
}

std::size_t SentencePieceLibrary::pieces() const {
  return 0;
}

void SentencePieceLibrary::encode(std::string_view /*text*/, std::vector<std::int32_t>& /*ids*/) {
  fail(ErrorKind::internal, "encoding without libsentencepiece");
}

std::vector<std::size_t> SentencePieceLibrary::last_bytes(std::string_view /*text*/) {
  return {};
}

#endif

SentencePieceLibrary::~SentencePieceLibrary() = default;

}  // namespace megatron
