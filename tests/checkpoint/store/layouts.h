// Layouts to save and load with, and tensors whose every element can be foretold.
#pragma once

#include <deque>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "backend/cpu/cpu_device.h"
#include "checkpoint/store/checkpoint.h"
#include "support/catch.h"
#include "support/temporary_folder.h"

namespace megatron::test {

struct GlobalTensor {
  std::string name;
  Shape shape;
};

/// A part of a tensor without memory.
struct Part {
  int tensor = 0;
  Box box;
  std::int64_t first = 0, count = 0;
};

/// parts[rank]
using Layout = std::vector<std::vector<Part>>;

/// Two tensors, of 33 elements and of 2409.
inline const std::vector<GlobalTensor> kFewTensors{{"weight", {6, 4}}, {"bias", {9}}},
    kWideTensors{{"weight", {60, 40}}, {"bias", {9}}};

/// Shapes of one to four dimensions with awkward extents.
std::vector<GlobalTensor> some_tensors();

/// Cuts every tensor into boxes, every box into flat ranges, and deals them out to the ranks.
Layout random_partition(const std::vector<GlobalTensor>& tensors, int ranks, std::mt19937& random);
/// Boxes and ranges of any kind: overlapping, replicated, incomplete.
Layout random_wishes(const std::vector<GlobalTensor>& tensors, int ranks, std::mt19937& random);
/// Every tensor split along `dimension` into as many nearly equal parts as there are ranks (whole on all ranks if
/// `dimension` is -1; tensors with too few dimensions are split along 0).
Layout split_along(const std::vector<GlobalTensor>& tensors, int ranks, int dimension);

/// The optimizer's states of each tensor, by its name: AdamW's of all tensors, one of them or none, or any others.
class StatesOf {
 public:
  using Function = std::vector<std::string> (*)(const std::string& tensor);
  StatesOf(int moments) : moments_(moments) {}
  StatesOf(Function states) : function_(states) {}
  std::vector<std::string> operator()(const std::string& tensor) const {
    const std::vector<std::string> both{"m", "v"};
    return function_ != nullptr ? function_(tensor) : std::vector(both.begin(), both.begin() + moments_);
  }

 private:
  int moments_ = 0;
  Function function_ = nullptr;
};

/// Matrices have one state, the others two, but for one that has none.
std::vector<std::string> states_by_shape(const std::string& tensor);

/// Slices with memory, and with these states. With `generation` >= 0 they hold the numbers of that generation, else a
/// pattern.
class SliceMemory {
 public:
  SliceMemory(const std::vector<GlobalTensor>& tensors, const std::vector<Part>& parts, const StatesOf& states,
              int generation = -1);
  const std::vector<TensorSlice>& slices() const { return slices_; }
  /// The number of elements that do not have the exact bits of that generation.
  std::int64_t wrong(int generation) const;

 private:
  std::vector<TensorSlice> slices_;
  std::deque<std::vector<float>> memory_;
};

TrainingState state_at(std::int64_t step);

/// Saves `generation` as its step, on as many thread ranks as the layout has, and returns rank 0's report.
SaveReport save_as(const std::string& run, const std::vector<GlobalTensor>& tensors, const Layout& layout,
                   int generation, std::int64_t keep_last = 0, const StatesOf& states = 2);
SaveReport save_with(const SaveOptions& options, const std::string& run, const std::vector<GlobalTensor>& tensors,
                     const Layout& layout, int generation, const StatesOf& states = 2);

struct Loaded {
  std::int64_t step = -1;  ///< -1: there was none
  std::int64_t wrong = 0;  ///< elements, of all ranks, that differ from those of generation `step`
  std::vector<std::string> warnings;
  TrainingState state;
};

/// Loads the newest checkpoint (or the named one) in this layout, the step saying which numbers are expected.
Loaded load_newest(const std::string& run, const std::vector<GlobalTensor>& tensors, const Layout& layout,
                   const StatesOf& states = 2);
Loaded load_named(const std::string& path, const std::vector<GlobalTensor>& tensors, const Layout& layout,
                  const StatesOf& states = 2);

/// Runs it and returns the Error it must throw.
Error error_of(const std::function<void()>& work);

std::vector<std::string> names_in(const std::string& folder);
/// Requires that two folders have files of the same names and the same bytes.
void require_same_files(const std::string& a, const std::string& b);

}  // namespace megatron::test
