// OutputText: a text written to a new file, plain or compressed, with the hash of the file. The bytes of the file are a
// function of the text alone, whatever parts it comes in. Errors are ErrorKind::filesystem and name the file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace megatron {

enum class Packing { none, gzip, zstd };

/// "none", "gzip", "zstd"; ErrorKind::configuration for another word.
Packing packing_of(const std::string& word);
/// "", ".gz", ".zst".
std::string_view extension_of(Packing packing);

class OutputText {
 public:
  /// Creates the file, which must not exist.
  OutputText(const std::string& path, Packing packing);
  OutputText(const OutputText&) = delete;
  OutputText& operator=(const OutputText&) = delete;
  ~OutputText();

  void add(std::string_view text);
  /// Writes what is left, and has it on the disk.
  void finish();
  std::uint64_t text_bytes() const;  ///< so far
  std::uint64_t file_bytes() const;  ///< after finish()
  std::string hash() const;          ///< XXH3-128 of the file, hexadecimal; after finish()

 private:
  struct State;
  void pack(bool last);
  void write(std::string_view bytes);
  std::unique_ptr<State> state_;
};

/// Hexadecimal XXH3-128 of a text.
std::string hash_in_words(std::string_view text);

}  // namespace megatron
