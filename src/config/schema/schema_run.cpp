// Keys of data, tasks, evaluations, checkpoints and the run itself.
#include "config/schema/schema_keys.h"

namespace megatron {

using namespace constraints;

std::vector<Key> run_keys() {
  const Constraint chat = any().with("task.name", {"instructions"});
  const std::vector<std::string> tasks = {"classification", "multiple_choice", "instructions"};
  return {
      {MEGATRON_KEY(data, train), path(), "", "required",
       "Training data: the prefix that megatron_preprocess --output was given; a folder, for all sets in it; a "
       "pattern with *, ? or [a-z], for the shards that match; or an array of several of these as path or {path, "
       "weight}, which makes a blend. Without weights each gives the same number of samples "
       "(docs/sample_order.md).",
       ""},
      {MEGATRON_KEY(data, validation), path(), "", "by split",
       "Separate data for validation, in the same forms. Sets with names, {name, path, weight}, are evaluated one by "
       "one; the validation loss is their weighted mean.",
       ""},
      {MEGATRON_KEY(data, test), path(), "", "by split",
       "Separate data for the test at the end, in the forms of "
       "validation.",
       ""},
      {MEGATRON_KEY(data, split), noted(any(), "up to three numbers, at least 0, the first above 0"), "shares", "",
       "Shares of data.train for training, validation and test. Each set of a blend is divided separately.", ""},
      {MEGATRON_KEY(data, split_by),
       one_of({"auto", "documents", "tokens"})
           .with("model.family", {"gpt"}, "tokens")
           .with("data.order", {"epoch"}, "tokens"),
       "", "",
       "Unit of data.split. auto: tokens for a set of fewer than 1000 documents, else whole documents; with "
       "Megatron's orders always documents (docs/sample_order.md).",
       ""},
      {MEGATRON_KEY(data, order), one_of({"epoch", "megatron", "megatron_core"}), "", "",
       "Order of the samples. epoch: shuffled by (seed, epoch) alone. megatron: the order of Megatron-LM of "
       "November 2022 for the same documents, split, seed, sequence length and sample count. megatron_core: that "
       "of megatron-core 0.16. With these two a run can move here from Megatron; validation is shuffled, and "
       "each evaluation continues after the one before (docs/sample_order.md).",
       ""},
      {MEGATRON_KEY(data, order_samples), from_to(1, kMaxSamples).with("data.order", {"megatron", "megatron_core"}),
       "samples", "the run's", "Sample count that Megatron's order is made for, if the run is shorter or longer.", ""},
      {MEGATRON_KEY(data, reset_attention_mask), any().with("model.family", {"gpt"}), "", "",
       "Tokens attend only within their own document. Here and in the next two keys, a document ends with the "
       "end-of-document token that megatron_preprocess appends.",
       ""},
      {MEGATRON_KEY(data, reset_position_ids), any().with("model.family", {"gpt"}), "", "",
       "Positions start again with each document.", ""},
      {MEGATRON_KEY(data, eod_mask_loss), any().with("model.family", {"gpt"}), "", "",
       "No loss for the token after the end of a document, which cannot be predicted. The mean is over the other "
       "targets of the global batch.",
       ""},
      {MEGATRON_KEY(data, mask_probability), above_to(0, 1).with("model.family", {"bert", "t5"}), "", "",
       "Share of a sample's tokens that the model is to predict, in whole words.", ""},
      {MEGATRON_KEY(data, short_probability), from_to(0, 1).with("model.family", {"bert", "t5"}), "", "",
       "Share of samples that are made shorter than model.sequence_length, down to two tokens.", ""},
      {MEGATRON_KEY(task, name),
       one_of(tasks)
           .with("model.family", {"bert"}, "classification")
           .with("model.family", {"bert"}, "multiple_choice")
           .with("model.family", {"gpt"}, "instructions"),
       "", "none, which is pretraining",
       "Fine-tune the model on examples, which data.train, validation and test then name. classification: a label for "
       "a text or a pair of texts. multiple_choice: which of a question's choices is right. instructions: next tokens, "
       "of answers alone (docs/fine_tuning.md).",
       ""},
      {MEGATRON_KEY(task, format),
       one_of({"json", "tsv", "mnli", "qqp", "race"})
           .with("task.name", {"classification"}, "tsv")
           .with("task.name", {"classification"}, "mnli")
           .with("task.name", {"classification"}, "qqp")
           .with("task.name", {"multiple_choice"}, "race"),
       "", "",
       "Form of the files. json: lines {text_a, text_b, label}, {context, choices, answer}, {prompt, completion} or "
       "{messages}, by the task. tsv: columns under a line of titles, which name the texts and the label. mnli, qqp: "
       "the "
       "TSV files of GLUE. race: RACE's files of articles, or folders of them.",
       ""},
      {MEGATRON_KEY(task, labels),
       from_to(2, kMaxLabels).with("task.name", {"classification"}).with("task.format", {"json", "tsv"}), "",
       "the format's",
       "Names of the labels, in the order of the head's outputs: [\"negative\", \"positive\"]; or their number, where "
       "they "
       "are called 0, 1 and so on.",
       ""},
      {MEGATRON_KEY(task, choices), from_to(2, kMaxChoices).with("task.name", {"multiple_choice"}), "", "",
       "Choices that every question has.", ""},
      {MEGATRON_KEY(task, tokenizer),
       one_of({"byte", "gpt2", "bert-uncased", "bert-cased", "sentencepiece", "unigram"}).with("task.name", tasks), "",
       "that of the checkpoint", "Tokenizer of the examples. Without it, the one that the checkpoint was trained with.",
       ""},
      {MEGATRON_KEY(task, vocab_file), noted(path(), "with task.tokenizer").with("task.name", tasks), "", "none",
       "Its file, as megatron_preprocess --vocab-file takes it.", ""},
      {MEGATRON_KEY(task, merge_file), noted(path(), "with task.vocab_file").with("task.name", tasks), "", "none",
       "Its merges, if it has any.", ""},
      {MEGATRON_KEY(task, extra_ids),
       noted(from_to(0, kMaxExtraIds), "with task.tokenizer")
           .with("task.tokenizer", {"bert-uncased", "bert-cased", "sentencepiece", "unigram"}),
       "", "", "Sentinels that its vocabulary is to have, as megatron_preprocess --extra-ids adds them.", ""},
      {MEGATRON_KEY(task, system_prefix), chat, "", "", "Text in front of a system message.", ""},
      {MEGATRON_KEY(task, system_suffix), chat, "", "", "Text after it.", ""},
      {MEGATRON_KEY(task, user_prefix), chat, "", "", "Text in front of a user's message.", ""},
      {MEGATRON_KEY(task, user_suffix), chat, "", "", "Text after it.", ""},
      {MEGATRON_KEY(task, assistant_prefix), chat, "", "", "Text in front of an assistant's message.", ""},
      {MEGATRON_KEY(task, assistant_suffix), chat, "", "",
       "Text after it, which the model learns to end its answers with.", ""},
      {MEGATRON_KEY(evaluation, tasks),
       noted(any(), "each with another name; stride at most model.sequence_length").with("model.family", {"gpt"}), "",
       "none",
       "Evaluation tasks: [{name = \"wiki\", task = \"wikitext\", data = \"wiki.valid.tokens\", every = 1000}]. task "
       "is "
       "wikitext, text, lambada or choices, data its file, every the interval in updates (0, the default: only at the "
       "end; all are done at the end), name what metrics and log call it (default: the task). wikitext and text also "
       "have stride, lambada strict.",
       ""},
      {MEGATRON_KEY_IN(checkpoint, every_steps, checkpoint), from_to(0, kMaxSteps), "updates", "",
       "Interval between checkpoints; the last step is always saved as well. 0: only the last step. \"never\": no "
       "checkpoint is written and the trained model is lost at the end; only a run that is stopped early still "
       "saves, so that it can be resumed.",
       ""},
      {MEGATRON_KEY(checkpoint, every_minutes), noted(from_to(0, 1e9), "not together with every_steps = \"never\""),
       "minutes", "30; with every_steps = \"never\", 0",
       "Maximum time between checkpoints, in addition to every_steps: a run of days loses no more than this to a "
       "failure. 0: no limit.",
       ""},
      {MEGATRON_KEY(checkpoint, keep_last), from_to(0, kMaxExtent), "checkpoints", "",
       "Number of checkpoints to keep; older ones are removed. 0: keep all.", ""},
      {MEGATRON_KEY(checkpoint, keep_best), noted(any(), "not together with every_steps = \"never\""), "", "",
       "Save after each evaluation whose validation loss is lower than all before, and keep this checkpoint whatever "
       "keep_last says. checkpoints/best has its name.",
       ""},
      {MEGATRON_KEY(checkpoint, resume), any(), "", "",
       "Resume from this run's newest checkpoint. false: refuse a directory that has one.", ""},
      {MEGATRON_KEY(checkpoint, load), path(), "", "none", "Start from another run's checkpoint, optimizer included.",
       ""},
      {MEGATRON_KEY(checkpoint, initialize_from), noted(path(), "not together with load"), "", "none",
       "Start from the weights of a checkpoint; ignored once this run has its own checkpoint. "
       "sequence_length, rotary_base and rotary_scaling may differ, to extend the context.",
       ""},
      {MEGATRON_KEY(checkpoint, consumed_samples), noted(from_to(0, kMaxSamples), "with initialize_from only"),
       "samples", "",
       "Begin at this sample of the data's order, where the run that the weights come from has stopped. Steps, "
       "samples and learning rate are counted from 0 all the same.",
       ""},
      {MEGATRON_KEY(checkpoint, async), any(), "", "",
       "Write checkpoints in the background. The next update waits until they are copied into reserved memory: "
       "on each rank what it saves, in all 12 bytes per parameter with AdamW, 8 with moments in bf16. A save that "
       "comes while one is being written waits for it. The last save, and one before a stop, are not in the "
       "background.",
       ""},
      {MEGATRON_KEY(run, directory), path(), "", "", "Folder for everything that the run writes.", ""},
      {MEGATRON_KEY(run, device), one_of(names_of(kDevices)), "", "",
       "Where to compute. auto: on CUDA devices if this build has the backend and every rank sees one.", ""},
      {MEGATRON_KEY(run, communication), one_of({"auto", "mpi", "nccl"}), "", "",
       "What moves tensors between ranks. auto: NCCL if each rank has its own CUDA device, else MPI.", ""},
      {MEGATRON_KEY(run, threads), from_to(1, 1024), "threads per rank", "",
       "CPU threads. Two runs with the same number have the same bits; with another they agree to rounding.", ""},
      {MEGATRON_KEY(run, native_16bit), one_of(names_of(kNative16Bit)), "", "",
       "Multiply bf16 matrices by the CPU's own instructions for them (amx_bf16, avx512_bf16) instead of widening them "
       "to fp32. auto: where that is faster. All ranks must do the same (docs/precision.md).",
       ""},
      {MEGATRON_KEY(run, log_every), from_to(1, kMaxSteps), "updates", "",
       "Interval between progress lines. The loss of a line is the mean since the line before.", ""},
      {MEGATRON_KEY(run, metrics_every), from_to(0, kMaxSteps), "updates", "",
       "Interval between training lines in metrics.jsonl, which hold means in the same way. 1: every step; 0: as "
       "log_every.",
       ""},
      {MEGATRON_KEY(run, tensorboard), any(), "", "",
       "Write what metrics.jsonl gets as TensorBoard events as well, into the folder tensorboard of run.directory.",
       ""},
      {MEGATRON_KEY(run, parameter_norm), any(), "", "",
       "Write the L2 norm of all trained parameters into the training lines of metrics.jsonl. A step with such a line "
       "reads every parameter once more and waits for its update.",
       ""},
      {MEGATRON_KEY(run, trace_steps), noted(from_to(1, kMaxSteps), "[first, last], within the run"), "updates", "none",
       "Record these steps on all ranks, and write what each rank did when to trace.json of run.directory, for "
       "https://ui.perfetto.dev (docs/watching_runs.md).",
       ""},
      {MEGATRON_KEY(run, trace_events), noted(from_to(1, 1e8), "with trace_steps only"), "events per rank", "",
       "Room for what is recorded, 64 bytes each. What comes when it is full is counted and left out.", ""},
      {MEGATRON_KEY(run, max_minutes), from_to(0, 1e9), "minutes", "",
       "Time limit: save and stop (exit code 75) before the program has run this long. 0: no limit.", ""},
      {MEGATRON_KEY(run, hang_minutes), from_to(0, 1e6), "minutes", "",
       "Maximum time of a rank in one operation, such as one communication or writing one file. After it the "
       "program prints what each rank is doing and ends with exit code 6. 0: no limit.",
       ""},
  };
}

}  // namespace megatron
