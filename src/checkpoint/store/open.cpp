#include <fmt/ranges.h>

#include <functional>
#include <future>

#include "checkpoint/store/checkpoint.h"
#include "checkpoint/store/files.h"
#include "checkpoint/store/folder.h"
#include "checkpoint/store/manifest.h"
#include "checkpoint/store/overlap.h"
#include "checkpoint/store/rank_file.h"
#include "distributed/comm/agreement.h"
#include "distributed/comm/gather.h"

namespace megatron {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(SliceTable, text, states)

namespace {

using nlohmann::json;

/// All slices by tensor; every element of every tensor must be stored once, by count.
std::map<std::string, StoredTensor> index_slices(const std::vector<SliceTable>& tables, const Manifest& manifest) {
  std::map<std::string, StoredTensor> tensors;
  for (const TensorSummary& tensor : manifest.tensors) tensors[tensor.name] = {tensor.shape, {}, tensor.states};
  std::map<std::string, std::int64_t> elements;
  for (std::size_t file = 0; file < tables.size(); ++file) {
    for (TableEntry& entry : parse_slice_table(tables[file], static_cast<int>(file))) {
      const auto tensor = tensors.find(entry.name);
      verify(tensor != tensors.end() && tensor->second.shape == entry.shape, ErrorKind::checkpoint,
             "tensor {} of {} is not in the manifest like that", entry.name, rank_file_name(manifest.files[file].rank));
      verify(tensor->second.states == entry.states, ErrorKind::checkpoint,
             "tensor {} of {} has the states [{}]; the manifest says [{}]", entry.name,
             rank_file_name(manifest.files[file].rank), fmt::join(entry.states, ", "),
             fmt::join(tensor->second.states, ", "));
      std::int64_t& sum = elements[entry.name];
      verify(entry.slice.count <= entry.shape.elements() - sum, ErrorKind::checkpoint,
             "tensor {}: elements are stored more than once", entry.name);
      sum += entry.slice.count;
      tensor->second.slices.push_back(std::move(entry.slice));
    }
  }
  for (const auto& [name, tensor] : tensors) {
    verify(elements[name] == tensor.shape.elements(), ErrorKind::checkpoint, "tensor {}: {} of {} elements are stored",
           name, elements[name], tensor.shape.elements());
  }
  return tensors;
}

void verify_file(const std::string& path, const RankFile& file) {
  const std::string name = rank_file_name(file.rank);
  const FileDigest digest = digest_file(path + "/" + name);
  verify(digest.bytes == file.bytes && digest.xxh3_128 == file.xxh3_128, ErrorKind::checkpoint,
         "the contents of {} are not what was saved (hash {} instead of {})", name, digest.xxh3_128, file.xxh3_128);
}

SliceTable read_table(const std::string& path, const Manifest& manifest, const RankFile& file) {
  return read_slice_table(path + "/" + rank_file_name(file.rank), file.rank, manifest.state.step);
}

/// Verifies every size()-th rank file against the manifest, from this rank's on, and returns their tables of slices.
std::vector<SliceTable> verify_share(Communicator& world, const std::string& path, const Manifest& manifest) {
  std::vector<SliceTable> tables;
  const auto ranks = static_cast<std::size_t>(world.size());
  for (auto i = static_cast<std::size_t>(world.rank()); i < manifest.files.size(); i += ranks) {
    verify_file(path, manifest.files[i]);
    tables.push_back(read_table(path, manifest, manifest.files[i]));
  }
  return tables;
}

/// The tables of all files, in the files' order, on all ranks.
std::vector<SliceTable> share_tables(Communicator& world, const std::vector<SliceTable>& mine, std::size_t files) {
  std::vector<std::vector<SliceTable>> by_rank = gather_on_all(world, mine);
  std::vector<SliceTable> all;
  for (std::size_t i = 0; i < files; ++i) all.push_back(std::move(by_rank[i % by_rank.size()][i / by_rank.size()]));
  return all;
}

/// The text that rank 0 finds, on all ranks.
std::string text_of_root(Communicator& world, const std::function<std::string()>& find) {
  std::string text;
  agree(world, [&] {
    if (world.rank() == 0) text = find();
  });
  return world.broadcast_text(text, 0);
}

/// Runs `work`; its Error(checkpoint) gets the checkpoint's path in front.
template <class Work>
auto of_checkpoint(const std::string& path, Work&& work) {
  try {
    return work();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::checkpoint) throw;
    fail(ErrorKind::checkpoint, "checkpoint {} cannot be loaded: {}", path, error.what());
  }
}

/// Verifies all files with this number of threads; the future's get() throws what they found.
std::shared_future<void> verify_beside(const std::string& path, const Manifest& manifest, std::size_t threads) {
  const auto verify_all = [path, files = manifest.files, threads] {
    const auto share = [&](std::size_t first) {
      for (std::size_t i = first; i < files.size(); i += threads) verify_file(path, files[i]);
    };
    std::vector<std::future<void>> others;
    for (std::size_t thread = 1; thread < threads; ++thread) others.push_back(std::async(share, thread));
    share(0);
    for (std::future<void>& other : others) other.get();
  };
  return std::async([path, verify_all] { of_checkpoint(path, verify_all); }).share();
}

}  // namespace

