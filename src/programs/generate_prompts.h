// Prompts that megatron_generate knows at its start: the jobs that they make, and their texts, or the scores of the
// prompts themselves, on standard output or in a file.
#pragma once

#include "base/system/log.h"
#include "inference/generation/prompts.h"
#include "inference/generation/text_generator.h"
#include "programs/generate_arguments.h"

namespace megatron {

inline constexpr const char* kMemoryAdvice =
    "use fewer ranks per node, more --tensor or --pipeline ranks, a smaller --batch, fewer --max-new-tokens, or "
    "--precision bf16";

/// An imported encoder-decoder's texts begin and end as in transformers, those of one that was trained here as in its
/// samples. Error(configuration) if the arguments do not suit the model, Error(checkpoint) if it lacks such a token.
PromptRules prompt_rules(const GenerateArguments& arguments, const CheckpointReader& checkpoint,
                         const ModelConfig& model, const Tokenizer& tokenizer);

/// The texts of the command line, or of the file that it names. Collective.
std::vector<std::string> prompts_of(const GenerateArguments& arguments, Communicator& world);

/// The jobs of all prompts, on all ranks alike. Errors as PromptEncoder::encode(), by the number of the prompt.
std::vector<GenerationJob> jobs_of(const GenerateArguments& arguments, const std::vector<std::string>& prompts,
                                   PromptEncoder& encoder, const ModelConfig& model);

/// Makes all texts. One alone appears while it is made; several appear one after the other. With --max-new-tokens 0:
/// scores all prompts. Returns the exit code: 128 + N if signal N has ended it, without a file.
int generate_texts(const GenerateArguments& arguments, const std::vector<std::string>& prompts,
                   const std::vector<GenerationJob>& jobs, TextGenerator& generator, Log& log);

}  // namespace megatron
