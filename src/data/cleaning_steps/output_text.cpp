#include "data/cleaning_steps/output_text.h"

#include <fcntl.h>
#include <unistd.h>
#include <xxhash.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/core/error.h"
#include "base/system/durable_file.h"
#include "base/system/errno_text.h"

namespace megatron {

namespace {

// Compressors are given the text in pieces of this size: what they write may depend on it.
constexpr std::size_t kPackedPiece = std::size_t{1} << 20;

std::string in_words(const XXH128_hash_t& hash) {
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

}  // namespace

Packing packing_of(const std::string& word) {
  if (word == "none") return Packing::none;
  if (word == "gzip") return Packing::gzip;
  verify(word == "zstd", ErrorKind::configuration, "compress '{}': choose one of: none gzip zstd", word);
  return Packing::zstd;
}

std::string_view extension_of(Packing packing) {
  if (packing == Packing::none) return "";
  return packing == Packing::gzip ? ".gz" : ".zst";
}

std::string hash_in_words(std::string_view text) {
  return in_words(XXH3_128bits(text.data(), text.size()));
}

struct OutputText::State {
  std::string path;
  Packing packing;
  int file = -1;
  std::string waiting, packed;
  std::uint64_t text_bytes = 0, file_bytes = 0;
  EarlyFlush flush;
  std::unique_ptr<XXH3_state_t, XXH_errorcode (*)(XXH3_state_t*)> hash{XXH3_createState(), XXH3_freeState};
  z_stream gzip{};
  std::unique_ptr<ZSTD_CCtx, std::size_t (*)(ZSTD_CCtx*)> zstd{nullptr, ZSTD_freeCCtx};

  State(const std::string& name, Packing kind, int descriptor)
      : path(name), packing(kind), file(descriptor), flush(name) {
    XXH3_128bits_reset(hash.get());
    constexpr int kGzipWindow = 15 + 16, kMemory = 8;
    if (packing == Packing::gzip) {
      const int result =
          ::deflateInit2(&gzip, Z_DEFAULT_COMPRESSION, Z_DEFLATED, kGzipWindow, kMemory, Z_DEFAULT_STRATEGY);
      verify(result == Z_OK, ErrorKind::filesystem, "{}: no memory to compress it", path);
    }
    if (packing == Packing::zstd) {
      zstd.reset(::ZSTD_createCCtx());
      verify(zstd != nullptr, ErrorKind::filesystem, "{}: no memory to compress it", path);
      ::ZSTD_CCtx_setParameter(zstd.get(), ZSTD_c_checksumFlag, 1);
    }
    packed.resize(packing == Packing::none ? 0 : kPackedPiece);
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() {
    if (packing == Packing::gzip) ::deflateEnd(&gzip);
    if (file >= 0) ::close(file);
  }
};

OutputText::OutputText(const std::string& path, Packing packing) {
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (file < 0) fail_with_errno("create", path);
  state_ = std::make_unique<State>(path, packing, file);
}

OutputText::~OutputText() = default;

void OutputText::add(std::string_view text) {
  state_->text_bytes += text.size();
  if (state_->packing == Packing::none) return write(text);
  while (!text.empty()) {
    const std::size_t part = std::min(text.size(), kPackedPiece - state_->waiting.size());
    state_->waiting.append(text.substr(0, part));
    text.remove_prefix(part);
    if (state_->waiting.size() == kPackedPiece) pack(false);
  }
}

/// Compresses what waits; `last`: and ends the file.
void OutputText::pack(bool last) {
  State& state = *state_;
  if (state.packing == Packing::zstd) {
    ZSTD_inBuffer in{state.waiting.data(), state.waiting.size(), 0};
    std::size_t left = 1;
    while (left > 0) {
      ZSTD_outBuffer out{state.packed.data(), state.packed.size(), 0};
      left = ::ZSTD_compressStream2(state.zstd.get(), &out, &in, last ? ZSTD_e_end : ZSTD_e_continue);
      internal_check(::ZSTD_isError(left) == 0, "zstd does not compress", ::ZSTD_getErrorName(left));
      write({state.packed.data(), out.pos});
      if (!last && in.pos == in.size) left = 0;
    }
  } else {
    state.gzip.next_in = reinterpret_cast<unsigned char*>(state.waiting.data());
    state.gzip.avail_in = static_cast<unsigned>(state.waiting.size());
    do {
      state.gzip.next_out = reinterpret_cast<unsigned char*>(state.packed.data());
      state.gzip.avail_out = static_cast<unsigned>(state.packed.size());
      const int result = ::deflate(&state.gzip, last ? Z_FINISH : Z_NO_FLUSH);
      internal_check(result != Z_STREAM_ERROR, "zlib does not compress", result);
      write({state.packed.data(), state.packed.size() - state.gzip.avail_out});
    } while (state.gzip.avail_out == 0);
  }
  state.waiting.clear();
}

void OutputText::write(std::string_view bytes) {
  XXH3_128bits_update(state_->hash.get(), bytes.data(), bytes.size());
  state_->file_bytes += bytes.size();
  state_->flush.written(bytes.size());
  while (!bytes.empty()) {
    const ssize_t written = ::write(state_->file, bytes.data(), bytes.size());
    if (written >= 0) bytes.remove_prefix(static_cast<std::size_t>(written));
    if (written < 0 && errno != EINTR) fail_with_errno("write", state_->path);
  }
}

void OutputText::finish() {
  if (state_->packing != Packing::none) pack(true);
  // Network file systems may report a failed write only here.
  if (::close(std::exchange(state_->file, -1)) != 0 && errno != EINTR) fail_with_errno("write", state_->path);
  sync_path(state_->path);
}

std::uint64_t OutputText::text_bytes() const {
  return state_->text_bytes;
}

std::uint64_t OutputText::file_bytes() const {
  return state_->file_bytes;
}

std::string OutputText::hash() const {
  return in_words(XXH3_128bits_digest(state_->hash.get()));
}

}  // namespace megatron