/// Turns a folder into a reader, or throws Error(checkpoint) with the damage, the same on all ranks.
class CheckpointOpener {
 public:
  static CheckpointReader open(Communicator& world, const std::string& path) {
    const Manifest manifest = parse_manifest(text_of_root(world, [&] { return read_manifest(path); }));
    agree(world, [&] {
      if (world.rank() == 0) check_complete(path, manifest);
    });
    std::vector<SliceTable> tables;
    agree(world, [&] { tables = verify_share(world, path, manifest); });
    return make(path, manifest, share_tables(world, tables, manifest.files.size()));
  }

  static CheckpointReader open_unverified(const std::string& path, std::size_t threads) {
    const Manifest manifest = of_checkpoint(path, [&] { return read_complete_manifest(path); });
    const std::shared_future<void> verified = verify_beside(path, manifest, threads);
    try {
      return of_checkpoint(path, [&] {
        std::vector<SliceTable> tables;
        for (const RankFile& file : manifest.files) tables.push_back(read_table(path, manifest, file));
        CheckpointReader reader = make(path, manifest, tables);
        reader.verified_ = verified;
        verify_coverage(reader);
        return reader;
      });
    } catch (const Error&) {
      verified.get();  // whose error says more
      throw;
    }
  }

 private:
  static CheckpointReader make(const std::string& path, const Manifest& manifest,
                               const std::vector<SliceTable>& tables) {
    CheckpointReader reader;
    reader.path_ = path;
    reader.state_ = manifest.state;
    for (const RankFile& file : manifest.files) reader.files_.push_back(path + "/" + rank_file_name(file.rank));
    reader.tensors_ = index_slices(tables, manifest);
    return reader;
  }
};

namespace {

/// The newest one that opens, of a folder of step folders. `own`: of this run, which notes what is damaged.
std::optional<CheckpointReader> open_newest_in(Communicator& world, const std::string& folder,
                                               std::vector<std::string>& warnings, bool own) {
  const auto note = [&](const std::string& path, const std::string& damage) {
    if (own && world.rank() == 0) mark_damage(path, damage);
  };
  const json found = json::parse(text_of_root(world, [&] {
    return json{{"steps", steps_in(folder)}, {"complaint", complaint_about_latest(folder)}}.dump(
        -1, ' ', false, json::error_handler_t::replace);
  }));
  const std::string complaint = found.at("complaint");
  if (!complaint.empty()) {
    warnings.push_back(
        fmt::format("{}/latest is of no use ({}); looking for the newest complete checkpoint", folder, complaint));
  }
  const auto steps = found.at("steps").get<std::vector<std::int64_t>>();
  std::string damage;
  for (const std::int64_t step : steps) {
    const std::string path = folder + "/" + step_folder_name(step);
    try {
      CheckpointReader reader = CheckpointOpener::open(world, path);
      note(path, "");
      return reader;
    } catch (const NewerFormat& error) {
      fail(ErrorKind::checkpoint, "{} cannot be loaded: {}", path, error.what());
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::checkpoint) throw;
      damage += fmt::format("\n  {}: {}", path, error.what());
      warnings.push_back(fmt::format("checkpoint {} is damaged and passed over: {}", path, error.what()));
      note(path, error.what());
    }
  }
  verify(steps.empty(), ErrorKind::checkpoint,
         "all checkpoints are damaged; restore one, or move them away to start afresh:{}", damage);
  return std::nullopt;
}

}  // namespace

