#include "data/indexed/indexed_writer.h"

#include <cerrno>
#include <utility>

#include "base/core/error.h"
#include "base/system/errno_text.h"
#include "data/shards/shard_files.h"

namespace megatron {

using namespace indexed;

IndexedWriter::IndexedWriter(const std::string& prefix, IndexedType type)
    : bin_path_(prefix + ".bin"),
      index_path_(prefix + ".idx"),
      bin_temporary_(temporary_name(bin_path_)),
      index_temporary_(temporary_name(index_path_)),
      type_(type) {
  check_prefix(prefix, "TARGET");
  lock_.emplace(prefix);
  publication_.add(bin_temporary_, bin_path_);
  publication_.add(index_temporary_, index_path_);  // last: an index of other tokens would be worse than none
  bin_ = std::fopen(bin_temporary_.c_str(), "wb");
  if (bin_ == nullptr) fail(ErrorKind::filesystem, "{}: cannot write it: {}", bin_temporary_, errno_text(errno));
}

IndexedWriter::~IndexedWriter() {
  if (bin_ != nullptr) std::fclose(bin_);
  if (index_ != nullptr) std::fclose(index_);
}

/// Writes the buffer if it has grown to this size.
void IndexedWriter::flush_if(std::FILE* file, const std::string& path, std::size_t bytes) {
  if (buffer_.size() < bytes) return;
  const std::size_t written = std::fwrite(buffer_.data(), 1, buffer_.size(), file);
  const int reason = errno;
  if (written != buffer_.size()) fail(ErrorKind::filesystem, "{}: cannot write it: {}", path, errno_text(reason));
  buffer_.clear();
}

void IndexedWriter::add_document(std::span<const std::int32_t> tokens) {
  const std::uint64_t length = tokens.size();
  add_document(tokens, std::span(&length, 1));
}

void IndexedWriter::add_document(std::span<const std::int32_t> tokens, std::span<const std::uint64_t> sequences) {
  std::uint64_t all = 0;
  for (const std::uint64_t length : sequences) {
    verify(length <= static_cast<std::uint64_t>(kLongest), ErrorKind::data,
           "document {} has {} tokens; the format holds {} at most", documents(), length, kLongest);
    lengths_.push_back(static_cast<std::uint32_t>(length));
    all += length;
  }
  internal_check(all == tokens.size(), "sequences that are not all of their document", all, tokens.size());
  with_type(type_, [&](auto token) {
    using Token = decltype(token);
    for (const std::int32_t id : tokens) {
      token = static_cast<Token>(id);
      if (static_cast<std::int64_t>(token) != id) {
        fail(ErrorKind::data, "document {}: token id {} does not fit into {}; choose another --dtype", documents(), id,
             name_of(type_));
      }
      buffer_.append(reinterpret_cast<const char*>(&token), sizeof(Token));
      if (buffer_.size() >= kBufferBytes) flush_if(bin_, bin_temporary_, kBufferBytes);
    }
  });
  tokens_ += tokens.size();
  ends_.push_back(lengths_.size());
}

void IndexedWriter::write_index() {
  index_ = std::fopen(index_temporary_.c_str(), "wb");
  if (index_ == nullptr) fail(ErrorKind::filesystem, "{}: cannot write it: {}", index_temporary_, errno_text(errno));
  const auto put = [&](auto number) {
    buffer_.append(reinterpret_cast<const char*>(&number), sizeof(number));
    flush_if(index_, index_temporary_, kBufferBytes);
  };
  buffer_.assign(kMmapMagic);
  put(kVersion);
  put(static_cast<std::uint8_t>(type_));
  put(sequences());
  put(documents() + 1);
  for (const std::uint32_t length : lengths_) put(length);
  std::uint64_t offset = 0;
  for (const std::uint32_t length : lengths_) {
    put(offset);
    offset += length * bytes_of(type_);
  }
  put(std::uint64_t{0});
  for (const std::uint64_t end : ends_) put(end);
  flush_if(index_, index_temporary_, 0);
}

void IndexedWriter::finish(bool overwrite) {
  const auto close = [](std::FILE*& file, const std::string& path) {
    const bool closed = std::fclose(std::exchange(file, nullptr)) == 0;
    const int reason = errno;
    if (!closed) fail(ErrorKind::filesystem, "{}: cannot write it: {}", path, errno_text(reason));
    sync_path(path);
  };
  flush_if(bin_, bin_temporary_, 0);
  close(bin_, bin_temporary_);
  write_index();
  close(index_, index_temporary_);
  for (const auto& [temporary, name] : {std::pair(bin_temporary_, bin_path_), {index_temporary_, index_path_}}) {
    verify(overwrite || replaces_nothing_else(temporary, name), ErrorKind::configuration,
           "{} is there already and has other contents; add --overwrite to replace it, or choose another name", name);
  }
  publication_.publish();
  publication_.commit();
  remove_temporaries({bin_path_, index_path_});
}

}  // namespace megatron
