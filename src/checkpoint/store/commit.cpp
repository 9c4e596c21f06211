#include "checkpoint/store/commit.h"

#include <sys/stat.h>

#include "base/system/durable_file.h"

namespace megatron {

PendingFolder::PendingFolder(std::string parent, const std::string& temporary, const std::string& place,
                             const std::string& aside, FolderRemoval removal)
    : parent_(std::move(parent)),
      temporary_(parent_ + "/" + temporary),
      place_(parent_ + "/" + place),
      aside_(aside.empty() ? "" : parent_ + "/" + aside),
      remove_(removal) {}

void PendingFolder::create() const {
  if (::mkdir(temporary_.c_str(), 0777) != 0) fail_with_errno("create", temporary_);
}

std::int64_t PendingFolder::write_manifest(const Manifest& manifest) const {
  const std::string text = manifest_text(manifest);
  parse_manifest(text);  // a manifest that cannot be loaded must not be committed
  create_file_durably(temporary_ + "/" + kManifestName, text);
  sync_path(temporary_);
  return static_cast<std::int64_t>(text.size());
}

void PendingFolder::commit() const {
  const std::string former = put_folder_in_place(temporary_, place_, aside_, parent_);
  if (!former.empty()) remove_(former);
}

void PendingFolder::discard() const noexcept {
  try {
    remove_(temporary_);
  } catch (...) {  // no memory for a path: the next save there cleans up
  }
}

ManifestBuilder::ManifestBuilder(const TrainingState& state, int ranks) {
  manifest_.state = state;
  manifest_.ranks = ranks;
}

void ManifestBuilder::add_file(int rank, const FileDigest& digest) {
  manifest_.files.push_back({rank, digest.bytes, digest.xxh3_128});
}

void ManifestBuilder::add_elements(const TensorSummary& part) {
  const auto [place, first] = tensors_.try_emplace(part.name, part);
  if (first) return;
  TensorSummary& tensor = place->second;
  if (!(tensor.shape == part.shape)) fail(ErrorKind::internal, "ranks disagree on the shape of tensor '{}'", part.name);
  if (tensor.states != part.states) fail(ErrorKind::internal, "ranks disagree on the states of tensor '{}'", part.name);
  tensor.elements += part.elements;
}

Manifest ManifestBuilder::finish() {
  internal_check(!manifest_.files.empty(), "a checkpoint of nothing");
  for (auto& [name, tensor] : tensors_) {
    if (tensor.elements != tensor.shape.elements()) {
      fail(ErrorKind::internal, "tensor '{}' {}: {} elements have an owner instead of {}", name,
           tensor.shape.to_string(), tensor.elements, tensor.shape.elements());
    }
    manifest_.tensors.push_back(std::move(tensor));
  }
  return std::move(manifest_);
}

}  // namespace megatron
