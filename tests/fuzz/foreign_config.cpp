// A stranger's config.json with files of a known number of tensors: what it makes of it before any tensor is looked
// at, and whether what it accepts can be trained, listed and written again.
#include "checkpoint/hugging_face/hugging_face_model.h"
#include "checkpoint/safetensors/safetensors.h"
#include "fuzz/fuzz.h"

using namespace megatron;

namespace {

constexpr std::int64_t kTensors = 60;

void check_list(const HuggingFaceModel& imported, const ModelConfig& model) {
  const std::vector<HuggingFaceTensor> tensors = hugging_face_tensors(model, imported.format, imported.vocab_rows);
  fuzz::require(static_cast<std::int64_t>(tensors.size()) <= 20 * kTensors, "a list longer than the files allow");
  for (const HuggingFaceTensor& tensor : tensors) {
    std::int64_t theirs = 1, ours = 0;
    for (const std::int64_t extent : tensor.shape) theirs *= extent;
    for (const HuggingFaceTensor::Record& record : tensor.records) {
      ours += record.shape.elements();
      fuzz::require(record.global_shape.elements() >= record.shape.elements(), "more is exchanged than there is");
    }
    fuzz::require(theirs > 0 && ours > 0 && ours <= theirs, "a tensor of no possible size");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const fuzz::ScratchFile file({reinterpret_cast<const char*>(data), size});
  fuzz::allow({ErrorKind::checkpoint}, [&] {
    const HuggingFaceModel imported = parse_hugging_face_config(read_json_file(file.path()), kTensors);
    const ModelConfig model = config_of(imported).model;
    check_list(imported, model);
    HuggingFaceModel again =
        parse_hugging_face_config(hugging_face_config(model, imported.format, "float32"), kTensors);
    // Values that export adds under a separate key.
    again.model.sequence_length = model.sequence_length;
    again.model.decoder_sequence_length = model.decoder_sequence_length;
    again.model.vocab_multiple = model.vocab_multiple;
    again.model.tie_embeddings = model.tie_embeddings;
    fuzz::require(config_of(again).model == model, "what is exported is not what was imported");
  });
  return 0;
}
