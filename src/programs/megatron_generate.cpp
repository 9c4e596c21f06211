// megatron_generate RUN_DIRECTORY --prompt TEXT: texts from a run's newest checkpoint (or one checkpoint folder), saved
// on any layout, on any number of ranks.
//
//   ./megatron_generate runs/demo --prompt "Once upon a time" --temperature 0.7 --seed 1
//   scripts/launch.sh 8 ./megatron_generate runs/demo --prompts p.jsonl --output texts.jsonl --tensor 2 --pipeline 2
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <iostream>
#include <optional>
#include <utility>

#include "base/system/log.h"
#include "base/terminal/line_reader.h"
#include "distributed/comm/agreement.h"
#include "distributed/process/node_memory.h"
#include "inference/decoding/forward_passes.h"
#include "inference/decoding/inference_model.h"
#include "inference/generation/conversation.h"
#include "inference/generation/decoder_report.h"
#include "inference/generation/text_output.h"
#include "programs/generate_prompts.h"
#include "programs/program.h"
#include "training/datasets/task_data.h"
#include "training/step/compute.h"
#include "training/step/grid.h"

namespace megatron {
namespace {

/// A model that is going to decode, before memory is taken for it.
struct Plan {
  Config config;
  GridShape shape;
  DecoderSizes sizes;

