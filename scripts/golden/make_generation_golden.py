#!/usr/bin/env python3
"""Makes tests/golden/generation.json: what transformers generates with the model of tests/golden/evaluation.

Usage: python3 scripts/golden/make_generation_golden.py [tests/golden]      (torch, transformers; half a minute)

Greedy texts, with and without a repetition penalty, and beams with their scores, in float64, so that rounding decides
nothing. A case that float32 could decide otherwise is left out: two best continuations whose logits are close.
A text ends with the token END, which the model likes well enough for some beams to end early.
"""

import json
import sys

import torch
import transformers

END = 310
NEW_TOKENS = 12
PROMPTS = [[50], [40, 41, 42], [7, 90, 12, 33, 64], [70, 71, 3, 9, 11, 200, 34, 17, 100, 25, 26]]
CLOSE = 1e-4


def clear_cut(model, prompt, tokens, penalty):
    """Whether each chosen token's logit is well above the next one's."""
    logits = model(torch.tensor([prompt + tokens])).logits[0]
    for place in range(len(tokens)):
        row = logits[len(prompt) + place - 1].clone()
        for token in set((prompt + tokens)[: len(prompt) + place]):
            row[token] = row[token] / penalty if row[token] > 0 else row[token] * penalty
        best = row.topk(2).values
        if best[0] - best[1] < CLOSE:
            return False
    return True


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else "tests/golden"
    model = transformers.GPT2LMHeadModel.from_pretrained(f"{folder}/evaluation").double().eval()
    vocab = model.config.vocab_size
    cases = []
    for prompt in PROMPTS:
        prompt = [token % vocab for token in prompt]
        given = torch.tensor([prompt])
        common = dict(max_new_tokens=NEW_TOKENS, do_sample=False, eos_token_id=END, pad_token_id=0,
                      attention_mask=torch.ones_like(given))  # fmt: skip
        for penalty in (1.0, 1.3):
            tokens = model.generate(given, repetition_penalty=penalty, **common)[0, len(prompt):].tolist()
            if clear_cut(model, prompt, tokens, penalty):
                cases.append({"prompt": prompt, "penalty": penalty, "tokens": tokens})
        for beams in (2, 3, 5):
            for length_penalty in (0.0, 1.0, 2.0):
                result = model.generate(given, num_beams=beams, num_return_sequences=beams, early_stopping=False,
                                        length_penalty=length_penalty, return_dict_in_generate=True,
                                        output_scores=True, **common)  # fmt: skip
                scores = result.sequences_scores.tolist()
                texts = []
                for row in result.sequences[:, len(prompt):].tolist():
                    texts.append(row[: row.index(END)] if END in row else row[:NEW_TOKENS])
                if all(a - b > CLOSE for a, b in zip(scores, scores[1:])):
                    cases.append({"prompt": prompt, "beams": beams, "length_penalty": length_penalty, "texts": texts,
                                  "scores": scores})  # fmt: skip
    with open(f"{folder}/generation.json", "w", encoding="utf-8") as file:
        json.dump({"end": END, "new_tokens": NEW_TOKENS, "cases": cases}, file)
        file.write("\n")
    for case in cases:
        print(json.dumps(case))


if __name__ == "__main__":
    main()
