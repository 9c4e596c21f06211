#include "checkpoint/hugging_face/hugging_face_reader.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <set>

#include "checkpoint/hugging_face/hugging_face_families.h"

namespace megatron {

using nlohmann::json;

namespace {

using Record = HuggingFaceTensor::Record;

/// to[j, i] = from[i, j]. By squares as wide as a cache line, which go through a copy whose columns are near each
/// other: down the columns of a large matrix every step would be to another line, and often to the same few places of a
/// cache.
void transpose(const float* from, std::int64_t rows, std::int64_t columns, float* to) {
  constexpr std::int64_t kSquare = 16;
  for (std::int64_t j0 = 0; j0 < columns; j0 += kSquare) {
    for (std::int64_t i0 = 0; i0 < rows; i0 += kSquare) {
      if (i0 + kSquare > rows || j0 + kSquare > columns) {  // at an edge
        for (std::int64_t j = j0; j < std::min(j0 + kSquare, columns); ++j) {
          for (std::int64_t i = i0; i < std::min(i0 + kSquare, rows); ++i) to[j * rows + i] = from[i * columns + j];
        }
        continue;
      }
      std::array<std::array<float, kSquare>, kSquare> square;
      for (std::int64_t i = 0; i < kSquare; ++i) std::copy_n(from + (i0 + i) * columns + j0, kSquare, square[i].data());
      for (std::int64_t j = 0; j < kSquare; ++j) {
        for (std::int64_t i = 0; i < kSquare; ++i) to[(j0 + j) * rows + i0 + i] = square[i][j];
      }
    }
  }
}

/// visit(row, at, rows): rows of a record that lie together, from the tensor's row `at` on.
template <class Visit>
void for_each_block(const Record& record, const Visit& visit) {
  const std::int64_t all = record.shape[0], together = record.together == 0 ? all : record.together;
  for (std::int64_t row = 0; row < all; row += together) {
    visit(row, record.first + row / together * record.spacing, std::min(together, all - row));
  }
}

/// One of our records out of their tensor: its exchanged rows, [record.shape].
void extract(const SafetensorsModel& source, const HuggingFaceTensor& tensor, const std::string& name,
             const Record& record, std::span<float> numbers) {
  const std::int64_t columns = record.shape.rank() == 1 ? 1 : record.shape[1];
  if (!tensor.transposed) {
    for_each_block(record, [&](std::int64_t row, std::int64_t at, std::int64_t rows) {
      source.read(name, at * columns,
                  numbers.subspan(static_cast<std::size_t>(row * columns), static_cast<std::size_t>(rows * columns)));
    });
    return;
  }
  // Theirs is [in, out]: of each of its rows a part is a column of ours.
  constexpr std::int64_t kRows = 16;
  const std::int64_t out = record.shape[0], all = tensor.shape[1];
  std::vector<float> block(static_cast<std::size_t>(kRows * out));
  for (std::int64_t row = 0; row < columns; row += kRows) {
    const std::int64_t rows = std::min(kRows, columns - row);
    for (std::int64_t i = 0; i < rows; ++i) {
      source.read(name, (row + i) * all + record.first,
                  std::span(block).subspan(static_cast<std::size_t>(i * out), static_cast<std::size_t>(out)));
    }
    for (std::int64_t j = 0; j < out; ++j) {
      for (std::int64_t i = 0; i < rows; ++i) {
        numbers[static_cast<std::size_t>(j * columns + row + i)] = block[static_cast<std::size_t>(i * out + j)];
      }
    }
  }
}

/// Whole records, one after the other, to where their rows lie in the tensor.
void interleave(const HuggingFaceTensor& tensor, const float* from, float* to) {
  for (const Record& record : tensor.records) {
    const std::int64_t columns = record.shape.elements() / record.shape[0];
    for_each_block(record, [&](std::int64_t row, std::int64_t at, std::int64_t rows) {
      std::copy_n(from + row * columns, rows * columns, to + at * columns);
    });
    from += record.shape.elements();
  }
}

/// The name that a norm's tensor has in the oldest files.
std::string older_name(std::string name) {
  for (const auto& [end, older] :
       {std::pair("LayerNorm.weight", "LayerNorm.gamma"), {"LayerNorm.bias", "LayerNorm.beta"}}) {
    if (name.ends_with(end)) return name.replace(name.size() - std::strlen(end), std::strlen(end), older);
  }
  return name;
}

}  // namespace

void HuggingFaceGather::read(const HuggingFaceTensor& tensor, std::span<float> numbers) {
  if (tensor.records.empty()) return std::fill(numbers.begin(), numbers.end(), 0.0f);
  const bool apart = tensor.records.front().together > 0, elsewhere = tensor.transposed || apart;
  if (elsewhere) scratch_.resize(std::max(scratch_.size(), numbers.size()));
  std::vector<TensorSlice> slices;
  std::int64_t done = 0;
  for (const Record& record : tensor.records) {
    const std::int64_t count = record.shape.elements(), columns = count / record.shape[0];
    float* to = elsewhere ? scratch_.data() + done : numbers.data() + record.first * columns;
    Box box{record.shape, record.shape};
    for (int i = 0; i < record.shape.rank(); ++i) box.offset[i] = 0;
    slices.push_back({record.name, record.global_shape, box, 0, count, Tensor(to, {count}, DType::f32)});
    done += count;
  }
  if (static_cast<std::size_t>(done) < numbers.size()) std::fill(numbers.begin(), numbers.end(), 0.0f);
  source_.read_numbers(kValues, slices, open_);
  if (tensor.transposed) transpose(scratch_.data(), tensor.shape[1], tensor.shape[0], numbers.data());
  if (apart) interleave(tensor, scratch_.data(), numbers.data());
  if (tensor.shift != 0) {
    for (float& number : numbers) number -= tensor.shift;
  }
}

HuggingFaceReader::HuggingFaceReader(const std::string& folder, SafetensorsModel files, HuggingFaceFormat format,
                                     std::vector<HuggingFaceTensor> tensors)
    : files_(std::move(files)), tensors_(std::move(tensors)) {
  const HuggingFaceFamily& family = family_of(format);
  const std::string prefix = family.names.prefix;
  std::map<std::string, std::string> copies(family.copies.begin(), family.copies.end());
  copies[std::string(family.names.head) + ".weight"] = tensors_.front().name;  // the word table
  const std::vector<std::string> names = files_.names();
  const bool bare =
      std::none_of(names.begin(), names.end(), [&](const std::string& name) { return name.starts_with(prefix); });
  std::set<std::string> unused(names.begin(), names.end());
  std::map<std::string, std::string> found;
  for (HuggingFaceTensor& tensor : tensors_) {
    const std::string usual = tensor.name;
    tensor.name = name_in_files(files_, family, usual);
    if (bare && tensor.name.starts_with(prefix)) tensor.name.erase(0, prefix.size());
    if (!files_.has(tensor.name) && files_.has(older_name(tensor.name))) tensor.name = older_name(tensor.name);
    const SafetensorsEntry& entry = files_.entry(tensor.name);
    verify(entry.shape == tensor.shape, ErrorKind::checkpoint, "{}: tensor {} is {}, and by its config.json {}", folder,
           tensor.name, json(entry.shape).dump(), json(tensor.shape).dump());
    unused.erase(tensor.name);
    found[usual] = tensor.name;
    for (const Record& record : tensor.records) records_[record.name] = {&tensor, &record};
  }
  for (const std::string& name : unused) {
    if (is_derived(bare ? prefix + name : name, format)) continue;
    const auto original = copies.find(name);
    verify(original != copies.end(), ErrorKind::checkpoint,
           "{}: tensor {} has no place in the model of its config.json", folder, name);
    verify(same_tensors(files_, name, found.at(original->second)), ErrorKind::checkpoint,
           "{}: tensor {} has no place in the model of its config.json, where it is {}, whose numbers are others",
           folder, name, original->second);
  }
}

void HuggingFaceReader::read(const std::string& record, std::span<float> numbers) const {
  const auto& [tensor, part] = records_.at(record);
  const auto count = static_cast<std::size_t>(part->shape.elements());
  extract(files_, *tensor, tensor->name, *part, numbers.first(count));
  for (float& number : numbers.first(count)) number += tensor->shift;
  std::fill(numbers.begin() + static_cast<std::ptrdiff_t>(count), numbers.end(), 0.0f);
}

std::vector<TensorSlice> HuggingFaceReader::slices() const {
  std::vector<TensorSlice> slices;
  for (const auto& [name, place] : records_) {
    const Shape& shape = place.second->global_shape;
    Box box{shape, shape};
    for (int i = 0; i < shape.rank(); ++i) box.offset[i] = 0;
    slices.push_back({name, shape, box, 0, shape.elements()});
  }
  return slices;
}

std::string name_in_files(const SafetensorsModel& files, const HuggingFaceFamily& family, const std::string& usual) {
  if (files.has(usual)) return usual;
  const auto found = std::find_if(family.copies.begin(), family.copies.end(),
                                  [&](const auto& copy) { return copy.second == usual && files.has(copy.first); });
  return found != family.copies.end() ? found->first : usual;
}

bool same_tensors(const SafetensorsModel& files, const std::string& a, const std::string& b) {
  const std::vector<std::int64_t>& shape = files.entry(a).shape;
  if (shape.empty() || files.entry(b).shape != shape) return false;
  const std::int64_t row = shape.back(), elements = files.entry(a).elements();
  std::vector<float> one(static_cast<std::size_t>(row)), other(one.size());
  for (std::int64_t at = 0; at < elements; at += row) {
    files.read(a, at, one);
    files.read(b, at, other);
    if (std::memcmp(one.data(), other.data(), one.size() * sizeof(float)) != 0) return false;
  }
  return true;
}

}  // namespace megatron