  DType type() const { return config.precision.dtype(); }
};

Config decoder_config(const GenerateArguments& arguments, const CheckpointReader& checkpoint, int ranks) {
  const ModelOptions& model = arguments.model;
  Config config = config_for_decoding(checkpoint, {.ranks = ranks,
                                                   .tensor = model.tensor,
                                                   .pipeline = model.pipeline,
                                                   .micro_batch_size = 1,
                                                   .precision = model.precision});
  config.run = model.run();
  // A bias by distance has no last position.
  if (config.model.has_decoder() && config.model.positions() == PositionEmbedding::relative) {
    std::int64_t& longest = config.model.decoder_sequence_length;
    longest = std::max(longest, arguments.text.sampling.max_new_tokens);
  }
  return config;
}

/// Texts that are made together: no more than there are.
DecoderSizes sizes_of(const GenerateArguments& arguments, const std::vector<GenerationJob>& jobs, const Config& config,
                      const GridShape& shape, const Tokenizer& tokenizer) {
  const ModelConfig& model = config.model;
  const std::int64_t context = model.predicted_length();
  if (arguments.converses()) {
    // Whatever prompts come: a request may have room for one new token alone, or a decoder's begin with one.
    GenerationOptions any = generation_options(arguments.text, arguments.search, tokenizer, model);
    any.sampling.max_new_tokens = model.has_decoder() ? context : 1;
    const auto tokens = [](std::int64_t count) { return std::vector<std::int32_t>(static_cast<std::size_t>(count)); };
    const GenerationJob longest{.tokens = tokens(model.has_decoder() ? 1 : context),
                                .encoder_tokens = tokens(model.has_decoder() ? model.sequence_length : 0)};
    return sizes_for(std::span(&longest, 1), any, context, arguments.batch, 1);
  }
  const auto share = [](std::int64_t count, std::int64_t among) { return (count + among - 1) / among; };
  const std::int64_t own = share(static_cast<std::int64_t>(jobs.size()), shape.data);
  const std::int64_t groups = std::min<std::int64_t>(shape.pipeline, own);
  return sizes_for(jobs, generation_options(arguments.text, arguments.search, tokenizer, model), context,
                   std::min(arguments.batch, share(own, groups)), groups);
}

/// Error(configuration) if the model has not learned answers.
ChatForm chat_form(const GenerateArguments& arguments, const CheckpointReader& checkpoint) {
  const TaskConfig task = task_of(checkpoint);
  verify(
      has_chat(task), ErrorKind::configuration,
      "{}: --chat needs a model that was fine-tuned here with task.name = \"instructions\", whose template it takes; "
      "for an imported one write its template into --prompt, with --special-tokens",
      checkpoint.path());
  return {.chat = chat_template_of(task), .system = arguments.system};
}

void converse_with(const GenerateArguments& arguments, const std::optional<ChatForm>& form, PromptEncoder& encoder,
                   TextGenerator& generator) {
  const bool terminal = generator.world().rank() == 0 && ::isatty(STDIN_FILENO) != 0 && ::isatty(STDOUT_FILENO) != 0;
  LineReader input(STDIN_FILENO);
  const Conversation conversation{.generator = generator,
                                  .encoder = encoder,
                                  .options = arguments.text,
                                  .search = arguments.search,
                                  .input = input,
                                  .print = [](const std::string& text) { print_text(text); }};
  if (arguments.serve) return serve(conversation);
  InterruptFlag flag(kCtrlC);
  if (terminal) print_text("Ctrl-C ends an answer, Ctrl-D the program.\n");
  const std::string sign = terminal ? "> " : "";
  form ? chat(conversation, *form, flag, sign) : converse(conversation, flag, sign);
}

void check_ranks(const GenerateArguments& arguments, int ranks) {
  const bool one_copy = arguments.converses() || !arguments.logits.path.empty();
  verify(!one_copy || ranks == arguments.model.tensor * arguments.model.pipeline, ErrorKind::configuration,
         "{} works on one copy of the model: --tensor × --pipeline must be {}, the number of ranks",
         arguments.interactive ? "--interactive"
         : arguments.chat      ? "--chat"
         : arguments.serve     ? "--serve-stdio"
                               : "--logits",
         ranks);
}

int generate(GenerateArguments arguments, MpiSession& session) {
  std::signal(SIGPIPE, SIG_IGN);  // a reader that goes away is an error of print_text()
  Communicator& world = session.world();
  Log log(world.rank() == 0);
  const int ranks = arguments.planned_ranks > 0 ? arguments.planned_ranks : world.size();
  check_ranks(arguments, ranks);
  agree(world, [&] {  // not after an hour
    if (world.rank() != 0) return;
    check_output(arguments.output);
    check_output(arguments.logits);
  });
  std::vector<std::string> warnings;
  const CheckpointReader checkpoint = open_named_checkpoint(world, arguments.model.source, warnings);
  for (const std::string& warning : warnings) log.warning(std::string_view(warning));
  std::unique_ptr<Tokenizer> tokenizer;
  agree(world, [&] { tokenizer = tokenizer_of(checkpoint, arguments.model); });
  arguments.text.ends = end_tokens_of(checkpoint);
  std::optional<ChatForm> form;
  if (arguments.chat) form = chat_form(arguments, checkpoint);
  const std::vector<std::string> prompts = prompts_of(arguments, world);

  Plan plan{.config = decoder_config(arguments, checkpoint, ranks), .shape = {}, .sizes = {}};
  plan.shape = grid_shape(plan.config);
  std::vector<GenerationJob> jobs;
  std::optional<PromptEncoder> encoder;
  agree(world, [&] {
    encoder.emplace(*tokenizer, prompt_rules(arguments, checkpoint, plan.config.model, *tokenizer));
    jobs = jobs_of(arguments, prompts, *encoder, plan.config.model);
  });
  plan.sizes = sizes_of(arguments, jobs, plan.config, plan.shape, *tokenizer);
  if (arguments.dry_run) {
    plan.config.run = choose_planned_device(plan.config.run);
    if (world.rank() == 0) print_text(decoder_report(plan.config, plan.shape, plan.type(), plan.sizes));
    return 0;
  }
  warnings.clear();
  plan.config.run = choose_device(plan.config.run, world, warnings);
  for (const std::string& warning : warnings) log.warning(std::string_view(warning));
  Compute compute = start_compute(plan.config.run, plan.type(), world, session.host(), session.local_rank());
  const DecoderMemory memory = plan_decoder(plan.config, plan.shape, coordinates_of(world.rank(), plan.shape),
                                            plan.type(), plan.sizes, compute.transport_kind);
  require_memory(world, session.host(), *compute.backend.device, {.device = memory.total(), .host = memory.host},
                 kMemoryAdvice);
  Decoder decoder(plan.config, plan.shape, world, std::move(compute), plan.type(), plan.sizes);
  decoder.load(world, checkpoint);
  TextGenerator generator(decoder, *tokenizer, world);
  if (!arguments.converses()) return generate_texts(arguments, prompts, jobs, generator, log);
  converse_with(arguments, form, *encoder, generator);
  return 0;
}

}  // namespace
}  // namespace megatron

int main(int argc, char** argv) {
  using namespace megatron;
  GenerateArguments arguments;
  const int code = run_alone([&] {
    arguments = parse_generate_arguments(argc, argv);
    if (arguments.help) std::cout << generate_help();
    if (!arguments.help && arguments.version) std::cout << version_report("megatron_generate");
    return 0;
  });
  if (code != 0 || arguments.help || arguments.version) return code;
  return run_with_mpi(argc, argv, [&](MpiSession& session) { return generate(arguments, session); });
}