std::optional<CheckpointReader> open_newest_checkpoint(Communicator& world, const std::string& run_directory,
                                                       std::vector<std::string>& warnings) {
  return open_newest_in(world, checkpoints_folder(run_directory), warnings, true);
}

std::string folder_of_steps(const std::string& path) {
  const std::string below = checkpoints_folder(path);
  if (file_type(below + "/.") == FileType::directory) return below;
  verify(file_type(path + "/.") == FileType::directory, ErrorKind::checkpoint,
         "{} is no folder: name a run directory or a checkpoint folder", path);
  if (!steps_in(path).empty()) return path;
  if (file_type(path + "/" + kManifestName) == FileType::absent) {
    verify(file_type(path + "/config.json") == FileType::absent, ErrorKind::checkpoint,
           "{}: {} is missing; it has a config.json: `megatron_checkpoint import` makes a checkpoint of a Hugging Face "
           "model",
           path, kManifestName);
    fail(ErrorKind::checkpoint, "{}: {} is missing; name a run directory or a checkpoint folder", path, kManifestName);
  }
  return "";
}

CheckpointReader open_named_checkpoint(Communicator& world, const std::string& path,
                                       std::vector<std::string>& warnings) {
  const std::string folder = text_of_root(world, [&] { return folder_of_steps(path); });
  if (!folder.empty()) {
    auto reader = open_newest_in(world, folder, warnings, false);
    verify(reader.has_value(), ErrorKind::checkpoint, "there is no checkpoint in {}", folder);
    return std::move(*reader);
  }
  return of_checkpoint(path, [&] { return CheckpointOpener::open(world, path); });
}

CheckpointReader open_unverified(const std::string& path, std::size_t threads) {
  return CheckpointOpener::open_unverified(path, threads);
}

std::string find_named_checkpoint(const std::string& path, std::vector<std::string>& warnings) {
  const std::string folder = folder_of_steps(path);
  if (folder.empty()) {
    try {
      read_complete_manifest(path);
      return path;
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::checkpoint) throw;
      fail(ErrorKind::checkpoint, "{}: {}", path, error.what());
    }
  }
  for (const std::int64_t step : steps_in(folder)) {
    const std::string candidate = folder + "/" + step_folder_name(step);
    try {
      read_complete_manifest(candidate);
      return candidate;
    } catch (const NewerFormat& error) {
      fail(ErrorKind::checkpoint, "{}: {}", candidate, error.what());
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::checkpoint) throw;
      warnings.push_back(fmt::format("{} is not complete and passed over: {}", candidate, error.what()));
    }
  }
  fail(ErrorKind::checkpoint, "there is no complete checkpoint in {}{}{}", folder, warnings.empty() ? "" : ":\n  ",
       fmt::join(warnings, "\n  "));
}

std::vector<TensorSlice> whole_tensors(const CheckpointReader& checkpoint) {
  std::vector<TensorSlice> slices;
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    Box box{tensor.shape, tensor.shape};
    for (int i = 0; i < tensor.shape.rank(); ++i) box.offset[i] = 0;
    TensorSlice& slice = slices.emplace_back(TensorSlice{name, tensor.shape, box, 0, tensor.shape.elements()});
    for (const std::string& state : tensor.states) slice.states.push_back({state, {}});
  }
  return slices;
}

void verify_coverage(const CheckpointReader& checkpoint) {
  for (const TensorSlice& whole : whole_tensors(checkpoint)) plan_slice(whole, 0, checkpoint.tensors().at(whole.name));
}

std::vector<FoundCheckpoint> find_checkpoints(const std::string& run_directory) {
  const std::string folder = checkpoints_folder(run_directory);
  std::vector<FoundCheckpoint> found;
  for (const std::int64_t step : steps_in(folder)) {
    const std::string path = folder + "/" + step_folder_name(step);
    try {
      found.push_back({path, step, read_complete_manifest(path).file_bytes()});
    } catch (const Error& error) {  // not complete-looking: not listed
      if (error.kind() != ErrorKind::checkpoint) throw;
    }
  }
  return found;
}

}  // namespace megatron
