#include "programs/manual_texts.h"

#include <algorithm>
#include <array>

#include "base/error.h"

namespace megatron {

namespace {

const std::vector<ManualText> kTexts = {
    {.program = "megatron_preprocess",
     .summary = "turns text into token shards, and works with shards",
     .synopsis = {"--input FILE... --output PREFIX [options]", "COMMAND [arguments]"},
     .description =
         {"Reads JSON lines or plain text, also compressed with gzip, and writes the tokens of all documents "
          "into HDF5 files PREFIX-00000.h5, PREFIX-00001.h5 and so on. The key data.train of an input file "
          "names this PREFIX. Under an MPI launcher the ranks share the text; the result is the same."},
     .examples = {{"A text file, one token per byte:",
                   "megatron_preprocess --input books.txt --output data/books --tokenizer byte"},
                  {"On four processes, with a vocabulary like GPT-2's:",
                   "megatron_launch 4 megatron_preprocess --input text/ --output data/all --tokenizer gpt2 "
                   "--vocab-file vocab.json"},
                  {"A corpus to try things on:", "megatron_preprocess sample-corpus --output stories.jsonl"}},
     .trains = false},
    {.program = "megatron_train",
     .summary = "trains GPT, BERT and T5 models on MPI ranks",
     .synopsis = {"INPUT.toml [--set TABLE.KEY=VALUE]... [options]", "--new FILE.toml"},
     .description =
         {"Trains the model that the input file describes on all ranks that the launcher starts: tensor, pipeline, "
          "data "
          "and expert parallel. megatron_input(5) lists the keys of the file. The same command resumes a run that was "
          "stopped; where the run is complete already, it says so and ends with 0.",
          "Mistakes in the command line and in the input file are found before anything is started. With --dry-run the "
          "program plans a run without a launcher, a GPU or data.",
          "With --new it asks for what an input file says, a key at a time, and writes one. Answers come from standard "
          "input: an empty line takes the default, ? explains the question, < returns to the one before. Nothing is "
          "written before the last answer, and no file is written over."},
     .examples = {{"A first input file, by questions and answers:", "megatron_train --new books.toml"},
                  {"What a run on 8 ranks will need:", "megatron_train books.toml --dry-run --ranks 8"},
                  {"The run, with another learning rate than the file's:",
                   "megatron_launch 8 megatron_train books.toml --set learning_rate.peak=1e-3"},
                  {"Whether a layout trains the same model as one rank:",
                   "megatron_launch 4 megatron_train books.toml --set parallel.tensor=2 --verify"}},
     .trains = true},
    {.program = "megatron_checkpoint",
     .summary = "inspects, compares and converts checkpoints",
     .synopsis = {"COMMAND SOURCE [TARGET] [options]"},
     .description = {"Works on one process and without MPI. A SOURCE is a run directory, of which the newest complete "
                     "checkpoint is taken, or one checkpoint folder. A TARGET is a folder that does not exist yet; it "
                     "appears when it is complete."},
     .examples = {{"What a checkpoint holds:", "megatron_checkpoint info runs/books"},
                  {"Another layout:", "megatron_checkpoint reshape runs/books reshaped --tensor 1 --pipeline 4"},
                  {"A model in the files of Hugging Face:", "megatron_checkpoint export runs/books exported"}},
     .trains = false},
    {.program = "megatron_generate",
     .summary = "generates text from a checkpoint",
     .synopsis = {"RUN_DIRECTORY --prompt TEXT [options]", "RUN_DIRECTORY --prompts FILE [options]",
                  "RUN_DIRECTORY --interactive [options]"},
     .description = {"Continues prompts with the model of a run's newest complete checkpoint, or of one checkpoint "
                     "folder. The model may have been trained on any layout, and runs on any number of ranks. The same "
                     "seed gives the same text on each of them."},
     .examples = {{"One text:", "megatron_generate runs/books --prompt \"Once upon a time\" --temperature 0.8"},
                  {"A file of prompts on 8 ranks:",
                   "megatron_launch 8 megatron_generate runs/books --prompts p.txt --output texts.jsonl --tensor 2"}},
     .trains = false},
    {.program = "megatron_eval",
     .summary = "evaluates a checkpoint on a task",
     .synopsis = {"SOURCE --task NAME --data FILE [options]"},
     .description =
         {"Computes perplexity or accuracy of the model of a run's newest complete checkpoint, or of one "
          "checkpoint folder, on any number of ranks. The result does not depend on the layout, to rounding."},
     .examples = {{"Perplexity on WikiText:", "megatron_eval runs/books --task wikitext --data wiki.test.tokens"},
                  {"LAMBADA on 4 ranks, the result as JSON:",
                   "megatron_launch 4 megatron_eval runs/books --task lambada --data lambada_test.jsonl --output "
                   "lambada.json"}},
     .trains = false},
    {.program = "megatron_bench",
     .summary = "measures training and generation on this machine",
     .synopsis = {"[--case NAME | --all | --hardware FILE.toml] [options]"},
     .description =
         {"Compares the speed of training steps with this machine's own rate of matrix products of the same "
          "shapes, or measures the machine for megatron_plan. Without --case, --all and --hardware it lists the "
          "cases and measures nothing."},
     .examples = {{"All cases of one rank, three steps each:", "megatron_bench --all --quick"},
                  {"The cases of two ranks:", "megatron_launch 2 megatron_bench --all"},
                  {"A hardware file of this machine with two ranks:",
                   "megatron_launch 2 megatron_bench --hardware here.toml"}},
     .trains = false},
    {.program = "megatron_plan",
     .summary = "finds the fastest layouts of a run on given hardware",
     .synopsis = {"INPUT.toml --hardware NAME --ranks N [options]"},
     .description = {"Plays a training step of every layout that fits into memory, with the times of the hardware's "
                     "products, memory and links, and prints the fastest. Needs neither the data nor the devices."},
     .examples = {{"The best layouts on 1024 devices:",
                   "megatron_plan inputs/gpt3_175b.toml --hardware h100-sxm --ranks 1024"},
                  {"Where the time of the file's own layout goes:",
                   "megatron_plan inputs/gpt3_175b.toml --hardware h100-sxm --ranks 1024 --explain"}},
     .trains = false},
};

constexpr std::array<ManualRow, 10> kExitCodes = {{
    {"0", "Done, or already complete."},
    {"1", "A defect of the program, or out of memory. Of megatron_checkpoint diff: the checkpoints differ."},
    {"2", "Configuration: the command line, the input file, or what they ask of this machine."},
    {"3", "Data."},
    {"4", "Checkpoint."},
    {"5", "Numerics: values that are not finite, or results that should agree and do not."},
    {"6", "Communication: a rank or a connection failed."},
    {"7", "Filesystem."},
    {"75", "Stopped early on request, with a good checkpoint: the same command resumes."},
    {"128 + N", "Ended by signal N."},
}};

constexpr std::array<ManualRow, 3> kSignals = {{
    {"SIGINT, SIGTERM, SIGUSR1", "Save a checkpoint after this step, and end with 75."},
    {"the same, a second time", "End at once. The checkpoint before stays as it is."},
    {"SIGKILL", "Ends the rank, and with it the job. The next start resumes from the newest complete checkpoint."},
}};

constexpr std::array<ManualRow, 10> kFiles = {{
    {"config.toml", "All keys as used."},
    {"metrics.jsonl", "One JSON object per line: loss, gradient norm, learning rate, speed."},
    {"run.log", "What was printed."},
    {"history.jsonl", "When each program began and ended, with its machine and configuration."},
    {"loss.svg", "Training and validation loss, for a browser."},
    {"report.html", "Everything about the run on one page, written at its end."},
    {"tensorboard/", "Events for TensorBoard."},
    {"trace.json", "What every rank did in the steps of run.trace_steps, for Perfetto."},
    {"checkpoints/step_00000100/", "One HDF5 file per rank, and a manifest with sizes and checksums."},
    {"STOP", "Stops the run where you make a file of this name, and keeps it stopped while it is there."},
}};

constexpr std::array<ManualRow, 4> kEnvironment = {{
    {"NO_COLOR", "No colour."},
    {"CUDA_VISIBLE_DEVICES", "The devices that a rank may use."},
    {"MPIRUN", "The launcher that megatron_launch(1) calls; mpirun by default."},
    {"SLURM_JOB_END_TIME", "When the job will have ended, in seconds since 1970; training saves and stops before."},
}};

}  // namespace

std::span<const ManualText> manual_texts() {
  return kTexts;
}

const ManualText& manual_text(std::string_view program) {
  const auto found =
      std::find_if(kTexts.begin(), kTexts.end(), [&](const ManualText& text) { return text.program == program; });
  verify(found != kTexts.end(), ErrorKind::internal,
         "{}: no program of this name has a row in src/programs/manual_texts.cpp; a new program adds one, and a link "
         "to a program is called by the program's own name",
         program);
  return *found;
}

std::span<const ManualRow> exit_codes() {
  return kExitCodes;
}

std::span<const ManualRow> signals_of_training() {
  return kSignals;
}

std::span<const ManualRow> files_of_a_run() {
  return kFiles;
}

std::span<const ManualRow> environment_variables() {
  return kEnvironment;
}

}  // namespace megatron
