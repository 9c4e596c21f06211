#include "checkpoint/store/layouts.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <mutex>

#include "base/core/philox.h"
#include "checkpoint/store/tensor_slices.h"
#include "distributed/comm/thread_communicator.h"

namespace megatron::test {

namespace {

std::int64_t pick(std::mt19937& random, std::int64_t low, std::int64_t high) {
  return std::uniform_int_distribution<std::int64_t>(low, high)(random);
}

Box whole(const Shape& shape) {
  Box box{shape, shape};
  for (int i = 0; i < shape.rank(); ++i) box.offset[i] = 0;
  return box;
}

/// The global row-major index of flat element `flat` of a box: the slow, obvious way.
std::int64_t global_index(const Shape& shape, const Box& box, std::int64_t flat) {
  std::int64_t index = 0, stride = 1;
  for (int i = shape.rank() - 1; i >= 0; --i) {
    index += (box.offset[i] + flat % box.extent[i]) * stride;
    flat /= box.extent[i];
    stride *= shape[i];
  }
  return index;
}

/// Any bits at all, denormals included, and among the moments NaNs: parameters that are not finite are not saved.
std::uint32_t bits_of(const std::string& name, std::int64_t element, int generation, const std::string& dataset) {
  const std::uint64_t key = random_key(hash_name(name), static_cast<std::uint64_t>(generation),
                                       static_cast<std::int64_t>(hash_name(dataset)));
  const auto bits = static_cast<std::uint32_t>(mix64(key ^ static_cast<std::uint64_t>(element)));
  constexpr std::uint32_t kExponent = 0x7F800000, kOneOfIt = 0x00800000;
  return dataset == kValues && (bits & kExponent) == kExponent ? bits - kOneOfIt : bits;
}

std::vector<Box> cut_boxes(const Shape& shape, std::mt19937& random) {
  std::vector<Box> boxes{whole(shape)};
  for (std::int64_t cuts = pick(random, 0, 5); cuts > 0; --cuts) {
    const auto at = static_cast<std::size_t>(pick(random, 0, static_cast<std::int64_t>(boxes.size()) - 1));
    const int dimension = static_cast<int>(pick(random, 0, shape.rank() - 1));
    Box low = boxes[at], high = boxes[at];
    const std::int64_t length = pick(random, 0, low.extent[dimension]);
    low.extent[dimension] = length;
    high.extent[dimension] -= length;
    high.offset[dimension] += length;
    boxes[at] = low;
    boxes.push_back(high);
  }
  return boxes;
}

Loaded load(const std::vector<GlobalTensor>& tensors, const Layout& layout, const StatesOf& states,
            const std::function<std::optional<CheckpointReader>(Communicator&, std::vector<std::string>&)>& open) {
  Loaded loaded;
  std::mutex mutex;
  run_as_threads(static_cast<int>(layout.size()), [&](Communicator& world) {
    std::vector<std::string> warnings;
    const auto reader = open(world, warnings);
    std::int64_t wrong = 0;
    if (reader) {
      SliceMemory memory(tensors, layout[static_cast<std::size_t>(world.rank())], states);
      CpuDevice device;
      reader->read(world, memory.slices(), device);
      wrong = memory.wrong(static_cast<int>(reader->state().step));
    }
    const std::lock_guard lock(mutex);
    if (reader) loaded.step = reader->state().step;
    if (reader) loaded.state = reader->state();
    loaded.wrong += wrong;
    loaded.warnings = warnings;
  });
  return loaded;
}

}  // namespace

std::vector<GlobalTensor> some_tensors() {
  return {{"embedding.weight", {33, 8}},    {"layers.0.norm.weight", {7}},
          {"layers.0.mlp.weight", {5, 12}}, {"convolution \"quoted\" äöü", {3, 4, 5}},
          {"experts.weight", {2, 3, 1, 6}}, {"one", {1}}};
}

Layout random_partition(const std::vector<GlobalTensor>& tensors, int ranks, std::mt19937& random) {
  Layout layout(static_cast<std::size_t>(ranks));
  for (std::size_t tensor = 0; tensor < tensors.size(); ++tensor) {
    for (const Box& box : cut_boxes(tensors[tensor].shape, random)) {
      const std::int64_t elements = box.extent.elements();
      for (std::int64_t first = 0; first < elements;) {
        const std::int64_t count = pick(random, 1, elements - first);
        layout[static_cast<std::size_t>(pick(random, 0, ranks - 1))].push_back(
            {static_cast<int>(tensor), box, first, count});
        first += count;
      }
    }
  }
  for (std::vector<Part>& parts : layout) std::shuffle(parts.begin(), parts.end(), random);
  return layout;
}

Layout random_wishes(const std::vector<GlobalTensor>& tensors, int ranks, std::mt19937& random) {
  Layout layout(static_cast<std::size_t>(ranks));
  for (std::vector<Part>& parts : layout) {
    for (std::int64_t wishes = pick(random, 0, 12); wishes > 0; --wishes) {
      Part part{static_cast<int>(pick(random, 0, static_cast<std::int64_t>(tensors.size()) - 1)), {}, 0, 0};
      const Shape& shape = tensors[static_cast<std::size_t>(part.tensor)].shape;
      part.box = whole(shape);
      for (int i = 0; i < shape.rank(); ++i) {
        part.box.offset[i] = pick(random, 0, shape[i]);
        part.box.extent[i] = pick(random, 0, shape[i] - part.box.offset[i]);
      }
      part.first = pick(random, 0, part.box.extent.elements());
      part.count = pick(random, 0, part.box.extent.elements() - part.first);
      parts.push_back(part);
    }
  }
  return layout;
}

Layout split_along(const std::vector<GlobalTensor>& tensors, int ranks, int dimension) {
  Layout layout(static_cast<std::size_t>(ranks));
  for (std::size_t tensor = 0; tensor < tensors.size(); ++tensor) {
    const Shape& shape = tensors[tensor].shape;
    for (int rank = 0; rank < ranks; ++rank) {
      Box box = whole(shape);
      if (dimension >= 0) {
        const int along = dimension < shape.rank() ? dimension : 0;
        box.offset[along] = shape[along] * rank / ranks;
        box.extent[along] = shape[along] * (rank + 1) / ranks - box.offset[along];
      }
      layout[static_cast<std::size_t>(rank)].push_back({static_cast<int>(tensor), box, 0, box.extent.elements()});
    }
  }
  return layout;
}

std::vector<std::string> states_by_shape(const std::string& tensor) {
  if (tensor == "one") return {};
  return tensor.find("weight") != std::string::npos ? std::vector<std::string>{"momentum"}
                                                    : std::vector<std::string>{"m", "v"};
}

SliceMemory::SliceMemory(const std::vector<GlobalTensor>& tensors, const std::vector<Part>& parts,
                         const StatesOf& states, int generation) {
  for (const Part& part : parts) {
    const GlobalTensor& tensor = tensors[static_cast<std::size_t>(part.tensor)];
    TensorSlice slice{tensor.name, tensor.shape, part.box, part.first, part.count};
    const auto make = [&](const std::string& dataset) {
      std::vector<float>& memory = memory_.emplace_back(static_cast<std::size_t>(part.count) + 1, -7.25f);
      for (std::int64_t i = 0; i < part.count && generation >= 0; ++i) {
        const std::uint32_t bits =
            bits_of(tensor.name, global_index(tensor.shape, part.box, part.first + i), generation, dataset);
        std::memcpy(&memory[static_cast<std::size_t>(i)], &bits, sizeof bits);
      }
      return Tensor(memory.data(), {part.count}, DType::f32);
    };
    slice.value = make(kValues);
    for (const std::string& state : states(tensor.name)) slice.states.push_back({state, make(state)});
    slices_.push_back(slice);
  }
}

std::int64_t SliceMemory::wrong(int generation) const {
  std::int64_t wrong = 0;
  for (const std::string& dataset : datasets_with(state_names(slices_))) {
    for (const TensorSlice& slice : slices_in(dataset, slices_)) {
      const float* numbers = slice.value.as<float>();
      for (std::int64_t i = 0; i < slice.count; ++i) {
        const std::uint32_t expected =
            bits_of(slice.name, global_index(slice.global_shape, slice.box, slice.first + i), generation, dataset);
        std::uint32_t bits = 0;
        std::memcpy(&bits, numbers + i, sizeof bits);
        wrong += bits != expected;
      }
      wrong += numbers[slice.count] != -7.25f;  // written beyond the end
    }
  }
  return wrong;
}

TrainingState state_at(std::int64_t step) {
  return {step,
          step * 8,
          step * 8 * 64,
          {{"hidden_size", 64}, {"layers", 2}, {"epsilon", 1e-5}},
          {{"optimizer_step", step}, {"learning_rate", 0.1 * static_cast<double>(step)}, {"text", "ä\n\"b\""}}};
}

SaveReport save_as(const std::string& run, const std::vector<GlobalTensor>& tensors, const Layout& layout,
                   int generation, std::int64_t keep_last, const StatesOf& states) {
  return save_with({.keep_last = keep_last}, run, tensors, layout, generation, states);
}

SaveReport save_with(const SaveOptions& options, const std::string& run, const std::vector<GlobalTensor>& tensors,
                     const Layout& layout, int generation, const StatesOf& states) {
  SaveReport report;
  run_as_threads(static_cast<int>(layout.size()), [&](Communicator& world) {
    const SliceMemory memory(tensors, layout[static_cast<std::size_t>(world.rank())], states, generation);
    CpuDevice device;
    const SaveReport mine = save_checkpoint(world, run, state_at(generation), memory.slices(), device, options);
    if (world.rank() == 0) report = mine;
  });
  return report;
}

Loaded load_newest(const std::string& run, const std::vector<GlobalTensor>& tensors, const Layout& layout,
                   const StatesOf& states) {
  return load(tensors, layout, states, [&](Communicator& world, std::vector<std::string>& warnings) {
    return open_newest_checkpoint(world, run, warnings);
  });
}

Loaded load_named(const std::string& path, const std::vector<GlobalTensor>& tensors, const Layout& layout,
                  const StatesOf& states) {
  return load(tensors, layout, states, [&](Communicator& world, std::vector<std::string>& warnings) {
    return std::optional<CheckpointReader>(open_named_checkpoint(world, path, warnings));
  });
}

Error error_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    return error;
  }
  return {ErrorKind::internal, "nothing was thrown"};
}

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

void require_same_files(const std::string& a, const std::string& b) {
  REQUIRE(names_in(a) == names_in(b));
  for (const std::string& name : names_in(a)) {
    INFO(name);
    CHECK((contents_of(a + "/" + name) == contents_of(b + "/" + name)));
  }
}

}  // namespace megatron::test
