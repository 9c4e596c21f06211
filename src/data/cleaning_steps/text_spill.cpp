#include "data/cleaning_steps/text_spill.h"

#include <xxhash.h>

#include <algorithm>
#include <utility>

#include "data/cleaning_steps/scratch_folder.h"

namespace megatron {

namespace {

constexpr std::size_t kMostOpen = 64;

std::string places_name(const std::string& folder) {
  return folder + "/places";
}
std::string texts_name(const std::string& folder) {
  return folder + "/texts";
}

}  // namespace

TextSpill::TextSpill(std::vector<std::string> folders, std::size_t rank)
    : folders_(std::move(folders)), rank_(rank), of_rank_(folders_.size()) {}

void TextSpill::add_round(std::string_view texts, std::span<const std::size_t> ends) {
  std::vector<Place> places;
  std::size_t begin = 0;
  for (const std::size_t end : ends) {
    places.push_back({written_ + begin, end - begin, XXH3_64bits(texts.data() + begin, end - begin)});
    begin = end;
  }
  append_to_file(texts_name(folders_[rank_]), texts);
  append_to_file(places_name(folders_[rank_]),
                 {reinterpret_cast<const char*>(places.data()), places.size() * sizeof(Place)});
  written_ += texts.size();
}

void TextSpill::count_round(std::span<const double> documents) {
  for (std::size_t rank = 0; rank < documents.size(); ++rank) {
    shares_.push_back({documents_, of_rank_[rank]});
    documents_ += static_cast<std::uint64_t>(documents[rank]);
    of_rank_[rank] += static_cast<std::uint64_t>(documents[rank]);
  }
}

const TextSpill::Files& TextSpill::files_of(std::size_t rank) {
  if (open_.size() >= kMostOpen && !open_.contains(rank)) open_.clear();
  std::unique_ptr<Files>& files = open_[rank];
  if (files == nullptr) {
    const std::string& folder = folders_[rank];
    files.reset(new Files{{places_name(folder), ErrorKind::filesystem}, {texts_name(folder), ErrorKind::filesystem}});
  }
  return *files;
}

std::string TextSpill::fetch(std::uint64_t document) {
  internal_check(document < documents_, "a document that was added", document, documents_);
  const auto after = std::upper_bound(shares_.begin(), shares_.end(), document,
                                      [](std::uint64_t number, const Share& share) { return number < share.first; });
  const auto share = static_cast<std::size_t>(after - shares_.begin()) - 1;
  const Files& files = files_of(share % folders_.size());
  Place place;
  const std::uint64_t number = shares_[share].first_of_rank + document - shares_[share].first;
  files.places.read(number * sizeof place, &place, sizeof place);
  verify(place.bytes <= files.texts.bytes(), ErrorKind::filesystem,
         "{}: is not what was written there; the disk may be damaged", files.places.path());
  std::string text(place.bytes, '\0');
  files.texts.read(place.begin, text.data(), text.size());
  verify(XXH3_64bits(text.data(), text.size()) == place.hash, ErrorKind::filesystem,
         "{}: is not what was written there; the disk may be damaged", files.texts.path());
  return text;
}

}  // namespace megatron
