#!/usr/bin/env python3
"""Makes tests/golden/evaluation: a tiny GPT-2 of transformers, a file for each evaluation task, and their results.

Usage: python3 scripts/golden/make_evaluation_golden.py [tests/golden/evaluation]  (torch, transformers, tokenizers; a minute)

The model is trained for a moment on the texts that it is asked about, so that some of its answers are right. Its
vocabulary is tests/golden/bpe. results.json: for each case the options and what evaluation_oracle.py computes.
"""

import json
import os
import sys

import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "oracles"))
import evaluation_oracle  # noqa: E402

CONTEXT = 40
BPE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tests", "golden", "bpe")

WIKI = """ 
 = The Harbour Mill = 
 
 The Harbour Mill is a tide mill on the north shore of the bay , built in 1 @,@ 742 by two brothers ' guild . It is
 the oldest of three ( the others were lost ) , and has a 2 @.@ 5 m wheel . The mill 's owner said : " It turns twice
 a day ; nobody asks why . " 
 
 = = Works = = 
 
 = = = Wheel = = = 
 
 The low @-@ lying wheel was set at 30 \u00b0 to the stream ! Was it wise ? [ no one knows ] About N men worked there ,
 and { perhaps } more . <unk> wrote of ' the old wheel ' , which the sea took . 
 The mill is on the north shore of the bay . The mill is on the north shore of the bay . 
"""

STORIES = [
    "She looked for the mill on the north shore, and at last she found the mill",
    "The tide turned the wheel. The wheel turned the stone. The stone made the flour. The tide turned the wheel",
    "He asked the owner of the mill who had built it, and the owner named two brothers",
    "They walked along the bay until the bay ended, and there they slept, dreaming of nothing but the bay",
    "The sea took the old wheel, they said, and nobody in the village had seen it take the wheel; only the sea",
    "na\u00efve caf\u00e9 talk about the na\u00efve caf\u00e9",
    "Bread",
    "  The wheel was wise; who knows why?  A wheel is a wheel \n",
]

QUESTIONS = [
    ("The mill stands on the north", ["shore of the bay", "side", "wind blew"], 0),
    ("The tide turned the", ["stone", "wheel", "sea, and after it all the others of the village"], 1),
    ("Question: who built the mill?\nAnswer: ", ["two brothers", "the sea"], 0),
    ("The sea took the old", [" wheel", " mill", " men of the village", " \u00e9"], 0),
    ("A very long beginning that does not fit into the context of the model, " * 4 + "ends with the old", ["wheel", "bay"], 1),
    ("He asked the owner", ["of the mill", "of the bay", "who had built it"], 2),
]


def main():
    target = sys.argv[1] if len(sys.argv) > 1 else "tests/golden/evaluation"
    os.makedirs(target, exist_ok=True)
    tokenizer = Tokenizer(models.BPE.from_file(f"{BPE}/vocab.json", f"{BPE}/merges.txt"))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    encode = lambda text: tokenizer.encode(text, add_special_tokens=False).ids if text else []

    def write(name, text):
        with open(f"{target}/{name}", "w", encoding="utf-8", newline="") as file:
            file.write(text)

    stories = [story for story in STORIES if len(encode(story)) > 1]
    write("wiki.txt", WIKI)
    write("lambada.jsonl", "".join(json.dumps({"text": story}) + "\n" for story in stories))
    write("choices.jsonl", "".join(json.dumps({"context": c, "choices": list(o), "answer": a}) + "\n" for c, o, a in QUESTIONS))

    transformers.set_seed(3)
    config = transformers.GPT2Config(vocab_size=tokenizer.get_vocab_size(), n_embd=16, n_layer=2, n_head=2,
                                     n_positions=CONTEXT, bos_token_id=None, eos_token_id=None, resid_pdrop=0.0,
                                     embd_pdrop=0.0, attn_pdrop=0.0)  # fmt: skip
    model = transformers.GPT2LMHeadModel(config)
    texts = [encode(text) for text in [evaluation_oracle.detokenize(WIKI), *stories]]
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(60):
        loss = sum(model(torch.tensor([text[:CONTEXT]]), labels=torch.tensor([text[:CONTEXT]])).loss for text in texts)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    model.save_pretrained(target)
    for name in os.listdir(target):
        if name == "generation_config.json":
            os.remove(f"{target}/{name}")
    cases = evaluation_oracle.all_results(model.double(), encode, target, CONTEXT, tokenizer.token_to_id("<|endoftext|>"))
    write("results.json", json.dumps(cases, indent=1) + "\n")
    print(json.dumps(cases, indent=1))


if __name__ == "__main__":
    main()
