// SentencePieceLibrary: a model in libsentencepiece, which alone sees that library. Programs that were built without it
// say so when a model is asked for. Not thread-safe: one for each Encoder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace megatron {

class SentencePieceLibrary {
 public:
  /// `model`: the bytes of a checked file (sentence_piece_model.h), which came from `path`. ErrorKind::configuration if
  /// this program was built without the library, ErrorKind::data if the library refuses the model.
  SentencePieceLibrary(const std::string& model, const std::string& path);
  SentencePieceLibrary(const SentencePieceLibrary&) = delete;
  SentencePieceLibrary& operator=(const SentencePieceLibrary&) = delete;
  ~SentencePieceLibrary();

  /// Whether this program was built with it.
  static bool is_there();

  std::size_t pieces() const;

  /// Appends the ids of `text`, which may be any bytes.
  void encode(std::string_view text, std::vector<std::int32_t>& ids);
  /// The last byte of `text` that each of its tokens stands for; where that is none, the byte after it.
  std::vector<std::size_t> last_bytes(std::string_view text);

 private:
  struct Processor;
  std::unique_ptr<Processor> processor_;
};

}  // namespace megatron
